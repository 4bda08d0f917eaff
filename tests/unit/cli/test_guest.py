"""``gpustack guest requirements``: text for people, data for programs, findings and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.cli import guest
from gpustack.cli.app import main
from gpustack.offer.guest.kubernetes import render
from support.guest_root import guest_root

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


ONE_MODEL = """\
version: 1
models:
  a100: {match: {vendor: "10de", product: "20b5"}}
hosts:
  gpu01: [a100]
nova: {release: "2025.2"}
flavors:
  "g1.a100.{count}": {model: a100, count: [1, 2], vcpus: 2, ram: 4GiB, disk: 40GiB}
"""


@pytest.fixture
def checked(tmp_path: Path) -> Path:
    path = tmp_path / "gpustack.yaml"
    path.write_text(ONE_MODEL)
    return path


def test_a_flavor_promises_its_gpus(checked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = guest_root(tmp_path / "root", gpus=["10de:20b5"], driver="nvidia")
    of_root = ["guest", "check", str(checked), "--root", str(root), "--exit-code"]
    assert main([*of_root, "--flavor", "g1.a100.1"]) == 0
    assert "NVIDIA A100 PCIe 80GB" in capsys.readouterr().out
    assert main([*of_root, "--flavor", "g1.a100.2"]) == 3
    assert "ERROR GPU845 guest PCI: number of GPUs: 1, expected 2" in capsys.readouterr().err


def test_a_guest_without_gpu_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody promised a GPU, or somebody did."""
    root = guest_root(tmp_path / "root", gpus=[])
    check = ["guest", "check", "--root", str(root), "--exit-code"]
    assert main(check) == 0
    assert "the guest has no GPU; to compare" in capsys.readouterr().err
    assert main([*check, "--gpus", "1"]) == 3
    err = capsys.readouterr().err
    assert "GPU845 guest PCI: number of GPUs: 0, expected 1" in err
    assert "the guest has no GPU" not in err


def test_a_console_log_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "console.log"
    log.write_bytes(
        b"[ 0.0] Linux version 6.12.1 (d)\r\n[ 0.4] pci 0000:00:05.0: [10de:20b5] type 00 class 0x030200\r\n"
        b"\xff[ 5.3] nvidia: probe of 0000:00:05.0 failed with error -1\r\n"
    )
    assert main(["guest", "check", "--console", str(log), "--gpus", "1", "-f", "json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["address"], row["driver"], row["findings"]) == ("0000:00:05.0", "", ["GPU854"])


def test_a_console_log_of_any_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines that say nothing about GPUs do not hide the start of the guest, nor its report."""
    log = tmp_path / "console.log"
    start = "[ 0.0] Linux version 6.12.1 (d)\n[ 0.4] pci 0000:00:05.0: [10de:20b5] type 00 class 0x030200\n"
    failed = "[ 5.3] nvidia: probe of 0000:00:05.0 failed with error -1\n"
    other = "[ 9.9] systemd[1]: Started a unit of this guest.\n"
    log.write_text(start + failed + 'gpustack guest check: 1 GPU {"gpus": 1}\n' + other * 200_000)
    assert main(["guest", "check", "--console", str(log), "--gpus", "1", "--exit-code"]) == 3
    err = capsys.readouterr().err
    assert ("GPU854" in err, "GPU859" in err) == (True, False)


@pytest.mark.parametrize("arguments", [["--flavor", "g1"], ["SPEC"], ["SPEC", "--flavor", "none"]])
def test_wrong_arguments(arguments: list[str], checked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guest", "check", *(str(checked) if text == "SPEC" else text for text in arguments)]) == 2
    assert "flavor" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["--console", "--root"])
def test_files_are_not_read_with_sudo(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guest", "check", source, "/", "--sudo"]) == 2
    assert "omit --sudo" in capsys.readouterr().err


def test_an_absent_console_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guest", "check", "--console", "/nowhere/console.log"]) == 12
    assert "/nowhere/console.log" in capsys.readouterr().err


NODES = """
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}, other: {match: {vendor: "1a03", product: "2000"}}}
hosts: {"gpu[01:09]": [k4200, other]}
flavors:
  "g1.k4200.{count}": {model: k4200, count: [1, 2], vcpus: 8, ram: 32GiB, disk: 40GiB}
  g1.other: {model: other, vcpus: 8, ram: 32GiB, disk: 40GiB}
"""


@pytest.fixture
def nodes(tmp_path):
    path = tmp_path / "gpustack.yaml"
    path.write_text(NODES)
    return path


def test_golden_node_group(gpustack, golden, nodes):
    golden("guest-render-capo.yaml", gpustack("guest", "render", nodes, "--as", "capo", "--flavor", "g1.k4200.2").out)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_data_have_documents_and_findings(form, gpustack, nodes):
    ran = gpustack("guest", "render", nodes, "--as", "kubeadm", "-f", form)
    data = (json.loads if form == "json" else yaml.safe_load)(ran.out)
    assert [document["kind"] for document in data["documents"]][:2] == [
        "KubeSchedulerConfiguration",
        "ClusterConfiguration",
    ]
    assert [entry["code"] for entry in data["findings"]] == ["GPU866"]


def test_an_entry_of_the_spec_selects_all_of_its_flavors(gpustack, nodes):
    ran = gpustack("guest", "render", nodes, "--as", "capi-helm", "--flavor", "g1.k4200.{count}")
    assert [group["machineFlavor"] for group in yaml.safe_load(ran.out)["nodeGroups"]] == ["g1.k4200.1", "g1.k4200.2"]


def test_a_flavor_that_is_named_twice_is_rendered_once(gpustack, nodes):
    both = ("--flavor", "g1.k4200.1", "--flavor", "g1.k4200.1")
    once, twice = (gpustack("guest", "render", nodes, "--as", "capo", *names) for names in (both[:2], both))
    assert (once.code, twice) == (0, once)


def test_flavors_that_are_left_out_fail_the_command(gpustack, nodes):
    ran = gpustack("guest", "render", nodes, "--as", "nodefeaturerule")
    assert ran.code == 13
    assert "g1.other" in ran.err
    assert "incomplete for 1 flavor" in ran.err
    assert yaml.safe_load(ran.out)["kind"] == "NodeFeatureRule"


def test_unknown_flavors_are_refused(gpustack, nodes):
    ran = gpustack("guest", "render", nodes, "--as", "capo", "--flavor", "g1.k4200.3")
    assert (ran.code, ran.out) == (2, "")
    assert "g1.k4200.1, g1.k4200.2, g1.other" in ran.err


def test_the_help_names_every_form():
    assert guest.FORMS == render.FORMS


def test_the_file_is_the_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, out, merged = (tmp_path / name for name in ("gpustack.yaml", "vendordata.json", "merged.json"))
    spec.write_text(ONE_MODEL)
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
        f'{ONE_MODEL}  "customer-a": {{model: a100, count: 1, vcpus: 2, ram: 4GiB, disk: 40GiB, access: [a]}}\n'
    )
    assert main(["guest", "vendordata", str(spec)]) == 0
    output = capsys.readouterr()
    assert "customer-a" not in json.loads(output.out)["cloud-init"]
    assert "1 flavor of single projects omitted" in output.err
