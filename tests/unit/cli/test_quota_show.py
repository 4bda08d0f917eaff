"""``gpustack quota show``: what is missing is reported, not passed over in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpustack.cloud.identity import Project
from gpustack.cloud.limits import MARK, Limit, Present
from support.change_runs import without_cloud


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_cloud_without_unified_limits_is_reported_with_the_next_step(
    gpustack: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str
) -> None:
    class WithoutLimits:
        def __init__(self, connection: object) -> None:
            pass

        def present(self) -> Present:
            return Present()

        def projects(self) -> tuple[()]:
            return ()

    without_cloud(monkeypatch, tmp_path)
    monkeypatch.setattr("gpustack.cli.quota_show.LimitsCloud", WithoutLimits)
    ran = gpustack("quota", "show", "--all-projects", "-f", form, "-v")
    assert ran.code == 0
    assert "GPU454" in ran.err
    assert "gpustack quota apply" in ran.err
    assert "nova.quota.UnifiedLimitsDriver" in ran.err


def test_projects_of_one_name_are_shown_with_their_ids(
    gpustack: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class TwoOfOneName:
        def __init__(self, connection: object) -> None:
            pass

        def present(self) -> Present:
            return Present(defaults=(Limit(id="1", resource_class="CUSTOM_A", limit=2, description=f"GPUs: a {MARK}"),))

        def projects(self) -> tuple[Project, ...]:
            return tuple(Project(id=name, name="research") for name in ("p1", "p2"))

        def named_project(self, ref: str) -> Project:
            return next(project for project in self.projects() if project.id == ref)

        def used(self, project: str) -> dict[str, int]:
            return {}

    without_cloud(monkeypatch, tmp_path)
    monkeypatch.setattr("gpustack.cli.quota_show.LimitsCloud", TwoOfOneName)
    shown = gpustack("quota", "show", "--all-projects", "-f", "value", "-c", "Project").out
    assert shown.splitlines() == ["research (p1)", "research (p2)"]
    assert gpustack("quota", "show", "--project", "p1", "-f", "value", "-c", "Project").out == "research (p1)\n"
    names = json.loads(gpustack("quota", "show", "--all-projects", "-f", "json").out)
    assert [(share["project"], share["project_name"]) for share in names] == [("p1", "research"), ("p2", "research")]
