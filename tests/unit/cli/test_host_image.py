"""gpustack host image."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gpustack.cli.app import main
from support.host_cases import CASES, load


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, Path]:
    """A spec, and a snapshot of a host in image mode."""
    case, _, machine = load(next(path for path in CASES if path.stem == "rhel-9-image-mode"))
    spec, snapshot = tmp_path / "gpustack.yaml", tmp_path / "hosts.json"
    spec.write_text(yaml.safe_dump({"version": 1, **case["spec"]}), encoding="utf-8")
    snapshot.write_text(json.dumps({"gpustack_snapshot": 1, "hosts": [machine.raw]}), encoding="utf-8")
    return str(spec), str(snapshot), tmp_path / "out"


def test_files_are_written(files: tuple[str, str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    spec, snapshot, out = files
    assert main(["host", "image", spec, "--snapshot", snapshot, "--out", str(out)]) == 0
    assert f"{out}: 5 files for the image of gpu01" in capsys.readouterr().err
    assert sum(path.is_file() for path in out.rglob("*")) == 5
    assert main(["host", "image", spec, "--snapshot", snapshot, "--out", str(out)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_an_error_of_the_host_leaves_no_file(files: tuple[str, str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    spec, snapshot, out = files
    document = json.loads(Path(snapshot).read_text(encoding="utf-8"))
    document["hosts"][0]["container"] = "lxc"
    Path(snapshot).write_text(json.dumps(document), encoding="utf-8")
    assert main(["host", "image", spec, "--snapshot", snapshot, "--out", str(out)]) == 13
    assert "nothing was written" in capsys.readouterr().err
    assert not out.exists()


def test_the_plan_names_the_command(files: tuple[str, str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    spec, snapshot, _ = files
    assert main(["host", "plan", spec, "--snapshot", snapshot]) == 13
    assert "gpustack host image SPEC HOST --out DIR" in capsys.readouterr().out
