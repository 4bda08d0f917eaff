"""Runs in Nova's own environment: Nova's requests to Placement for flavors, and how many instances fit on a host.

Each case has ``host`` (cells, pools of devices, free amounts, traits and ratios), ``flavor`` and ``image``. The free
amounts are counted here, as Placement would; all else is Nova's code.
"""

from __future__ import annotations

import json
import sys

import nova.conf
from nova.pci import request, stats
from nova.scheduler import utils
from nova.virt import hardware

from nova import config, objects

ALIAS = '{"name": "gpu", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}'
MOST = 60


def topology(host: dict) -> objects.NUMATopology:
    cells = [
        objects.NUMACell(
            id=cell["id"],
            cpuset=set(cell["cpuset"]),
            pcpuset=set(cell["pcpuset"]),
            memory=cell["memory"],
            cpu_usage=cell["cpu_usage"],
            memory_usage=cell["memory_usage"],
            pinned_cpus=set(cell["pinned_cpus"]),
            siblings=[set(core) for core in cell["siblings"]],
            socket=cell["socket"],
            network_metadata=objects.NetworkMetadata(physnets=set(), tunneled=False),
            mempages=[
                objects.NUMAPagesTopology(size_kb=size, total=total, used=used, reserved=reserved)
                for size, total, used, reserved in cell["mempages"]
            ],
        )
        for cell in host["cells"]
    ]
    return objects.NUMATopology(cells=cells)


def devices(host: dict, cells: objects.NUMATopology) -> stats.PciDeviceStats:
    found = stats.PciDeviceStats(cells)
    found.pools = [
        {
            "vendor_id": "10de",
            "product_id": "11b4",
            "dev_type": "type-PCI",
            "numa_node": pool["node"],
            "count": pool["count"],
            "address": "0000:%02x:00.0" % number,  # noqa: UP031
        }
        for number, pool in enumerate(host["pools"])
    ]
    return found


def group(resources: utils.ResourceRequest) -> dict:
    plain = resources.get_request_group(None)
    return {
        "amounts": dict(plain.resources),
        "required": sorted(plain.required_traits),
        "forbidden": sorted(plain.forbidden_traits),
    }


def requests_of(flavor: objects.Flavor, image: objects.ImageMeta) -> list:
    spec = objects.RequestSpec(
        flavor=flavor,
        image=image,
        is_bfv=False,
        requested_resources=[],
        request_level_params=objects.RequestLevelParams(),
    )
    first = utils.ResourceRequest.from_request_spec(spec, True)
    made = [group(first)]
    if first.cpu_pinning_requested:
        made.append(group(utils.ResourceRequest.from_request_spec(spec, False)))
    return made


def chosen(requests: list, amounts: dict, traits: set) -> dict:
    """The first request that the host can meet."""
    for entry in requests:
        enough = all(amounts.get(name, 0) >= amount for name, amount in entry["amounts"].items())
        if enough and set(entry["required"]) <= traits and not traits & set(entry["forbidden"]):
            return entry
    return {}


def booted(case: dict, flavor: objects.Flavor, image: objects.ImageMeta, requests: list) -> int:
    host = case["host"]
    cells = topology(host)
    pci, amounts = devices(host, cells), dict(host["amounts"])
    limits = objects.NUMATopologyLimits(cpu_allocation_ratio=host["cpu_ratio"], ram_allocation_ratio=host["ram_ratio"])
    for number in range(MOST):
        instance = hardware.numa_get_constraints(flavor, image)
        policy = hardware.get_pci_numa_policy_constraint(flavor, image)
        wanted = request.get_pci_requests_from_flavor(flavor, affinity_policy=policy).requests
        entry = chosen(requests, amounts, set(host["traits"]))
        if not entry:
            return number
        nodes = None
        if instance is not None:
            instance = hardware.numa_fit_instance_to_host(
                cells, instance, provider_mapping=None, limits=limits, pci_requests=wanted, pci_stats=pci
            )
            if instance is None:
                return number
            cells = hardware.numa_usage_from_instance_numa(cells, instance)
            pci.numa_topology = cells
            nodes = instance.cells
        if not pci.support_requests(wanted, provider_mapping=None, numa_cells=nodes):
            return number
        pci.apply_requests(wanted, None, nodes)
        for name, amount in entry["amounts"].items():
            amounts[name] -= amount
    return MOST


def judged(case: dict) -> dict:
    sizes = {**case["flavor"], "extra_specs": case["flavor"]["extra_specs"]}
    flavor = objects.Flavor(id=1, flavorid="1", name="f", is_public=True, **sizes)
    try:
        image = objects.ImageMeta.from_dict({"name": "i", "properties": case["image"]})
        hardware.numa_get_constraints(flavor, image)
        requests = requests_of(flavor, image)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    try:
        return {"refused": "", "requests": requests, "number": booted(case, flavor, image, requests)}
    except Exception as error:
        return {"refused": "", "requests": requests, "fault": f"{type(error).__name__}: {error}"}


objects.register_all()
config.set_lib_defaults()
nova.conf.CONF([], default_config_files=[])
nova.conf.CONF.set_override("alias", [ALIAS], "pci")
print(json.dumps([judged(case) for case in json.load(sys.stdin)]))
