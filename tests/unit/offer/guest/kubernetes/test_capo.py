"""Node groups for Cluster API: what the cluster autoscaler computes before the first node exists."""

from __future__ import annotations

import yaml

from gpustack.offer.guest.kubernetes.render import render
from gpustack.spec.load import parse_spec

SPEC = """
version: 1
models: {p100: {match: {vendor: "10de", product: "15f8"}}, v100: {match: {vendor: "10de", product: "1db4"}}}
hosts: {"gpu[01:09]": [p100, v100]}
flavors:
  "g1.p100.{count}": {model: p100, count: 2, per_gpu: {vcpus: 8, ram: 32GiB, disk: 40GiB}}
  g1.volume: {model: p100, vcpus: 8, ram: 32GiB, disk: 0}
  g1.auto: {model: p100, per_gpu: {vcpus: auto}, ram: 32GiB, disk: 0}
  g1.any: {gpu: {min_memory: 16GiB}, vcpus: 8, ram: 32GiB, disk: 40GiB}
"""
PREFIX = "capacity.cluster-autoscaler.kubernetes.io/"


def objects(flavor):
    return list(yaml.safe_load_all(render(parse_spec(SPEC, "spec.yaml"), "capo", flavors=[flavor], max_nodes=3).text))


def test_the_autoscaler_knows_the_node_before_it_exists():
    deployment, bootstrap, machine = objects("g1.p100.2")
    annotations = deployment["metadata"]["annotations"]
    assert {key.removeprefix(PREFIX): value for key, value in annotations.items() if key.startswith(PREFIX)} == {
        "cpu": "16",
        "memory": "65536Mi",
        "ephemeral-disk": "80Gi",
        "gpu-type": "nvidia.com/gpu",
        "gpu-count": "2",
        "labels": "gpustack/gputype=p100,cluster-api/accelerator=p100",
        "taints": "nvidia.com/gpu=present:NoSchedule",
    }
    assert annotations["cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"] == "3"
    registration = bootstrap["spec"]["template"]["spec"]["joinConfiguration"]["nodeRegistration"]
    arguments = {entry["name"]: entry["value"] for entry in registration["kubeletExtraArgs"]}
    assert arguments["node-labels"] == annotations[f"{PREFIX}labels"]
    assert registration["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert machine["spec"]["template"]["spec"]["flavor"] == "g1.p100.2"


def test_the_objects_refer_to_each_other():
    deployment, bootstrap, machine = objects("g1.p100.2")
    spec = deployment["spec"]["template"]["spec"]
    for reference, target in ((spec["bootstrap"]["configRef"], bootstrap), (spec["infrastructureRef"], machine)):
        assert (reference["kind"], reference["name"]) == (target["kind"], target["metadata"]["name"])
        assert target["apiVersion"].startswith(f"{reference['apiGroup']}/")


def test_a_flavor_without_disk_gets_a_volume():
    assert "rootVolume" not in objects("g1.p100.2")[2]["spec"]["template"]["spec"]
    deployment, _, machine = objects("g1.volume")
    assert machine["spec"]["template"]["spec"]["rootVolume"] == {"sizeGiB": "${GPU_ROOT_VOLUME_GIB:=100}"}
    assert f"{PREFIX}ephemeral-disk" not in deployment["metadata"]["annotations"]


def test_unknown_sizes_are_reported():
    rendering = render(parse_spec(SPEC, "spec.yaml"), "capo", flavors=["g1.auto"])
    assert (rendering.documents, [entry.place for entry in rendering.findings]) == ((), ["g1.auto"])


def test_a_selection_waits_for_its_gpus_without_a_model():
    deployment, *_ = objects("g1.any")
    assert deployment["metadata"]["annotations"][f"{PREFIX}labels"] == "cluster-api/accelerator=gpu"
