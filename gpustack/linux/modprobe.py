"""modprobe's configuration: the statements about each module, with file and line; and parameters with lists of values.

Rules of ``modprobe.d(5)`` and kmod's ``libkmod-config.c``: the ``*.conf`` files of all directories are read in the
order of their names. Of files with the same name, the one in the earlier directory is used. A line that starts with
``#`` is a comment, a backslash at the end continues a line, ``-`` and ``_`` are equal in module names. The options of
a module are concatenated in that order; for most parameters, the kernel uses the last one. The kernel's command line is
not read here (:mod:`gpustack.prepare.host.foreign_config`).

``intel_iommu=sm_on,on`` enables the IOMMU as ``intel_iommu=on`` does. The kernel evaluates all occurrences of such a
parameter, splits them at commas, and compares only the start of each word: ``intel_iommu_setup``
(``drivers/iommu/intel/iommu.c``), ``parse_amd_iommu_options`` (``drivers/iommu/amd/init.c``), ``iommu_setup``
(``arch/x86/kernel/pci-dma.c``), ``setup_irqremap`` (``drivers/iommu/irq_remapping.c``). Of a module's parameter, the
last occurrence is effective (``kernel/params.c``). This module requires the exact word to enable a switch, but accepts
a prefix to disable it, so that doubtful words count as "off".
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import PurePosixPath

from gpustack.base.by_key import by_key
from gpustack.linux.cmdline import Argument, CommandLine, argument, canonical, same_name
from gpustack.linux.drivers import IDS_ARGUMENTS

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
        words = list(filter(None, re.split("[ \t]", line)))  # for kmod, a carriage return is part of its word
        if len(words) < 2 or words[0] not in _COMMANDS:
            continue
        command, module, *arguments = words
        if command == "alias":
            if not arguments:
                continue
            module, arguments = arguments[0], [module]
        else:  # the kernel and the shell split at all white space
            arguments = " ".join(arguments).split()
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


_LAST_WORD = {"iommu": "usedac"}  # iommu_setup returns there
_OFF_FOR_GOOD = ("off", "soft")  # of iommu=: no later word enables the IOMMU again


@dataclass(frozen=True, kw_only=True)
class Switch:
    """A feature that words of a kernel parameter enable or disable; the last word is effective.

    :ivar name: the parameter.
    :ivar on: the word that enables the feature.
    :ivar off: the start of words that disable it.
    :ivar boolean: another parameter for the same feature, with a boolean value.
    """

    name: str
    on: str
    off: str
    boolean: str | None = None


INTEL_IOMMU = Switch(name="intel_iommu", on="on", off="off")
PASSTHROUGH = Switch(name="iommu", on="pt", off="nopt", boolean="iommu.passthrough")
REMAPPING = Switch(name="intremap", on="on", off="off")
_SWITCHES = {f"{switch.name}={switch.on}": switch for switch in (INTEL_IOMMU, PASSTHROUGH)}


def words(argument: Argument) -> Iterator[str]:
    """The words of an argument's list, up to the last one that the kernel evaluates."""
    for word in (argument.value or "").split(","):
        yield word
        if word.startswith(_LAST_WORD.get(argument.name, "\0")):
            return


def truth(value: str | None) -> bool | None:
    """Parse a boolean by its first letters, as ``kstrtobool`` does; None if invalid."""
    text = (value or "").lower()
    if text.startswith(("y", "t", "1", "on")):
        return True
    return False if text.startswith(("n", "f", "0", "of")) else None


def switched(arguments: Iterable[Argument], switch: Switch) -> bool | None:
    """The state of a switch after all arguments; None if they do not set it."""
    state = None
    for parameter in arguments:
        if switch.boolean is not None and parameter.is_for(switch.boolean):
            is_on = truth(parameter.value)
            state = state if is_on is None else is_on
        elif parameter.is_for(switch.name):
            for word in words(parameter):
                if word == switch.on:
                    state = True
                elif word.startswith(switch.off):
                    state = False
    return state


def fulfils(line: CommandLine, wanted: str) -> bool:
    """Whether a command line has the effect of the argument ``wanted``."""
    required = argument(wanted)
    if (switch := _SWITCHES.get(wanted)) is not None:
        return switched(line.arguments, switch) is True
    if any(same_name(required.name, name) for name in IDS_ARGUMENTS):
        last = line.last(required.name)
        return last is not None and _listed(last) == _listed(required)
    return line.has(wanted)


def contradicts(parameter: Argument, wanted: str) -> bool:
    """Whether an argument disables the feature that ``wanted`` enables, or disables the IOMMU for good."""
    switch = _SWITCHES.get(wanted)
    if switch is PASSTHROUGH and any(word.startswith(_OFF_FOR_GOOD) for word in words(parameter)):
        return True
    return switch is not None and switched([parameter], switch) is False


def _listed(parameter: Argument) -> frozenset[str]:
    return frozenset(word.lower() for word in (parameter.value or "").split(",") if word)
