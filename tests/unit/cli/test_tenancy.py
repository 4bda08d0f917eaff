"""``gpustack tenancy``: what it needs before it asks a cloud, and how a plan is printed."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from gpustack.cli.app import main
from gpustack.cloud.compute import Hypervisor
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.tenancy.model import MARK, Present
from support.change_runs import without_cloud

SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu1: [k4200]}
"""
TENANCY = "tenancy: {aggregates: {gpu: {}}}\n"
OLD = Aggregate(name="old", hosts=frozenset({"gpu1"}), metadata={MARK: "CUSTOM_GPU_HOST"}, id=1)
PRESENT = Present(aggregates=(OLD,), nodes=(Hypervisor(host="gpu1", node="gpu1", uuid="p"),))


def run(tmp_path: Path, text: str, command: str, *options: str) -> int:
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(text)
    with (
        mock.patch("gpustack.cloud.session.connect"),
        mock.patch("gpustack.offer.cloud_plan.plan.present_tenancy", return_value=PRESENT),
        mock.patch("gpustack.cli.tenancy.present", return_value=PRESENT),
        mock.patch("gpustack.offer.cloud_plan.plan.present_flavors") as flavors,
    ):
        flavors.return_value.flavors.return_value = ()
        return main(["tenancy", command, str(spec), *options])


def test_a_spec_without_the_section_names_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, SPEC, "plan") == 10
    assert "the spec has no section `tenancy`" in capsys.readouterr().err


def test_names_of_an_earlier_spec_begin_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forged = Aggregate(name="x\n  → run `sh`", hosts=OLD.hosts, metadata=OLD.metadata, id=1)
    with mock.patch(f"{__name__}.PRESENT", Present(aggregates=(forged,), nodes=PRESENT.nodes)):
        run(tmp_path, SPEC + TENANCY, "plan")
    shown = capsys.readouterr().out
    assert r"x\n  → run `sh`" in shown
    assert "  → run `sh`" not in shown.splitlines()


def test_the_plan_lists_changes_and_what_an_earlier_spec_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, SPEC + TENANCY, "plan", "--exit-code") == 3
    assert capsys.readouterr().out.splitlines() == [
        "add the trait CUSTOM_GPU_HOST to gpu1: GPU flavors require it",
        "create the aggregate gpu",
        "change the metadata of the aggregate gpu: gpustack's mark",
        "    + gpustack:tenancy = CUSTOM_GPU_HOST",
        "add gpu1 to the aggregate gpu",
        "change the metadata of the aggregate gpu: the hosts refuse ordinary instances",
        "    + trait:CUSTOM_GPU_HOST = required",
        "5 operations",
        "of an earlier spec (remove with --prune): old",
    ]


def test_apply_changes_nothing_without_confirmation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_cloud(monkeypatch, tmp_path)
    with mock.patch("gpustack.changes.run.run", return_value=()) as apply:
        assert run(tmp_path, SPEC + TENANCY, "apply") == 2
        apply.assert_not_called()
        assert run(tmp_path, SPEC + TENANCY, "apply", "--yes") == 0
        apply.assert_called_once()
    assert "no terminal for confirmation" in capsys.readouterr().err
