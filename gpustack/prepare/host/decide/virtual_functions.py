"""Virtual functions that are created at boot: what the script of their unit gets, what it did, what prevents it.

Nothing here is specific to GPUs: a physical function of any class can be shared. The kernel creates virtual functions
only if the driver of the physical function supports that, and they disappear at the next boot.
"""

import re
from collections.abc import Iterable, Iterator

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.operations import counted
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.facts.vgpus import NVIDIA, owners
from gpustack.hosts.readiness.assessment import made_at_boot, of_instances, skipped_at_boot
from gpustack.linux.drivers import is_passthrough_driver
from gpustack.prepare.host.decide import vgpus
from gpustack.prepare.host.decide.addresses import kept_at_boot
from gpustack.prepare.host.foreign_config import elsewhere
from gpustack.prepare.host.own_files import is_ours
from gpustack.spec.assignment import Shared

_USER_SPACE = frozenset({"uio_pci_generic", "igb_uio"})
"""The drivers that give a card to a process, such as DPDK, besides vfio-pci."""
_ADDRESS = re.compile(r"\b[0-9a-f]{2}:[01][0-9a-f]\.[0-7]\b")
_OF_OTHERS = re.compile(r"^[^#\n]*(?:sriov_numvfs|sriov-manage)", re.MULTILINE)


def arguments(shared: Shared) -> tuple[str, ...]:
    """The arguments of one physical function in the script: address, expected ids, number, vGPU type."""
    function = shared.function
    if shared.vgpu is not None:
        return vgpus.arguments(shared, shared.vgpu)
    return (function.address, function.vendor, function.product, str(shared.count), str(shared.vgpu_type or "-"))


def described(shared: Shared) -> str:
    """The parts of a card, for a plan: ``2 vGPUs A16-8Q`` with the number of the type, if it is known."""
    if shared.vgpu is None:
        return counted(shared.count, "virtual function")
    number = f" (number {shared.vgpu_type})" if shared.vgpu_type is not None else ""
    mig = f" on GPU instances {shared.vgpu.mig}" if shared.vgpu.mig is not None else ""
    return f"{counted(shared.limit, 'vGPU') if shared.limit else 'vGPUs'} {shared.vgpu.type}{number}{mig}"


def fault(host: Host, shared: Shared) -> str | None:
    """The difference of a card's virtual functions from the spec; None if they are as planned.

    NVIDIA's host driver creates all that the card has.
    """
    number, function = shared.function.sriov_numvfs or 0, shared.function
    if shared.vgpu is not None:
        return vgpus.fault(host, shared, shared.vgpu)
    if number < shared.count or (number > shared.count and function.driver != NVIDIA):
        return f"{shared.address} has {counted(number, 'virtual function')} instead of {shared.count}"
    others = [part.address for part in shared.parts(host) if part.driver == NVIDIA and not shared.has_type(part)]
    return f"the vGPU type of {', '.join(others)} is not {shared.vgpu_type}" if others else None


def missing(host: Host, shared: Iterable[Shared]) -> Iterator[str]:
    """The physical functions whose virtual functions are not as planned, as reasons for a reboot."""
    for entry in shared:
        if (text := explained(host, entry)) is None:
            continue
        if entry.vgpu is None:
            yield text
        elif vgpus.needs_boot(host, entry, entry.vgpu):
            yield f"{entry.address}: {text}"


def explained(host: Host, shared: Shared) -> str | None:
    """The same as :func:`fault`, with the reason if the script skipped the card: another boot may not help."""
    text, skipped = fault(host, shared), skipped_at_boot(host).get(shared.address)
    return text if text is None or skipped is None else f"{text} (skipped at boot: {skipped})"


def surplus(host: Host, shared: Iterable[Shared] = ()) -> Iterator[str]:
    """Virtual functions that gpustack created at this boot, and that the next boot does not create."""
    wanted = {entry.address for entry in shared}
    for function in left(host):
        if function.address not in wanted:
            yield f"{function.address} has {counted(function.sriov_numvfs or 0, 'virtual function')}, no longer wanted"


def left(host: Host) -> tuple[Function, ...]:
    """The physical functions that have virtual functions by gpustack."""
    made = made_at_boot(host)
    return tuple(function for function in host.pci if function.address in made and function.sriov_numvfs)


def lost(host: Host, shared: Iterable[Shared] = ()) -> Iterator[tuple[Function, str]]:
    """The physical functions by gpustack whose instances the next boot would break, each with their virtual functions.

    The next boot does not create the virtual functions, or creates them with another vGPU type.
    """
    stopped = {name: f"{name} (instance {uuid}, not running)" for name, uuid in owners(host).items()}
    parts = ((part, entry) for entry in shared for part in entry.parts(host))
    kept = {part.address for part, entry in parts if not part.vgpu_type or entry.has_type(part)}
    for function in left(host):
        lost_parts = [part for part in host.virtual.get(function.address, ()) if part.address not in kept]
        used = [(part, ", ".join(of_instances([part]))) for part in lost_parts]
        texts = [text or stopped[part.address] for part, text in used if text or part.address in stopped]
        if users := "; ".join(texts):
            yield function, users


def findings(host: Host, shared: Iterable[Shared]) -> Iterator[Finding]:
    """The reasons why virtual functions can't be created, or not be used."""
    for entry in shared:
        function, place = entry.function, host.at(entry.address)
        total = function.sriov_totalvfs
        if entry.vgpu is not None:
            yield from vgpus.findings(host, entry, entry.vgpu)
        if not entry.is_created:
            continue
        if total is None or total < entry.first + entry.count:
            most = "no SR-IOV capability" if total is None else f"{counted(total, 'virtual function')} at most"
            yield finding(Code.TOO_FEW_VIRTUAL_FUNCTIONS, place=place, count=entry.first + entry.count, most=most)
        if function.driver in _USER_SPACE or (
            is_passthrough_driver(function.driver) and (entry.is_network or _bound_by_others(host, function))
        ):
            yield finding(Code.SHARED_CARD_ON_PASSTHROUGH_DRIVER, place=place, driver=function.driver)
        elif function.driver is None and entry.vgpu is None:
            reason = "no driver has bound the card"
            yield finding(
                Code.VIRTUAL_FUNCTIONS_NOT_CREATED,
                place=place,
                severity=Severity.WARNING,
                reason=reason,
                count=entry.count,
            )
        if function.driver == NVIDIA and entry.vgpu_type is None and entry.vgpu is None:
            yield finding(Code.VGPU_TYPE_MISSING, place=place, what=f"model {entry.model} has no vgpu_type")
        if (
            entry.vgpu is None
            and (numbers := _creatable(host, entry))
            and str(entry.vgpu_type or "") not in ("", *numbers)
        ):
            what = f"the driver has no type {entry.vgpu_type} for the card, but {', '.join(numbers)}"
            yield finding(Code.VGPU_TYPE_MISSING, place=place, what=what)
        yield from _ids(host, entry)
        yield from by_others(host, entry)


def _creatable(host: Host, entry: Shared) -> list[str]:
    """The numbers of the types of a card; empty if unknown, or if a virtual function has one, which excludes others."""
    parts = [part for part in host.virtual.get(entry.address, ()) if part.vgpu_framework == "vfio"]
    numbers = {kind.number for part in parts for kind in part.vgpu_types}
    return [] if any(part.vgpu_type for part in parts) else sorted(numbers)


def _bound_by_others(host: Host, function: Function) -> bool:
    """Whether other configuration binds it, so that the next boot does not give it to its host driver.

    A card that gpustack has bound gets its host driver with the boot that the plan requests, also if an earlier run has
    rewritten gpustack's files already.
    """
    if function.driver_override:
        return function.address not in kept_at_boot(host)
    return any(ids.binds(function) for ids in elsewhere(host).ids())


def _ids(host: Host, entry: Shared) -> Iterator[Finding]:
    if entry.product is None:
        return
    wrong = {f.product for f in host.virtual.get(entry.address, ()) if f.product != entry.product}
    if wrong:
        place = host.at(entry.address)
        products = ", ".join(sorted(wrong))
        yield finding(
            Code.OTHER_VIRTUAL_PRODUCT, place=place, model=entry.model, products=products, expected=entry.product
        )


def by_others(host: Host, entry: Shared) -> Iterator[Finding]:
    """Files of others that create virtual functions of this card, or may do so because they name no card."""
    for path, file in sorted(host.files.items()):
        if is_ours(file.text) or not _OF_OTHERS.search(file.text):
            continue
        text = file.text.lower()
        if _names(text, entry.function):
            certainty = "creates"
        elif not _ADDRESS.search(text) and not any(_names(text, function) for function in host.pci):
            certainty = "names no card, and may create"
        else:
            continue
        yield finding(Code.VIRTUAL_FUNCTIONS_BY_OTHERS, place=host.at(path), certainty=certainty, address=entry.address)


def _names(text: str, function: Function) -> bool:
    """Whether a text has the address of a function, without the domain too, or an interface of it."""
    names = {function.address.removeprefix("0000:"), *(net.name.lower() for net in function.uses.net)}
    return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text) for name in names)
