"""``gpustack guest vendordata``: to standard output and to a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpustack.cli.app import main

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


def test_the_file_is_the_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, out, merged = (tmp_path / name for name in ("gpustack.yaml", "vendordata.json", "merged.json"))
    spec.write_text(SPEC)
    assert main(["guest", "vendordata", str(spec)]) == 0
    text = capsys.readouterr().out
    assert "g1.a100.1|g1.a100.2" in json.loads(text)["cloud-init"]
    assert main(["guest", "vendordata", str(spec), "--out", str(out)]) == 0
    assert out.read_text() == text
    assert main(["guest", "vendordata", str(spec), "--merge", str(out), "--out", str(merged)]) == 0
    assert merged.read_text() == text


def test_flavors_of_single_projects_are_omitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(f'{SPEC}  "customer-a": {{model: a100, count: 1, vcpus: 2, ram: 4GiB, disk: 40GiB, access: [a]}}\n')
    assert main(["guest", "vendordata", str(spec)]) == 0
    output = capsys.readouterr()
    assert "customer-a" not in json.loads(output.out)["cloud-init"]
    assert "1 flavor of single projects omitted" in output.err
