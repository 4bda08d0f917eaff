"""Findings about network cards whose virtual functions are created at boot.

gpustack never creates or removes virtual functions of a network card on a running host: some drivers reset the card,
and a card has to lose all its virtual functions before it gets another number of them. The unit runs before
``network-pre.target``, thus before anything configures the network (netplan orders its own unit for virtual functions
in the same way), and skips a card with an interface that is up already, such as that of a root file system on the
network. For this reason a card that the host uses, such as a member of its bond, is a warning and no error.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from gpustack.codes import Code
from gpustack.facts.model import Function, Host, NetworkInterface
from gpustack.findings import Finding, finding
from gpustack.host.decide.virtual_functions import by_others, fault, made_at_boot
from gpustack.spec.assignment import Shared
from gpustack.spec.network_functions import NetworkCards

_NEEDS_LINK = frozenset({"bnx2x", "bnxt_en"})
"""The drivers that refuse to create virtual functions while the interface is down, which it is before the network."""


def findings(host: Host, cards: NetworkCards) -> Iterator[Finding]:
    """The reasons why virtual functions of network cards can't be created, and the risks of their creation."""
    by_networks: dict[tuple[str, ...], list[str]] = {}
    for address, networks in cards.disputed.items():
        by_networks.setdefault(networks, []).append(f"those of {address}")
    for networks, functions in by_networks.items():
        yield finding(
            Code.FUNCTIONS_OF_SEVERAL_NETWORKS,
            place=host.hostname,
            functions=", ".join(functions),
            networks=" and ".join(networks),
        )
    made = made_at_boot(host)
    for entry in cards.shared:
        yield from _about(host, entry, made.keys())


def _about(host: Host, entry: Shared, made: Container[str]) -> Iterator[Finding]:
    card, place, number = entry.function, f"{host.hostname} {entry.address}", entry.function.sriov_numvfs or 0
    if card.driver in _NEEDS_LINK:
        yield finding(Code.NETWORK_DRIVER_NEEDS_LINK, place=place, driver=card.driver)
    if number not in (0, entry.count) and entry.address not in made:
        yield finding(Code.NETWORK_FUNCTIONS_BY_OTHERS, place=place, number=number, count=entry.count)
    yield from by_others(host, entry)
    if fault(host, entry) is not None and (use := _use(card)):
        yield finding(Code.NETWORK_CARD_OF_HOST, place=place, use=use)


def _use(card: Function) -> str:
    """What the host uses a network card for; empty if it does not use it."""
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
