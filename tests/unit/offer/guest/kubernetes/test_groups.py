"""Groups of nodes by flavor: labels, resources, taints, and the flavors that make no group."""

from __future__ import annotations

import pytest

from gpustack.offer.guest.kubernetes.groups import gputype, node_groups, node_name
from gpustack.spec.load import parse_spec

HEAD = """
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}}
  p100: {match: {vendor: "10de", product: "15f8"}}
  mi300x: {match: {vendor: "1002", product: "74a1"}}
  flex: {match: {vendor: "8086", product: "56c0"}}
  b580: {match: {vendor: "8086", product: "e20b"}}
  vision: {match: {vendor: "8086", product: "ffff"}}
  a16-8q: {match: {vendor: "10de", product: "25b6"}, vgpu: {type: A16-8Q, resource_class: CUSTOM_A16_8Q}}
  a2: {match: {vendor: "10de", product: "25b7"}, vfs: {count: 2, vgpu_type: 711}}
hosts: {"gpu[01:09]": [k4200, p100, mi300x, flex, b580, vision, a16-8q, a2]}
"""
SIZES = "vcpus: 8, ram: 32GiB, disk: 40GiB"


def made(flavors):
    return node_groups(parse_spec(f"{HEAD}flavors: {flavors}", "spec.yaml"))


@pytest.mark.parametrize(
    ("model", "resource", "tainted"),
    [
        ("k4200", "nvidia.com/gpu", True),
        ("mi300x", "amd.com/gpu", False),
        ("flex", "gpu.intel.com/i915", False),
        ("b580", "gpu.intel.com/xe", False),
        ("a16-8q", "nvidia.com/gpu", True),
        ("a2", "nvidia.com/gpu", True),
    ],
)
def test_resource_and_taint_follow_the_device_plugin(model, resource, tainted):
    (group,) = made(f"{{g1: {{model: {model}, count: 2, {SIZES}}}}}").groups
    assert (group.resource, group.count, bool(group.taints)) == (resource, 2, tainted)
    assert group.labels == {"gpustack/gputype": model}


@pytest.mark.parametrize(
    ("flavor", "code"),
    [
        (f"model: k4200, {SIZES}, extra_specs: {{'resources:VGPU': '1'}}", "GPU865"),
        (f"model: k4200, {SIZES}, extra_specs: {{'resources_1:VGPU': '1'}}", "GPU865"),
        (f"model: k4200, {SIZES}, extra_specs: {{'resources:CUSTOM_A16_8Q': '1'}}", "GPU865"),
        (f"model: vision, {SIZES}", "GPU866"),
        (f"gpu: {{min_memory: 288GiB}}, {SIZES}", "GPU866"),
        (f"gpus: {{k4200: 1, mi300x: 1}}, {SIZES}", "GPU867"),
        (f"model: k4200, {SIZES}, guest: windows", "GPU907"),
    ],
)
def test_flavors_without_a_group(flavor, code):
    result = made(f"{{g1: {{{flavor}}}}}")
    assert (result.groups, [entry.code for entry in result.findings]) == ((), [code])


def test_flavors_with_the_same_name_in_kubernetes():
    result = made(
        f"{{g1.A: {{model: k4200, {SIZES}}}, g1-a: {{model: k4200, {SIZES}}}, 'x$y': {{model: k4200, {SIZES}}}}}"
    )
    assert [group.flavor for group in result.groups] == ["g1.A"]
    assert [(entry.code, entry.place) for entry in result.findings] == [("GPU870", "g1-a"), ("GPU870", "x$y")]


@pytest.mark.parametrize("name", ["1", "大", "GPU", "a" * 200, "-._-"])
def test_any_name_makes_a_name_that_charts_accept(name):
    (group,) = made(f"{{'{name}': {{model: k4200, {SIZES}}}}}").groups
    assert group.name == group.name.strip("-")
    assert group.name[0].isalpha()
    assert 3 <= len(group.name) <= 40


def test_several_models_in_a_node_share_the_label():
    result = made(f"{{g1: {{gpus: {{p100: 1, k4200: 1}}, {SIZES}}}}}")
    assert [group.gputype for group in result.groups] == ["k4200.p100"]
    assert [entry.code for entry in result.findings] == ["GPU868"]


@pytest.mark.parametrize(
    ("attributes", "label", "codes"),
    [
        ("min_memory: 4GiB, generation: Kepler", "k4200", []),
        ("min_memory: 4GiB, traits: [CUSTOM_A]", None, ["GPU869"]),
    ],
)
def test_a_selection_has_a_label_only_if_it_selects_one_model(attributes, label, codes):
    head = HEAD.replace('"11b4"}', '"11b4"}, traits: [CUSTOM_A]').replace('"15f8"}', '"15f8"}, traits: [CUSTOM_A]')
    result = node_groups(parse_spec(f"{head}flavors: {{g1: {{gpu: {{{attributes}}}, {SIZES}}}}}", "spec.yaml"))
    assert [group.gputype for group in result.groups] == [label]
    assert [entry.code for entry in result.findings] == codes


def test_models_with_one_alias_are_alternatives():
    """Nova gives a card of either model."""
    head = HEAD.replace('"11b4"}', '"11b4"}, alias: gpu').replace('"15f8"}', '"15f8"}, alias: gpu')
    result = node_groups(parse_spec(f"{head}flavors: {{g1: {{model: k4200, count: 2, {SIZES}}}}}", "spec.yaml"))
    (group,) = result.groups
    assert (group.models, group.gputype, group.mixes) == (("k4200", "p100"), None, True)
    assert [entry.code for entry in result.findings] == ["GPU869"]


def test_labels_are_values_that_kubernetes_accepts():
    assert gputype(["a" * 53 + "." * 11]).startswith("a" * 53)
    assert gputype(["k4200."]) == "k4200"


def test_long_labels_that_differ_at_the_end_stay_different():
    values = {gputype(["a" * 62, f"b{end}"]) for end in "cd"}
    assert len(values) == 2
    assert all(len(value) <= 63 for value in values)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("g1.k4200.2", "g1-k4200-2"),
        ("abc", "abc"),
        ("ab", "gpu-ab"),
        ("1abc", "gpu-1abc"),
        ("-A__b.", "a-b"),
        ("a" * 40, "a" * 40),
        ("a" * 39 + ".b", "a" * 39),
        ("", "gpu"),
    ],
)
def test_names_of_flavors_as_names_of_objects(text, name):
    assert node_name(text) == name


def test_a_label_is_cut_only_if_it_is_too_long():
    assert gputype(["a" * 63]) == "a" * 63
    cut = gputype(["a" * 64])
    assert (len(cut), cut[:55]) == (63, "a" * 54 + "-")
    assert gputype(["_k4200", "p100-"]) == "k4200.p100"


@pytest.mark.parametrize(("count", "mixes"), [(1, False), (2, True)])
def test_alternatives_mix_in_nodes_of_several_gpus(count, mixes):
    head = HEAD.replace('"11b4"}', '"11b4"}, alias: gpu').replace('"15f8"}', '"15f8"}, alias: gpu')
    flavors = f"{{g1: {{model: k4200, count: {count}, {SIZES}}}, g2: {{model: mi300x, count: 2, {SIZES}}}}}"
    first, second = node_groups(parse_spec(f"{head}flavors: {flavors}", "spec.yaml")).groups
    assert (first.mixes, first.kinds, first.labels) == (mixes, (("k4200",), ("p100",)), {})
    assert (second.mixes, second.kinds, second.labels) == (False, (("mi300x",),), {"gpustack/gputype": "mi300x"})


def test_flavors_are_selected_by_name():
    flavors = f"{{g1: {{model: k4200, {SIZES}}}, g2: {{model: p100, {SIZES}, guest: windows}}}}"
    spec = parse_spec(f"{HEAD}flavors: {flavors}", "spec.yaml")
    found = node_groups(spec, flavors=["g1"])
    assert ([group.flavor for group in found.groups], found.findings) == (["g1"], ())
    assert [entry.code for entry in node_groups(spec, flavors=["g2"]).findings] == ["GPU907"]


def test_a_group_without_the_facts_for_its_sizes_has_the_reason():
    auto = "per_gpu: {vcpus: auto, ram: 1GiB}, disk: 1"
    (group,) = made(f"{{g1: {{model: k4200, {auto}}}}}").groups
    assert (group.sizes, [entry.code for entry in group.unsized]) == (None, ["GPU418"])
    (sized,) = made(f"{{g1: {{model: k4200, {SIZES}}}}}").groups
    assert (sized.sizes.vcpus, sized.unsized) == (8, ())


@pytest.mark.parametrize(("flavor", "named"), [("model: vision", "vision"), ("gpu: {min_memory: 288GiB}", "none")])
def test_models_without_a_device_plugin_are_named(flavor, named):
    (found,) = made(f"{{g1: {{{flavor}, {SIZES}}}}}").findings
    assert (found.code, named in found.message) == ("GPU866", True)
