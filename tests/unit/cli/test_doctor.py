"""``gpustack doctor``: one screen of 80 columns; nothing that is not set up is an error."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from gpustack.operate.doctor import databases

pytestmark = pytest.mark.filterwarnings("ignore:Support for InfluxDB")


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("OS_", "GPUSTACK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "missing.yaml"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(databases, "USUAL", Path("nova"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_machine_where_nothing_is_set_up(gpustack, monkeypatch):
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("gpustack.base.text.sys", SimpleNamespace(stdout=terminal, maxsize=sys.maxsize))
    ran = gpustack("doctor")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 30
    assert lines[0].split() == ["ok", "gpustack", lines[0].split()[-1]]
    states = [line[:14].strip() for line in lines if line[:1].strip()]
    assert states.count("not configured") >= 3
    assert "error" not in states


def test_data_for_programs(gpustack, monkeypatch):
    monkeypatch.setattr("gpustack.operate.doctor.machine.checks", lambda: iter(()))
    checks = json.loads(gpustack("doctor", "-f", "json").out)
    assert list(checks[0]) == ["name", "state", "seen", "remedy"]
    assert yaml.safe_load(gpustack("doctor", "-f", "yaml").out) == checks


def test_the_exit_code_is_that_of_the_first_failed_check(bare, gpustack, monkeypatch):
    monkeypatch.setattr("gpustack.operate.doctor.machine.checks", lambda: iter(()))
    (bare / "gpustack.yaml").write_text("version: 2\n")
    ran = gpustack("doctor", "--db-url", "mysql://nova:geheim@127.0.0.1:9/nova")
    assert ran.code == 10
    assert "geheim" not in ran.out + ran.err
    assert [line.split()[1] for line in ran.out.splitlines() if line.startswith("error")] == ["Spec", "Cell"]
