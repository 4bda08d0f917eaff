"""Values of capi-helm-charts."""

from __future__ import annotations

import yaml

from gpustack.offer.guest.kubernetes.render import render
from gpustack.spec.load import parse_spec

SPEC = """
version: 1
models: {p100: {match: {vendor: "10de", product: "15f8"}}, mi300x: {match: {vendor: "1002", product: "74a1"}}}
hosts: {"gpu[01:09]": [p100, mi300x]}
flavors:
  g1.p100: {model: p100, vcpus: 8, ram: 32GiB, disk: 40GiB}
  g1.mi300x: {model: mi300x, vcpus: 8, ram: 32GiB, disk: 40GiB}
"""


def rendered(flavor, max_nodes=1):
    rendering = render(parse_spec(SPEC, "spec.yaml"), "capi-helm", flavors=[flavor], max_nodes=max_nodes)
    return yaml.safe_load(rendering.text), [entry.code for entry in rendering.findings]


def test_workers_of_nfd_tolerate_the_taint():
    """Without NFD on the node, NVIDIA GPU Operator does not see its GPU."""
    values, _ = rendered("g1.p100")
    (group,) = values["nodeGroups"]
    (taint,) = group["kubeadmConfigSpec"]["joinConfiguration"]["nodeRegistration"]["taints"]
    tolerations = values["addons"]["nodeFeatureDiscovery"]["release"]["values"]["worker"]["tolerations"]
    assert [(entry["key"], entry["effect"]) for entry in tolerations] == [(taint["key"], taint["effect"])]


def test_the_driver_is_pinned_in_the_addon():
    values, _ = rendered("g1.p100")
    driver = values["addons"]["nvidiaGPUOperator"]["release"]["values"]["driver"]
    assert driver["version"].startswith("580.")


def test_the_missing_annotations_are_reported():
    values, codes = rendered("g1.p100", max_nodes=4)
    assert (values["nodeGroups"][0]["machineCountMin"], values["nodeGroups"][0]["machineCountMax"]) == (0, 4)
    assert values["nodeGroups"][0]["autoscale"] is True
    assert codes == ["GPU871"]


def test_nodes_without_taint_need_no_addons():
    values, codes = rendered("g1.mi300x")
    assert list(values) == ["nodeGroups"]
    assert codes == ["GPU871", "GPU873"]
