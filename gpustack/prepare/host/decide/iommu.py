"""The kernel arguments that enable the IOMMU, and other settings that contradict them.

``Documentation/admin-guide/kernel-parameters.txt`` describes them; :mod:`gpustack.linux.modprobe` evaluates
their lists.
"""

from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, finding
from gpustack.hosts.facts.model import Host
from gpustack.linux.modprobe import INTEL_IOMMU, PASSTHROUGH, REMAPPING, switched, truth, words
from gpustack.prepare.host.foreign_config import Elsewhere
from gpustack.spec.model import Options

UNSAFE_INTERRUPTS = "vfio_iommu_type1.allow_unsafe_interrupts"
NAMES = ("intel_iommu", "iommu", UNSAFE_INTERRUPTS)
"""The parameters that gpustack sets for the IOMMU."""


def kind(host: Host) -> str | None:
    """``intel``, ``amd``, ``arm`` (SMMU) or None: by the firmware's tables, else by the processor's vendor."""
    if "DMAR" in host.iommu.acpi_tables:
        return "intel"
    if "IVRS" in host.iommu.acpi_tables:
        return "amd"
    if host.architecture == "aarch64" and "IORT" in host.iommu.acpi_tables:
        return "arm"
    return {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "amd"}.get(host.cpu.vendor or "")


def arguments(host: Host, options: Options) -> tuple[str, ...]:
    """The IOMMU's arguments, which must be on the command line, from any configuration."""
    return (
        *(["intel_iommu=on"] if kind(host) == "intel" else []),
        # The kernel enables an SMMU without an argument, and iommu= is a parameter of x86.
        *(["iommu=pt"] if options.iommu_pt and kind(host) != "arm" else []),
        *([f"{UNSAFE_INTERRUPTS}=1"] if options.allow_unsafe_interrupts else []),
    )


def findings(host: Host, options: Options, other: Elsewhere) -> Iterator[Finding]:
    """The settings that contradict the plan or have no effect, and what is unknown about the host's IOMMU."""
    for place, text, reason in contradictions(host, options, other):
        yield finding(Code.ARGUMENT_CONFLICTS, place=host.at(place), argument=text, reason=reason)
    for word, argument, place in _words(other, "amd_iommu"):
        if word == "on":
            yield finding(Code.ARGUMENT_WITHOUT_EFFECT, place=host.at(place), argument=argument)
    for sourced in other.all("pcie_acs_override"):
        yield finding(Code.ACS_OVERRIDE, place=host.at(sourced.place), argument=sourced.argument.text)
    unread = [f"{e.path}: {e.error}" for e in host.unread if e.path.startswith("/sys/firmware/acpi")]
    if not host.iommu.units and not host.iommu.acpi_tables:
        # NO_IOMMU reports a firmware that announces none.
        if unread:
            yield finding(Code.IOMMU_TABLES_UNREADABLE, place=host.hostname, paths="; ".join(unread))
    elif kind(host) is None:
        units = ", ".join(host.iommu.units or host.iommu.acpi_tables)
        yield finding(Code.IOMMU_KIND_UNKNOWN, place=host.hostname, units=units)


def _words(other: Elsewhere, name: str) -> Iterator[tuple[str, str, str]]:
    """Word, argument and place of each comma-separated word in all occurrences of a parameter."""
    for sourced in other.all(name):
        for word in words(sourced.argument):
            yield word, sourced.argument.text, sourced.place


def contradictions(host: Host, options: Options, other: Elsewhere) -> Iterator[tuple[str, str, str]]:
    """The kernel arguments and modprobe options of others that contradict the plan: place, text and reason."""
    off = "it switches the IOMMU off"
    sticky = {
        "amd_iommu": {"off": off},
        "iommu": {"off": off, "soft": "it has DMA copied by software instead of the IOMMU"},
    }
    switches = {INTEL_IOMMU: off}
    if options.iommu_pt:
        switches[PASSTHROUGH] = "it contradicts iommu=pt, which options.iommu_pt asks for"
    if not options.allow_unsafe_interrupts:
        switches[REMAPPING] = "it switches interrupt remapping off"
        sticky["nointremap"] = {"": switches[REMAPPING]}
    if kind(host) == "intel":  # each vendor's driver ignores the other one's parameter
        del sticky["amd_iommu"]
    elif kind(host) == "amd":
        del switches[INTEL_IOMMU]
    elif kind(host) == "arm":  # all of them are parameters of x86
        sticky, switches = {}, {}
    for name, reasons in sticky.items():
        for word, argument, place in _words(other, name):
            for beginning, reason in reasons.items():
                if word.startswith(beginning):
                    yield place, argument, reason
    for switch, reason in switches.items():
        for sourced in other.arguments or ():
            if switched([sourced.argument], switch) is False:
                yield sourced.place, sourced.argument.text, reason
    yield from _unsafe_elsewhere(options, other)


def _unsafe_elsewhere(options: Options, other: Elsewhere) -> Iterator[tuple[str, str, str]]:
    module, _, name = UNSAFE_INTERRUPTS.partition(".")
    settings = [(s.argument.value, s.argument.text, s.place) for s in other.all(UNSAFE_INTERRUPTS)]
    for option in other.modprobe.option(module, name):
        assignment = "" if option.value is None else f"={option.value}"
        settings.append((option.value, f"options {module} {name}{assignment}", option.place))
    for value, text, place in settings:
        allowed = value is None or truth(value) is True
        if allowed is not options.allow_unsafe_interrupts:
            wish = "does not allow it" if allowed else "asks for the opposite"
            yield place, text, f"the spec {wish} (options.allow_unsafe_interrupts)"
