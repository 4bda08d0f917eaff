"""``gpustack guest requirements``: text for people, data for programs, findings and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}}
  p100: {match: {vendor: "10de", product: "15f8"}}
  a100: {match: {vendor: "10de", product: "20f1"}}
  h100: {match: {vendor: "10de", product: "2331"}}
hosts:
  gpu01: [k4200, p100, a100, h100]
nova: {release: "2025.2"}
flavors:
  "g1.a100.{count}": {model: a100, count: [1, 2], vcpus: 2, ram: 4GiB, disk: 40GiB}
  mixed: {gpus: {p100: 1, a100: 1}, vcpus: 2, ram: 4GiB, disk: 40GiB}
  impossible: {gpus: {k4200: 1, h100: 1}, vcpus: 2, ram: 4GiB, disk: 40GiB}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC)
    return path


def test_text_names_driver_packages_and_operator_values(spec: Path, gpustack: Any) -> None:
    ran = gpustack("guest", "requirements", spec, "--flavor", "mixed")
    assert ran.code == 0
    assert ran.out.startswith("mixed (models: p100, a100)\n  NVIDIA driver: R450 to R580, proprietary kernel modules\n")
    assert "  recommended: R580, proprietary kernel modules, 580.65.06 or later\n" in ran.out
    assert (
        "  Ubuntu 24.04: apt install linux-modules-nvidia-580-server-generic nvidia-headless-no-dkms-580-server"
        in ran.out
    )
    assert "  RHEL 8 and 9: dnf module enable nvidia-driver:580-dkms; dnf install cuda-drivers\n" in ran.out
    assert "driver.version=580.126.20 driver.kernelModuleType=proprietary\n" in ran.out
    assert "GPU804" in ran.err


def test_unknown_compute_targets_are_named(spec: Path, gpustack: Any) -> None:
    spec.write_text(SPEC.replace("20f1", "1431"))
    ran = gpustack("guest", "requirements", spec, "--flavor", "mixed")
    assert "  compute targets: 6.0, unknown for a100\n" in ran.out


def test_a_conflict_is_reported_with_an_exit_code(spec: Path, gpustack: Any) -> None:
    ran = gpustack("guest", "requirements", spec, "--exit-code")
    assert ran.code == 3
    assert "no single driver: k4200 needs R470 or earlier, h100 R520 or later" in ran.out
    assert "WARNING GPU800 impossible" in ran.err
    assert gpustack("guest", "requirements", spec, "--flavor", "g1.a100.2", "--exit-code").code == 0


def test_formats_for_programs(spec: Path, gpustack: Any) -> None:
    ran = gpustack("guest", "requirements", spec, "-f", "json")
    described = {entry["flavor"]: entry for entry in json.loads(ran.out)}
    assert list(described) == ["g1.a100.{count}", "mixed", "impossible"]
    assert described["mixed"]["nvidia"] == {
        "first": 450,
        "last": 580,
        "modules": ["proprietary"],
        "recommended": {"branch": 580, "modules": "proprietary"},
    }
    assert described["mixed"]["operator"]["driver.version"] == "580.126.20"
    assert [entry["code"] for entry in described["impossible"]["findings"]] == ["GPU800"]
    assert described["impossible"]["nvidia"] is None
    assert described["mixed"]["models"][1]["label"] == "a100-pcie-40gb"
    assert described["mixed"]["models"][1]["facts"]["first"]["value"] == 450
    assert "nvidia-detect" in described["mixed"]["models"][1]["facts"]["first"]["source"]
    assert yaml.safe_load(gpustack("guest", "requirements", spec, "-f", "yaml").out) == json.loads(ran.out)


def test_flavors_are_found_by_their_names_in_the_cloud(spec: Path, gpustack: Any) -> None:
    ran = gpustack("guest", "requirements", spec, "--flavor", "g1.a100.1", "--flavor", "g1.a100.2", "-f", "json")
    assert [entry["flavor"] for entry in json.loads(ran.out)] == ["g1.a100.{count}"]
    unknown = gpustack("guest", "requirements", spec, "--flavor", "g1.a100.4")
    assert (unknown.code, "no flavor g1.a100.4" in unknown.err) == (2, True)


def test_a_spec_without_flavors_is_refused(tmp_path: Path, gpustack: Any) -> None:
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC.partition("flavors:")[0])
    ran = gpustack("guest", "requirements", path)
    assert (ran.code, "the spec has no flavors" in ran.err) == (2, True)
