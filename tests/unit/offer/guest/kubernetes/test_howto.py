"""docs/howto/kubernetes-clusters.md: its gpustack commands run, and its manifests conform to their schemas.

Commands of other programs are not run.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from gpustack.cli.app import main
from support.kubernetes import unnoticed, validate

PAGE = (Path(__file__).parents[5] / "docs/howto/kubernetes-clusters.md").read_text(encoding="utf-8")
SPEC, *MANIFESTS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
COMMANDS = re.findall(r"\$ gpustack (.+?) > (\S+)", PAGE)
WORKLOADS = [manifest for manifest in MANIFESTS if manifest["kind"] in ("Job", "MPIJob")]


@pytest.fixture
def rendered(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("gpustack.yaml").write_text(yaml.safe_dump(SPEC))
    output = {}
    for command, file in COMMANDS:
        assert main(shlex.split(command)) == 0
        output[file] = capsys.readouterr().out
    return output


def parts(manifest):
    """A manifest and the Pods of its templates."""
    for entry in manifest.get("spec", {}).get("mpiReplicaSpecs", {}).values():
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "of-template"}, **entry.pop("template")}
    yield manifest


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest["kind"])
def test_manifests_conform_and_no_misspelt_key_passes(manifest):
    for part in parts(yaml.safe_load(yaml.safe_dump(manifest))):
        validate(part)
        assert unnoticed(part) == []


def test_the_page_sets_all_variables_of_the_template(rendered):
    exported = set(re.findall(r"\b([A-Z_]+)=", PAGE))
    assert set(re.findall(r"\$\{([A-Z_]+)\}", rendered["gpu-nodes.yaml"])) == exported


def test_workloads_fit_the_nodes(rendered):
    """Label, resource and taint of the page are those that gpustack renders."""
    values = yaml.safe_load(rendered["gpu-values.yaml"])
    labels = {group["nodeLabels"]["gpustack/gputype"] for group in values["nodeGroups"]}
    pods = [
        pod["spec"]
        for manifest in WORKLOADS
        for pod in (
            [manifest["spec"]["template"]]
            if "template" in manifest["spec"]
            else [manifest["spec"]["mpiReplicaSpecs"]["Worker"]["template"]]
        )
    ]
    assert len(pods) == 2
    for pod in pods:
        assert pod["nodeSelector"]["gpustack/gputype"] in labels
        assert list(pod["containers"][0]["resources"]["limits"]) == ["nvidia.com/gpu"]
        assert pod["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_each_form_is_on_the_page(rendered):
    assert set(re.findall(r"--as (\S+)", " ".join(command for command, _ in COMMANDS))) == {
        *("capo", "capi-helm", "nodefeaturerule", "operator-values", "kubeadm")
    }


def test_links_to_findings_name_the_case(rendered):
    """One driver serves the models of the page; the other case is described only."""
    assert list(yaml.safe_load(rendered["operator-values.yaml"])["driver"]) == ["version", "kernelModuleType"]
