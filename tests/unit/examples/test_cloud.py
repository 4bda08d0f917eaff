"""Nova for the demo: its installation reports progress."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack_demo.examples import cloud


def test_a_long_installation_reports_progress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = object()
    reports: list[str] = []

    def ensure(name: str, *, report: object) -> object:
        while len(reports) < 2:
            pass
        return installed

    monkeypatch.setattr(cloud, "_TICK", 0.01)
    monkeypatch.setattr(cloud, "ensure", ensure)
    monkeypatch.setattr(cloud, "ensure_templates", lambda environment, report: tmp_path)
    monkeypatch.setattr(cloud, "ensure_glance", lambda environment, report: tmp_path)
    assert cloud.install(reports.append) is installed
    assert all("installing" in text for text in reports)
