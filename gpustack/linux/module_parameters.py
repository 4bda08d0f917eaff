"""Evaluate kernel parameters with lists of values as the kernel does.

``intel_iommu=sm_on,on`` enables the IOMMU as ``intel_iommu=on`` does. The kernel evaluates all occurrences of such a
parameter, splits them at commas, and compares only the start of each word: ``intel_iommu_setup``
(``drivers/iommu/intel/iommu.c``), ``parse_amd_iommu_options`` (``drivers/iommu/amd/init.c``), ``iommu_setup``
(``arch/x86/kernel/pci-dma.c``), ``setup_irqremap`` (``drivers/iommu/irq_remapping.c``). Of a module's parameter, the
last occurrence is effective (``kernel/params.c``). This module requires the exact word to enable a switch, but accepts
a prefix to disable it, so that doubtful words count as "off".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpustack.linux.cmdline import Argument, CommandLine, argument, same_name
from gpustack.linux.drivers import IDS_ARGUMENTS

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
