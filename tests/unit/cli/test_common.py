"""The options that all reading commands share: --exit-code, with one meaning, and --findings."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from gpustack.cli.app import Gpustack, main
from support.host_samples import SNAPSHOTS

SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {"*": [k4200]}
nova: {release: "2025.2", deployment: drop-in}
"""
READ_OR_PLAN = {
    *("scan", "topology", "health", "spec check", "host plan", "nova render", "nova lint", "guest render"),
    *("guest check", "guest requirements", "image check", "capacity", "gpu list", "gpu show", "quota show"),
    *("flavor plan", "quota plan", "tenancy plan", "cloud plan", "reclaim plan", "cleanup plan"),
}


def test_every_command_that_reads_or_plans_has_both_options() -> None:
    app = Gpustack()
    for name in READ_OR_PLAN:
        options = app.parser_of(name)._option_string_actions
        assert {"--exit-code", "--findings"} <= options.keys(), name
    known = {entry.name.replace("_", " ") for entry in importlib.metadata.entry_points(group="gpustack.cli")}
    plans = {name for name in known if name.endswith((" plan", " check"))}
    assert plans <= READ_OR_PLAN


@pytest.mark.parametrize(
    ("arguments", "snapshot", "code"),
    [
        (("scan",), "k4200", 3),  # a warning: the IOMMU is off
        (("scan",), "k4200-prepared", 0),
        (("topology",), "k4200", 0),
        (("health",), "k4200", 0),  # only findings of severity info
        (("host", "plan", "SPEC"), "k4200", 3),  # changes
        (("nova", "render", "SPEC"), "k4200-prepared", 0),
        (("nova", "render", "SPEC", "--out", "OUT", "--diff"), "k4200-prepared", 3),  # changes
    ],
)
def test_the_exit_code_has_one_meaning(
    arguments: tuple[str, ...], snapshot: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gpustack.yaml").write_text(SPEC)
    places = {"SPEC": str(tmp_path / "gpustack.yaml"), "OUT": str(tmp_path / "out")}
    command = [*(places.get(word, word) for word in arguments), "--snapshot", str(SNAPSHOTS / f"{snapshot}.json")]
    assert main(command) == 0
    assert main([*command, "--exit-code"]) == code
    capsys.readouterr()


def test_all_findings_are_written_also_those_that_are_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "findings.json"
    command = ["scan", "--snapshot", str(SNAPSHOTS / "k4200.json"), "-f", "json"]
    assert main([*command, "--findings", str(path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    findings = json.loads(path.read_text())["findings"]
    of_rows = {(f["code"], f["place"]) for row in rows for f in (*row["reasons"], *row["notes"])}
    assert of_rows <= {(f["code"], f["place"]) for f in findings}
    assert path.stat().st_mode & 0o777 == 0o600


def test_findings_are_written_if_the_command_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, path = tmp_path / "gpustack.yaml", tmp_path / "findings.json"
    spec.write_text(SPEC)
    command = ["host", "plan", str(spec), "--snapshot", str(SNAPSHOTS / "shared-nic.json"), "--findings", str(path)]
    assert main([*command, "--exit-code"]) == 13
    assert any(f["severity"] == "error" for f in json.loads(path.read_text())["findings"])
    capsys.readouterr()
