"""What a host has and what its nova.conf offers, to compare with the rows (class O).

The data come from facts that ``gpustack scan --save`` wrote, and from the configuration of nova-compute.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from gpustack.base.by_key import by_key
from gpustack.base.errors import NovaConfigError
from gpustack.base.hostnames import key, short
from gpustack.hosts.facts import vgpus
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.config import files_of, read_files
from gpustack.nova_options.device_spec import DeviceSpec, offered, parse_line
from gpustack.nova_options.options import option
from gpustack.nova_options.pci_values import EntryError


@dataclass(frozen=True, kw_only=True)
class Present:
    """A PCI function of a host, with the values of ``pci_devices``."""

    vendor_id: str
    product_id: str
    dev_type: str


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The functions of one host.

    :ivar present: its PCI functions by address.
    :ivar offered: the addresses that device_spec matches; None if the configuration is unknown.
    :ivar read_at: the time of the facts, naive UTC; None if they have none.
    :ivar unused: the mediated devices that no process and no instance has; empty if the instances are unknown.
    :ivar gone: the mediated devices of instances that the host lacks, by instance.
    """

    present: Mapping[str, Present]
    offered: frozenset[str] | None = None
    read_at: datetime | None = None
    unused: tuple[str, ...] = ()
    gone: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def hardware(hosts: Sequence[Host], specs: Sequence[DeviceSpec] | None = None) -> dict[str, Hardware]:
    """Return the hosts of facts by name.

    :param specs: the device_spec entries of their nova-compute; None if unknown.
    """
    return {
        host.hostname: Hardware(
            present={
                f.address: Present(vendor_id=f.vendor, product_id=f.product, dev_type=f.dev_type) for f in host.pci
            },
            offered=None if specs is None else offered(specs, host),
            read_at=host.read_at,
            unused=tuple(uuid for function in host.pci for uuid in vgpus.unused(host, function)),
            gone={
                instance: devices
                for instance, absent in vgpus.missing(host)
                if (devices := tuple(name for name in absent if "." not in name))
            },
        )
        for host in hosts
    }


def device_specs(paths: Sequence[Path]) -> tuple[DeviceSpec, ...]:
    """Return the device_spec entries in the configuration of nova-compute.

    :raises NovaConfigError: if a file cannot be read, or Nova would refuse an entry.
    """
    settings = read_files([file for path in paths for file in files_of(path)]).effective(option("pci/device_spec"))
    specs = []
    for setting in settings:
        try:
            specs += parse_line(setting.value)
        except EntryError as error:
            raise NovaConfigError(f"device_spec: {error}", where=setting.place, remedy="gpustack nova lint") from error
    return tuple(specs)


def finder(known: Mapping[str, Hardware]) -> Callable[[str | None, str | None], Hardware | None]:
    """Find the hardware of a compute node by the name of its host or hypervisor, short or full.

    None if nothing is known, or if several hosts match.
    """
    by_name = by_key((key(name), hardware) for name, hardware in known.items())
    by_head = by_key((short(name), hardware) for name, hardware in known.items())

    def of_host(host: str | None, node: str | None) -> Hardware | None:
        names = {key(name) for name in (host, node) if name}
        heads = {short(name) for name in names}
        found = [hardware for name in names for hardware in by_name.get(name, ())]
        found = found or [hardware for name in heads for hardware in by_head.get(name, ())]
        return found[0] if len(found) == 1 else None

    return of_host
