"""Nova for the demo: its installation reports progress, and its hosts show their instances."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace

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


def test_the_directory_of_a_host_follows_its_domains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without SSH too: undo on the directory would refuse to reboot under an instance that was deleted."""
    domains = [{"name": "instance-1", "uuid": "1", "state": "running"}]
    options: dict[str, str] = {}
    control = SimpleNamespace(
        hosts=lambda: ["gpu01", "elsewhere"],
        periodic=lambda: None,
        domains=lambda name: domains,
        domain_xml=lambda name, uuid: "<domain/>",
        configure_placement=options.update,
    )
    nova = SimpleNamespace(control=control, connection=contextlib.nullcontext)
    for name in ("nova_of", "ExampleSshServer"):
        monkeypatch.setattr(cloud, name, lambda *_, **__: contextlib.nullcontext(nova))
    for place, name in ((cloud, "_upload"), (cloud, "write_access"), (cloud.limits, "register")):
        monkeypatch.setattr(place, name, lambda *_: None)
    monkeypatch.setattr(cloud, "_PERIOD", 0.01)
    status = tmp_path / "gpu01/run/libvirt/qemu/instance-1.xml"
    (tmp_path / "gpu01").mkdir()
    rendered = tmp_path / "nova/control/etc/placement/placement.conf.d/300-gpustack.conf"
    rendered.parent.mkdir(parents=True)
    rendered.write_text("[placement]\nmax_allocation_candidates = 1000\n")

    def wait(exists: bool) -> None:
        end = time.monotonic() + 30
        while status.exists() != exists:
            assert time.monotonic() < end
            time.sleep(0.01)

    with cloud.running(tmp_path, tmp_path / "hosts.json", tmp_path / "nova"):
        wait(True)
        domains.clear()
        wait(False)
    assert options == {"placement/max_allocation_candidates": "1000"}
    assert not (tmp_path / "elsewhere").exists()
