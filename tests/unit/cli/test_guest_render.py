"""``gpustack guest render`` and ``guest vendordata``: output, formats, files, flavors that are left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gpustack.cli import guest_render
from gpustack.cli.app import main
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


def test_a_flavor_that_is_named_twice_is_rendered_once(gpustack, spec):
    both = ("--flavor", "g1.k4200.1", "--flavor", "g1.k4200.1")
    once, twice = (gpustack("guest", "render", spec, "--as", "capo", *names) for names in (both[:2], both))
    assert (once.code, twice) == (0, once)


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


OF_VENDORDATA = """\
version: 1
models:
  a100: {match: {vendor: "10de", product: "20b5"}}
hosts:
  gpu01: [a100]
nova: {release: "2025.2"}
flavors:
  "g1.a100.{count}": {model: a100, count: [1, 2], vcpus: 2, ram: 4GiB, disk: 40GiB}
"""


def test_the_file_is_the_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, out, merged = (tmp_path / name for name in ("gpustack.yaml", "vendordata.json", "merged.json"))
    spec.write_text(OF_VENDORDATA)
    assert main(["guest", "vendordata", str(spec)]) == 0
    text = capsys.readouterr().out
    assert "g1.a100.1|g1.a100.2" in json.loads(text)["cloud-init"]
    assert main(["guest", "vendordata", str(spec), "--out", str(out)]) == 0
    assert out.read_text() == text
    assert main(["guest", "vendordata", str(spec), "--merge", str(out), "--out", str(merged)]) == 0
    assert merged.read_text() == text


def test_flavors_of_single_projects_are_omitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(
        f'{OF_VENDORDATA}  "customer-a": {{model: a100, count: 1, vcpus: 2, ram: 4GiB, disk: 40GiB, access: [a]}}\n'
    )
    assert main(["guest", "vendordata", str(spec)]) == 0
    output = capsys.readouterr()
    assert "customer-a" not in json.loads(output.out)["cloud-init"]
    assert "1 flavor of single projects omitted" in output.err
