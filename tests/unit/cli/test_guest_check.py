"""``gpustack guest check``: its sources, outputs and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpustack.cli.app import main
from support.guest_root import guest_root

SPEC = """\
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
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC)
    return path


def test_a_flavor_promises_its_gpus(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = guest_root(tmp_path / "root", gpus=["10de:20b5"], driver="nvidia")
    of_root = ["guest", "check", str(spec), "--root", str(root), "--exit-code"]
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


@pytest.mark.parametrize("arguments", [["--flavor", "g1"], ["SPEC"], ["SPEC", "--flavor", "none"]])
def test_wrong_arguments(arguments: list[str], spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guest", "check", *(str(spec) if text == "SPEC" else text for text in arguments)]) == 2
    assert "flavor" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["--console", "--root"])
def test_files_are_not_read_with_sudo(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guest", "check", source, "/", "--sudo"]) == 2
    assert "omit --sudo" in capsys.readouterr().err


def test_an_absent_console_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guest", "check", "--console", "/nowhere/console.log"]) == 12
    assert "/nowhere/console.log" in capsys.readouterr().err
