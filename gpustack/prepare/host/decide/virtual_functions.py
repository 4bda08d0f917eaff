"""Virtual functions that are created at boot: what the script of their unit gets, what it did, what prevents it.

Nothing here is specific to GPUs: a physical function of any class can be shared. The kernel creates virtual functions
only if the driver of the physical function supports that, and they disappear at the next boot.

gpustack never creates or removes virtual functions of a network card on a running host: some drivers reset the card,
and a card has to lose all its virtual functions before it gets another number of them. The unit runs before
``network-pre.target``, thus before anything configures the network (netplan orders its own unit for virtual functions
in the same way), and skips a card with an interface that is up already, such as that of a root file system on the
network. For this reason a card that the host uses, such as a member of its bond, is a warning and no error.

The virtual functions of network cards get no driver. If others have created some before, and the host uses their
interfaces, the next boot would take the network from the host, so that is an error.
"""

import re
from collections.abc import Container, Iterable, Iterator

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.text import counted, listed
from gpustack.hosts.facts.model import Function, Host, NetworkInterface
from gpustack.hosts.facts.vgpus import NVIDIA, owners
from gpustack.hosts.readiness.assessment import made_at_boot, of_instances, skipped_at_boot
from gpustack.linux.drivers import is_passthrough_driver
from gpustack.pci import classes
from gpustack.prepare.host.decide import vgpus
from gpustack.prepare.host.decide.addresses import kept_at_boot
from gpustack.prepare.host.foreign_config import elsewhere
from gpustack.prepare.host.own_files import is_ours
from gpustack.spec.assignment import Shared
from gpustack.spec.network_functions import NetworkCards

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
            code, reason = Code.VIRTUAL_FUNCTIONS_NOT_CREATED, "no driver has bound the card"
            yield finding(code, place=place, severity=Severity.WARNING, reason=reason, count=entry.count)
        if function.driver == NVIDIA and entry.vgpu_type is None and entry.vgpu is None:
            yield finding(Code.VGPU_TYPE_MISSING, place=place, what=f"model {entry.model} has no vgpu_type")
        numbers = _creatable(host, entry) if entry.vgpu is None else []
        if numbers and str(entry.vgpu_type or "") not in ("", *numbers):
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
    if wrong := {f.product for f in host.virtual.get(entry.address, ()) if f.product != entry.product}:
        place, model, products = host.at(entry.address), entry.model, ", ".join(sorted(wrong))
        yield finding(Code.OTHER_VIRTUAL_PRODUCT, place=place, model=model, products=products, expected=entry.product)


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


_NEEDS_LINK = frozenset({"bnx2x", "bnxt_en"})
"""The drivers that refuse to create virtual functions while the interface is down, which it is before the network."""
_SHOWN = 8


def network_findings(host: Host, cards: NetworkCards) -> Iterator[Finding]:
    """The reasons why virtual functions of network cards can't be created, and the risks of their creation."""
    by_networks = by_key((networks, f"those of {address}") for address, networks in cards.disputed.items())
    for networks, functions in by_networks.items():
        of, names = ", ".join(functions), " and ".join(networks)
        yield finding(Code.FUNCTIONS_OF_SEVERAL_NETWORKS, place=host.hostname, functions=of, networks=names)
    yield from _absent(host, cards)
    made = made_at_boot(host)
    for entry in cards.shared:
        yield from _about(host, entry, made.keys())


def of_models(host: Host, shared: Iterable[Shared], cards: NetworkCards) -> Iterator[Finding]:
    """Models that create virtual functions of network cards, in a unit that does not run before the network."""
    networks = {entry.address: (entry.model,) for entry in cards.shared} | dict(cards.disputed)
    for entry in shared:
        if not entry.function.pci_class.startswith(classes.NETWORK_BASE):
            continue
        if entry.address in networks:
            reason = f"the network {networks[entry.address][0]} does so too"
        elif use := _use(entry.function):
            reason = f"the host uses the card: {use}; a model's unit does not run before the network starts"
        else:
            continue
        yield finding(Code.MODEL_SHARES_NETWORK_CARD, place=host.at(entry.address), model=entry.model, reason=reason)


def _absent(host: Host, cards: NetworkCards) -> Iterator[Finding]:
    """Networks none of whose cards the host has, and those that may have had a card whose virtual functions disappear.

    The facts do not show the earlier network of a card. So if a network has some of its cards, it is no error.
    """
    present = {entry.address for entry in cards.shared} | set(cards.disputed)
    of_network = [f for f in host.pci if f.pci_class.startswith(classes.NETWORK_BASE) and f.physical_function is None]
    lost = [f.address for f in left(host) if f in of_network and f.address not in present]
    names = {entry.model for entry in cards.shared}.union(*cards.disputed.values())
    for network, absent in cards.absent.items():
        if lost or network not in names:
            seen = [f"{f.address} ({', '.join(net.name for net in f.uses.net) or 'no interface'})" for f in of_network]
            yield finding(
                Code.NETWORK_CARD_MISSING,
                place=host.hostname,
                severity=Severity.ERROR if lost and network not in names else None,
                network=network,
                absent=", ".join(absent),
                seen=listed(seen, _SHOWN) if seen else "no network card",
                result=f"the next boot would not create the virtual functions of {', '.join(lost)}"
                if lost
                else "gpustack creates no virtual functions for it",
            )


def _about(host: Host, entry: Shared, made: Container[str]) -> Iterator[Finding]:
    card, place, number = entry.function, host.at(entry.address), entry.function.sriov_numvfs or 0
    if card.driver in _NEEDS_LINK:
        yield finding(Code.NETWORK_DRIVER_NEEDS_LINK, place=place, driver=card.driver)
    is_new = entry.address not in made
    if number not in (0, entry.count) and is_new:
        yield finding(Code.NETWORK_FUNCTIONS_BY_OTHERS, place=place, number=number, count=entry.count)
    else:
        yield from _driverless(host, entry, place, is_new=is_new)
    yield from by_others(host, entry)
    if (is_new or fault(host, entry) is not None) and (use := _use(card)):
        yield finding(Code.NETWORK_CARD_OF_HOST, place=place, use=use)


def _driverless(host: Host, entry: Shared, place: str, *, is_new: bool) -> Iterator[Finding]:
    """Virtual functions whose driver of the host the next boot would not bind."""
    bound = [
        f for f in host.virtual.get(entry.address, ()) if f.driver is not None and not is_passthrough_driver(f.driver)
    ]
    used = [f"{f.address} ({use})" for f in bound if (use := _use(f) or ", ".join(f.holders or ()))]
    if used or (bound and is_new):
        severity, use = (Severity.ERROR, ", and the host uses them") if used else (None, "")
        names = listed(used or [f"{f.address} ({f.driver})" for f in bound], _SHOWN)
        yield finding(Code.NETWORK_FUNCTIONS_LOSE_DRIVER, place=place, severity=severity, functions=names, use=use)


def _use(card: Function) -> str:
    """What the host uses a network card, or a virtual function, for; empty if it does not use it."""
    return "; ".join(f"{net.name} ({', '.join(uses)})" for net in card.uses.net if (uses := list(_uses(net))))


def _uses(net: NetworkInterface) -> Iterator[str]:
    if net.routes == "default":
        yield "the default route"
    elif net.routes == "networks":
        yield "routes of the host"
    if net.uppers:
        yield f"below {', '.join(net.uppers)}"
    if net.state == "up" and (net.uppers is None or net.routes is None):
        yield "up, its use is unknown"
