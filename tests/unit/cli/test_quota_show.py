"""``gpustack quota show``: what is missing is reported, not passed over in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpustack.cloud.limits import Present
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

        def all_projects(self) -> tuple[()]:
            return ()

    without_cloud(monkeypatch, tmp_path)
    monkeypatch.setattr("gpustack.cli.quota_show.LimitsCloud", WithoutLimits)
    ran = gpustack("quota", "show", "--all-projects", "-f", form, "-v")
    assert ran.code == 0
    assert "GPU454" in ran.err
    assert "gpustack quota apply" in ran.err
    assert "nova.quota.UnifiedLimitsDriver" in ran.err
