"""What a spec wants of flavors, for releases and hosts."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.cloud.flavors import Sizes, needs_judging
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.facts.store import parse_host
from gpustack.nova_options.releases import release
from gpustack.offer.flavor.desired import Wanted, wanted
from gpustack.spec.extra_specs import ALIAS
from gpustack.spec.load import parse_spec
from support.host_samples import Raw
from support.mediated_hosts import mediated_host, parted
from support.network_cards import network_card

GIB = 1 << 30


def host(
    name: str = "gpu1",
    *,
    nodes: tuple[int, ...] = (2, 2),
    cpus: int = 64,
    memory: int = 512 * 1024,
    bar: int = 256 << 20,
    prefetchable: bool = True,
    bits: int | None = None,
) -> Host:
    """A host with so many K4200s on each NUMA node."""
    pci = [
        {
            "address": f"0000:{0x80 + node * 16 + number:02x}:00.0",
            "vendor": "10de",
            "product": "11b4",
            "class": "030000",
            "numa_node": node,
            "iommu_group": node * 16 + number,
            "driver": "vfio-pci",
            "bars": [{"index": 1, "start": 1 << 40, "size": bar, "bits": 64, "prefetchable": prefetchable}],
        }
        for node, count in enumerate(nodes)
        for number in range(count)
    ]
    per_node = cpus // len(nodes)
    raw: dict[str, Any] = {
        "version": 1,
        "hostname": name,
        "cpu": {"logical": cpus, "physical_address_bits": bits},
        "memory_mib": memory,
        "numa_nodes": [
            {"node": n, "cpus": f"{n * per_node}-{n * per_node + per_node - 1}", "memory_mib": memory // len(nodes)}
            for n in range(len(nodes))
        ],
        "pci": pci,
    }
    return parse_host(raw, name)


def want(flavors: str, *hosts: Host, nova: str = "2025.2", model: str = "") -> Wanted:
    text = (
        "version: 1\n"
        f'models: {{k4200: {{match: {{vendor: "10de", product: "11b4"}}, alias: K4200{model}}},\n'
        '  p100: {match: {vendor: "10de", product: "15f8"}}, gtx: {match: {vendor: "10de", product: "1b80"}}}\n'
        f'hosts: {{"gpu*": [k4200, p100, gtx]}}\n'
        f"flavors: {flavors}\n"
    )
    return wanted(parse_spec(text, "spec"), release=release(nova), hosts=hosts)


def codes(desired: Wanted) -> list[str]:
    return [f.code for f in desired.findings]


SMALL = "vcpus: 4, ram: 8GiB, disk: 10"


def test_a_list_of_counts_makes_flavors_of_multiplied_sizes() -> None:
    desired = want('{"g1.{count}": {model: k4200, count: [1, 4], per_gpu: {vcpus: 8, ram: 32GiB, disk: 40GiB}}}')
    assert [(f.name, f.sizes, f.extra_specs) for f in desired.flavors] == [
        ("g1.1", Sizes(vcpus=8, ram=32768, disk=40), {ALIAS: "K4200:1"}),
        ("g1.4", Sizes(vcpus=32, ram=131072, disk=160), {ALIAS: "K4200:4"}),
    ]
    assert desired.flavors[0].public
    assert desired.flavors[1].marked_description == "4 x K4200 [gpustack]"
    assert not desired.findings


def test_gpus_of_several_models_are_one_request_of_several_aliases() -> None:
    (flavor,) = want(f"{{both: {{gpus: {{k4200: 1, p100: 2}}, {SMALL}}}}}").flavors
    assert flavor.extra_specs[ALIAS] == "K4200:1,p100:2"


def test_models_that_share_an_alias_are_counted_together() -> None:
    text = parse_spec(
        """
version: 1
models:
  a: {match: {vendor: "10de", product: "11b4"}, alias: gpu}
  b: {match: {vendor: "10de", product: "15f8"}, alias: gpu}
hosts: {h: [a, b]}
flavors: {f: {gpus: {a: 1, b: 2}, vcpus: 1, ram: 1, disk: 1}}
""",
        "spec",
    )
    (flavor,) = wanted(text, release=release("2025.2")).flavors
    assert flavor.extra_specs[ALIAS] == "gpu:3"


def test_every_field_under_the_name_that_the_release_reads() -> None:
    flavor = (
        f"{{f: {{model: k4200, {SMALL}, numa: {{policy: required, nodes: 2}}, cpu_policy: dedicated, "
        'mem_page_size: 1GB, maxphysaddr: passthrough, hide_hypervisor: true, extra_specs: {"quota:x": "1"}}}'
    )
    (new,) = want(flavor).flavors
    assert new.extra_specs == {
        ALIAS: "K4200:1",
        "hw:pci_numa_affinity_policy": "required",
        "hw:numa_nodes": "2",
        "hw:cpu_policy": "dedicated",
        "hw:mem_page_size": "1GB",
        "hw:maxphysaddr_mode": "passthrough",
        "hw:hide_hypervisor_id": "true",
        "quota:x": "1",
    }
    hidden = want(f"{{f: {{model: k4200, {SMALL}, hide_hypervisor: true}}}}", nova="ussuri")
    assert hidden.flavors[0].extra_specs["hide_hypervisor_id"] == "true"
    assert codes(hidden) == ["GPU420"]


@pytest.mark.parametrize(
    ("field", "last_without", "first"),
    [
        ("maxphysaddr: passthrough", "2023.2", "2024.1"),
        ("numa: {policy: required, nodes: 1}", "train", "ussuri"),
        ("numa: {policy: socket, nodes: 1}", "victoria", "wallaby"),
        ("hide_hypervisor: true", "queens", "rocky"),
    ],
)
def test_what_the_release_does_not_read_is_an_error(field: str, last_without: str, first: str) -> None:
    flavor = f"{{f: {{model: k4200, {SMALL}, {field}}}}}"
    assert "GPU416" in codes(want(flavor, nova=last_without))
    assert "GPU416" not in codes(want(flavor, nova=first))


AUTO = "{f: {model: k4200, count: 2, per_gpu: {vcpus: auto, ram: auto}, disk: 10, reserve: {vcpus: 4, ram: 12GiB}}}"


def test_auto_is_the_share_of_the_host_that_has_least() -> None:
    small = host("gpu2", cpus=32, memory=128 * 1024)
    (flavor,) = want(AUTO, host(), small).flavors
    # (32 - 4) / 4 = 7, of which 6 are even; (128 - 12) / 4 = 29 GiB.
    assert flavor.sizes == Sizes(vcpus=12, ram=58 * 1024, disk=10)


def test_parts_of_a_shared_card_are_counted_and_described() -> None:
    """Four virtual functions of each of two cards: `auto` divides the host by eight."""
    facts = host(nodes=(2,), cpus=34, memory=72 * 1024)
    parts = [
        {**f.model_dump(by_alias=True), "address": f"{f.bdf.slot}.{number}", "physical_function": f.address}
        for f in facts.pci
        for number in range(1, 5)
    ]
    raw = facts.model_dump(by_alias=True)
    shared = parse_host({**raw, "pci": [*raw["pci"], *parts]}, "gpu1")
    desired = want(
        '{"g{count}": {model: k4200, count: [1, 2], per_gpu: {vcpus: auto, ram: auto, disk: 1}}}',
        shared,
        model=", vfs: 4",
    )
    assert [f.description for f in desired.flavors] == ["1/4 Quadro K4200", "2 x 1/4 Quadro K4200"]
    assert [(f.sizes.vcpus, f.sizes.ram) for f in desired.flavors] == [(4, 8192), (8, 16384)]
    assert [f.extra_specs[ALIAS] for f in desired.flavors] == ["K4200:1", "K4200:2"]


def test_fraction_of_a_card_with_two_names() -> None:
    """A2 and A16 have the same ids; the subsystem distinguishes them."""
    text = """version: 1
models:
  both: {match: {vendor: "10de", product: "25b6"}, vfs: 4}
  a16: {match: {vendor: "10de", product: "25b6", subsystem_vendor: "10de", subsystem_product: "14a9"}, vfs: 4}
hosts: {gpu1: [both, a16]}
flavors: {f1: {model: both, vcpus: 1, ram: 1GiB, disk: 1}, f2: {model: a16, vcpus: 1, ram: 1GiB, disk: 1}}
"""
    desired = wanted(parse_spec(text, "spec"), release=release("2025.2"))
    assert [f.description for f in desired.flavors] == ["1/4 (A2 / A16)", "1/4 A16"]


def test_auto_without_facts_is_an_error() -> None:
    desired = want(AUTO)
    assert codes(desired) == ["GPU418"]
    assert desired.flavors == ()


def test_auto_nodes_are_as_few_as_hold_the_gpus() -> None:
    flavors = (
        '{"f{count}": {model: k4200, count: [2, 3], per_gpu: {vcpus: 2, ram: 2GiB, disk: 1}, numa: {nodes: auto}}}'
    )
    desired = want(flavors, host())
    assert [f.extra_specs["hw:numa_nodes"] for f in desired.flavors] == ["1", "2"]
    assert codes(want(flavors)) == ["GPU418", "GPU418"]


@pytest.mark.parametrize(
    ("flavor", "expected"),
    [
        (f"model: k4200, count: 4, {SMALL}", []),
        (f"model: k4200, count: 5, {SMALL}", ["GPU410"]),
        (f"model: p100, {SMALL}", ["GPU410"]),
        ("model: k4200, vcpus: 65, ram: 1GiB, disk: 1", ["GPU412"]),
        ("model: k4200, vcpus: 1, ram: 1TiB, disk: 1", ["GPU412", "GPU415"]),
        (f"model: k4200, count: 2, {SMALL}, numa: {{policy: required, nodes: 1}}", []),
        (f"model: k4200, count: 3, {SMALL}, numa: {{policy: required, nodes: 1}}", ["GPU411"]),
        (f"model: k4200, count: 3, {SMALL}, numa: {{policy: required, nodes: 2}}", []),
        (f"model: k4200, count: 3, {SMALL}, numa: {{policy: preferred, nodes: 1}}", []),
        (f"model: k4200, count: 3, {SMALL}, numa: {{policy: required}}, cpu_policy: dedicated", ["GPU411"]),
        (f"model: k4200, {SMALL}, numa: {{nodes: 3}}", ["GPU413", "GPU411"]),
        ("model: k4200, vcpus: 40, ram: 8GiB, disk: 1, numa: {nodes: 1}", ["GPU411"]),
        ("model: k4200, vcpus: 5, ram: 8GiB, disk: 1, numa: {nodes: 2}", ["GPU413"]),
        (f"model: k4200, {SMALL}, numa: {{policy: required}}", ["GPU414"]),
        (f"model: k4200, {SMALL}, windows: true", ["GPU417"]),
    ],
)
def test_findings_about_a_flavor_from_facts_of_hosts(flavor: str, expected: list[str]) -> None:
    assert codes(want(f"{{f: {{{flavor}}}}}", host(), host("gpu2", nodes=(1, 1)))) == expected


@pytest.mark.parametrize(
    ("options", "nova", "specs", "findings"),
    [
        ("", "2025.2", {"hw:hide_hypervisor_id": "true"}, ["GPU417"]),
        ("", "ussuri", {"hide_hypervisor_id": "true"}, ["GPU420", "GPU417"]),
        (", hide_hypervisor: false", "2025.2", {}, ["GPU417"]),
        (
            ", secure_boot: true, tpm: true",
            "2025.2",
            {
                "hw:hide_hypervisor_id": "true",
                "os:secure_boot": "required",
                "hw:tpm_version": "2.0",
                "hw:tpm_model": "tpm-crb",
            },
            ["GPU829", "GPU417"],
        ),
        (", secure_boot: true, tpm: true", "ussuri", None, ["GPU416", "GPU416", "GPU420", "GPU829", "GPU417"]),
    ],
)
def test_windows_with_a_consumer_card(
    options: str, nova: str, specs: dict[str, str] | None, findings: list[str]
) -> None:
    desired = want(f"{{f: {{model: gtx, {SMALL}, guest: windows{options}}}}}", nova=nova)
    assert codes(desired) == findings
    (of_images,) = [f for f in desired.findings if f.code == "GPU417"]
    assert ("img_hide_hypervisor_id=true" in f"{of_images.message}{of_images.remedy}") is ("false" in options)
    if specs is not None:
        assert desired.flavors[0].extra_specs == {ALIAS: "gtx:1", **specs}


def test_only_consumer_cards_hide_the_hypervisor_by_default() -> None:
    desired = want(f"{{f: {{model: k4200, {SMALL}, guest: windows}}}}")
    assert desired.flavors[0].extra_specs == {ALIAS: "K4200:1"}
    assert not [f for f in desired.findings if "img_hide_hypervisor_id" in f"{f.message}{f.remedy}"]
    assert want(f"{{f: {{model: gtx, {SMALL}}}}}").flavors[0].extra_specs == {ALIAS: "gtx:1"}
    assert want(f"{{f: {{model: gtx, {SMALL}, windows: true}}}}").flavors[0].extra_specs["hw:hide_hypervisor_id"]


def test_a_flavor_fits_where_one_host_does() -> None:
    flavor = f"{{f: {{model: k4200, count: 3, {SMALL}, numa: {{policy: required, nodes: 1}}}}}}"
    assert codes(want(flavor, host())) == ["GPU411"]
    assert codes(want(flavor, host(), host("gpu2", nodes=(4, 0)))) == []


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        (("", ""), []),
        (("preferred", ""), []),
        (("required", ""), ["GPU411"]),
        (("preferred", "required"), ["GPU411"]),
        (("required", "legacy"), ["GPU411"]),
    ],
)
def test_the_models_policy_counts_where_the_flavor_has_none(policies: tuple[str, str], expected: list[str]) -> None:
    first, second = (f", numa_policy: {policy}" if policy else "" for policy in policies)
    text = (
        f'version: 1\nmodels: {{a: {{match: {{vendor: "10de", product: "11b4"}}{first}}},\n'
        f'  b: {{match: {{vendor: "10de", product: "15f8"}}{second}}}}}\nhosts: {{"gpu*": [a, b]}}\n'
        f"flavors: {{f: {{gpus: {{a: 2, b: 1}}, {SMALL}, numa: {{nodes: 1}}}}}}\n"
    )
    facts = host()
    third = facts.pci[2].model_copy(update={"product": "15f8"})
    facts = facts.with_pci([*facts.pci[:2], third, *facts.pci[3:]])
    assert codes(wanted(parse_spec(text, "spec"), release=release("2025.2"), hosts=[facts])) == expected


def test_virtual_functions_with_a_type_are_described_by_it() -> None:
    text = (
        "version: 1\nmodels: {a16: {match: {vendor: '10de', product: '25b6'}, vgpu: {type: A16-8Q}}}\n"
        f"hosts: {{gpu01: [a16]}}\nflavors: {{'f{{count}}': {{model: a16, count: [1, 2], {SMALL}}}}}\n"
    )
    facts = mediated_host(*parted("0000:41:00.0", 2, current="711"))
    found = wanted(parse_spec(text, "spec"), release=release("2025.2"), hosts=[facts]).flavors
    assert [(flavor.description, flavor.gpus) for flavor in found] == [
        ("A16-8Q", {"a16": 1}),
        ("2 x A16-8Q", {"a16": 2}),
    ]


@pytest.mark.parametrize(
    ("bar", "count", "expected"),
    [(32 * GIB, 3, []), (64 * GIB, 2, ["GPU415"]), (64 * GIB, 1, []), (96 * GIB, 1, ["GPU415"])],
)
def test_large_bars_are_counted_as_they_are_placed(bar: int, count: int, expected: list[str]) -> None:
    flavor = f"model: k4200, count: {count}, {SMALL}"
    assert codes(want(f"{{f: {{{flavor}}}}}", host(bar=bar))) == expected
    assert codes(want(f"{{f: {{{flavor}, maxphysaddr: passthrough}}}}", host(bar=bar))) == []


BOTH = "room for 0 of 2 with UEFI firmware and 2 of 2 with BIOS firmware"
UEFI = "room for 0 of 2 with UEFI firmware"
SET, FEWER = "set maxphysaddr: passthrough", "request fewer GPUs"


@pytest.mark.parametrize(
    ("more", "bits", "nova", "message", "advice"),
    [
        ("", None, "2025.2", BOTH, SET),
        ("", 46, "2025.2", BOTH, SET),
        ("", 46, "2023.2", BOTH, "cpu_mode = host-passthrough"),
        ("", 39, "2025.2", BOTH, FEWER),
        (", windows: true", 46, "2025.2", UEFI, SET),
        (', extra_specs: {"os:secure_boot": "required"}', 46, "2025.2", UEFI, SET),
        (', extra_specs: {"hw:mem_encryption": "True"}', 46, "2025.2", UEFI, SET),
        (', extra_specs: {"hw:mem_encryption": "False"}', 46, "2025.2", BOTH, SET),
        (", maxphysaddr: passthrough", 46, "2025.2", "", ""),
        (", maxphysaddr: passthrough", 39, "2025.2", "39 address bits: " + BOTH, FEWER),
        (', extra_specs: {"hw:maxphysaddr_mode": "passthrough"}', 46, "2025.2", "", ""),
        (', extra_specs: {"hw:maxphysaddr_mode": "emulate", "hw:maxphysaddr_bits": "42"}', 46, "2025.2", "", ""),
        (
            ', extra_specs: {"hw:maxphysaddr_mode": "emulate", "hw:maxphysaddr_bits": "41"}',
            46,
            "2025.2",
            "41 address bits: " + BOTH.replace("0 of 2", "1 of 2"),
            SET,
        ),
        (', extra_specs: {"hw:maxphysaddr_mode": "emulate"}', 46, "2025.2", BOTH, SET),
        (', extra_specs: {"hw:maxphysaddr_bits": "42"}', 46, "2025.2", BOTH, SET),
        (", secure_boot: true", 46, "2025.2", UEFI, SET),
    ],
)
def test_the_finding_counts_by_firmware_and_address_width(
    more: str, bits: int | None, nova: str, message: str, advice: str
) -> None:
    flavor = f"{{f: {{model: k4200, count: 2, {SMALL}{more}}}}}"
    found = [f for f in want(flavor, host(bar=128 * GIB, bits=bits), nova=nova).findings if f.code == "GPU415"]
    assert [f.message.endswith(message) and advice in (f.remedy or "") for f in found] == [True] * bool(message)


@pytest.mark.parametrize(
    ("ram", "bars", "count", "uefi", "bios"),
    [(512, [128] * 4, 4, 0, 3), (8, [1, 128], 1, 0, 1), (8, [1, 1, 128], 2, 1, 2)],
)
def test_the_largest_bars_are_placed_beside_the_ram(
    ram: int, bars: list[int], count: int, uefi: int, bios: int
) -> None:
    facts = host(nodes=(len(bars),))
    pci = [
        function.model_copy(update={"bars": (function.bars[0].model_copy(update={"size": size * GIB}),)})
        for function, size in zip(facts.pci, bars, strict=True)
    ]
    flavor = f"{{f: {{model: k4200, count: {count}, vcpus: 4, ram: {ram}GiB, disk: 10}}}}"
    (found,) = want(flavor, facts.with_pci(pci)).findings
    assert found.message == (
        f"maps {sum(sorted(bars)[-count:])} GiB of GPU memory beside {ram} GiB of RAM with 40 address bits: room for"
        f" {uefi} of {count} with UEFI firmware and {bios} of {count} with BIOS firmware"
    )


def test_the_host_with_the_least_room_is_reported() -> None:
    hosts = [host("gpu1", bar=64 * GIB), host("gpu2", bar=256 * GIB), host("gpu3", bar=128 * GIB)]
    desired = want(f"{{f: {{model: k4200, count: 2, {SMALL}}}}}", *hosts)
    (found,) = desired.findings
    assert found.message.startswith("maps 512 GiB of GPU memory")
    assert "0 of 2 with UEFI" in found.message


def test_bars_that_the_firmware_places_below_4_gib_need_no_address_bits() -> None:
    small = host(bar=128 * GIB, prefetchable=False)
    assert codes(want(f"{{f: {{model: k4200, count: 4, {SMALL}}}}}", small)) == []


def test_the_laws_are_those_of_x86() -> None:
    arm = host(bar=128 * GIB).model_copy(update={"architecture": "aarch64"})
    assert codes(want(f"{{f: {{model: k4200, count: 4, {SMALL}}}}}", arm)) == []


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("pci_passthrough:alias", "K4200:1,P100:2", False),
        ("pci_passthrough:alias", "K4200", True),
        ("hw:mem_page_size", "1GB", False),
        ("hw:mem_page_size", "huge", True),
        ("hw:cpu_policy", "dedicated", False),
        ("hw:cpu_policy", "mixed", True),
        ("hw:pci_numa_affinity_policy", "socket", True),
        ("hw:maxphysaddr_mode", "passthrough", False),
        ("hw:maxphysaddr_mode", "host", True),
        ("gpustack:sets", "anything", False),
        ("quota:vif_inbound_average", "1", True),
    ],
)
def test_nova_is_asked_about_all_but_what_every_release_takes(key, value, expected):
    assert needs_judging(key, value) == expected


@pytest.mark.parametrize(
    ("numa", "network", "expected"),
    [
        ("policy: required, nodes: 1", "", ["GPU888"]),  # the flavor's policy is that of ports too
        ("policy: required, nodes: 1", ", numa_policy: required", ["GPU888"]),
        ("policy: required, nodes: 1", ", numa_policy: preferred", []),
        ("policy: required, nodes: 2", ", numa_policy: required", []),
        ("policy: preferred, nodes: 1", ", numa_policy: required", []),
    ],
)
@pytest.mark.parametrize("near", [False, True])
def test_ports_that_no_host_has_beside_the_gpus(numa: str, network: str, expected: list[str], near: bool) -> None:
    """The GPUs are on node 0; the network card is on node 1, or on both on another host."""
    cards = network_card(0x1A, 2, "ens1", node=1)
    hosts = [_with(host(nodes=(2, 0)), cards)]
    if near:
        hosts.append(_with(host("gpu2", nodes=(2, 0)), [*cards, *network_card(0x1B, 1, "ens2", node=0)]))
    text = (
        'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {"gpu*": [k4200]}\n'
        f'networks: {{rdma: {{match: {{vendor: "8086", product: "10ca"}}, physical_network: a{network}}}}}\n'
        f"flavors: {{f: {{model: k4200, {SMALL}, numa: {{{numa}}}}}}}\n"
    )
    assert codes(wanted(parse_spec(text, "spec"), release=release("2025.2"), hosts=hosts)) == ([] if near else expected)


def test_networks_without_any_virtual_function_are_not_reported_as_far_away() -> None:
    """They are created with the next boot; `nova render` reports that they are missing."""
    text = (
        'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {"gpu*": [k4200]}\n'
        "networks: {rdma: {match: {interfaces: [ens1]}, physical_network: a, vfs: 2, numa_policy: required}}\n"
        f"flavors: {{f: {{model: k4200, {SMALL}, numa: {{policy: required, nodes: 1}}}}}}\n"
    )
    facts = _with(host(nodes=(2, 0)), network_card(0x1A, 0, "ens1", node=0))
    assert codes(wanted(parse_spec(text, "spec"), release=release("2025.2"), hosts=[facts])) == []


def _with(facts: Host, functions: list[Raw]) -> Host:
    return facts.with_pci([*facts.pci, *(Function.model_validate(each) for each in functions)])


@pytest.mark.parametrize("memory", [0, 480 * 1024])
def test_a_numa_node_without_cpus_holds_no_instance(memory: int) -> None:
    """Superchips have nodes for the memory of their GPUs, and expanders have one for theirs."""
    facts = host()
    added = facts.numa_nodes[0].model_copy(update={"node": 2, "cpus": "", "memory_mib": memory})
    facts = facts.model_copy(update={"numa_nodes": (*facts.numa_nodes, added)})
    assert codes(want(f"{{f: {{model: k4200, {SMALL}, numa: {{nodes: 3}}}}}}", facts)) == ["GPU413", "GPU411"]
