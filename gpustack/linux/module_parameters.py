"""What kernel parameters that take lists amount to, read as the kernel reads them.

``intel_iommu=sm_on,on`` switches the IOMMU on as ``intel_iommu=on`` does. The kernel goes through all occurrences of
such a parameter, word by word between commas, and compares only the beginning of each word: ``intel_iommu_setup``
(``drivers/iommu/intel/iommu.c``), ``parse_amd_iommu_options`` (``drivers/iommu/amd/init.c``), ``iommu_setup``
(``arch/x86/kernel/pci-dma.c``), ``setup_irqremap`` (``drivers/iommu/irq_remapping.c``). Of a module's parameter the
last occurrence counts (``kernel/params.c``). A word that merely begins with ``on`` is not relied on here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpustack.linux.cmdline import Argument, CommandLine, argument, same_name
from gpustack.linux.drivers import IDS_ARGUMENTS

_LAST_WORD = {"iommu": "usedac"}  # iommu_setup returns there


@dataclass(frozen=True, kw_only=True)
class Switch:
    """Something that words of a parameter switch on and off; the last of them counts.

    :ivar boolean: a parameter beside it that takes a boolean.
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
    """The words of an argument's list that the kernel reads."""
    for word in (argument.value or "").split(","):
        yield word
        if word.startswith(_LAST_WORD.get(argument.name, "\0")):
            return


def truth(value: str | None) -> bool | None:
    """A boolean as ``kstrtobool`` reads it: by its first letters; None where it is none."""
    text = (value or "").lower()
    if text.startswith(("y", "t", "1", "on")):
        return True
    return False if text.startswith(("n", "f", "0", "of")) else None


def switched(arguments: Iterable[Argument], switch: Switch) -> bool | None:
    """How arguments leave a switch; None when they do not touch it."""
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
    """Whether a command line makes the kernel do what the argument ``wanted`` asks of it."""
    required = argument(wanted)
    if (switch := _SWITCHES.get(wanted)) is not None:
        return switched(line.arguments, switch) is True
    if any(same_name(required.name, name) for name in IDS_ARGUMENTS):
        last = line.last(required.name)
        return last is not None and _listed(last) == _listed(required)
    return line.has(wanted)


def contradicts(parameter: Argument, wanted: str) -> bool:
    """Whether an argument switches off what ``wanted`` switches on."""
    switch = _SWITCHES.get(wanted)
    return switch is not None and switched([parameter], switch) is False


def _listed(parameter: Argument) -> frozenset[str]:
    return frozenset(word.lower() for word in (parameter.value or "").split(",") if word)
