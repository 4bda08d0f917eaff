"""Runs in Nova's own environment: the weights that its handler gives to hosts, with all of its weighers."""

import json
import sys
from types import SimpleNamespace
from unittest import mock

import nova.conf
from nova.scheduler import weights


def state(host: dict, number: int) -> SimpleNamespace:
    return SimpleNamespace(
        host=f"gpu{number}",
        nodename=f"gpu{number}",
        cell_uuid="cell1",
        aggregates=[],
        free_ram_mb=host["ram"],
        free_disk_mb=host["disk"],
        vcpus_total=host["cpus"],
        cpu_allocation_ratio=1.0,
        vcpus_used=0,
        pci_stats=SimpleNamespace(pools=[{"count": host["free"]}] if host["free"] else []),
        num_io_ops=0,
        num_instances=host["free"],
        failed_builds=0,
        metrics=None,
        hypervisor_version=8002000,
        instances={},
    )


def weigh(case: dict) -> list:
    for name, value in case["multipliers"].items():
        nova.conf.CONF.set_override(f"{name}_weight_multiplier", value, "filter_scheduler")
    handler = weights.HostWeightHandler()
    weighers = [weigher() for weigher in handler.get_matching_classes(["nova.scheduler.weights.all_weighers"])]
    request = mock.MagicMock(instance_group=None)
    states = [state(host, number) for number, host in enumerate(case["hosts"])]
    weighed = handler.get_weighed_objects(weighers, states, request)
    by_name = {entry.obj.host: entry.weight for entry in weighed}
    return [weighed[0].obj.host, [by_name[entry.host] for entry in states]]


nova.conf.CONF([], default_config_files=[])
print(json.dumps([weigh(case) for case in json.load(sys.stdin)]))
