"""Rules of Node Feature Discovery, applied to the PCI devices of nodes."""

from __future__ import annotations

import pytest
import yaml

from gpustack.offer.guest.kubernetes.render import render
from gpustack.spec.load import parse_spec

SPEC = """
version: 1
models:
  p100: {match: {vendor: "10de", product: "15f8"}}
  special: {match: {vendor: "10de", product: "15f8", subsystem_vendor: "10de", subsystem_product: "118f"}}
  rtx: {match: {vendor: "10de", product: "1e07"}}
  part:
    match: {vendor: "10de", product: "25b6", subsystem_vendor: "10de", subsystem_product: "14a9", class: "0302"}
    vgpu: {type: A16-8Q}
hosts: {"gpu[01:09]": [p100, special, rtx, part]}
flavors:
  g1.special: {model: special, vcpus: 8, ram: 32GiB, disk: 40GiB}
  g1.mixed: {gpus: {p100: 1, rtx: 1}, vcpus: 8, ram: 32GiB, disk: 40GiB}
  g1.part: {model: part, vcpus: 8, ram: 32GiB, disk: 40GiB}
  g1.any: {gpu: {min_memory: 8GiB}, vcpus: 8, ram: 32GiB, disk: 40GiB}
"""


def label(*devices):
    """The label of a node: NFD applies the rules in order, and a later one replaces the label."""
    (document,) = yaml.safe_load_all(render(parse_spec(SPEC, "spec.yaml"), "nodefeaturerule").text)
    labels = {}
    for rule in document["spec"]["rules"]:
        if all(any(matches(feature, device) for device in devices) for feature in rule["matchFeatures"]):
            labels.update(rule["labels"])
    return labels.get("gpustack/gputype")


def matches(feature, device):
    return all(device.get(name) in test["value"] for name, test in feature["matchExpressions"].items())


P100 = {"vendor": "10de", "device": "15f8", "subsystem_vendor": "10de", "subsystem_device": "0000"}
RTX = {"vendor": "10de", "device": "1e07", "subsystem_vendor": "10de", "subsystem_device": "0000"}


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([P100], "p100"),
        ([RTX], "rtx"),
        ([{**P100, "subsystem_device": "118f"}], "special"),
        ([{**P100, "subsystem_device": "118f", "subsystem_vendor": "1043"}], "p100"),
        ([P100, RTX], "p100.rtx"),
        ([{"vendor": "10de", "device": "25b6", "subsystem_vendor": "10de", "subsystem_device": "159d"}], "part"),
        ([{"vendor": "1af4", "device": "1041"}], None),
    ],
)
def test_nodes_get_the_label_of_their_gpus(devices, expected):
    assert label(*devices) == expected


def test_ids_are_text_for_every_parser():
    """1e07 is a number in YAML 1.2, and a resource with a number for an id is refused."""
    text = render(parse_spec(SPEC, "spec.yaml"), "nodefeaturerule").text
    plain = [t.value for t in yaml.scan(text) if isinstance(t, yaml.ScalarToken) and t.plain]
    assert "1e07" in text
    assert [value for value in plain if value[:1].isdigit() or len(value) < 2] == []


def test_models_with_the_same_ids_are_reported():
    spec = SPEC.replace(', subsystem_vendor: "10de", subsystem_product: "118f"', ', addresses: ["0000:88:00.0"]')
    findings = render(parse_spec(spec, "spec.yaml"), "nodefeaturerule").findings
    ((place, message),) = [(entry.place, entry.message) for entry in findings if entry.code == "GPU874"]
    assert (place, "p100" in message, "special" in message) == ("special", True, False)


def test_the_class_of_a_model_is_part_of_its_rule():
    spec = SPEC.replace('product: "1e07"', 'product: "1e07", class: "0300"')
    assert "class:" in render(parse_spec(spec, "spec.yaml"), "nodefeaturerule").text
