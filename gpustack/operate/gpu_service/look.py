"""Read the state of one GPU: the fleet of its host, its inventory, its nova-compute, its entry in the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustack.base.errors import UsageError
from gpustack.base.hostnames import key
from gpustack.cloud import compute, placement
from gpustack.cloud.compute import Service
from gpustack.fleet.index import named
from gpustack.fleet.model import Fleet, Gpu
from gpustack.hosts.facts.model import Host
from gpustack.operate.gpu_service.plan import Seen
from gpustack.spec.model import Spec
from gpustack.spec.out_of_service import by_machine, entry_of

if TYPE_CHECKING:
    from openstack.connection import Connection


def look(
    cloud: Connection, fleet: Fleet, host: str, address: str, spec: Spec | None = None, hosts: tuple[Host, ...] = ()
) -> Seen:
    """Return the state of a GPU.

    :param host: the host as Nova names it, or its compute node.
    :param hosts: the facts of hosts, for entries by serial number.
    :raises UsageError: if the GPU cannot be taken out of service by its address.
    :raises CloudError: if Nova or Placement cannot be reached or refuses.
    """
    here = [gpu for gpu in fleet.gpus if key(host) in (key(gpu.host), key(gpu.node))]
    gpu = next((gpu for gpu in here if gpu.address == address), None)
    if gpu is not None and gpu.dev_type == "type-VF":
        raise UsageError(
            f"{host} {address} is a virtual function; a card leaves service with all its functions",
            remedy="name the address of the card, without which its virtual functions are not offered",
        )
    service = _service(cloud, gpu.host if gpu else here[0].host if here else host)
    names = {host, service.host, *(gpu.node for gpu in here)}
    facts = named(hosts, names)
    function = facts.functions.get(address) if facts else None
    scheduled = spec is None or spec.nova is None or spec.nova.placement == "schedule"
    entries = by_machine(spec.out_of_service if spec else ())
    return Seen(
        host=service.host,
        address=address,
        service=service,
        gpu=gpu,
        by_address=_by_address(fleet, here),
        inventory=placement.inventory(cloud, gpu.provider) if gpu and gpu.provider else None,
        scheduled=scheduled,
        entry=entry_of(entries, names, address, function.serial if function else None),
    )


def _service(cloud: Connection, host: str) -> Service:
    """The nova-compute of a host: whether it takes new instances. Without PCI in Placement, nothing finer does."""
    services = compute.services(cloud, host)
    if len(services) != 1:
        raise UsageError(
            f"Nova has {len(services) or 'no'} nova-compute service{'s'[: len(services) > 1]} on {host}",
            remedy="name the host as Nova does: openstack compute service list",
        )
    return services[0]


def _by_address(fleet: Fleet, here: list[Gpu]) -> bool:
    """Whether the sources list the GPUs of the host one by one. A partial fleet may lack some."""
    listed = all(gpu.address for gpu in here) if here else fleet.located
    return listed and fleet.complete
