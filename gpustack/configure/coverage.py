"""Check that a device_spec matches the prepared GPUs and nothing else on the host."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence

from gpustack.base.findings import Code, Finding, finding
from gpustack.hosts.facts.gpus import gpus
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.device_spec import DeviceSpec, matched
from gpustack.pci import catalogue
from gpustack.spec.assignment import Assigned


def proof(
    host: Host, entries: Sequence[Mapping[str, str]], targets: Sequence[Assigned], others: Collection[str] = ()
) -> Iterator[Finding]:
    """Report prepared GPUs that the device_spec misses, and other functions that it matches.

    :param entries: the device_spec of the host, as Nova reads it.
    :param targets: the GPUs that host preparation assigns to passthrough.
    :param others: the addresses of other functions that are offered, for ports of Neutron.
    """
    wanted_addresses = {*(t.gpu.main.address for t in targets), *others}
    specs = [DeviceSpec.parse(entry) for entry in entries]
    for target in targets:
        if not target.gpu.main.bdf.fits_nova:
            yield finding(Code.PREPARED_CARD_DOMAIN_TOO_WIDE, place=f"{host.hostname} {target.gpu.main.address}")
    reached = matched(specs, host)
    for address in reached:
        parts = host.virtual.get(address, ())
        if parts and not any(part.address in reached for part in parts):
            functions = ", ".join(part.address for part in parts)
            yield finding(Code.PHYSICAL_FUNCTION_OFFERED, place=f"{host.hostname} {address}", functions=functions)
    for address, index in reached.items():
        if address not in wanted_addresses:
            place, entry, what = f"{host.hostname} {address}", json.dumps(entries[index]), what_is(host, address)
            yield finding(Code.DEVICE_SPEC_OFFERS_TOO_MUCH, place=place, entry=entry, what=what)
    for address in sorted(wanted_addresses - reached.keys()):
        yield finding(Code.DEVICE_SPEC_MISSES_CARD, place=f"{host.hostname} {address}")


def what_is(host: Host, address: str) -> str:
    """Describe a PCI function for a message: a companion of a GPU, a network controller in use as eth0, …"""
    function = host.functions[address]
    text = catalogue.describe(
        function.vendor, function.product, function.pci_class, function.subsystem_vendor, function.subsystem_product
    )
    if function.physical_function is not None:
        return f"{text}, a virtual function of {function.physical_function}"
    names = [net.name for net in function.uses.net] or list(function.uses.block)
    if names:
        return f"{text}, in use as {', '.join(names)}"
    for gpu in gpus(host):
        if any(companion.address == address for companion in gpu.companions):
            return f"{text}, a companion of {gpu.main.address}"
    return text
