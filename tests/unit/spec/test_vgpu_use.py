"""The mediated devices that Nova offers for a spec, and how flavors request vGPUs."""

from __future__ import annotations

import pytest

from gpustack.spec.attributes import memory_of
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from gpustack.spec.vgpu_use import (
    devices,
    frameworks,
    needs_licensed_driver,
    offered_vgpus,
    with_memory,
)
from support.mediated_hosts import card, mediated_host, parted

FIRST, SECOND = "0000:41:00.0", "0000:42:00.0"
MODELS = (
    'a: {match: {vendor: "10de", product: "25b6"}, vgpu: {type: A16-8Q}},'
    ' b: {match: {vendor: "10de", product: "20b5"}, vgpu: {type: A100-1-5C, mig: 1g.5gb}, traits: [CUSTOM_MIG]}'
)


def spec(more: str = "", models: str = MODELS) -> Spec:
    return parse_spec(f"version: 1\nmodels: {{{models}}}\nhosts: {{'gpu*': [a]}}\n{more}", "spec")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("", [FIRST, SECOND]),
        (f'out_of_service: [{{host: gpu01, address: "{SECOND}", reason: broken}}]', [FIRST]),
        ("out_of_service: [{host: gpu01, serial: 24-6E-96-FF-FF-0A-11-20, reason: broken}]", [SECOND]),
    ],
)
def test_cards_out_of_service_are_not_offered(entry, expected):
    host = mediated_host(card(FIRST, serial="24-6e-96-ff-ff-0a-11-20"), card(SECOND, iommu_group=2))
    assert [entry.function.address for entry in offered_vgpus(spec(entry), host)] == expected


def test_a_virtual_function_is_out_of_service_with_its_card():
    host = mediated_host(*parted(FIRST, 2, mdev=True))
    out = f'out_of_service: [{{host: gpu01, address: "{FIRST}", reason: broken}}]'
    assert len(offered_vgpus(spec(), host)) == 2
    assert offered_vgpus(spec(out), host) == ()


def test_existing_and_possible_devices_of_the_type_are_counted():
    used = {"nvidia-711": "instance 1", "nvidia-710": "instance 2"}
    (entry,) = offered_vgpus(spec(), mediated_host(card(FIRST, used=used)))
    assert devices(entry) == 3


@pytest.mark.parametrize(
    ("host", "mediated", "virtual", "single"),
    [
        (mediated_host(card(FIRST)), {"a"}, set(), set()),
        (mediated_host(*parted(FIRST, 2, mdev=True)), {"a"}, set(), {"a"}),
        (mediated_host(*parted(FIRST, 2)), set(), {"a"}, set()),
        (mediated_host(card(FIRST, vgpu_framework=None, vgpu_types=[])), set(), set(), set()),
    ],
)
def test_facts_decide_the_framework(host, mediated, virtual, single):
    known = frameworks(spec(), [host])
    assert (known.mediated, known.virtual, known.single) == (mediated, virtual, single)


def test_the_memory_is_that_of_the_type():
    host = mediated_host(card(FIRST))
    assert memory_of(spec().models["a"]) is None, "that of the card would be too much"
    assert memory_of(with_memory(spec(), [host]).models["a"]) == 8
    parts = mediated_host(*parted(FIRST, 2))
    assert memory_of(with_memory(spec(), [parts]).models["a"]) == 8, "NVIDIA's list of virtual functions has names only"
    own = MODELS.replace("vgpu: {type: A16-8Q}", "vgpu: {type: A16-8Q}, memory: 7GiB")
    assert memory_of(with_memory(spec(models=own), [host]).models["a"]) == 7


def test_only_vgpus_of_nvidia_need_the_licensed_driver():
    numbers = 'a: {match: {vendor: "10de", product: "25b6"}, vfs: {count: 2, vgpu_type: 711}}'
    amd = 'a: {match: {vendor: "1002", product: "74a1"}, vgpu: {type: MxGPU}}'
    plain = 'a: {match: {vendor: "10de", product: "25b6"}, vfs: 2}'
    virtual = 'a: {match: {vendor: "10de", product: "25b6", function: virtual}}'
    needed = [needs_licensed_driver(spec(models=text).models["a"]) for text in (MODELS, numbers, virtual, amd, plain)]
    assert needed == [True, True, True, False, False]
