"""Findings about network cards whose virtual functions are created at boot.

gpustack never creates or removes virtual functions of a network card on a running host: some drivers reset the card,
and a card has to lose all its virtual functions before it gets another number of them. The unit runs before
``network-pre.target``, thus before anything configures the network (netplan orders its own unit for virtual functions
in the same way), and skips a card with an interface that is up already, such as that of a root file system on the
network. For this reason a card that the host uses, such as a member of its bond, is a warning and no error.

The virtual functions get no driver. If others have created some before, and the host uses their interfaces, the next
boot would take the network from the host, so that is an error.
"""

from collections.abc import Container, Iterable, Iterator

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.text import listed
from gpustack.hosts.facts.model import Function, Host, NetworkInterface
from gpustack.hosts.readiness.assessment import made_at_boot
from gpustack.linux.drivers import is_passthrough_driver
from gpustack.pci import classes
from gpustack.prepare.host.decide.virtual_functions import by_others, fault, left
from gpustack.spec.assignment import Shared
from gpustack.spec.network_functions import NetworkCards

_NEEDS_LINK = frozenset({"bnx2x", "bnxt_en"})
"""The drivers that refuse to create virtual functions while the interface is down, which it is before the network."""
_SHOWN = 8


def findings(host: Host, cards: NetworkCards) -> Iterator[Finding]:
    """The reasons why virtual functions of network cards can't be created, and the risks of their creation."""
    by_networks = by_key((networks, f"those of {address}") for address, networks in cards.disputed.items())
    for networks, functions in by_networks.items():
        yield finding(
            Code.FUNCTIONS_OF_SEVERAL_NETWORKS,
            place=host.hostname,
            functions=", ".join(functions),
            networks=" and ".join(networks),
        )
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
        yield finding(
            Code.NETWORK_FUNCTIONS_LOSE_DRIVER,
            place=place,
            severity=Severity.ERROR if used else None,
            functions=listed(used or [f"{f.address} ({f.driver})" for f in bound], _SHOWN),
            use=", and the host uses them" if used else "",
        )


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
