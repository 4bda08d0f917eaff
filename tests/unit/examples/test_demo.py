"""``make demo``: how it ends, and what it leaves. Its chapters run as a whole only, in ``make demo`` itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpustack.base.errors import GpustackError
from gpustack_demo.embedded.environment import Environment
from gpustack_demo.examples import cloud, demo
from gpustack_demo.examples.stage import Stage


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nova is there, and the demo's directory is below the test's."""
    monkeypatch.setattr(demo, "install", lambda report: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def directory(tmp_path: Path) -> Path:
    (path,) = tmp_path.glob("gpustack-demo-*")
    return path


def test_a_surprise_ends_the_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def chapter(stage: Stage) -> None:
        """A chapter"""
        stage.check(False, "the host is ready")

    monkeypatch.setattr(demo, "SHORT", ((chapter,), ()))
    assert demo.main([]) == 1
    error = capsys.readouterr().err
    assert "The demo failed: the host is ready" in error
    assert str(directory(tmp_path)) in error


def test_a_completed_demo_keeps_its_directory_and_prints_three_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "SHORT", ((), ()))
    assert demo.main([]) == 0
    output = capsys.readouterr().out
    assert f"cd {directory(tmp_path)}" in output
    assert len([line for line in output.splitlines() if line.startswith("  gpustack ")]) == 3


def test_the_printed_search_path_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/home/dev/my sources/.venv/bin/python")
    monkeypatch.setattr(demo, "SHORT", ((), ()))
    assert demo.main([]) == 0
    assert "PATH='/home/dev/my sources/.venv/bin':$PATH" in capsys.readouterr().out


def test_full_plays_the_chapters_of_the_full_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def chapter(stage: Stage) -> None:
        """A chapter of the full demo"""

    monkeypatch.setattr(demo, "FULL", ((chapter,), ()))
    assert demo.main(["--full"]) == 0
    assert "1. A chapter of the full demo" in capsys.readouterr().out


def test_without_nova_the_first_half_runs_and_the_demo_exits_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ensure(name: str, *, report: object) -> Environment:
        raise GpustackError("pip install failed", where="pip.log", remedy="check the network")

    def on_hosts(stage: Stage) -> None:
        """The first half"""
        stage.check(True, "hosts are ready")

    def in_cloud(stage: Stage) -> None:
        """The second half"""
        raise AssertionError("needs Nova")

    monkeypatch.setattr(cloud, "ensure", ensure)
    monkeypatch.setattr(demo, "install", cloud.install)
    monkeypatch.setattr(demo, "SHORT", ((on_hosts,), (in_cloud,)))
    assert demo.main([]) == 3
    output = capsys.readouterr()
    assert "✔ hosts are ready" in output.out
    assert "pip install failed" in output.err
    assert "check the network" in output.err


def test_messages_of_the_installation_are_in_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def install(report: cloud.Print) -> None:
        report("pip install nova")
        report("databases made")

    monkeypatch.setattr(demo, "install", install)
    monkeypatch.setattr(demo, "SHORT", ((), ()))
    assert demo.main([]) == 0
    assert capsys.readouterr().out.count("Installing Nova") == 1
    assert "pip install nova\ndatabases made\n" in (directory(tmp_path) / "demo.log").read_text(encoding="utf-8")
