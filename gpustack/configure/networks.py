"""The device_spec entries of virtual functions of network cards, and findings about them.

An entry matches virtual functions only: with ``physical_network``, Nova would give a card itself to a port of the type
``direct-physical``. If cards are selected, the entry has the address of the card, which stays the same if the number of
virtual functions changes: Nova compares it with the virtual functions' card.
"""

from collections.abc import Iterator, Mapping, Sequence

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import listed
from gpustack.hosts.facts.model import Function, Host
from gpustack.nova_options.device_spec import DeviceSpec, offered
from gpustack.spec.model import Spec
from gpustack.spec.network_functions import NetworkFunctions, network_functions

_SHOWN = 8
Selection = tuple[str, str, str | None]
"""Vendor, product and address of an entry."""
Ports = Mapping[str, tuple[str, str]]
"""The network of the spec and its physical network of each virtual function that ports get, by address."""


def ports(spec: Spec, host: Host) -> Ports:
    """The virtual functions that ports get on a host."""
    return {
        function.address: (name, spec.networks[name].physical_network)
        for name, functions in network_functions(spec, host).by_network.items()
        for function in functions
    }


def selections(spec: Spec, host: Host, functions: NetworkFunctions) -> Iterator[tuple[str, Selection]]:
    """The physical network and the selection of each entry."""
    for name, of_network in functions.by_network.items():
        network = spec.networks[name]
        for ids, members in by_key(((function.vendor, function.product), function) for function in of_network).items():
            selects_cards = bool(network.match.addresses or network.match.interfaces)
            for address in _addresses(host, ids, members, selects_cards=selects_cards):
                yield network.physical_network, (*ids, address)


def _addresses(
    host: Host, ids: tuple[str, str], members: Sequence[Function], *, selects_cards: bool
) -> Iterator[str | None]:
    """None for ids alone, addresses of cards, or of virtual functions: the first that matches these alone."""
    if not selects_cards and _reach(host, ids, None) == {function.address for function in members}:
        yield None
        return
    by_card: dict[str | None, set[str]] = {}
    for function in members:
        by_card.setdefault(function.physical_function, set()).add(function.address)
    for card, parts in by_card.items():
        if _reach(host, ids, card) == parts:
            yield card
        else:
            yield from (function.address for function in members if function.address in parts)


def _reach(host: Host, ids: tuple[str, str], address: str | None) -> frozenset[str]:
    entry = {"vendor_id": ids[0], "product_id": ids[1], **({"address": address} if address else {})}
    return offered([DeviceSpec.parse(entry)], host)


def doubts(host: Host, functions: NetworkFunctions) -> Iterator[Finding]:
    """Networks without virtual functions, and virtual functions of several networks or in use."""
    for name, found in functions.by_network.items():
        if not (found or name in functions.used or any(name in names for names in functions.disputed.values())):
            yield finding(Code.NETWORK_WITHOUT_FUNCTIONS, place=host.hostname, network=name)
    for name, used in functions.used.items():
        interfaces = [f"{f.address} ({', '.join(net.name for net in f.uses.net)})" for f in used]
        yield finding(
            Code.NETWORK_FUNCTIONS_IN_USE, place=host.hostname, network=name, functions=listed(interfaces, _SHOWN)
        )
    for names, addresses in by_key((names, address) for address, names in functions.disputed.items()).items():
        yield finding(
            Code.FUNCTIONS_OF_SEVERAL_NETWORKS,
            place=host.hostname,
            functions=listed(addresses, _SHOWN),
            networks=" and ".join(names),
        )
