"""Driver pins of NVIDIA GPU Operator: one driver for all nodes, or an object for each kind of node."""

from __future__ import annotations

import pytest

from gpustack.offer.guest.kubernetes.render import render
from gpustack.spec.load import parse_spec

HEAD = """
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}}
  p100: {match: {vendor: "10de", product: "15f8"}, traits: [CUSTOM_A, CUSTOM_B]}
  h100: {match: {vendor: "10de", product: "2331"}, traits: [CUSTOM_B]}
  b200: {match: {vendor: "10de", product: "2901"}, traits: [CUSTOM_A]}
  mi300x: {match: {vendor: "1002", product: "74a1"}}
  mystery: {match: {vendor: "10de", product: "ffff"}}
hosts: {"gpu[01:09]": [k4200, p100, h100, b200, mi300x, mystery]}
"""


def rendering_of(*flavors):
    named = ", ".join(f"g{n}: {{{flavor}, vcpus: 8, ram: 8GiB, disk: 8}}" for n, flavor in enumerate(flavors))
    return render(parse_spec(f"{HEAD}flavors: {{{named}}}", "spec.yaml"), "operator-values")


def rendered(*flavors):
    rendering = rendering_of(*flavors)
    return [document.content for document in rendering.documents], [entry.code for entry in rendering.findings]


def notes(*flavors):
    (document,) = rendering_of(*flavors).documents
    return document.notes


def reasons(*flavors):
    return [entry.message for entry in rendering_of(*flavors).findings if entry.code == "GPU872"]


def objects(values):
    return {extra["spec"]["nodeSelector"]["gpustack/gputype"]: extra["spec"] for extra in values["extraObjects"]}


def branch(driver):
    return driver["version"].partition(".")[0], driver["kernelModuleType"]


def test_one_driver_serves_all_nodes():
    (values,), codes = rendered("model: p100", "model: h100")
    assert (branch(values["driver"]), codes) == (("580", "proprietary"), [])
    assert "extraObjects" not in values
    assert notes("model: p100", "model: h100") == ("Values of the chart gpu-operator.",)


@pytest.mark.parametrize(
    "flavors", [("model: p100", "model: b200"), ("gpu: {min_memory: 16GiB, generation: Pascal}", "model: b200")]
)
def test_nodes_with_different_drivers_have_an_object_each(flavors):
    (values,), codes = rendered(*flavors)
    drivers = objects(values)
    assert values["driver"] == {"nvidiaDriverCRD": {"enabled": True, "deployDefaultCR": False}}
    assert branch(drivers["p100"]) == ("580", "proprietary")
    assert branch(drivers["b200"])[1] == "open"
    assert {driver["tolerations"][0]["key"] for driver in drivers.values()} == {"nvidia.com/gpu"}
    assert [extra["metadata"]["name"].split("-")[:2] for extra in values["extraObjects"]] == [
        ["gpu", "1"],
        ["gpu", "2"],
    ]
    assert codes == []
    assert notes(*flavors)[1:] == (
        "Needs NVIDIA GPU Operator v26.3.0 or later, and the label gpustack/gputype on the nodes.",
    )


def test_a_selection_needs_no_common_driver():
    """A node has one of the models, and NFD labels it."""
    (values,), codes = rendered("gpu: {traits: [CUSTOM_A]}")
    assert (set(objects(values)), codes) == ({"p100", "b200"}, ["GPU869"])


def test_nodes_that_mix_models_of_a_selection_need_a_common_driver():
    """With two GPUs, Nova can give a node one of each."""
    assert rendered("gpu: {traits: [CUSTOM_A]}, count: 2") == ([], ["GPU869", "GPU872"])
    (values,), _ = rendered("model: b200", "gpu: {min_memory: 16GiB, traits: [CUSTOM_B]}, count: 2", "model: h100")
    assert {name: branch(driver)[1] for name, driver in objects(values).items()} == {
        "b200": "open",
        "h100": "proprietary",
        "p100": "proprietary",
    }


def test_names_of_objects_differ_if_labels_differ_in_case_only():
    models = HEAD.replace("  h100:", "  P100: {match: {vendor: '10de', product: '20b5'}}\n  h100:")
    head = models.replace("[k4200,", "[k4200, P100,")
    flavors = ", ".join(
        f"g{n}: {{model: {name}, vcpus: 1, ram: 1, disk: 1}}" for n, name in enumerate(("p100", "P100", "b200"))
    )
    (document,) = render(parse_spec(f"{head}flavors: {{{flavors}}}", "spec.yaml"), "operator-values").documents
    assert len({extra["metadata"]["name"] for extra in document.content["extraObjects"]}) == 3


def test_a_node_without_driver_keeps_the_operator_away():
    (values,), codes = rendered("model: k4200", "model: h100")
    assert (list(objects(values)), codes) == (["h100"], ["GPU872"])


def test_a_node_with_two_drivers_has_none():
    assert rendered("gpus: {p100: 1, b200: 1}") == ([], ["GPU868", "GPU872"])


@pytest.mark.parametrize(
    ("flavor", "reason"),
    [
        ("gpus: {p100: 1, b200: 1}", "p100: proprietary kernel modules only; b200: open kernel modules only"),
        ("model: k4200", "no release installs R418 to R470, proprietary kernel modules"),
        ("model: mystery", "the catalogue does not know what they need"),
    ],
)
def test_the_reason_for_a_missing_pin_is_given(flavor, reason):
    (message,) = reasons(flavor)
    assert message.endswith(f": {reason}")


def test_an_unknown_card_gets_no_pin():
    assert rendered("model: mystery") == ([], ["GPU872"])


def test_other_vendors_need_no_values():
    assert rendered("model: mi300x") == ([], ["GPU873"])
