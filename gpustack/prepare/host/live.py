"""Bind cards on the running host, without a reboot, and report why others can't be bound.

A card is unbound from its host driver only if it has no users: an unbind of a device in use can hang in the kernel, or
remove the console. The running kernel must already have the desired arguments, an active IOMMU and the drivers.
"""

from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.operations import BindLive, Moved
from gpustack.hosts.facts.model import Function, Host
from gpustack.linux.cmdline import canonical
from gpustack.linux.drivers import BY_ID, is_held
from gpustack.prepare.host.decide.virtual_functions import fault
from gpustack.prepare.host.desired import Desired
from gpustack.prepare.host.next_boot.reboot import argument_reasons
from gpustack.spec.assignment import Assigned
from gpustack.spec.model import Options

# Boot framebuffers in /proc/iomem: they keep the card's memory even after its driver is unbound.
_FRAME_BUFFERS = frozenset({"BOOTFB", "efifb", "vesafb", "simplefb", "simple-framebuffer", "simpledrm"})


def bind_live(host: Host, desired: Desired, options: Options) -> tuple[tuple[BindLive, ...], tuple[Finding, ...], Host]:
    """Bind the cards that can be bound now: the operations, why others require a reboot, and the facts afterwards."""
    waiting = [target for target in desired.targets.all if any(True for _ in _missing(target))]
    findings = [*_virtual_functions(host, desired)]
    if not waiting:
        return (), tuple(findings), host
    if obstacles := tuple(_against_host(host, desired, options)):
        return (), (*obstacles, *findings), host
    operations: list[BindLive] = []
    for target in waiting:
        held = [*_against(host, target)]
        findings += held
        if not held:
            operations.append(_bind(target))
    bound = {m.address: {"driver": op.driver, "driver_override": op.driver} for op in operations for m in op.functions}
    pci = (function.model_copy(update=bound.get(function.address)) for function in host.pci)
    return tuple(operations), tuple(findings), host.with_pci(pci)


def _virtual_functions(host: Host, desired: Desired) -> Iterator[Finding]:
    """The shared cards whose virtual functions a boot creates."""
    for card in (card for card in desired.targets.shared if card.is_created):
        if (reason := fault(host, card)) is not None:
            yield finding(Code.LIVE_VIRTUAL_FUNCTIONS, place=host.at(card.address), reason=reason)


def _missing(target: Assigned) -> Iterator[Function]:
    """The functions of a card that are not bound to their driver."""
    return (function for function in target.gpu.functions if not is_held(function.driver, target.driver_of(function)))


def _bind(target: Assigned) -> BindLive:
    # Audio and USB functions depend on the display function (drivers/pci/quirks.c, quirk_gpu_hda): unbind them first.
    ordered = sorted(_missing(target), key=lambda f: (f.address == target.address, f.bdf))
    names = sorted({function.driver or "no driver" for function in ordered})
    return BindLive(
        why=f"nothing uses it, and it is on {', '.join(names)} instead of {target.driver}",
        card=target.address,
        driver=target.driver,
        functions=tuple(
            Moved(address=f.address, before=f.driver, vendor=f.vendor, product=f.product, pci_class=f.pci_class)
            for f in ordered
        ),
    )


def _against_host(host: Host, desired: Desired, options: Options) -> Iterator[Finding]:
    """The findings about the running host that prevent live binding."""
    place = host.hostname
    different = "; ".join(argument_reasons(host, desired))
    if host.kernel.command_line is None:
        different = "the arguments of the running kernel are unknown"
    if different:
        yield finding(Code.LIVE_ARGUMENTS_DIFFER, place=place, different=different)
    if not host.iommu.units:
        yield finding(Code.LIVE_IOMMU_INACTIVE, place=place, what="the IOMMU is inactive")
    elif not host.iommu.interrupt_remapping and not (options.allow_unsafe_interrupts and host.iommu.unsafe_interrupts):
        yield finding(Code.LIVE_IOMMU_INACTIVE, place=place, what="interrupts are not remapped")
    running = next((k for k in host.boot.kernels if k.release == host.kernel.release), None)
    for driver in sorted({driver for _, driver in desired.targets.functions.values()}):
        if running is None or canonical(driver) not in running.modules:
            release = host.kernel.release or "of an unknown release"
            yield finding(Code.LIVE_DRIVER_MISSING, place=place, release=release, driver=driver)


def _against(host: Host, target: Assigned) -> Iterator[Finding]:
    """The findings that prevent live binding of a card; empty if it is not in use."""
    variants = sorted({driver for f in _missing(target) if (driver := target.driver_of(f)) not in BY_ID})
    if variants:
        yield finding(Code.LIVE_VARIANT_DRIVER, place=host.at(target.address), drivers=", ".join(variants))
        return
    for function in _missing(target):
        place = host.at(function.address)
        held = [*(function.holders or ())]
        held += [f"{claim} draws on it" for claim in function.claims if claim in _FRAME_BUFFERS]
        held += [f"virtual functions are enabled: {function.sriov_numvfs}"] * (
            bool(function.sriov_numvfs) and not any("virtual functions" in text for text in held)
        )
        if held:
            yield finding(Code.FUNCTION_IN_USE, place=place, held="; ".join(held))
        elif function.driver is not None and function.holders is None:
            yield finding(Code.FUNCTION_USE_UNKNOWN, place=place, driver=function.driver)
