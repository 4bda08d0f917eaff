"""``gpustack guest render``: output, formats, unknown flavors, flavors that are left out."""

from __future__ import annotations

import json

import pytest
import yaml

from gpustack.cli import guest_render
from gpustack.offer.guest.kubernetes import render

SPEC = """
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}, other: {match: {vendor: "1a03", product: "2000"}}}
hosts: {"gpu[01:09]": [k4200, other]}
flavors:
  "g1.k4200.{count}": {model: k4200, count: [1, 2], vcpus: 8, ram: 32GiB, disk: 40GiB}
  g1.other: {model: other, vcpus: 8, ram: 32GiB, disk: 40GiB}
"""


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC)
    return path


def test_golden_node_group(gpustack, golden, spec):
    golden("guest-render-capo.yaml", gpustack("guest", "render", spec, "--as", "capo", "--flavor", "g1.k4200.2").out)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_data_have_documents_and_findings(form, gpustack, spec):
    ran = gpustack("guest", "render", spec, "--as", "kubeadm", "-f", form)
    data = (json.loads if form == "json" else yaml.safe_load)(ran.out)
    assert [document["kind"] for document in data["documents"]][:2] == [
        "KubeSchedulerConfiguration",
        "ClusterConfiguration",
    ]
    assert [entry["code"] for entry in data["findings"]] == ["GPU866"]


def test_an_entry_of_the_spec_selects_all_of_its_flavors(gpustack, spec):
    ran = gpustack("guest", "render", spec, "--as", "capi-helm", "--flavor", "g1.k4200.{count}")
    assert [group["machineFlavor"] for group in yaml.safe_load(ran.out)["nodeGroups"]] == ["g1.k4200.1", "g1.k4200.2"]


def test_flavors_that_are_left_out_fail_the_command(gpustack, spec):
    ran = gpustack("guest", "render", spec, "--as", "nodefeaturerule")
    assert ran.code == 13
    assert "g1.other" in ran.err
    assert "incomplete for 1 flavor" in ran.err
    assert yaml.safe_load(ran.out)["kind"] == "NodeFeatureRule"


def test_unknown_flavors_are_refused(gpustack, spec):
    ran = gpustack("guest", "render", spec, "--as", "capo", "--flavor", "g1.k4200.3")
    assert (ran.code, ran.out) == (2, "")
    assert "g1.k4200.1, g1.k4200.2, g1.other" in ran.err


def test_the_help_names_every_form():
    assert guest_render.FORMS == render.FORMS
