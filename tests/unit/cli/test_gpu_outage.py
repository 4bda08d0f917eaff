"""``gpustack gpu disable`` and ``enable``: confirmation, record, refusals. The cloud is a stand-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpustack.cli.cloud import OpenStackCommand
from support.fleet_answers import device
from support.fleet_cloud import StandIn, instance, servers, with_devices

INVENTORY = {
    "resource_provider_generation": 3,
    "inventories": {"CUSTOM_PCI_10DE_11B4": {"total": 1, "reserved": 0}},
}
DISABLE = ("gpu", "disable", "gpu1", "81:00.0", "--reason", "no reset")
SPEC = """\
version: 1
models: {a: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu1: [a]}
"""


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StandIn:
    devices = [device("gpu1", 0x81, used=1), device("gpu1", 0x82)]
    stand_in = with_devices(devices, {"vm1": {"gpu1-81": 1}})
    stand_in.answers["compute /servers/detail?all_tenants=1"] = servers(instance("vm1"))
    service = {"id": "s1", "host": "gpu1", "status": "enabled", "state": "up", "disabled_reason": None}
    stand_in.answers["compute /os-services?binary=nova-compute&host=gpu1"] = (200, {"services": [service]})
    stand_in.answers["compute /os-services?binary=nova-compute&host=gpu9"] = (200, {"services": []})
    for bus in ("81", "82"):
        stand_in.answers[f"placement /resource_providers/gpu1-{bus}/inventories"] = (200, INVENTORY)
        stand_in.answers[f"placement PUT /resource_providers/gpu1-{bus}/inventories"] = (200, {})
    monkeypatch.setattr(OpenStackCommand, "connection", lambda *arguments, **options: stand_in)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return stand_in


def test_nothing_is_written_without_confirmation(cloud: StandIn, gpustack: Any) -> None:
    assert gpustack(*DISABLE, "--dry-run").code == 0
    ran = gpustack(*DISABLE)  # no terminal
    assert (ran.code, cloud.written) == (2, [])
    assert "reserve gpu1 0000:81:00.0 in Placement: reserved CUSTOM_PCI_10DE_11B4 0 of 1" in ran.out
    assert "VM1 (vm1, ACTIVE) has the GPU (project p1, user u1)" in ran.err
    assert "without --spec, gpustack assumes" in ran.err
    assert '  - {host: "gpu1", address: "0000:81:00.0", reason: "no reset"' in ran.out


def test_each_change_is_recorded_with_the_state_before(cloud: StandIn, gpustack: Any, tmp_path: Path) -> None:
    ran = gpustack(*DISABLE, "--yes")
    assert ran.code == 0, ran
    (body,) = cloud.written
    assert body["inventories"] == {"CUSTOM_PCI_10DE_11B4": {"total": 1, "reserved": 1}}
    record = tmp_path / "state/gpustack/gpus.jsonl"
    assert record.stat().st_mode & 0o777 == 0o600
    (line,) = map(json.loads, record.read_text(encoding="utf-8").splitlines())
    assert (line["gpu"], line["before"]["classes"]["CUSTOM_PCI_10DE_11B4"]["reserved"]) == ("gpu1 0000:81:00.0", 0)
    assert gpustack(*DISABLE, "--yes", "--disable-service").code == 21  # the service refuses
    assert len(record.read_text(encoding="utf-8").splitlines()) == 3


def test_without_a_record_nothing_is_changed(cloud: StandIn, gpustack: Any, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no directory", encoding="utf-8")
    ran = gpustack(*DISABLE, "--yes")
    assert (ran.code, cloud.written) == (15, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gpu1", "0000:99:00.0"), "Nova has no GPU 0000:99:00.0 on gpu1; it has 0000:81:00.0, 0000:82:00.0"),
        (("gpu9", "0000:81:00.0"), "Nova has no nova-compute service on gpu9"),
        (("gpu1", "81.0"), "is not a PCI address"),
        (("gpu1", "81:00.0", "--reason", "two\nlines"), "--reason must be one line"),
    ],
)
def test_a_wrong_name_is_no_gpu_out_of_service(
    cloud: StandIn, gpustack: Any, arguments: tuple[str, ...], message: str
) -> None:
    ran = gpustack("gpu", "disable", "--reason", "no reset", *arguments)
    assert (ran.code, cloud.written) == (2, [])
    assert message in ran.err


def test_the_spec_decides_whether_a_reservation_helps(cloud: StandIn, gpustack: Any, tmp_path: Path) -> None:
    spec = tmp_path / "gpustack.yaml"
    for placement, kinds in (("report", ["switch_service"]), ("schedule", ["set_inventory"])):
        spec.write_text(f'{SPEC}nova: {{release: "2025.2", placement: {placement}}}\n', encoding="utf-8")
        command = ("gpu", "disable", "gpu1", "82:00.0", "--reason", "x", "--spec", spec, "--dry-run", "-f", "json")
        ran = gpustack(*command)
        plan = json.loads(ran.out)
        assert "without --spec" not in ran.err
        assert [operation["kind"] for operation in plan["operations"]] == kinds


def test_a_gpu_that_the_spec_still_lists_does_not_come_back(cloud: StandIn, gpustack: Any, tmp_path: Path) -> None:
    spec = tmp_path / "gpustack.yaml"
    entry = 'out_of_service: [{host: gpu1, address: "0000:82:00.0", reason: no reset}]\n'
    spec.write_text(f"{SPEC}{entry}", encoding="utf-8")
    ran = gpustack("gpu", "enable", "gpu1", "82:00.0", "--spec", spec, "--yes")
    assert (ran.code, cloud.written) == (13, [])
    assert "GPU759" in ran.err
    ran = gpustack("gpu", "list", "--spec", spec)
    assert "free: no reset" in ran.out
    assert "GPU760" in ran.err
    excluded = 'out_of_service: [{host: gpu1, address: "0000:99:00.0", reason: no reset}]\n'
    spec.write_text(f"{SPEC}{excluded}", encoding="utf-8")
    ran = gpustack("gpu", "disable", "gpu1", "99:00.0", "--reason", "x", "--spec", spec)
    assert (ran.code, "out of service: Nova does not have the GPU" in ran.out) == (0, True), ran


def test_a_partial_fleet_proves_nothing(cloud: StandIn, gpustack: Any) -> None:
    """A GPU that a partial list lacks may be in service."""
    cloud.answers["compute /servers/detail?all_tenants=1"] = (403, {"forbidden": {"message": "no"}})
    cloud.answers["compute /servers/detail?&"] = servers()
    ran = gpustack("gpu", "disable", "gpu1", "99:00.0", "--reason", "x", "--dry-run")
    assert "unknown:" in ran.out
    assert "out of service: Nova" not in ran.out
    assert ran.code == 23
