"""``gpustack cloud plan`` and ``apply``: groups, saved plans, and what they refuse. The plan is a stand-in's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from gpustack.base.findings import Code, Finding, finding
from gpustack.changes.change import ChangeOutcome, ChangeResult, CloudChange
from gpustack.changes.journal import Cloud
from gpustack.cli.app import main
from gpustack.nova_options import releases
from gpustack.offer.cloud_plan.plan import CloudPlan
from gpustack.offer.quota.changes import LimitChange
from support.change_runs import PLACE, without_cloud

SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu1: [k4200]}
nova: {release: "2025.2"}
quotas: {default: {k4200: 1}}
"""
CHANGE = LimitChange.of(("CUSTOM_X", "k4200"), None, None, 1, "in the spec")
UNKNOWN = finding(Code.QUOTA_PROJECT_UNKNOWN, place="research")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the commands plan and carry out."""
    without_cloud(monkeypatch, tmp_path / "state")
    monkeypatch.chdir(tmp_path)
    Path("gpustack.yaml").write_text(SPEC)
    seen: dict[str, Any] = {"findings": ()}

    def plan(_connection: object, _spec: object, groups: object, _choices: object) -> CloudPlan:
        seen["groups"] = groups
        findings: Sequence[Finding] = seen["findings"]
        return CloudPlan(operations=(CHANGE,), findings=tuple(findings), release=releases.releases()[-1])

    def carry_out(command: Any, changes: Sequence[CloudChange], *_arguments: object, **_options: object) -> None:
        seen["changes"] = list(changes)
        result = seen.get("result", ChangeResult.DONE)
        command.refuse_incomplete([ChangeOutcome(change=change, result=result) for change in changes])

    monkeypatch.setattr("gpustack.cli.sync.plan", plan)
    monkeypatch.setattr("gpustack.cli.change.ChangeCommand.carry_out", carry_out)
    return seen


def test_a_saved_plan_is_carried_out_as_it_is(made: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cloud", "plan", "gpustack.yaml", "--out", "change.plan", "--exit-code"]) == 3
    assert "gpustack cloud apply change.plan" in capsys.readouterr().err
    assert main(["cloud", "apply", "change.plan", "--yes"]) == 0
    assert "Next: " not in capsys.readouterr().err  # `gpustack capacity` reads a spec
    assert [change.to_record() for change in made["changes"]] == [CHANGE.to_record()]
    assert main(["cloud", "apply", "change.plan", "--yes", "--prune"]) == 13
    assert "a saved plan is carried out as it is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "rest"), [("change.plan", "make the plan again"), ("gpustack.yaml", "run the command")]
)
def test_what_is_skipped_needs_a_new_plan(
    made: dict[str, Any], capsys: pytest.CaptureFixture[str], name: str, rest: str
) -> None:
    assert main(["cloud", "plan", "gpustack.yaml", "--out", "change.plan"]) == 0
    made["result"] = ChangeResult.SKIPPED
    assert main(["cloud", "apply", name, "--yes"]) == 14
    assert f"see the reasons above; {rest}" in capsys.readouterr().err


def test_a_plan_of_another_cloud_is_refused(made: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cloud", "plan", "gpustack.yaml", "--out", "change.plan"]) == 0
    elsewhere = Cloud(**{**PLACE, "region": "Other"})
    with mock.patch("gpustack.cloud.session.place_of", return_value=elsewhere.model_dump()):
        assert main(["cloud", "apply", "change.plan", "--yes"]) != 0
    assert "the plan is for another cloud" in capsys.readouterr().err
    assert "changes" not in made


def test_an_error_saves_and_changes_nothing(made: dict[str, Any]) -> None:
    made["findings"] = (UNKNOWN,)
    assert main(["cloud", "plan", "gpustack.yaml", "--out", "change.plan"]) == 13
    assert main(["cloud", "apply", "gpustack.yaml", "--yes"]) == 13
    assert not Path("change.plan").exists()
    assert "changes" not in made


def test_groups_and_times_are_checked(made: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cloud", "plan", "gpustack.yaml", "-f", "json"]) == 0
    assert (made["groups"], json.loads(capsys.readouterr().out)["unchanged"]) == ({"quotas"}, {})
    for arguments in (["--only", "hosts"], ["--confirm-within", "10"]):
        assert main(["cloud", "apply", "gpustack.yaml", *arguments]) == 2
    assert main(["cloud", "apply", "gpustack.yaml", "--check"]) == 0
    assert "changes" not in made


def test_a_saved_plan_is_named_without_the_options_of_its_planning(
    made: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--only", "quotas", "--prune", "--adopt", "--out", "change.plan"]
    assert main(["cloud", "plan", "gpustack.yaml", *options]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "Next: gpustack cloud apply change.plan"


def test_the_next_command_repeats_groups_and_times(made: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--only", "tenancy,quotas", "--confirm-within", "10m"]
    assert main(["cloud", "apply", "gpustack.yaml", "--prune", "--check", *options]) == 0
    assert made["groups"] == {"quotas", "tenancy"}
    line = capsys.readouterr().err.splitlines()[-1]
    assert "--only tenancy,quotas " in line
    assert main([*line.removeprefix("Next: gpustack ").split(), "--check"]) == 0
