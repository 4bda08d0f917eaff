"""The cloud's flavor counts, not the spec's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpustack.cloud.flavors import Flavor, Sizes
from gpustack.nova_options.releases import release
from gpustack.nova_options.scheduler import Scheduler
from gpustack.offer.flavor.desired import wanted
from gpustack.offer.flavor.flavors import WantedFlavor
from gpustack.operate.capacity.aggregates import IMAGES
from gpustack.operate.capacity.flavors import demand_of, demands
from gpustack.operate.capacity.model import Demand
from gpustack.spec.extra_specs import ALIAS
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec

SPEC = parse_spec('version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {g: [k4200]}\n', "s")
SIZES = Sizes(vcpus=2, ram=1024, disk=10)
SPECS = {"pci_passthrough:alias": "k4200:1"}
WANTED = WantedFlavor(name="g1", sizes=SIZES, gpus={"k4200": 1}, extra_specs=SPECS)
PRESENT = Flavor(id="1", name="g1", sizes=SIZES, extra_specs={**SPECS, "gpustack:sets": "pci_passthrough:alias"})


def test_equal_flavors_have_no_finding() -> None:
    found, findings = demands(SPEC, [WANTED], {"g1": PRESENT})
    assert [(need.gpus, need.in_cloud) for need in found] == [({"k4200": 1}, True)]
    assert not findings


def test_a_difference_is_a_finding_and_the_cloud_counts() -> None:
    specs = {"pci_passthrough:alias": "k4200:8", "trait:CUSTOM_A": "required"}
    changed = replace(PRESENT, sizes=replace(SIZES, vcpus=4), extra_specs=specs)
    (need,), (finding,) = demands(SPEC, [WANTED], {"g1": changed})
    assert (need.count, need.vcpus, need.required) == (8, 4, {"CUSTOM_A"})
    assert finding.code == "GPU570"
    for text in ("vcpus is 4, the spec has 2", "trait:CUSTOM_A is required", "k4200:8, the spec has k4200:1"):
        assert text in finding.message


def test_a_flavor_of_the_spec_only_is_marked() -> None:
    (need,), (finding,) = demands(SPEC, [WANTED], {})
    assert (need.count, need.in_cloud, finding.code) == (1, False, "GPU571")
    assert not demands(SPEC, [WANTED], None)[1]


def test_an_alias_that_the_spec_lacks_is_unknown() -> None:
    other = replace(PRESENT, extra_specs={"pci_passthrough:alias": "h100:1"})
    (need,), _ = demands(SPEC, [WANTED], {"g1": other})
    assert need.unknown == ("h100",)


SPEC_TEXT = """
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}, numa_policy: required}
  p100: {match: {vendor: "10de", product: "15f8"}}
hosts: {gpu1: [k4200, p100]}
nova: {release: "2025.2"}
flavors:
  f: {vcpus: 4, ram: 2GiB, disk: 10, FLAVOR}
"""


OWN = {"k4200": "required", "p100": "legacy"}


def needs(spec: Spec, flavor: WantedFlavor, scheduler: Scheduler | None = None) -> Demand:
    return demand_of(spec, flavor.name, flavor.sizes, flavor.extra_specs, flavor.gpus, scheduler)


def demand(text: str, scheduler: Scheduler | None = None) -> Demand:
    spec = parse_spec(SPEC_TEXT.replace("FLAVOR", text), "spec")
    (flavor,) = wanted(spec, release=release("2025.2")).flavors
    return needs(spec, flavor, scheduler)


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("model: p100", {"VCPU": 4, "MEMORY_MB": 2048, "DISK_GB": 10}),
        ("model: p100, ephemeral: 5, swap: 1025", {"VCPU": 4, "MEMORY_MB": 2048, "DISK_GB": 17}),
        ("model: p100, cpu_policy: dedicated", {"PCPU": 4, "MEMORY_MB": 2048, "DISK_GB": 10}),
        (
            'model: p100, cpu_policy: dedicated, extra_specs: {"hw:emulator_threads_policy": isolate}',
            {"PCPU": 5, "MEMORY_MB": 2048, "DISK_GB": 10},
        ),
        (
            'model: p100, extra_specs: {"resources:CUSTOM_GPU": "2", "resources:DISK_GB": "0"}',
            {"VCPU": 4, "MEMORY_MB": 2048, "CUSTOM_GPU": 2},
        ),
        ('model: p100, extra_specs: {"resources1:DISK_GB": "10"}', {"VCPU": 4, "MEMORY_MB": 2048}),
    ],
)
def test_amounts_are_those_of_novas_request(text: str, amounts: dict[str, int]) -> None:
    assert demand(text).amounts == amounts


DEDICATED = "model: p100, cpu_policy: dedicated"
MIXED = 'model: p100, extra_specs: {"hw:cpu_policy": mixed, "hw:cpu_dedicated_mask": "0-1"}'


@pytest.mark.parametrize(
    ("text", "fallback", "amounts"),
    [
        ("model: p100", None, None),
        (MIXED, None, None),
        (DEDICATED, None, {"VCPU": 4, "MEMORY_MB": 2048, "DISK_GB": 10}),
        (DEDICATED, True, {"VCPU": 4, "MEMORY_MB": 2048, "DISK_GB": 10}),
        (DEDICATED, False, None),
    ],
)
def test_dedicated_processors_have_a_second_request_for_shared_ones(
    text: str, fallback: bool | None, amounts: dict[str, int] | None
) -> None:
    second = demand(text, Scheduler(fallback=fallback)).fallback
    assert (second and second.amounts) == amounts


@pytest.mark.parametrize(("by_devices", "classes"), [(True, ("CUSTOM_PCI_10DE_15F8",)), (False, ())])
def test_resource_classes_count_if_nova_schedules_by_devices(by_devices: bool, classes: tuple[str, ...]) -> None:
    assert demand("model: p100", Scheduler(by_devices=by_devices)).classes == classes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: p100", {"nodes": None, "policies": {"p100": "legacy"}, "dedicated": False}),
        ("model: k4200", {"nodes": None, "policies": {"k4200": "required"}}),
        ("model: k4200, numa: {policy: preferred, nodes: 2}", {"nodes": 2, "policies": {"k4200": "preferred"}}),
        ("model: p100, cpu_policy: dedicated", {"nodes": 1, "dedicated": True}),
        ("model: p100, mem_page_size: large", {"nodes": 1, "unmodelled": ()}),
        ("gpus: {k4200: 1, p100: 2}", {"gpus": {"k4200": 1, "p100": 2}, "count": 3, "policies": OWN}),
        ("model: p100, maxphysaddr: passthrough", {"required": {"COMPUTE_ADDRESS_SPACE_PASSTHROUGH"}}),
        (
            'model: p100, extra_specs: {"trait:CUSTOM_A": required, "trait:CUSTOM_B": forbidden}',
            {"required": {"CUSTOM_A"}, "forbidden": {"CUSTOM_B"}, "unmodelled": ()},
        ),
        ('model: p100, extra_specs: {"resources1:VCPU": "2"}', {"unmodelled": ("resources1:VCPU",)}),
        ('model: p100, extra_specs: {"rack": "a"}', {"unmodelled": ("rack",)}),
        ("model: p100, hide_hypervisor: true", {"unmodelled": (), "aggregate": {}}),
        (
            'model: p100, extra_specs: {"aggregate_instance_extra_specs:rack": a}',
            {"unmodelled": (), "aggregate": {"rack": "a"}},
        ),
    ],
)
def test_topology_traits_and_what_is_not_counted(text: str, expected: dict[str, Any]) -> None:
    found = demand(text)
    nodes = len(found.topology.nodes) if found.topology else None
    shown = {"nodes": nodes, "dedicated": bool(found.topology and found.topology.pinned)}
    assert {name: shown[name] if name in shown else getattr(found, name) for name in expected} == expected


def test_an_enabled_filter_also_requires_keys_without_namespace() -> None:
    spec = parse_spec(SPEC_TEXT.replace("FLAVOR", 'model: p100, extra_specs: {"rack": a}'), "spec")
    (flavor,) = wanted(spec, release=release("2025.2")).flavors
    for filters, expected in (({"AggregateInstanceExtraSpecsFilter"}, {"rack": "a"}), ({"ComputeFilter"}, {})):
        assert needs(spec, flavor, Scheduler(filters=tuple(filters))).aggregate == expected


VGPUS = parse_spec(
    """
version: 1
models:
  large: {match: {vendor: "10de", product: "25b6"}, vgpu: {type: A16-8Q}, traits: [CUSTOM_LARGE]}
  small: {match: {vendor: "10de", product: "25b7"}, vgpu: {type: A16-4Q, resource_class: CUSTOM_A16_4Q}}
hosts: {g: [large, small]}
""",
    "gpustack.yaml",
)


@pytest.mark.parametrize(
    ("specs", "gpus", "amounts", "required"),
    [
        ({"resources:VGPU": "1"}, {"VGPU": 1}, set(), frozenset()),
        ({"resources:VGPU": "2", "trait:CUSTOM_LARGE": "required"}, {"VGPU CUSTOM_LARGE": 2}, set(), frozenset()),
        (
            {"resources:VGPU": "1", "resources:CUSTOM_A16_4Q": "1", "trait:CUSTOM_LARGE": "required"},
            {"VGPU CUSTOM_LARGE": 1, "CUSTOM_A16_4Q": 1},
            set(),
            frozenset(),
        ),
        ({"resources1:CUSTOM_A16_4Q": "1", "resources2:CUSTOM_A16_4Q": "1"}, {"CUSTOM_A16_4Q": 2}, set(), frozenset()),
        ({"resources:CUSTOM_OTHER": "1"}, {}, {"CUSTOM_OTHER"}, frozenset()),
        ({"trait:CUSTOM_LARGE": "required"}, {}, set(), frozenset({"CUSTOM_LARGE"})),
    ],
)
def test_vgpus_are_requested_by_class_and_traits(
    specs: dict[str, str], gpus: dict[str, int], amounts: set[str], required: frozenset[str]
) -> None:
    need = demand_of(VGPUS, "f", SIZES, specs, {})
    assert (need.gpus, need.required, need.unknown) == (gpus, required, ())
    assert need.amounts.keys() - {"VCPU", "MEMORY_MB", "DISK_GB"} == amounts


@pytest.mark.parametrize(
    ("specs", "vgpus", "unmodelled"),
    [
        ({"resources:VGPU": "2"}, {"VGPU": False}, ()),
        ({"resources1:VGPU": "1", "resources2:VGPU": "1"}, {"VGPU": True}, ()),
        ({"resources1:VGPU": "2", "resources2:VGPU": "1"}, {"VGPU": True}, ("resources1:VGPU",)),
    ],
)
def test_numbered_groups_have_vgpus_of_several_providers(
    specs: dict[str, str], vgpus: dict[str, bool], unmodelled: tuple[str, ...]
) -> None:
    need = demand_of(VGPUS, "f", SIZES, specs, {})
    assert (need.vgpus, need.unmodelled) == (vgpus, unmodelled)


@pytest.mark.parametrize(
    ("specs", "image", "unmodelled"),
    [
        ({"hw:virtio_packed_ring": "true", "accel:device_profile": "p"}, {}, ["accel:", "hw:virtio_packed_ring"]),
        ({}, {"hw_architecture": "x86_64", "img_hv_type": "kvm", "vm_mode": "HVM", "os_distro": "debian"}, []),
        ({}, {"architecture": "aarch64"}, ["the image's architecture"]),
        ({"hw:sound_model": "virtio"}, {}, ["hw:sound_model"]),
        ({"hw:sound_model": "ich9"}, {"hw_sound_model": "ich9"}, []),
        ({}, {"hw_sound_model": "virtio"}, ["the image's hw_sound_model"]),
        ({"rack": "a:b"}, {}, ["rack"]),
        ({}, {"hypervisor_type": "xen"}, ["the image's hypervisor_type"]),
        ({}, {"hw_mem_encryption": "true", "hw_firmware_stateless": "false"}, ["the image's hw_mem_encryption"]),
    ],
)
def test_properties_of_images_restrict_hosts_too(
    specs: dict[str, str], image: dict[str, str], unmodelled: list[str]
) -> None:
    found = demand_of(VGPUS, "f", SIZES, specs, {}, image=image).unmodelled
    assert [name.replace("device_profile", "") for name in found] == unmodelled


@pytest.mark.parametrize(
    ("specs", "image", "refused"),
    [
        ({"hw:pci_numa_affinity_policy": "preferred", "os:secure_boot": "optional"}, {}, ""),
        ({"hw:pci_numa_affinity_policy": "strict"}, {}, "hw:pci_numa_affinity_policy is 'strict', expected legacy, "),
        ({}, {"hw_pci_numa_affinity_policy": "strict"}, "hw:pci_numa_affinity_policy is 'strict'"),
        ({"hw:maxphysaddr_mode": "host"}, {}, "hw:maxphysaddr_mode is 'host', expected emulate, passthrough"),
        ({"os:secure_boot": "yes"}, {}, "os:secure_boot is 'yes'"),
        ({"hw:tpm_version": "2"}, {}, "hw:tpm_version is '2', expected 1.2, 2.0"),
        ({ALIAS: "k4200: 1 ,p100:+2"}, {}, ""),
        ({ALIAS: "k4200"}, {}, "pci_passthrough:alias is 'k4200', expected ALIAS:NUMBER"),
        ({ALIAS: "k4200:1,"}, {}, "pci_passthrough:alias is 'k4200:1,'"),
        ({ALIAS: ""}, {}, "pci_passthrough:alias is ''"),
    ],
)
def test_values_that_nova_does_not_know_are_refused(specs: dict[str, str], image: dict[str, str], refused: str) -> None:
    need = demand_of(VGPUS, "f", SIZES, specs, {}, None, image)
    assert need.refused.startswith(refused)
    assert bool(need.refused) == bool(refused)


@pytest.mark.parametrize(
    ("release_name", "more", "trait"),
    [
        ("2025.2", {}, None),
        ("2030.1", {}, None),  # a release that gpustack does not know
        ("2026.1", {}, "USER"),
        ("2026.2", {"hw:tpm_secret_security": "host"}, "HOST"),
    ],
)
def test_a_tpm_requires_a_trait_for_its_secret(release_name: str, more: dict[str, str], trait: str | None) -> None:
    spec = parse_spec(SPEC_TEXT.replace("2025.2", release_name).replace("FLAVOR", "model: p100"), "spec")
    required = demand_of(spec, "f", SIZES, {"hw:tpm_version": "2.0", **more}, {}).required
    prefix = "COMPUTE_SECURITY_TPM_"
    secrets = {f"{prefix}SECRET_SECURITY_{trait}"} if trait else set()
    assert required == {f"{prefix}TIS", f"{prefix}2_0", *secrets}


@pytest.mark.parametrize(
    ("specs", "amounts"),
    [
        ({"resources:CUSTOM_A": "+2", "resources:VGPU_DISPLAY_HEAD": " 1 "}, {"CUSTOM_A": 2, "VGPU_DISPLAY_HEAD": 1}),
        ({"resources:vcpu": "4", "resources:GPUS": "1"}, {}),
        ({"resources:VCPU": "-1"}, {}),
        ({"resources1:VCPU": "1.5"}, {}),
        ({"resources:VCPU": "0", "resources:MEMORY_MB": "1_0"}, {"VCPU": 0, "MEMORY_MB": 10}),
    ],
)
def test_classes_and_amounts_that_nova_ignores_request_nothing(specs: dict[str, str], amounts: dict[str, int]) -> None:
    plain = demand_of(VGPUS, "f", SIZES, {}, {}).amounts
    found = demand_of(VGPUS, "f", SIZES, specs, {}).amounts
    assert found == {name: amount for name, amount in {**plain, **amounts}.items() if amount}


@pytest.mark.parametrize(
    ("placement", "gpus", "doubts"),
    [
        ("off", {"card": 1, "part": 1}, ("the order of card, part",)),
        ("off", {"part": 2}, ()),
        ("schedule", {"card": 1, "part": 1}, ()),  # Nova offers either the card or its functions
    ],
)
def test_cards_beside_virtual_functions_are_a_doubt(placement: str, gpus: dict[str, int], doubts: list[str]) -> None:
    text = f"""
version: 1
models:
  card: {{match: {{vendor: "10de", product: "25b6"}}}}
  part: {{match: {{vendor: "10de", product: "25b7", function: virtual}}}}
hosts: {{gpu1: [card, part]}}
nova: {{release: "2025.2", placement: "{placement}"}}
"""
    assert demand_of(parse_spec(text, "spec"), "f", SIZES, {}, gpus).unmodelled == doubts


def test_an_alias_without_devices_is_a_doubt() -> None:
    """Placement gets no request for it, and the scheduler refuses hosts without a free device that matches."""
    assert demand_of(VGPUS, "f", SIZES, {ALIAS: "k4200:0"}, {"k4200": 0}).unmodelled == ("k4200:0",)


def test_aggregates_of_images_are_a_doubt_with_an_image() -> None:
    known = Scheduler(filters=(IMAGES,))
    for image, names in (({"os_distro": "debian"}, (IMAGES,)), (None, ())):
        assert demand_of(VGPUS, "f", SIZES, {}, {}, known, image).unmodelled == names


def test_options_about_images_are_a_doubt_with_an_image() -> None:
    known = Scheduler(by_image=("[scheduler] image_metadata_prefilter",))
    for image, names in (({"hw_disk_bus": "scsi"}, known.by_image), (None, ())):
        assert demand_of(VGPUS, "f", SIZES, {}, {}, known, image).unmodelled == names


def test_nova_reads_only_required_traits_of_an_image() -> None:
    image = {"trait:CUSTOM_A": "required", "trait:CUSTOM_B": "forbidden", "trait:HW_CPU_HYPERTHREADING": "forbidden"}
    found = demand_of(VGPUS, "f", SIZES, {"hw:cpu_policy": "shared"}, {}, image=image)
    assert (found.required, found.forbidden, found.refused) == ({"CUSTOM_A"}, frozenset(), "")


@pytest.mark.parametrize(
    ("nova", "gpus", "unmodelled"),
    [
        ("", {"any-gpu": 1, "k4200": 1}, ("the order of any-gpu, k4200",)),
        ("", {"any-gpu": 2}, ()),
        ("", {"p100": 1, "k4200": 1}, ()),
        (", placement: schedule, class_by: pool", {"any-gpu": 1, "k4200": 1}, ()),
    ],
)
def test_aliases_of_the_same_gpus_are_a_doubt(nova: str, gpus: dict[str, int], unmodelled: tuple[str, ...]) -> None:
    """Without PCI in Placement, ``any-gpu`` may take the only GPU of ``k4200``."""
    text = SPEC_TEXT.replace("FLAVOR", "gpu: {}").replace('"2025.2"', f'"2025.2"{nova}')
    assert demand_of(parse_spec(text, "spec"), "f", SIZES, {}, gpus).unmodelled == unmodelled
