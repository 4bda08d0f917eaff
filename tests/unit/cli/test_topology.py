"""``gpustack topology``: golden trees, formats, findings, exit codes."""

from __future__ import annotations

import io
import json

import pytest
import yaml

from gpustack.cli.app import main
from gpustack.hosts.topology.show import ASCII


@pytest.mark.parametrize("name", ["k4200", "shared-nic", "nvswitch"])
def test_golden_tree(name, gpustack, golden, snapshots):
    golden(f"topology-{name}.txt", str(gpustack("topology", "--snapshot", snapshots / f"{name}.json")))


@pytest.mark.parametrize("form", ["mermaid", "dot", "json"])
def test_golden_formats(form, gpustack, golden, snapshots):
    golden(
        f"topology-shared-nic.{form}", gpustack("topology", "--snapshot", snapshots / "shared-nic.json", "-f", form).out
    )


def test_yaml_has_the_data_of_json(gpustack, snapshots):
    as_json, as_yaml = (
        gpustack("topology", "--snapshot", snapshots / "k4200.json", "-f", form).out for form in ("json", "yaml")
    )
    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_all_prints_every_function(gpustack, snapshots):
    ran = gpustack("topology", "--snapshot", snapshots / "k4200.json", "--all")
    addresses = [entry["address"] for entry in json.loads((snapshots / "k4200.json").read_text())["hosts"][0]["pci"]]
    assert [address for address in addresses if address not in ran.out] == []
    assert len([a for a in addresses if a in gpustack("topology", "--snapshot", snapshots / "k4200.json").out]) < len(
        addresses
    )


def test_a_terminal_without_unicode_gets_ascii(snapshots, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    assert main(["topology", "--snapshot", str(snapshots / "k4200.json")]) == 0
    stream.seek(0)
    assert f"{ASCII.last}NUMA node 1" in stream.read()


def test_flavors_of_a_spec_are_compared(gpustack, snapshots, tmp_path):
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(
        "version: 1\nmodels: {k4200: {match: {vendor: '10de', product: '11b4'}}}\nhosts: {gpu*: [k4200]}\n"
        "flavors: {'k4200-{count}': {model: k4200, count: [1, 2], vcpus: 4, ram: 8GiB, disk: 0}}\n"
    )
    document = json.loads((snapshots / "k4200.json").read_text())
    for function in document["hosts"][0]["pci"]:
        if function["address"].startswith("0000:84"):
            function["numa_node"] = 0
    snapshot = tmp_path / "apart.json"
    snapshot.write_text(json.dumps(document))
    ran = gpustack("topology", "--snapshot", snapshot, "--spec", spec)
    assert ran.err.startswith("INFO GPU721 gpu01: the flavor k4200-2 requests 2 GPUs;")
    assert gpustack("topology", "--snapshot", snapshots / "k4200.json", "--spec", spec).err == ""
    assert gpustack("topology", "--snapshot", snapshot, "--spec", tmp_path / "none.yaml").code == 10
    spec.write_text(spec.read_text().replace("gpu*", "other*"))
    ran = gpustack("topology", "--snapshot", snapshot, "--spec", spec)
    assert ran.err == f"gpu01: not in {spec}; its flavors are not compared\n"


def test_findings_are_in_the_data_too(gpustack, snapshots, tmp_path):
    document = json.loads((snapshots / "k4200.json").read_text())
    del document["hosts"][0]["pci"][[f["address"] for f in document["hosts"][0]["pci"]].index("0000:80:02.0")]
    snapshot = tmp_path / "lost.json"
    snapshot.write_text(json.dumps(document))
    ran = gpustack("topology", "--snapshot", snapshot, "-f", "json")
    assert [finding["code"] for finding in json.loads(ran.out)[0]["findings"]] == ["GPU724"]
    assert "WARNING GPU724 gpu01" in ran.err
    assert ran.code == 0


@pytest.mark.parametrize(("form", "expected"), [("text", ""), ("json", "[]\n"), ("mermaid", ""), ("dot", "")])
def test_an_unknown_host_prints_nothing_and_fails(form, expected, gpustack, snapshots):
    ran = gpustack("topology", "--snapshot", snapshots / "k4200.json", "gpu09", "-f", form)
    assert (ran.code, ran.out) == (12, expected)
    assert "gpu09: not in the snapshot" in ran.err
