"""The cloud: not configured, or not reached. A real one is asked in tests/nova/embedded/test_cloud.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpustack.operate.doctor import cloud
from gpustack.operate.doctor.check import Check, State
from gpustack.spec.model import Spec

pytestmark = pytest.mark.filterwarnings("ignore:Support for InfluxDB")
CLOUDS = """
clouds:
  lab: {auth: {auth_url: "http://127.0.0.1:9/v3", username: me, password: geheim, project_name: p}}
"""
ANOTHER = '  prod: {auth: {auth_url: "http://127.0.0.1:9/v3"}}\n'


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)


def checks(name: str | None = None) -> list[Check]:
    return list(cloud.checks(name))


def test_no_configuration_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "missing.yaml"))
    assert [check.state for check in checks()] == [State.NOT_CONFIGURED]


def test_several_clouds_are_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "clouds.yaml").write_text(CLOUDS + ANOTHER)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    (check,) = checks()
    assert (check.state, check.seen) == (State.NOT_CONFIGURED, "clouds.yaml has lab, prod")
    models = {"a": {"match": {"vendor": "10de", "product": "11b4"}}}
    entry = {"host": "gpu1", "address": "0000:81:00.0", "reason": "no reset"}
    spec = Spec.model_validate({"version": 1, "models": models, "hosts": {"gpu1": ["a"]}, "out_of_service": [entry]})
    (_, unchecked) = cloud.checks(None, spec)
    assert (unchecked.state, unchecked.name) == (State.NOT_CONFIGURED, "Out of service")
    assert unchecked.seen.startswith("1 in the spec")


def test_the_only_cloud_is_signed_in_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "clouds.yaml").write_text(CLOUDS)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    (check,) = checks()
    assert (check.state, check.exit_code) == (State.ERROR, 21)
    assert "geheim" not in f"{check.seen}{check.remedy}"
    assert checks("missing")[0].exit_code == 21
