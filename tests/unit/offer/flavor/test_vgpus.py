"""Flavors of vGPUs: by resource class where they are mediated devices, by alias where they are virtual functions."""

from __future__ import annotations

import pytest

from gpustack.hosts.facts.model import Host
from gpustack.nova_options.releases import release
from gpustack.offer.flavor.desired import Wanted, wanted
from gpustack.offer.flavor.flavors import SETS, PresentFlavor, sets_mark
from gpustack.spec.extra_specs import ALIAS
from gpustack.spec.load import parse_spec
from support.mediated_hosts import card, mediated_host, parted

FIRST, SECOND = "0000:41:00.0", "0000:42:00.0"
SIZES = "vcpus: 4, ram: 8GiB, disk: 10"
LARGE = f'large: {{match: {{vendor: "10de", product: "25b6", addresses: ["{FIRST}"]}}, vgpu: {{type: A16-8Q}}}}'
SMALL = f'small: {{match: {{vendor: "10de", product: "25b6", addresses: ["{SECOND}"]}}, vgpu: {{type: A16-4Q}}}}'
OWN_CLASS = SMALL.replace("A16-4Q", "A16-4Q, resource_class: CUSTOM_A16_4Q")
MEDIATED = mediated_host(card(FIRST), card(SECOND))
VIRTUAL = mediated_host(*parted(FIRST, 2, current="711"), name="gpu02")


def flavors(text: str, models: str, *hosts: Host, nova: str = "2025.2", more: str = "") -> Wanted:
    names = [model.partition(":")[0] for model in models.split("\n")]
    document = f"version: 1\nmodels: {{{models.replace(chr(10), ', ')}}}\nhosts: {{'gpu*': [{', '.join(names)}]}}\n"
    spec = parse_spec(f"{document}nova: {{release: '{nova}'{more}}}\nflavors: {text}\n", "spec")
    return wanted(spec, release=release(nova), hosts=hosts)


def specs(desired: Wanted) -> dict[str, dict[str, str]]:
    return {flavor.name: dict(flavor.extra_specs) for flavor in desired.flavors}


def codes(desired: Wanted) -> list[str]:
    return [f.code for f in desired.findings]


def test_mediated_devices_are_requested_by_class():
    desired = flavors(f"{{a: {{model: large, count: 2, {SIZES}}}}}", LARGE, MEDIATED)
    assert specs(desired) == {"a": {"resources:VGPU": "2"}}
    assert [flavor.description for flavor in desired.flavors] == ["2 x A16-8Q"]
    assert codes(desired) == []


def test_an_instance_gets_the_devices_of_one_card():
    both = LARGE.replace(f', addresses: ["{FIRST}"]', "")
    desired = flavors(f"{{'a{{count}}': {{model: large, count: [2, 3], {SIZES}}}}}", both, MEDIATED)
    (found,) = desired.findings
    assert (found.code, found.place) == ("GPU410", "a3")
    assert "has 2 of large" in found.message
    parts = flavors(f"{{a: {{model: large, count: 2, {SIZES}}}}}", both, VIRTUAL)
    assert codes(parts) == []  # Nova takes PCI devices of any card


def test_virtual_functions_with_types_are_requested_by_alias():
    desired = flavors(f"{{a: {{model: large, {SIZES}}}}}", LARGE, VIRTUAL)
    assert specs(desired) == {"a": {ALIAS: "large:1"}}


def test_types_of_one_class_are_told_apart_by_traits():
    text = f"{{a: {{model: large, {SIZES}}}, b: {{model: small, {SIZES}}}}}"
    desired = flavors(text, f"{LARGE}\n{SMALL}", MEDIATED)
    trait = {name: f"trait:CUSTOM_GPU_MODEL_{name.upper()}" for name in ("large", "small")}
    assert specs(desired) == {
        "a": {"resources:VGPU": "1", trait["large"]: "required"},
        "b": {"resources:VGPU": "1", trait["small"]: "required"},
    }
    desired = flavors(text, f"{LARGE}\n{OWN_CLASS}", MEDIATED)
    assert specs(desired) == {"a": {"resources:VGPU": "1"}, "b": {"resources:CUSTOM_A16_4Q": "1"}}


@pytest.mark.parametrize(
    ("models", "nova", "expected"),
    [
        (f"{LARGE}\n{OWN_CLASS}", "2025.2", ["GPU975"]),  # Nova takes the first allocation
        (f"{LARGE}\n{OWN_CLASS}", "2026.1", []),
        (f"{LARGE}\n{SMALL}", "2026.1", ["GPU975"]),  # one amount of one class
    ],
)
def test_vgpus_of_two_providers_depend_on_the_release(models, nova, expected):
    desired = flavors(f"{{a: {{gpus: {{large: 1, small: 1}}, {SIZES}}}}}", models, MEDIATED, nova=nova)
    assert codes(desired) == expected
    assert [flavor.name for flavor in desired.flavors] == ([] if expected else ["a"])


def test_a_virtual_function_has_one_mediated_device():
    host = mediated_host(*parted(FIRST, 4, mdev=True))
    text = f"{{a: {{model: large, count: [1, 2], {SIZES}}}}}".replace("a:", "'a{count}':")
    desired = flavors(text, LARGE, host)
    assert codes(desired) == ["GPU975"]
    assert specs(desired) == {"a1": {"resources:VGPU": "1"}}


def test_without_facts_no_flavor_of_vgpus_is_guessed():
    desired = flavors(f"{{a: {{model: large, {SIZES}}}}}", LARGE)
    assert (codes(desired), desired.flavors) == (["GPU976"], ())


def test_hosts_of_both_frameworks_need_two_models():
    desired = flavors(f"{{a: {{model: large, {SIZES}}}}}", LARGE, MEDIATED, VIRTUAL)
    assert (codes(desired), desired.flavors) == (["GPU977"], ())


def test_flavors_by_memory_use_the_memory_of_the_type():
    text = f"{{a: {{gpu: {{min_memory: 8GiB}}, {SIZES}}}, b: {{gpu: {{min_memory: 4GiB}}, {SIZES}}}}}"
    desired = flavors(text, f"{LARGE}\n{SMALL}", MEDIATED)
    assert specs(desired) == {
        "a": {"resources:VGPU": "1", "trait:CUSTOM_GPU_MEM_GE_8GB": "required"},
        "b": {"resources:VGPU": "1", "trait:CUSTOM_GPU_MEM_GE_4GB": "required"},
    }
    desired = flavors(text, f"{LARGE}\n{OWN_CLASS}", MEDIATED)
    assert codes(desired) == ["GPU780"]
    assert specs(desired)["a"]["resources:VGPU"] == "1"


def test_auto_divides_a_host_by_its_vgpus():
    host = MEDIATED.model_copy(update={"memory_mib": 72 * 1024})
    text = "{a: {model: large, vcpus: 1, disk: 1, per_gpu: {ram: auto}}}"
    (flavor,) = flavors(text, f"{LARGE}\n{SMALL}", host).flavors
    assert flavor.sizes.ram == 64 * 1024 // 6 // 1024 * 1024, "two of one type and four of the other"


@pytest.mark.parametrize(
    ("keys", "removed", "half"),
    [
        (["resources:VGPU"], None, False),
        (["resources:VGPU"], "resources:VGPU", True),
        ([ALIAS, "resources:CUSTOM_GPU_QUOTA_A"], None, False),
        ([ALIAS, "resources:CUSTOM_GPU_QUOTA_A"], ALIAS, True),
        (["resources:VGPU"], SETS, True),
    ],
)
def test_a_flavor_without_its_request_is_half_made(keys, removed, half):
    extra_specs = dict.fromkeys(keys, "1") | sets_mark(keys)
    extra_specs.pop(removed, None)
    sizes = flavors(f"{{a: {{model: large, {SIZES}}}}}", LARGE, MEDIATED).flavors[0].sizes
    present = PresentFlavor(
        id="1", name="a", sizes=sizes, public=True, description="a [gpustack]", extra_specs=extra_specs
    )
    assert (present.half_made, present.managed) == (half, not half)
