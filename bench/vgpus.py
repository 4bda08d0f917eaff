"""Compare vGPUs with the same number of passthrough GPUs: 200 hosts with 4 cards of 16 vGPUs, and with 64 GPUs.

Half of them are in use, each by an instance. Nova and Placement are stand-ins. The facts of the hosts, which the vGPUs
need for their flavor, are read with them only. Limit: 1.5 times the processor time, for `gpu list` and for `capacity`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import limits
import yaml
from fleet import seconds_with_cloud

from gpustack.fleet.placement import Device
from gpustack.hosts.facts.store import save_snapshot
from support.fleet_cloud import StandIn, instance, servers, with_devices
from support.mediated_hosts import card, mediated_host

CARDS, VGPUS = 4, 16
ADDRESSES = [f"0000:{0x41 + number:02x}:00.0" for number in range(CARDS)]
SIZES = {"vcpus": 1, "ram": "1GiB", "disk": 0}


def hosts(count: int) -> list[str]:
    """The names of the hosts."""
    return [f"gpu{number:03}" for number in range(count)]


def spec(directory: Path, count: int, *, shared: bool) -> Path:
    """A spec with one model and one flavor."""
    match = {"vendor": "10de", "product": "25b6" if shared else "11b4"}
    document = {
        "version": 1,
        "models": {"m": {"match": match, **({"vgpu": {"type": "A16-8Q"}} if shared else {})}},
        "hosts": {name: ["m"] for name in hosts(count)},
        "nova": {"release": "2025.2", "placement": "schedule"},
        "flavors": {"f": {"model": "m", **SIZES}},
    }
    path = directory / f"{'vgpus' if shared else 'gpus'}.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def cloud(count: int, *, shared: bool) -> StandIn:
    """Nova and Placement with these hosts."""
    devices, held, instances = [], {}, []
    for name in hosts(count):
        for number in range(CARDS if shared else CARDS * VGPUS):
            uuid = f"{name}-{number}"
            address = ADDRESSES[number] if shared else f"0000:{0x41 + number:02x}:00.0"
            suffix = "pci_" + address.replace(":", "_").replace(".", "_") if shared else address
            used = VGPUS // 2 if shared else number % 2
            devices.append(
                Device(
                    uuid=uuid,
                    name=f"{name}_{suffix}",
                    root=name,
                    node=name,
                    address=address,
                    resource_class="VGPU" if shared else "CUSTOM_PCI_10DE_11B4",
                    capacity=VGPUS if shared else 1,
                    used=used,
                    mediated=shared,
                )
            )
            for place in range(used):
                owner = f"{uuid}-{place}"
                held[owner] = {uuid: 1}
                specs = {"resources:VGPU": "1"} if shared else {"pci_passthrough:alias": "m:1"}
                instances.append(instance(owner, host=name, flavor={"original_name": "f", "extra_specs": specs}))
    found = with_devices(devices, held)
    found.answers["compute /servers/detail?all_tenants=1"] = servers(*instances)
    return found


def main() -> None:
    """Measure, print, and check the limits."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    checks = []
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        facts = directory / "hosts.json"
        cards = [card(address) for address in ADDRESSES]
        save_snapshot(facts, [mediated_host(*cards, name=name).model_dump(by_alias=True) for name in hosts(count)])
        for name, command in (("gpu_list", "gpu list --spec {}"), ("capacity", "capacity {}")):
            peer = seconds_with_cloud(
                cloud(count, shared=False), command.format(spec(directory, count, shared=False)).split()
            )
            arguments = [*command.format(spec(directory, count, shared=True)).split(), "--snapshot", str(facts)]
            own = seconds_with_cloud(cloud(count, shared=True), arguments)
            print(f"{name}: {own:.1f} s with vGPUs, {peer:.1f} s with GPUs of {count} hosts", flush=True)
            checks.append(limits.check(f"vgpus.{name}", own / peer))
    limits.end(*checks)


if __name__ == "__main__":
    main()
