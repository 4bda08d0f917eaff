"""kubeadm: a scheduler that keeps whole nodes free, and registration of nodes."""

from __future__ import annotations

import yaml

from gpustack.offer.guest.kubernetes.render import render
from gpustack.spec.load import parse_spec

SPEC = """
version: 1
models: {p100: {match: {vendor: "10de", product: "15f8"}}, mi300x: {match: {vendor: "1002", product: "74a1"}}}
hosts: {"gpu[01:09]": [p100, mi300x]}
flavors:
  "g1.p100.{count}": {model: p100, count: [1, 2], vcpus: 8, ram: 32GiB, disk: 40GiB}
  g1.mi300x: {model: mi300x, vcpus: 8, ram: 32GiB, disk: 40GiB}
"""


def documents():
    return list(yaml.safe_load_all(render(parse_spec(SPEC, "spec.yaml"), "kubeadm").text))


def test_the_number_of_gpus_decides_the_score():
    scheduler = documents()[0]
    strategy = scheduler["profiles"][0]["pluginConfig"][0]["args"]["scoringStrategy"]
    weights = {entry["name"]: entry["weight"] for entry in strategy["resources"]}
    assert strategy["type"] == "MostAllocated"
    assert min(weights["nvidia.com/gpu"], weights["amd.com/gpu"]) > weights["cpu"] + weights["memory"]
    assert weights["cpu"] == weights["memory"]
    assert scheduler["leaderElection"] == {"leaderElect": True}  # one of several control planes schedules


def test_the_scheduler_gets_file_and_credentials():
    """With --config, kube-scheduler ignores --kubeconfig."""
    scheduler, cluster, *_ = documents()
    assert scheduler["clientConnection"]["kubeconfig"] == "/etc/kubernetes/scheduler.conf"
    (volume,), (argument,) = cluster["scheduler"]["extraVolumes"], cluster["scheduler"]["extraArgs"]
    assert argument == {"name": "config", "value": volume["mountPath"]}
    assert volume["readOnly"] is True


def test_each_kind_of_node_registers_with_its_label():
    labels = [document["nodeRegistration"]["kubeletExtraArgs"][0]["value"] for document in documents()[2:]]
    assert labels == ["gpustack/gputype=p100", "gpustack/gputype=mi300x"]
    notes = [note for document in render(parse_spec(SPEC, "spec.yaml"), "kubeadm").documents for note in document.notes]
    assert [note.partition(" on nodes of ")[2] for note in notes[2:]] == ["g1.p100.1, g1.p100.2.", "g1.mi300x."]
