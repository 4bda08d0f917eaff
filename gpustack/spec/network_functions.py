"""The virtual functions of network cards that ports of Neutron get on a host.

A card itself is never among them: an instance with it would take the network from the host. So would a virtual
function whose interface the host uses. Functions in domains that Nova does not support are left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpustack.hosts.facts.model import Function, Host
from gpustack.pci import classes
from gpustack.spec.assignment import Shared
from gpustack.spec.model import Network, NetworkMatch, Spec, patterns_for


@dataclass(frozen=True, kw_only=True)
class NetworkFunctions:
    """The virtual functions of a host by the name of their network.

    :ivar by_network: all networks of the host, also those without virtual functions.
    :ivar used: the virtual functions that the host uses itself, which no port gets, by network.
    :ivar disputed: the virtual functions that several networks match, which none gets, by address.
    """

    by_network: Mapping[str, tuple[Function, ...]] = field(default_factory=dict)
    used: Mapping[str, tuple[Function, ...]] = field(default_factory=dict)
    disputed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses of all virtual functions."""
        return frozenset(function.address for functions in self.by_network.values() for function in functions)


def network_functions(spec: Spec, host: Host) -> NetworkFunctions:
    """The virtual functions of network cards that a spec gives to ports on a host."""
    networks = dict(networks_for(spec, host.hostname))
    by_network: dict[str, list[Function]] = {name: [] for name in networks}
    used: dict[str, list[Function]] = {name: [] for name in networks}
    disputed: dict[str, tuple[str, ...]] = {}
    for function in sorted(host.pci, key=lambda f: f.bdf) if networks else ():
        fitting = [name for name, network in networks.items() if _matches(network.match, function, host)]
        if len(fitting) == 1:
            (used if any(net.in_use for net in function.uses.net) else by_network)[fitting[0]].append(function)
        elif fitting:
            disputed[function.address] = tuple(fitting)
    return NetworkFunctions(
        by_network={name: tuple(found) for name, found in by_network.items()},
        used={name: tuple(found) for name, found in used.items() if found},
        disputed=disputed,
    )


@dataclass(frozen=True, kw_only=True)
class NetworkCards:
    """The network cards of a host whose virtual functions are created at boot.

    :ivar disputed: the cards that several networks match, with the networks; nothing is created of them.
    :ivar absent: the interfaces and addresses of each network that no card of the host has.
    """

    shared: tuple[Shared, ...] = ()
    disputed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def network_cards(spec: Spec, host: Host) -> NetworkCards:
    """The network cards of which a spec creates virtual functions on a host."""
    networks = {name: (n.match, n.vfs) for name, n in networks_for(spec, host.hostname) if n.vfs is not None}
    shared: list[Shared] = []
    disputed: dict[str, tuple[str, ...]] = {}
    absent = {name: {*match.interfaces, *match.addresses} for name, (match, _) in networks.items()}
    for card in sorted(host.pci, key=lambda f: f.bdf) if networks else ():
        fitting = [(name, vfs) for name, (match, vfs) in networks.items() if _selects(match, card)]
        if len(fitting) > 1:
            disputed[card.address] = tuple(name for name, _ in fitting)
        for name, vfs in fitting[: len(fitting) == 1]:
            shared.append(Shared(function=card, model=name, count=vfs, is_network=True))
        for name, _ in fitting:
            absent[name] -= {card.address, *(net.name for net in card.uses.net)}
    missing = {name: tuple(sorted(names)) for name, names in absent.items() if names}
    return NetworkCards(shared=tuple(shared), disputed=disputed, absent=missing)


def networks_for(spec: Spec, hostname: str) -> Iterator[tuple[str, Network]]:
    """The networks of a host, by name."""
    if not patterns_for(spec, hostname):
        return
    for name, network in spec.networks.items():
        if not network.hosts or spec.network_hosts[name].matching(hostname):
            yield name, network


def _matches(match: NetworkMatch, function: Function, host: Host) -> bool:
    card = host.functions.get(function.physical_function or "")
    return (
        function.physical_function is not None
        and function.bdf.fits_nova
        and function.pci_class.startswith(classes.NETWORK_BASE)
        and match.vendor in (None, function.vendor)
        and match.product in (None, function.product)
        and (not match.addresses or function.physical_function in match.addresses)
        and (not match.interfaces or (card is not None and _has_interface(card, match)))
    )


def _selects(match: NetworkMatch, card: Function) -> bool:
    """Whether a network names a card: by its address, by its interface, or by both."""
    return (
        card.physical_function is None
        and card.bdf.fits_nova
        and card.pci_class.startswith(classes.NETWORK_BASE)
        and bool(match.addresses or match.interfaces)
        and (not match.addresses or card.address in match.addresses)
        and (not match.interfaces or _has_interface(card, match))
    )


def _has_interface(card: Function, match: NetworkMatch) -> bool:
    return any(net.name in match.interfaces for net in card.uses.net)
