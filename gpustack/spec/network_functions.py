"""The virtual functions of network cards that ports of Neutron get on a host.

A card itself is never among them: an instance with it would take the network from the host. So would a virtual
function with an interface of the host that is up. Functions in domains that Nova does not support are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpustack.facts.model import Function, Host
from gpustack.pci import classes
from gpustack.spec.hosts import patterns_for
from gpustack.spec.model import Network, NetworkMatch, Spec
from gpustack.spec.patterns import HostPattern


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
    networks = dict(_networks_for(spec, host.hostname))
    by_network: dict[str, list[Function]] = {name: [] for name in networks}
    used: dict[str, list[Function]] = {}
    disputed: dict[str, tuple[str, ...]] = {}
    for function in sorted(host.pci, key=lambda f: f.bdf) if networks else ():
        fitting = [name for name, network in networks.items() if _matches(network.match, function, host)]
        if len(fitting) == 1 and _is_up(function):
            used.setdefault(fitting[0], []).append(function)
        elif len(fitting) == 1:
            by_network[fitting[0]].append(function)
        elif fitting:
            disputed[function.address] = tuple(fitting)
    return NetworkFunctions(
        by_network={name: tuple(found) for name, found in by_network.items()},
        used={name: tuple(found) for name, found in used.items()},
        disputed=disputed,
    )


def _is_up(function: Function) -> bool:
    return any(interface.state == "up" for interface in function.uses.net)


def _networks_for(spec: Spec, hostname: str) -> Iterator[tuple[str, Network]]:
    if not patterns_for(spec, hostname):
        return
    for name, network in spec.networks.items():
        if not network.hosts or any(HostPattern.parse(text).matches(hostname) for text in network.hosts):
            yield name, network


def _matches(match: NetworkMatch, function: Function, host: Host) -> bool:
    card = host.functions.get(function.physical_function or "")
    interfaces = {net.name for net in card.uses.net} if card is not None else set()
    return (
        function.physical_function is not None
        and function.bdf.fits_nova
        and function.pci_class.startswith(classes.NETWORK_BASE)
        and match.vendor in (None, function.vendor)
        and match.product in (None, function.product)
        and (not match.addresses or function.physical_function in match.addresses)
        and (not match.interfaces or not interfaces.isdisjoint(match.interfaces))
    )
