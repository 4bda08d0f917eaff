"""Reading the nova configuration that is there, by oslo.config's own rules, with the file and line of each value.

oslo.config's parser reads the files (``oslo_config/iniparser.py``), so what counts as a comment, a continuation or a
quoted value is its decision. What this module adds are the line numbers, and the merging of several files and
deprecated names as ``oslo_config/cfg.py`` does it (``_Namespace._get_file_value``): a multi-valued option adds up over
all files and names, every other option is what the last file says.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from oslo_config import iniparser

from gpustack.errors import NovaConfigError
from gpustack.novaconf.releases import Option

_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One assignment in a file.

    :ivar group: the section's name as oslo.config compares it: in lower case, ``DEFAULT`` aside.
    :ivar value: the value as the service sees it: continuation lines joined by newlines, outer quotes taken off.
    :ivar line: the number of the line on which the assignment begins.
    """

    group: str
    name: str
    value: str
    file: str
    line: int

    @property
    def path(self) -> str:
        """``group/name``."""
        return f"{self.group}/{self.name}"

    @property
    def place(self) -> str:
        """``file:line``, for messages."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The files that one service reads, in the order in which it reads them."""

    files: tuple[str, ...]
    settings: tuple[Setting, ...]

    def all(self, option: Option) -> tuple[Setting, ...]:
        """Every assignment of an option under its current or a deprecated name, in the order of the files."""
        names = {option.path, *option.old_names}
        return tuple(setting for setting in self.settings if setting.path in names)

    def effective(self, option: Option) -> tuple[Setting, ...]:
        """The assignments that count: all of a multi-valued option, in the service's order; else one or none."""
        names = (option.path, *option.old_names)
        found: list[Setting] = []
        for file in reversed(self.files):
            for name in names:
                here = [s for s in self.settings if s.file == file and s.path == name]
                if here and option.kind != "multi":
                    return (here[-1],)
                found = here + found
        return tuple(found)

    def value(self, option: Option) -> str | None:
        """The value of an option as the service has it; None when it is not set.

        References to what the files say are filled in (``$my_ip``, ``${database.connection}``), and ``$$`` stands for a
        dollar sign, as ``ConfigOpts._substitute`` of oslo.config has it. What they don't say stays as it is written.
        """
        settings = self.effective(option)
        return _References(self).filled(settings[-1].value, option.group) if settings else None

    def enabled(self, option: Option) -> bool:
        """Whether a boolean option is on, by the words that oslo.config takes; off when it is not set."""
        settings = self.effective(option)
        return bool(settings) and settings[-1].value.strip().lower() in ("true", "1", "on", "yes")


class _Template(string.Template):
    idpattern = r"[_a-z][\._a-z0-9]*"


class _References:
    """What references in values lead to."""

    def __init__(self, configuration: Configuration, depth: int = 8) -> None:
        self._said = {(setting.group, setting.name): setting.value for setting in configuration.settings}
        self._depth = depth
        self._group = "DEFAULT"

    def filled(self, text: str, group: str) -> str:
        before, self._group, self._depth = self._group, group, self._depth - 1
        try:
            return _Template(text.replace(r"\$", "$$")).safe_substitute(self)  # type: ignore[arg-type]
        finally:
            self._group, self._depth = before, self._depth + 1

    def __getitem__(self, name: str) -> str:
        group, _dot, option = name.rpartition(".")
        for place in (group,) if group else (self._group, "DEFAULT"):
            if self._depth and (place, option) in self._said:
                return self.filled(self._said[place, option], place)
        raise KeyError(name)


def read_files(paths: Sequence[Path]) -> Configuration:
    """Read files in the given order, as one service does that is started with them.

    :raises NovaConfigError: when a file can't be read or is no INI file; the message names file and line.
    """
    settings: list[Setting] = []
    for path in paths:
        settings += _settings_of(path)
    return Configuration(files=tuple(str(path) for path in paths), settings=tuple(settings))


def files_of(path: Path, *, service: str | None = None) -> tuple[Path, ...]:
    """The files that a path stands for.

    A file stands for itself. Of a directory that holds a ``nova.conf`` these are read, as a service finds them
    without ``--config-file`` (``oslo_config/cfg.py``, ``find_config_files`` and ``find_config_dirs``): ``nova.conf``,
    the service's own ``nova-SERVICE.conf``, then ``nova.conf.d/*.conf`` and ``nova-SERVICE.conf.d/*.conf``. Any other
    directory is taken as one given by ``--config-dir``: its ``*.conf`` in the order of their names.

    :raises NovaConfigError: when there is no such path, or nothing to read in it.
    """
    if path.is_file():
        return (path,)
    if not path.is_dir():
        raise NovaConfigError("there is no such file or directory", where=str(path))
    names = ["nova", *([f"nova-{service}"] if service else [])]
    main = [path / f"{name}.conf" for name in names if (path / f"{name}.conf").is_file()]
    if (path / "nova.conf").is_file():
        drop_ins = [file for name in names for file in _conf_files(path / f"{name}.conf.d")]
        return (*main, *drop_ins)
    found = _conf_files(path)
    if not found:
        raise NovaConfigError(
            "the directory holds no *.conf file", where=str(path), remedy="name the files, or their directory"
        )
    return found


def _conf_files(directory: Path) -> tuple[Path, ...]:
    return tuple(sorted(file for file in directory.glob("*.conf") if file.is_file()))


def _settings_of(path: Path) -> Iterable[Setting]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise NovaConfigError(f"the file is larger than {_MAX_BYTES} bytes", where=str(path))
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise NovaConfigError(f"the file is not UTF-8: {error.reason}", where=str(path)) from error
    except OSError as error:
        raise NovaConfigError(f"can't be read: {error.strerror}", where=str(path)) from error
    parser = _Parser(str(path))
    try:
        parser.parse(text.splitlines(keepends=True))
    except iniparser.ParseError as error:
        raise NovaConfigError(
            error.msg, where=f"{path}:{error.lineno}", remedy="the service would not start with this file"
        ) from error
    return parser.settings


class _Parser(iniparser.BaseParser):
    """oslo.config's parser, noting the line on which each assignment begins."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
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
        self.settings.append(
            Setting(group=self._group, name=key, value="\n".join(value), file=self.file, line=self._line)
        )
