"""Memory pages of flavors on hosts whose huge pages are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.cloud.flavors import Sizes
from gpustack.hosts.facts.model import Cpu
from gpustack.hosts.facts.store import parse_host
from gpustack.offer.flavor.fitting import Firmware, fitting, memory_pages, placed
from gpustack.offer.flavor.shares import HostShare, NodeShare, host_shares
from gpustack.spec.flavors import Flavor
from gpustack.spec.load import parse_spec
from gpustack.spec.requests import Entry
from support.host_samples import first_gpu, function, host

SPEC = parse_spec(
    'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {"gpu*": [k4200]}\n', "spec"
)
GIB, MIB2 = 1 << 20, 2048


def share(name: str, *nodes: Mapping[int, int] | None, memory: int = 64 * 1024) -> HostShare:
    """A host with 64 GiB of RAM and these huge pages on its NUMA nodes; None: a snapshot without them."""
    raw: dict[str, Any] = {
        "version": 1,
        "hostname": name,
        "memory_mib": memory,
        "numa_nodes": [
            {
                "node": number,
                "huge_pages": None if pages is None else [{"size_kib": k, "total": n} for k, n in pages.items()],
            }
            for number, pages in enumerate(nodes)
        ],
        "pci": [{"address": "0000:80:00.0", "vendor": "10de", "product": "11b4", "class": "030000", "iommu_group": 1}],
    }
    (of_host,) = host_shares(SPEC, [parse_host(raw, name)])
    return of_host


@pytest.mark.parametrize(
    ("size", "nodes", "hosts", "expected"),
    [
        ("large", 1, [share("gpu1", {GIB: 16})], ""),
        ("large", 1, [share("gpu1", {GIB: 0, MIB2: 0})], "GPU807 : none"),
        ("1GB", 1, [share("gpu1", {GIB: 0, MIB2: 8192})], "GPU807 : 2 MiB"),
        ("1GB", 1, [share("gpu1", {MIB2: 8192}), share("gpu2", {GIB: 16})], ""),
        ("1GB", 1, [share("gpu1", {GIB: 8}, {GIB: 12})], "GPU808 gpu1, has 8 x 1 GiB, 12 x 1 GiB"),
        ("1GB", 2, [share("gpu1", {GIB: 8}, {GIB: 12})], ""),
        ("1GB", 1, [share("gpu1", {MIB2: 8192}), share("gpu2", None)], ""),
        ("1GB", 1, [share("gpu1", None)], ""),
        ("1GB", 1, [], ""),
        ("1GB", 1, [share("gpu1", {64: 9, 1024: 9, 32768: 9})], "GPU807 : 64 KiB and 1 MiB and 32 MiB"),
        ("any", 1, [share("gpu1", {MIB2: 0})], ""),
        (None, 1, [share("gpu1", {GIB: 48})], ""),
        (None, 1, [share("gpu1", {GIB: 26}, {GIB: 26})], "GPU809 gpu1 has 12 GiB"),
        ("small", 1, [share("gpu0", {GIB: 0}), share("gpu1", {GIB: 60})], "GPU809 gpu1 has 4 GiB"),
        (None, 1, [share("gpu1", {GIB: 65})], "GPU809 gpu1 has 0 MiB"),
        (None, 1, [share("gpu1", None)], ""),
    ],
)
def test_pages_that_hosts_lack_are_reported(
    size: str | None, nodes: int, hosts: list[HostShare], expected: str
) -> None:
    sizes = Sizes(vcpus=4, ram=16 * 1024, disk=10)
    found = [f"{f.code} {f.message}" for f in memory_pages("f", size, sizes, nodes, hosts)]
    code, _, words = expected.partition(" ")
    assert [text.startswith(code) and words in text for text in found] == [True] * bool(expected)


def test_pages_on_a_node_without_cpus_hold_no_instance() -> None:
    pages = [{GIB: 8}, {GIB: 64}]
    (facts,) = (share("gpu1", *pages),)
    nodes = {0: replace(facts.nodes[0], cpus=8), 1: replace(facts.nodes[1], cpus=0)}
    found = memory_pages("f", "1GB", Sizes(vcpus=4, ram=16 * 1024, disk=10), 1, [replace(facts, nodes=nodes)])
    assert [entry.code for entry in found] == ["GPU808"]


def test_pages_whose_number_is_unreadable_are_unknown() -> None:
    assert share("gpu1", {GIB: None}).huge_pages is None  # type: ignore[dict-item]


MEASURED = yaml.safe_load(Path(__file__).with_name("address-space.yaml").read_text())
MIB, BYTES_PER_GIB = 1 << 20, 1 << 30


def name(row: dict[str, Any]) -> str:
    gpus = f"{len(row['gpus'])}x{'+'.join(map(str, row['gpus'][0]))}"
    return f"{row['firmware']}-{row['bits']}-{gpus}-{row.get('vendor', '')}-{row.get('ram', '')}-{row.get('ports', '')}"


@pytest.mark.parametrize("row", MEASURED, ids=name)
def test_gpus_are_counted_as_measured(row: dict[str, Any]) -> None:
    counted = placed(
        Firmware(row["firmware"]),
        [[size * MIB for size in gpu] for gpu in row["gpus"]],
        ram=int(row.get("ram", 0.5) * BYTES_PER_GIB),
        bits=row["bits"],
        vendor=row.get("vendor", "AuthenticAMD"),
        other_ports=row.get("ports", 0),
    )
    assert counted == row["placed"]


@pytest.mark.parametrize(
    ("bits", "ram", "gpus", "expected"),
    [
        (38, 1, [32], 1),  # the eighth is no larger than the window that OVMF has anyway
        (39, 414, [32, 16], 2),
        (39, 415, [32, 16], 1),  # RAM and the eighth fill the address space
    ],
)
def test_ovmf_takes_an_eighth_only_if_it_is_larger_and_free(
    bits: int, ram: int, gpus: list[int], expected: int
) -> None:
    """``PlatformDynamicMmioWindow`` of edk2."""
    bars = [(size * BYTES_PER_GIB,) for size in gpus]
    assert placed(Firmware.OVMF, bars, ram=ram * BYTES_PER_GIB, bits=bits, other_ports=1) == expected


@pytest.mark.parametrize("firmware", Firmware)
def test_gpus_without_large_bars_always_fit(firmware: Firmware) -> None:
    assert placed(firmware, [(), (256 * MIB,)], ram=900 * BYTES_PER_GIB) == 2
    assert placed(firmware, [], ram=BYTES_PER_GIB) == 0


def test_a_smaller_gpu_fits_beside_one_without_room() -> None:
    assert placed(Firmware.OVMF, [(256 * BYTES_PER_GIB,), (16 * BYTES_PER_GIB,)], ram=BYTES_PER_GIB) == 1


def test_the_hosts_address_width_has_room_with_either_firmware() -> None:
    gpus = [(128 * BYTES_PER_GIB, 32 * MIB)] * 8
    assert {firmware: placed(firmware, gpus, ram=2048 * BYTES_PER_GIB, bits=46) for firmware in Firmware} == {
        Firmware.OVMF: 8,
        Firmware.SEABIOS: 8,
    }


def node(cpus: int | None, memory: int | None, *, nics: tuple[str, ...] = (), **gpus: int) -> NodeShare:
    return NodeShare(cpus=cpus, memory_mib=memory, huge_pages=None, gpus=gpus, networks=frozenset(nics))


def of_nodes(*nodes: NodeShare, name: str = "h", cpus: int | None = 64, memory: int | None = 65536) -> HostShare:
    """A host with the GPUs of its nodes; those with four of a model ``k`` if it has none."""
    gpu = first_gpu(host(function("0000:01:00.0")))
    numbers = Counter[str]()
    for part in nodes or (node(None, None, k=4),):
        numbers.update(part.gpus)
    return HostShare(
        host=name,
        cpus=cpus,
        memory_mib=memory,
        processor=Cpu(),
        architecture="ppc64le",
        gpus={model: (gpu,) * number for model, number in numbers.items()},
        gpu_count=4,
        nodes=dict(enumerate(nodes)),
        networks=frozenset().union(*(part.networks for part in nodes)),
    )


def found(*hosts: HostShare, models: dict[str, int] | None = None, **fields: Any) -> list[str]:
    """The findings about a flavor with 8 vCPUs and 16 GiB, or with these sizes and fields."""
    sizes = Sizes(vcpus=fields.pop("vcpus", 8), ram=fields.pop("ram", 16384), disk=1)
    wanted = models or {"k": 1}
    networks, policy = fields.pop("networks", ()), fields.get("numa", {}).get("policy")
    flavor = Flavor.model_validate({"gpus": wanted, "vcpus": sizes.vcpus, "ram": sizes.ram, "disk": 1, **fields})
    problems = fitting(
        Entry(flavor=flavor, name="f", count=sum(wanted.values()), models=wanted),
        sizes,
        hosts,
        nodes=fields.get("numa", {}).get("nodes"),
        policy=policy,
        networks=networks,
        knows_maxphysaddr=True,
    )
    return [f"{problem.code.value} {problem.message}" for problem in problems]


TWO = of_nodes(node(8, 16384, k=1), node(8, 16384, k=3))
TEXT_410 = "GPU410 requests 5 of k, 1 of m; the host with most, b, has 4 of k, 0 of m"
TEXT_412 = "GPU412 needs {}, 1 GiB disk; the hosts with enough GPUs have at most {} processors and {}"
TEXT_411 = "GPU411 needs {} NUMA nodes (vCPUs of each: {}, RAM: {}){}; no host has them"
STRICT = ", with its GPUs on the same nodes (required)"


@pytest.mark.parametrize(
    ("hosts", "fields", "expected"),
    [
        ([of_nodes()], {"vcpus": 64, "ram": 65536}, []),
        ([of_nodes(cpus=None, memory=None)], {"vcpus": 65, "ram": 65537}, []),
        ([of_nodes()], {"vcpus": 65}, [TEXT_412.format("65 vCPUs, 16 GiB RAM", 64, "64 GiB")]),
        ([of_nodes()], {"ram": 65537}, [TEXT_412.format("8 vCPUs, 65537 MiB RAM", 64, "64 GiB")]),
        (
            [of_nodes(cpus=None, memory=1024), of_nodes(cpus=4, memory=None)],
            {},
            [TEXT_412.format("8 vCPUs, 16 GiB RAM", 4, "1 GiB")],
        ),
        (
            [of_nodes(cpus=None, memory=1024)],
            {},
            [TEXT_412.format("8 vCPUs, 16 GiB RAM", "?", "1 GiB")],
        ),
        ([of_nodes(cpus=4, memory=None)], {}, [TEXT_412.format("8 vCPUs, 16 GiB RAM", 4, "? MiB")]),
        # The host of most of the requested GPUs is named, not that of most GPUs
        (
            [of_nodes(node(1, 1, k=2, m=9), name="a"), of_nodes(name="b")],
            {"models": {"k": 5, "m": 1}},
            [TEXT_410],
        ),
    ],
)
def test_a_flavor_that_is_too_large_for_every_host(
    hosts: list[HostShare], fields: dict[str, Any], expected: list[str]
) -> None:
    assert found(*hosts, **fields) == expected


@pytest.mark.parametrize(
    ("hosts", "fields", "expected"),
    [
        ([TWO], {"numa": {"nodes": 1}}, []),
        ([TWO], {"numa": {"nodes": 2}, "vcpus": 16, "ram": 32768}, []),
        ([TWO], {"numa": {"nodes": 1}, "vcpus": 9}, [TEXT_411.format(1, 9, "16 GiB", "")]),
        ([TWO], {"numa": {"nodes": 1}, "ram": 16640}, [TEXT_411.format(1, 8, "16.25 GiB", "")]),
        ([TWO], {"numa": {"nodes": 2}, "vcpus": 18, "ram": 8192}, [TEXT_411.format(2, 9, "4 GiB", "")]),
        ([of_nodes(node(None, None, k=1))], {"numa": {"nodes": 1}, "vcpus": 64, "ram": 65536}, []),
        ([of_nodes(node(None, 1024, k=1))], {"numa": {"nodes": 1}}, [TEXT_411.format(1, 8, "16 GiB", "")]),
        ([of_nodes()], {"numa": {"nodes": 2}}, []),  # its nodes are unknown
        ([of_nodes(), TWO], {"numa": {"nodes": 4}}, [TEXT_411.format(4, 2, "4 GiB", "")]),
        # The GPUs on the same nodes
        ([TWO], {"numa": {"nodes": 1, "policy": "required"}, "models": {"k": 3}}, []),
        (
            [TWO],
            {"numa": {"nodes": 1, "policy": "required"}, "models": {"k": 4}},
            [TEXT_411.format(1, 8, "16 GiB", STRICT)],
        ),
        ([TWO], {"numa": {"nodes": 1, "policy": "preferred"}, "models": {"k": 4}}, []),
        ([TWO], {"numa": {"nodes": 2, "policy": "required"}, "models": {"k": 4}}, []),
        (
            [of_nodes(node(8, 16384), node(4, 16384, k=1))],
            {"numa": {"nodes": 1, "policy": "required"}},
            [TEXT_411.format(1, 8, "16 GiB", STRICT)],
        ),
        (
            [of_nodes(node(8, 16384, k=1), node(8, 16384, m=1))],
            {"numa": {"nodes": 1, "policy": "required"}, "models": {"k": 1, "m": 1}},
            [TEXT_411.format(1, 8, "16 GiB", STRICT)],
        ),
        (
            [of_nodes(node(8, 16384), node(8, 16384, k=1), node(8, 16384, m=1))],
            {"numa": {"nodes": 2, "policy": "required"}, "models": {"k": 1, "m": 1}},
            [],
        ),
    ],
)
def test_numa_nodes_hold_the_parts_of_an_instance(
    hosts: list[HostShare], fields: dict[str, Any], expected: list[str]
) -> None:
    assert found(*hosts, **fields) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"numa": {"nodes": 3}, "ram": 16383}, "GPU413 vCPUs (8) and RAM (16383 MiB)"),
        ({"numa": {"nodes": 3}, "vcpus": 9}, "GPU413 vCPUs (9) and RAM (16384 MiB)"),
        ({"numa": {"nodes": 3}, "vcpus": 9, "ram": 16383}, ""),
        ({"numa": {"policy": "required"}}, "GPU414"),
        ({"numa": {"policy": "required"}, "cpu_policy": "dedicated"}, ""),
        ({"numa": {"policy": "required", "nodes": 1}}, ""),
        ({}, ""),
    ],
)
def test_problems_without_hosts(fields: dict[str, Any], expected: str) -> None:
    problems = found(**fields)
    assert [problem.startswith(expected) for problem in problems] == [True] * bool(expected)


@pytest.mark.parametrize(
    ("nodes", "models", "near"),
    [
        ([node(8, 16384, k=1, nics=("n",))], {"k": 1}, True),
        ([node(8, 16384, k=2), node(8, 16384, k=1, nics=("n",))], {"k": 2}, False),
        ([node(8, 16384, k=2), node(8, 16384, k=1, nics=("n",))], {"k": 1}, True),
        ([node(8, 16384, k=2), node(8, 16384, nics=("n",))], {"k": 1}, False),
        ([node(8, 16384, k=2), node(8, 16384)], {"k": 1}, True),  # it is created with the next boot
        ([node(8, 16384, k=1), node(8, 16384, m=1, nics=("n",))], {"k": 1, "m": 1}, True),  # no node fits anyway
    ],
)
def test_networks_beside_the_gpus(nodes: list[NodeShare], models: dict[str, int], near: bool) -> None:
    fields = {"networks": ("n",), "numa": {"nodes": 1, "policy": "required"}, "models": models}
    problems = [problem[:6] for problem in found(of_nodes(*nodes), **fields)]
    assert ("GPU888" in problems) is not near
    assert not found(of_nodes(*nodes), **{**fields, "networks": ()}, ram=1024) or len(models) > 1
    assert "GPU888" not in "".join(found(of_nodes(*nodes), **{**fields, "numa": {"nodes": 1, "policy": "preferred"}}))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"mem_page_size": "1GB"}, ["GPU808"]),
        ({"extra_specs": {"hw:mem_page_size": "1GB"}}, ["GPU808"]),
        ({"mem_page_size": "1GB", "numa": {"nodes": 2}}, []),
        ({"mem_page_size": "2MB"}, ["GPU807"]),
        ({"mem_page_size": "small"}, []),
    ],
)
def test_the_page_size_of_a_flavor_or_of_its_extra_specs(fields: dict[str, Any], expected: list[str]) -> None:
    with_pages = {n: replace(of_node, huge_pages={GIB: 8}) for n, of_node in TWO.nodes.items()}
    assert [problem[:6] for problem in found(replace(TWO, nodes=with_pages), **fields)] == expected


EMULATED = {"hw:maxphysaddr_mode": "emulate"}
BOTH, UEFI = "0 of 2 with UEFI firmware and 2 of 2 with BIOS firmware", "0 of 2 with UEFI firmware"


@pytest.mark.parametrize(
    ("architecture", "bits", "fields", "expected"),
    [
        ("x86_64", 46, {}, BOTH),
        (None, 46, {}, BOTH),
        ("aarch64", 46, {}, None),
        ("x86_64", 46, {"maxphysaddr": "passthrough"}, None),
        ("x86_64", None, {"maxphysaddr": "passthrough"}, None),  # its width is unknown
        ("x86_64", 39, {"extra_specs": {"hw:maxphysaddr_mode": "passthrough"}}, BOTH),
        ("x86_64", 46, {"extra_specs": {**EMULATED, "hw:maxphysaddr_bits": "42"}}, None),
        ("x86_64", 46, {"extra_specs": EMULATED}, BOTH),
        ("x86_64", 46, {"extra_specs": {"hw:maxphysaddr_bits": "42"}}, BOTH),
        ("x86_64", 46, {"guest": "windows"}, UEFI),
        ("x86_64", 46, {"secure_boot": True}, UEFI),
        ("x86_64", 46, {"extra_specs": {"os:secure_boot": "required"}}, UEFI),
        ("x86_64", 46, {"extra_specs": {"os:secure_boot": "disabled"}}, BOTH),
        ("x86_64", 46, {"extra_specs": {"hw:mem_encryption": "True"}}, UEFI),
        ("x86_64", 46, {"extra_specs": {"hw:mem_encryption": "False"}}, BOTH),
    ],
)
def test_large_bars_by_firmware_and_address_width(
    architecture: str | None, bits: int | None, fields: dict[str, Any], expected: str | None
) -> None:
    bar = {"index": 1, "start": 1 << 40, "size": 128 * BYTES_PER_GIB, "bits": 64, "prefetchable": True}
    gpu = first_gpu(host(function("0000:01:00.0", bars=[bar])))
    large = replace(
        of_nodes(), gpus={"k": (gpu, gpu)}, architecture=architecture, processor=Cpu(physical_address_bits=bits)
    )
    problems = found(large, models={"k": 2}, **fields)
    assert [problem.partition("room for ")[2] for problem in problems] == ([] if expected is None else [expected])
