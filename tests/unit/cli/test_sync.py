"""The commands that sync a cloud with the spec: what blocks a change, and how many connections they open."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from gpustack.base.findings import Code, Finding, finding
from gpustack.cli.app import main
from gpustack.nova_options import releases
from gpustack.offer.cloud_plan.plan import CloudPlan
from gpustack.offer.quota.changes import LimitChange
from gpustack.offer.quota.compare import QuotaPlan, enforced
from support.change_runs import without_cloud
from support.fleet_cloud import StandIn

SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu1: [k4200]}
nova: {release: "2025.2"}
quotas: {default: {k4200: 1}}
"""
CREATION = LimitChange.of(("CUSTOM_X", "k4200"), None, None, 1, "in the spec")
UNKNOWN = finding(Code.QUOTA_PROJECT_UNKNOWN, place="research")


def quota(tmp_path: Path, *arguments: str, findings: tuple[Finding, ...] = ()) -> tuple[int, mock.Mock, mock.Mock]:
    """The exit code of a quota command, the function that changes limits, and the one that connects."""
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(SPEC)
    made = CloudPlan(
        operations=(CREATION,),
        findings=findings,
        quotas=QuotaPlan(operations=(CREATION,), unchanged=2),
        checks=enforced("marker", releases.releases()[-1], "off"),
        release=releases.releases()[-1],
    )
    with (
        mock.patch("gpustack.cloud.session.connect") as connect,
        mock.patch("gpustack.cli.sync.plan", return_value=made),
        mock.patch("gpustack.cli.change.ChangeCommand.carry_out") as apply,
    ):
        return main(["quota", arguments[0], str(spec), *arguments[1:]]), apply, connect


def test_plan_counts_changes_by_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert quota(tmp_path, "plan", "--exit-code")[0] == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["create the default limit for k4200: 1", "1 to create, 0 to change, 0 to delete, 2 unchanged"]
    assert (
        lines[2] == f"Nova {releases.releases()[-1]} with unified limits, PCI in Placement: off"
    )  # Nova's default: no


def test_apply_opens_one_connection(tmp_path: Path) -> None:
    code, apply, connect = quota(tmp_path, "apply", "--yes")
    assert code == 0
    (change,) = apply.call_args.args[0]
    assert (change.describe(), change.seen, change.wanted) == ("create the default limit for k4200: 1", None, 1)
    assert connect.call_count == 1


def test_an_error_blocks_the_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, apply, _ = quota(tmp_path, "apply", "--yes", findings=(UNKNOWN,))
    assert code != 0
    assert "the plan is blocked by an error; nothing was changed" in capsys.readouterr().err
    apply.assert_not_called()


def test_check_stops_before_the_question(tmp_path: Path) -> None:
    code, apply, _ = quota(tmp_path, "apply", "--check", "--exit-code")
    assert code == 3
    apply.assert_not_called()


def test_limits_that_were_not_changed_have_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(SPEC)
    without_cloud(monkeypatch, tmp_path / "state", StandIn())
    made = CloudPlan(
        operations=(CREATION,),
        quotas=QuotaPlan(operations=(CREATION,), unchanged=0),
        release=releases.releases()[-1],
    )
    with mock.patch("gpustack.cli.sync.plan", return_value=made):
        assert main(["quota", "apply", str(spec), "--yes"]) == 24
    assert "1 of 1 operation failed or was skipped" in capsys.readouterr().err
