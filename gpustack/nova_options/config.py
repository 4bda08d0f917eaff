"""Read Nova configuration files by oslo.config's rules, with the file and line of each value.

oslo.config's parser reads the files (``oslo_config/iniparser.py``), so comments, continuation lines and quotes follow
its rules. This module adds line numbers, and merges several files and deprecated names as ``oslo_config/cfg.py`` does
(``_Namespace._get_file_value``): a multi-valued option accumulates over all files and names; for every other option,
the last file decides.

Replace ``$name`` in values as oslo.config does (``oslo_config/cfg.py``, ``_substitute``).

``$name`` and ``${name}`` are replaced by the option of that name in the same group, else in ``DEFAULT``;
``$group.name`` by the option of another group. ``$$`` and ``\\$`` are a dollar sign. A ``$`` that begins no name stays.

Findings show values, so a reference to an option that can contain a password is replaced by ``***``, except in the
value of another such option, which no finding shows (:mod:`gpustack.nova_options.masking`).
"""

from __future__ import annotations

import errno
import io
import re
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import TypeVar

from oslo_config import iniparser

from gpustack.base.by_key import by_key
from gpustack.base.errors import NothingThereError, NovaConfigError, TemplateError
from gpustack.base.files import file_error, read_text
from gpustack.base.known_secrets import MASK
from gpustack.nova_options.markers import BLAZAR, own_lines
from gpustack.nova_options.masking import is_secret, of_table
from gpustack.nova_options.options import TRUE, Option

_P = TypeVar("_P", bound=PurePath)
_MAX_BYTES = 1 << 20
"""Per file; Nova's sample, with every option and its documentation, is shorter."""
_STATEMENT = re.compile(r"^(?:[^#;\n]*\{%|\s*\{#)", re.MULTILINE)
"""The start of a statement or a comment of Jinja."""
_BOM = "\ufeff"
_STOPS = "fix the file: a service that is started with it stops at once"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One assignment in a file.

    :ivar group: the section's name as oslo.config compares it: in lower case, except ``DEFAULT``.
    :ivar value: the value as the service sees it: continuation lines joined by newlines, outer quotes removed, and
        references to other options replaced by their values.
    :ivar line: the number of the line on which the assignment begins.
    :ivar written: the value before references are replaced.
    :ivar names: the options that the value references (``$name``).
    :ivar unknown: the referenced options that no file sets; their value is Nova's default.
    :ivar endless: whether the references lead back to themselves: oslo.config replaces them until Python stops it.
    :ivar key: the path of the value in a file that is not an INI file (``conf.nova.pci.alias``); empty for INI files.
    :ivar ours: whether gpustack wrote the line: the file, or the block that contains it.
    """

    group: str
    name: str
    value: str
    file: str
    line: int
    written: str
    names: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    key: str = ""
    ours: bool = False
    endless: bool = False

    @property
    def is_template(self) -> bool:
        """Whether the value is a Jinja expression of a deployment tool."""
        return "{{" in self.written

    @property
    def path(self) -> str:
        """``group/name``."""
        return f"{self.group}/{self.name}"

    @property
    def place(self) -> str:
        """``file:line`` or ``file:key``, for messages."""
        return f"{self.file}:{self.key or self.line}"


@dataclass(frozen=True, kw_only=True)
class NovaConfiguration:
    """The files that one service reads, in the order in which it reads them.

    :ivar overrides: whether a deployment tool merges the files into others that are not known.
    """

    files: tuple[str, ...]
    settings: tuple[Setting, ...]
    overrides: bool = False

    @cached_property
    def _by_place(self) -> dict[tuple[str, str], list[Setting]]:
        return by_key(((setting.file, setting.path), setting) for setting in self.settings)

    def all(self, option: Option) -> tuple[Setting, ...]:
        """Every assignment of an option under its current or a deprecated name, in the order of the files."""
        names = {option.path, *option.old_names}
        return tuple(setting for setting in self.settings if setting.path in names)

    def effective(self, option: Option) -> tuple[Setting, ...]:
        """The effective assignments: all of a multi-valued option, in the service's order; else one or none."""
        names = (option.path, *option.old_names)
        assignments: list[Setting] = []
        for file in reversed(self.files):
            for name in names:
                in_file = self._by_place.get((file, name), [])
                if in_file and option.kind != "multi":
                    return (in_file[-1],)
                assignments = in_file + assignments
        return tuple(assignments)

    def last(self, option: Option) -> Setting | None:
        """The assignment that decides; None when the option is not set."""
        return next(reversed(self.effective(option)), None)

    def value(self, option: Option) -> str | None:
        """The value of an option in the service; None when it is not set."""
        setting = self.last(option)
        return setting.value if setting else None

    @property
    def complete(self) -> bool:
        """Whether nova.conf itself is among the files: a drop-in alone leaves open what it does not set."""
        return not self.overrides and any(PurePath(file).name == "nova.conf" for file in self.files)

    def named_last(self) -> NovaConfiguration:
        """The same files in the order that applies if ``--config-file`` names those that are not drop-ins.

        oslo.config reads the default drop-in directories before the files of the command line
        (``oslo_config/cfg.py``, ``ConfigOpts._parse_config_files``).
        """
        return replace(self, files=tuple(sorted(self.files, key=lambda file: not in_drop_in(file))))

    def enabled(self, option: Option) -> bool:
        """Whether a boolean option is on, by the words that oslo.config accepts; off when it is not set."""
        return (self.value(option) or "").lower() in TRUE


def foreign(settings: Iterable[Setting]) -> Iterator[Setting]:
    """The settings that gpustack did not write."""
    return (setting for setting in settings if not setting.ours)


def in_drop_in(file: str) -> bool:
    """Whether a file is in a drop-in directory."""
    return PurePath(file).parent.name.endswith(".conf.d")


def read_files(paths: Sequence[Path]) -> NovaConfiguration:
    """Read files in the given order, as a service that is started with them.

    :raises NovaConfigError: when a file can't be read or is no INI file; the message names file and line.
    """
    return parse_files({str(path): _text_of(path) for path in paths})


def parse_files(texts: Mapping[str, str]) -> NovaConfiguration:
    """Parse the texts of files by name, in the given order, as one service reads them. The disk is not accessed.

    :raises NovaConfigError: when a text is too long or is no INI file; the message names file and line.
    """
    settings = [setting for file, text in texts.items() for setting in _settings_of(file, text)]
    return NovaConfiguration(files=tuple(texts), settings=tuple(_filled(settings)))


def _filled(settings: Sequence[Setting]) -> Iterable[Setting]:
    """The settings with references to other options replaced."""
    substitution = _Substitution({setting.path: setting.written for setting in settings})
    for setting in settings:
        if setting.is_template:
            yield replace(setting, unknown=("{{ … }}",))
        elif "$" in setting.written:
            options = _Options(substitution, (setting.path,), secret=is_secret(setting.path))
            try:
                value = _substituted(setting.written, options)
            except TooLongError as error:
                problem = "options name one another ($name) until their values are over a MiB long"
                raise NovaConfigError(problem, where=setting.place, remedy=_STOPS) from error
            except EndlessError as error:
                yield replace(setting, names=error.args, unknown=error.args, endless=True)
                continue
            names, unknown = dict.fromkeys(options.named), dict.fromkeys(options.unknown)
            yield replace(setting, value=value, names=tuple(names), unknown=tuple(unknown))
        else:
            yield setting


def files_of(path: Path, *, service: str | None = None) -> tuple[Path, ...]:
    """The files that a service reads from a path.

    A file stands for itself. A directory with a ``nova.conf`` is read as by a service without ``--config-file``
    (``oslo_config/cfg.py``, ``find_config_files`` and ``find_config_dirs``): ``nova.conf``, the service's own
    ``nova-SERVICE.conf``, then ``nova.conf.d/*.conf`` and ``nova-SERVICE.conf.d/*.conf``. Any other directory is read
    as one of ``--config-dir``: its ``*.conf`` in the order of their names.

    :raises NovaConfigError: when there is no such path, or no ``*.conf`` in it.
    """
    if path.is_file():
        return (path,)
    if not path.is_dir():
        problem = "is neither a file nor a directory" if path.exists() else "there is no such file or directory"
        raise NothingThereError(problem, where=str(path), remedy="check the path")
    if not (files := selected((*path.glob("*.conf"), *path.glob("*.conf.d/*.conf")), path, service=service)):
        what = "the directory holds no *.conf file"
        raise NothingThereError(what, where=str(path), remedy="name the files, or their directory")
    return files


def selected(files: Collection[_P], directory: PurePath, *, service: str | None = None) -> tuple[_P, ...]:
    """The files of a directory that a service reads, in its order; :func:`files_of` lists the rules."""
    project = "placement" if service == "placement" else "nova"
    names = [project, *([f"{project}-{service}"] if service else [])]
    main = [file for name in names for file in files if file == directory / f"{name}.conf"]
    if any(file.name == f"{project}.conf" for file in main):
        return (*main, *[file for name in names for file in _conf_files(files, directory / f"{name}.conf.d")])
    return tuple(_conf_files(files, directory))


def _conf_files(files: Collection[_P], directory: PurePath) -> list[_P]:
    """The files that oslo.config's ``glob`` matches: no hidden files."""
    return sorted(
        file for file in files if file.parent == directory and file.suffix == ".conf" and not file.name.startswith(".")
    )


def _text_of(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():  # a directory, or a pipe that would block
            raise NovaConfigError("is no regular file", where=str(path), remedy=_STOPS)
        return read_text(path, _MAX_BYTES)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        what = f"the file is not UTF-8: {error.reason}"
        raise NovaConfigError(what, where=f"{path}:{line}", remedy=_STOPS) from error
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise _too_large(str(path)) from error
        raise file_error(NovaConfigError, "can't be read", path, error) from error


def _too_large(file: str) -> NovaConfigError:
    text = f"the file is larger than {_MAX_BYTES} bytes"
    return NovaConfigError(text, where=file, remedy="check the path: is it nova's?")


def _settings_of(file: str, text: str) -> Iterable[Setting]:
    if len(text) > _MAX_BYTES:
        raise _too_large(file)
    if statement := _STATEMENT.search(text):
        raise TemplateError(
            "the file is a Jinja template, which gpustack does not evaluate",
            where=f"{file}:{text.count(chr(10), 0, statement.end()) + 1}",
            remedy="name the file that the deployment tool makes of it, like /etc/kolla/nova-api/nova.conf",
        )
    parser = _Parser(file, own_lines(text))
    try:
        parser.parse(io.StringIO(text))  # unlike str.splitlines, no split at form feeds
    except iniparser.ParseError as error:
        problem = "the file begins with a byte order mark (BOM)" if text.startswith(_BOM) else error.msg
        raise NovaConfigError(problem, where=f"{file}:{error.lineno}", remedy=_STOPS) from error
    return parser.settings


class _Parser(iniparser.BaseParser):
    """oslo.config's parser, recording the line on which each assignment begins."""

    def __init__(self, file: str, ours: Sequence[bool]) -> None:
        super().__init__()
        self.file = file
        self.ours = ours
        self.settings: list[Setting] = []
        self._group: str | None = None
        self._line = 0

    def _split_key_value(self, line: str) -> tuple[str, list[str]]:
        self._line = self.lineno
        split: tuple[str, list[str]] = super()._split_key_value(line)
        return split

    def new_section(self, section: str) -> None:
        self._group = section if section == "DEFAULT" else section.lower()

    def assignment(self, key: str, value: list[str]) -> None:
        if self._group is None:
            raise iniparser.ParseError("Section must be started before assignment", self._line, key)
        ours = self.ours[self._line - 1]
        text = "\n".join(value).removesuffix(BLAZAR if ours else "")
        setting = Setting(group=self._group, name=key, value=text, written=text, file=self.file, line=self._line)
        self.settings.append(replace(setting, ours=ours))


_DEPTH = 64
"""Values may reference further options; Python also stops the service at references that are deeper."""

MOST = 1 << 20
"""Limit of the total length of all replaced references, in characters; real configurations need a few hundred."""


class TooLongError(ValueError):
    """Options reference one another until their values are longer than :data:`MOST`."""


class EndlessError(ValueError):
    """An option's references lead back to it, or are deeper than :data:`_DEPTH`."""


class _Substitution:
    """The values of one configuration, whose references are replaced up to a total length.

    :param values: the last value of each option in the files, by ``group/name``.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self._left = MOST

    def spend(self, text: str) -> None:
        """Subtract a replaced text from the remaining length.

        :raises TooLongError: when nothing remains.
        """
        self._left -= len(text) + 1
        if self._left < 0:
            raise TooLongError


class _Template(string.Template):
    idpattern = r"[_a-z][\._a-z0-9]*"


class _Options:
    """The values of options by ``group/name``, looked up from the last option of a chain; records the requested names.

    :param secret: whether the value that they become part of may contain a password.
    """

    def __init__(self, of: _Substitution, chain: tuple[str, ...], *, secret: bool) -> None:
        self.named: list[str] = []
        self.unknown: list[str] = []
        self._of = of
        self._group = chain[-1].partition("/")[0]
        self._chain = chain
        self._secret = secret

    def __getitem__(self, name: str) -> str:
        self.named.append(name)
        prefix, separator, option = name.partition(".")
        candidates = (f"{prefix}/{option}",) if separator else (f"{self._group}/{name}", f"DEFAULT/{name}")
        path = next((path for path in candidates if path in self._of.values), None)
        self._of.spend(name)
        if path is None:
            self.unknown.append(name)
            raise KeyError(name)
        if path in self._chain or len(self._chain) == _DEPTH:
            raise EndlessError(name)
        inner = _Options(self._of, (*self._chain, path), secret=self._secret)
        secret = not self._secret and of_table(path)
        text = _substituted(self._of.values[path], inner) if secret is False else MASK
        self._of.spend(text)
        self.unknown += [name] if secret is None else inner.unknown
        return text


def _substituted(value: str, options: _Options) -> str:
    """The value with references replaced.

    :raises TooLongError: when the total length exceeds :data:`MOST`.
    :raises EndlessError: when the references lead back to the option.
    """
    return _Template(value.replace(r"\$", "$$")).safe_substitute(options)  # type: ignore[arg-type]  # only read
