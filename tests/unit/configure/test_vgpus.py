"""Mediated devices in the configuration of nova-compute: what is rendered for each release, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpustack.base.findings import Finding, Severity
from gpustack.configure.desired import DesiredConfig, wanted
from gpustack.configure.render import TOOLS, render
from gpustack.nova_options import releases
from gpustack.nova_options.config import parse_files
from support.mediated_hosts import CASES, host_of, spec_of

QUIET = ("GPU307", "GPU308", "GPU310", "GPU311")


def desired(case: dict[str, Any], *names: str) -> DesiredConfig:
    hosts = [host_of(case, name) for name in names or ("gpu01",)]
    return wanted(spec_of(case), hosts, release=releases.release(case["release"]))


def settings(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for setting in parse_files({"nova.conf": text}).settings:
        if setting.group == "devices" or setting.group.startswith("mdev_"):
            found.setdefault(setting.group, {})[setting.name] = setting.value
    return found


def found(needs: DesiredConfig) -> list[Finding]:
    return [f for f in (*needs.findings, *(f for fs in needs.unknown.values() for f in fs)) if f.code not in QUIET]


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    case = CASES[name]
    needs = desired(case)
    files = {f.target: f.text for f in render(needs).files}
    assert settings(files.get("gpu01", "")) == case.get("settings", {})
    assert [f"{f.code} {f.place}" for f in found(needs)] == case.get("codes", [])
    assert [str(entry) for entry in needs.computes.get("gpu01", ())] == case.get("device_spec", [])
    messages = " ".join(f.message for f in found(needs))
    assert [text for text in case.get("messages", []) if text not in messages] == []
    errors = [f for f in found(needs) if f.severity is Severity.ERROR]
    assert ("gpu01" in needs.unknown) == bool(errors) == ("gpu01" not in files), "a host with an error keeps its file"


def test_equal_hosts_are_decided_once_and_named_each() -> None:
    case = CASES["a device of an instance with another type"]
    needs = desired(case, "gpu01", "gpu02", "gpu03")
    assert {name: [f.place for f in fs] for name, fs in needs.unknown.items()} == {
        name: [f"{name} 0000:41:00.0"] for name in ("gpu01", "gpu02", "gpu03")
    }


def of_tool(deployment: str, needs: DesiredConfig) -> dict[str, dict[str, str]]:
    """The settings of the host in the files of a deployment tool."""
    files = [f for f in render(needs, deployment=deployment).files if "compute" in f.services]
    if deployment in ("drop-in", "kolla", "kayobe"):
        (text,) = [f.text for f in files if "gpu01" in f.name]
        return settings(text)
    documents = [
        d for f in files if "host_vars/gpu01" in f.path or "host_vars" not in f.path for d in yaml.safe_load_all(f.text)
    ]
    if deployment == "rhoso":
        (text,) = [t for d in documents for k, t in d.get("data", {}).items() if t.startswith("# gpu01")]
        return settings(text)
    if deployment == "openstack-ansible":
        (sections,) = [
            d["nova_nova_conf_overrides"] for d in documents if "devices" in d.get("nova_nova_conf_overrides", {})
        ]
        assert sections["pci"] == {"report_in_placement": True}, "a host's variable replaces that of the group"
    else:
        (sections,) = [h["conf"]["nova"] for d in documents for h in d["conf"]["overrides"]["nova_compute"]["hosts"]]
    return {group: {k: str(v) for k, v in values.items()} for group, values in sections.items() if group != "pci"}


@pytest.mark.parametrize("deployment", TOOLS)
def test_each_deployment_tool_gets_the_sections(deployment: str) -> None:
    case = CASES["two types on two cards, and a class of its own"]
    spec, host = spec_of(case, placement="report"), host_of(case)
    needs = wanted(spec, [host], release=releases.release(case["release"]))
    assert of_tool(deployment, needs) == case["settings"]
    assert all("mdev_" not in f.text for f in render(needs, deployment=deployment, services=["api", "scheduler"]).files)
