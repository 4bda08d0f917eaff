"""``gpustack report``; a stand-in for the cloud gives the fleet."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from gpustack.base.errors import CloudError
from gpustack.cli.report import ReportCommand
from gpustack.fleet.model import Fleet, Gap, Source
from gpustack.fleet.read import Detail, Given
from support.fleets import fleet_of
from support.limits import StandInLimits, limited
from support.page import Page

SPEC = """
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu01: [k4200]}
nova: {release: "2025.2"}
flavors: {small: {model: k4200, vcpus: 1, ram: 64MiB, disk: 1GiB}}
"""


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Callable[[Fleet], None]:
    """Let the command read this fleet."""

    def install(fleet: Fleet) -> None:
        def read(command: ReportCommand, parsed_args: argparse.Namespace, detail: Detail) -> Fleet:
            assert detail is Detail.HOLDERS
            command._given = Given()
            return fleet

        monkeypatch.setattr(ReportCommand, "read", read)

    return install


def test_page_is_written_and_named(gpustack: Callable, cloud: Callable, tmp_path: Path) -> None:
    cloud(replace(fleet_of(3), findings=()))
    ran = gpustack("report", "--out", tmp_path / "report")
    path = tmp_path / "report" / "index.html"
    assert (ran.code, ran.out, ran.err) == (0, f"{path}: 24 GPUs on 3 hosts\n", "")
    page = Page(path.read_text(encoding="utf-8"))
    assert page.problems() == []
    assert "from Nova, Placement, Keystone" in page.words


def test_unknown_hosts_are_not_counted(gpustack: Callable, cloud: Callable, tmp_path: Path) -> None:
    fleet = replace(fleet_of(1), counts=())
    cloud(fleet)
    ran = gpustack("report", "--out", str(tmp_path))
    assert ran.out == f"{tmp_path}/index.html: {len(fleet.gpus)} GPUs\n"


def test_partial_report_is_written_and_fails(gpustack: Callable, cloud: Callable, tmp_path: Path) -> None:
    cloud(replace(fleet_of(1), partial=(Gap(source=Source.NOVA, reason="cell cell2 does not answer"),)))
    ran = gpustack("report", "--out", tmp_path)
    assert ran.code == 23
    assert "partial: Nova: cell cell2 does not answer" in ran.err
    assert "the report is partial" in ran.err
    assert "This report is partial" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_cloud_that_ends_before_capacity_is_counted(
    gpustack: Callable, cloud: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(command: ReportCommand, parsed_args: argparse.Namespace, **more: object) -> NoReturn:
        raise CloudError("Placement does not answer")

    cloud(fleet_of(1))
    monkeypatch.setattr(ReportCommand, "connection", refused)
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    ran = gpustack("report", "--out", tmp_path, "--spec", spec)
    assert ran.code == 23
    page = Page((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert "Placement does not answer; capacity is unknown" in page.words
    assert not page.find(".//*[@id='capacity']")
    assert page.find(".//*[@id='g1']")


def test_directory_that_cannot_be_written_is_an_error(gpustack: Callable, cloud: Callable, tmp_path: Path) -> None:
    cloud(fleet_of(1))
    (tmp_path / "file").touch()
    ran = gpustack("report", "--out", tmp_path / "file")
    assert ran.code == 1
    assert str(tmp_path / "file") in ran.err
    assert "Traceback" not in ran.err


QUOTAS = SPEC + "quotas: {default: {k4200: 1}}\n"


@pytest.mark.parametrize(
    ("limits", "code", "words"),
    [
        (StandInLimits(limited(1)), 0, ["k4200, default limit"]),
        (StandInLimits(limited(1, complete=False)), 23, ["the limits of other projects may be missing", "?"]),
        (StandInLimits(limited(1), fails=("present",)), 23, ["The limits are unknown: present does not answer."]),
    ],
)
def test_limits_of_projects_are_shown(
    gpustack: Callable,
    cloud: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: StandInLimits,
    code: int,
    words: list[str],
) -> None:
    cloud(fleet_of(1))
    monkeypatch.setattr(ReportCommand, "connection", lambda *_arguments, **_more: None)
    monkeypatch.setattr("gpustack.cli.report.LimitsCloud", lambda _connection: limits)
    spec = tmp_path / "gpustack.yaml"
    spec.write_text("".join(line for line in QUOTAS.splitlines(True) if not line.startswith("flavors")))
    ran = gpustack("report", "--out", tmp_path, "--spec", spec)
    assert ran.code == code, ran.err
    page = Page((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert [text for text in words if text not in page.words] == []
