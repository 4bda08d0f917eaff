"""modprobe's configuration: the statements about each module, with file and line.

Rules of ``modprobe.d(5)`` and kmod's ``libkmod-config.c``: the ``*.conf`` files of all directories are read in the
order of their names. Of files with the same name, the one in the earlier directory is used. A line that starts with
``#`` is a comment, a backslash at the end continues a line, ``-`` and ``_`` are equal in module names. The options of
a module are concatenated in that order; for most parameters, the kernel uses the last one. The kernel's command line is
not read here (:mod:`gpustack.prepare.host.foreign_config`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import PurePosixPath

from gpustack.base.by_key import by_key
from gpustack.linux.cmdline import CommandLine, canonical, same_name

DIRECTORIES = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
_COMMANDS = frozenset({"alias", "blacklist", "install", "options", "remove", "softdep", "weakdep"})


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement.

    :ivar command: ``alias``, ``blacklist``, ``install``, ``options``, ``remove``, ``softdep`` or ``weakdep``.
    :ivar module: the module's name, not canonicalized; for ``alias``, the module that the alias refers to.
    :ivar words: the remaining words; for ``alias``, the alias itself.
    """

    command: str
    module: str
    words: tuple[str, ...]
    file: str
    line: int

    @property
    def place(self) -> str:
        """``/etc/modprobe.d/vfio.conf:3``."""
        return f"{self.file}:{self.line}"

    @property
    def does_nothing(self) -> bool:
        """Whether this is an ``install`` statement that prevents loading: ``/bin/false``, ``true``."""
        return self.command == "install" and PurePosixPath(*self.words[:1]).name in ("true", "false", ":")

    def __str__(self) -> str:
        return " ".join((self.command, self.module, *self.words))


@dataclass(frozen=True, kw_only=True)
class ModuleOption:
    """The value of a module parameter, with file and line (``place``)."""

    name: str
    value: str | None
    place: str


@dataclass(frozen=True, kw_only=True)
class ModprobeConfig:
    """All statements, in modprobe's order."""

    statements: tuple[Statement, ...]

    @cached_property
    def _by_module(self) -> Mapping[tuple[str, str], list[Statement]]:
        return by_key(((entry.command, canonical(entry.module)), entry) for entry in self.statements)

    def about(self, command: str, module: str) -> tuple[Statement, ...]:
        """The statements with a command about a module. In ``install`` and ``softdep``, names are patterns."""
        name = canonical(module)
        if command in ("install", "softdep"):
            return tuple(s for s in self.statements if s.command == command and fnmatchcase(name, canonical(s.module)))
        return tuple(self._by_module.get((command, name), ()))

    def options(self, module: str) -> tuple[ModuleOption, ...]:
        """The options of a module, in order."""
        return tuple(
            ModuleOption(name=setting.name, value=setting.value, place=statement.place)
            for statement in self.about("options", module)
            for setting in CommandLine.of(statement.words).arguments  # the kernel's quotes: ids="10de:11b4, 10de:0e0a"
        )

    def option(self, module: str, name: str) -> tuple[ModuleOption, ...]:
        """All settings of one parameter of a module, in order."""
        return tuple(option for option in self.options(module) if same_name(option.name, name))


def paths(files: Mapping[str, object]) -> tuple[str, ...]:
    """The paths of ``files`` that modprobe reads, in its order."""
    chosen: dict[str, str] = {}
    for directory in DIRECTORIES:
        for path in files:
            location = PurePosixPath(path)
            if str(location.parent) == directory and path.endswith(".conf"):
                chosen.setdefault(location.name, path)
    return tuple(path for _, path in sorted(chosen.items()))


def read_modprobe(files: Mapping[str, str]) -> ModprobeConfig:
    """Read modprobe's files.

    :param files: texts by absolute path; other files are ignored.
    """
    return ModprobeConfig(
        statements=tuple(statement for path in paths(files) for statement in parse(files[path], path))
    )


def parse(text: str, file: str) -> Iterator[Statement]:
    """The statements of one file, without lines that modprobe ignores."""
    for number, line in _lines(text):
        words = line.split()
        if len(words) < 2 or words[0] not in _COMMANDS:
            continue
        command, module, *arguments = words
        if command == "alias":
            if not arguments:
                continue
            module, arguments = arguments[0], [module]
        yield Statement(command=command, module=module, words=tuple(arguments), file=file, line=number)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    joined = ""
    for number, line in enumerate(text.split("\n"), 1):
        start = start or number
        if line.endswith("\\"):
            joined += line[:-1]
            continue
        statement = joined + line
        if not statement.lstrip(" \t").startswith("#"):
            yield start, statement
        start, joined = 0, ""
    if joined:
        yield start, joined
