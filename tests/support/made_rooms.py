"""Hosts and flavors from a random source, as Nova and as gpustack's engine take them."""

from __future__ import annotations

import random
from typing import Any

from gpustack.cloud.flavors import Sizes
from gpustack.nova_options.scheduler import Scheduler
from gpustack.novadb.model import NumaNode
from gpustack.operate.capacity.count import capacity
from gpustack.operate.capacity.flavors import demand_of
from gpustack.operate.capacity.model import Cards, Demand, Host
from gpustack.spec.load import parse_spec

SPEC = parse_spec(
    """
version: 1
models: {gpu: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu1: [gpu]}
nova: {release: "2025.2"}
""",
    "spec",
)
SCHEDULER = Scheduler(
    filters=("ComputeFilter", "NUMATopologyFilter", "PciPassthroughFilter"),
    isolated=False,
    by_project=False,
    fallback=True,
)
HYPERTHREADING = "HW_CPU_HYPERTHREADING"
ODD = {
    "resources:DISK_GB": ("+1", " 2 ", "-1", "1.5", "x"),
    "resources:GPUS": ("1",),
    "resources:memory_mb": ("1",),
    "hw:numa_nodes": (" 1 ", "+1", ""),
}
"""Values and classes that Nova reads, ignores or refuses, against expectation."""
GIB = 1024


def made(source: random.Random) -> dict[str, Any]:
    """A host and a flavor."""
    host = made_host(source)
    return {"host": host, "flavor": made_flavor(source, len(host["cells"])), "image": made_image(source)}


def made_host(source: random.Random) -> dict[str, Any]:
    """A host, of which some is in use."""
    nodes, threads = source.choice([1, 2, 2, 2, 3, 4]), source.choice([1, 2, 2, 2, 4])
    cores = source.choice([3, 4, 6, 8, 12])
    kind = source.choice(["none", "none", "split", "split", "dedicated", "shared"])
    total = nodes * cores
    cells: list[dict[str, Any]] = []
    for node in range(nodes):
        siblings = [[node * cores + core + total * thread for thread in range(threads)] for core in range(cores)]
        cpus = sorted(cpu for core in siblings for cpu in core)
        if kind == "split":
            # By cores, or across them.
            order = [cpu for core in siblings for cpu in core] if source.random() < 0.7 else cpus
            shared, dedicated = order[: len(order) // 2], order[len(order) // 2 :]
        else:
            shared = cpus if kind != "dedicated" else []
            dedicated = [] if kind == "shared" else cpus
        pinned = source.sample(dedicated, source.choice([0, 0, 1, len(dedicated) // 3])) if dedicated else []
        memory = source.choice([8, 16, 32]) * GIB
        used = source.choice([0, 0, 1, 3]) * GIB
        huge, large = source.choice([0, 0, 512, 2048]), source.choice([0, 0, 2, 4])
        pages = [[4, (memory - huge * 2 - large * GIB) * 256, used * 256, source.choice([0, 1024])]]
        pages += [[2048, huge, source.choice([0, huge // 4]), 0]] if huge else []
        pages += [[1 << 20, large, source.choice([0, 1]), 0]] if large else []
        cells.append(
            {
                "id": node,
                "cpuset": sorted(shared),
                "pcpuset": sorted(dedicated),
                "pinned_cpus": sorted(pinned),
                "siblings": siblings,
                "memory": memory,
                "memory_usage": used,
                "cpu_usage": source.choice([0, 0, 2]),
                "mempages": pages,
                "socket": node // 2 if source.random() < 0.8 else node,
            }
        )
    ratio = source.choice([1.0, 2.0, 4.0])
    pinned_all = sum(len(cell["pinned_cpus"]) for cell in cells)
    shares = int(sum(len(cell["cpuset"]) for cell in cells) * ratio)
    amounts: dict[str, int] = {
        "MEMORY_MB": sum(cell["memory"] - cell["memory_usage"] for cell in cells),
        "DISK_GB": 1000,
    }
    if shares:
        used_shares = sum(cell["cpu_usage"] for cell in cells) + (pinned_all if kind == "none" else 0)
        amounts["VCPU"] = max(shares - used_shares, 0)
    if kind in ("split", "dedicated"):
        amounts["PCPU"] = sum(len(cell["pcpuset"]) for cell in cells) - pinned_all
    places = [*range(nodes), *range(nodes), None]
    pools = [{"node": source.choice(places), "count": source.choice([2, 4, 8])} for _ in range(source.randint(2, 4))]
    merged: dict[int | None, int] = {}
    for pool in pools:
        merged[pool["node"]] = merged.get(pool["node"], 0) + pool["count"]
    return {
        "cells": cells,
        "pools": [{"node": node, "count": count} for node, count in merged.items()],
        "amounts": amounts,
        "traits": [HYPERTHREADING] if threads > 1 else [],
        "cpu_ratio": ratio,
        "ram_ratio": source.choice([1.0, 1.0, 1.5]),
    }


def made_flavor(source: random.Random, nodes: int) -> dict[str, Any]:
    """A flavor; some are refused by Nova's API."""
    vcpus, ram = source.choice([1, 2, 2, 2, 3, 4, 4, 8]), source.choice([512, 1024, 1024, 2048, 4096])
    specs = {"pci_passthrough:alias": f"gpu:{source.choice([1, 1, 1, 2, 3])}"}

    def maybe(chance: float, key: str, *values: str) -> None:
        if source.random() < chance:
            specs[key] = source.choice(values)

    policy = source.choice(["", "dedicated", "dedicated", "dedicated", "mixed", "resources"])
    isolate = policy not in ("", "shared") and source.random() < 0.3
    if policy == "resources":
        specs["resources:PCPU"] = str(vcpus + isolate - (source.random() < 0.1))
    elif policy:
        specs["hw:cpu_policy"] = policy
    if isolate:
        specs["hw:emulator_threads_policy"] = "isolate"
    if policy == "mixed":
        maybe(0.9, "hw:cpu_dedicated_mask", f"0-{max(vcpus // 2 - 1, 0)}", "^0", "0")
    if policy not in ("", "shared"):
        maybe(0.4, "hw:cpu_thread_policy", "prefer", "isolate", "require")
        maybe(0.1, f"trait:{HYPERTHREADING}", "required", "forbidden")
        if vcpus > 1 and policy == "dedicated" and source.random() < 0.1:
            specs |= {"hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0"}
    maybe(0.3, "hw:numa_nodes", "1", "2", str(nodes))
    maybe(0.35, "hw:pci_numa_affinity_policy", "required", "legacy", "preferred", "socket")
    maybe(0.3, "hw:mem_page_size", "small", "large", "any", "any", "2048", "1GB", "4")
    maybe(0.02, "hw:cpu_thread_policy", "isolate")
    maybe(0.02, "resources:VCPU", "1")
    maybe(0.05, "hw:maxphysaddr_mode", "passthrough", "emulate")
    maybe(0.05, "os:secure_boot", "required", "optional")
    maybe(0.05, "hw:tpm_version", "2.0", "1.2")
    maybe(0.05, "resources:DISK_GB", "0")
    maybe(0.03, "hw:locked_memory", "true")
    if vcpus == 4 and source.random() < 0.1:
        specs |= {"hw:numa_nodes": "2", "hw:numa_cpus.0": "0", "hw:numa_cpus.1": "1-3"}
        specs |= {"hw:numa_mem.0": str(ram // 4), "hw:numa_mem.1": str(ram - ram // 4)}
    odd = random.Random(str(specs))  # noqa: S311 - its own source: the cases above stay the same
    if odd.random() < 0.2:
        specs |= odd.choice([{name: value} for name, values in ODD.items() for value in values])
    return {
        "vcpus": vcpus,
        "memory_mb": ram,
        "root_gb": source.choice([0, 1, 10]),
        "ephemeral_gb": source.choice([0, 0, 5]),
        "swap": source.choice([0, 0, 1025]),
        "extra_specs": specs,
    }


def made_image(source: random.Random) -> dict[str, str]:
    """The properties of an image; most have none of interest."""
    properties: dict[str, str] = {}
    if source.random() < 0.08:
        properties["hw_cpu_policy"] = source.choice(["dedicated", "shared"])
    if source.random() < 0.06:
        properties["hw_cpu_thread_policy"] = source.choice(["isolate", "require", "prefer"])
    if source.random() < 0.04:
        properties["hw_numa_nodes"] = "2"
    if source.random() < 0.04:
        properties["hw_mem_page_size"] = source.choice(["2048", "1GB"])
    if source.random() < 0.08:
        properties["hw_pci_numa_affinity_policy"] = source.choice(["required", "preferred"])
    return properties


def demand(case: dict[str, Any]) -> Demand:
    """The needs of the flavor."""
    flavor = case["flavor"]
    sizes = Sizes(
        vcpus=flavor["vcpus"],
        ram=flavor["memory_mb"],
        disk=flavor["root_gb"],
        ephemeral=flavor["ephemeral_gb"],
        swap=flavor["swap"],
    )
    count = int(flavor["extra_specs"]["pci_passthrough:alias"].split(":")[1])
    return demand_of(SPEC, "f", sizes, flavor["extra_specs"], {"gpu": count}, SCHEDULER, case["image"])


def number(case: dict[str, Any], needs: Demand) -> tuple[int, int | None]:
    """The least and the largest number of instances that fit."""
    of = case["host"]
    nodes = {
        cell["id"]: NumaNode(
            cpus=frozenset(cell["cpuset"]),
            pcpus=frozenset(cell["pcpuset"]),
            pinned=frozenset(cell["pinned_cpus"]),
            siblings=tuple(map(frozenset, cell["siblings"])),
            cpu_usage=cell["cpu_usage"],
            memory=cell["memory"],
            memory_usage=cell["memory_usage"],
            pages={size: (total, total - used - reserved) for size, total, used, reserved in cell["mempages"]},
            cpu_ratio=of["cpu_ratio"],
            ram_ratio=of["ram_ratio"],
            socket=cell["socket"],
        )
        for cell in of["cells"]
    }
    cards = tuple(Cards(aliases=frozenset({"gpu"}), node=pool["node"], count=pool["count"]) for pool in of["pools"])
    host = Host(uuid="u", name="gpu1", cards=cards, amounts=of["amounts"], nodes=nodes)
    traits = set(of["traits"])
    accepted = [
        {"u"} if request.required <= traits and not request.forbidden & traits else set() for request in needs.requests
    ]
    counted = capacity([host], needs, accepted, SCHEDULER)
    return counted.least, counted.most
