"""``gpustack gpu list`` and ``gpu show``: output, exit codes and untrusted names. The cloud is a stand-in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpustack.base.findings import Code
from gpustack.cli.cloud import OpenStackCommand
from support.fleet_answers import device
from support.fleet_cloud import StandIn, instance, servers, with_devices

LISTING = "compute /servers/detail?all_tenants=1"
NAMES = (("gpu1", "0000:81:00.0"), ("gpu1", "81:00.0"), ("GPU1", "81:00.0"))
HOSTILE = "\x1b[2Jgone\n\u202e"


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    devices = [device("gpu1", 0x81, used=1), device("gpu1", 0x82)]
    stand_in = with_devices(devices, {"vm1": {"gpu1-81": 1}})
    stand_in.answers[LISTING] = servers(instance("vm1", name=HOSTILE))
    stand_in.answers["compute /servers/vm1/os-instance-actions"] = (200, {"instanceActions": []})
    monkeypatch.setattr(OpenStackCommand, "connection", lambda *arguments, **options: stand_in)
    return stand_in


def test_table_and_csv_have_no_escape_sequences(cloud: StandIn, gpustack: Any) -> None:
    for form in ("table", "csv", "value"):
        ran = gpustack("gpu", "list", "-f", form)
        assert (ran.code, "\x1b" in ran.out, "\u202e" in ran.out) == (0, False, False)
        assert "research" in ran.out
    assert len(gpustack("gpu", "list", "-f", "csv").out.splitlines()) == 3
    ran = gpustack("gpu", "show", "gpu1", "0000:81:00.0")
    assert (ran.code, "\x1b" in ran.out) == (0, False)


def test_a_gpu_is_shown_by_each_name_of_it(cloud: StandIn, gpustack: Any) -> None:
    """By an address as lspci prints it, too, which is also how `gpu disable` takes it; with its findings."""
    cloud.answers |= {"identity /projects": (200, {"projects": []}), "identity /projects/p1": (404, {})}
    shown = [json.loads(gpustack("gpu", "show", *name, "-f", "json").out) for name in NAMES]
    assert [(gpu["address"], bool(gpu["findings"])) for gpu in shown] == [("0000:81:00.0", True)] * len(NAMES)
    assert all(Code.PROJECT_DELETED in gpustack("gpu", "show", *name).err for name in NAMES)
    refused = gpustack("gpu", "show", "gpu1", "81:0")
    assert (refused.code, "'81:0' is not a PCI address" in refused.err) == (2, True)


def test_json_has_the_name_unchanged(cloud: StandIn, gpustack: Any) -> None:
    ran = gpustack("gpu", "list", "--state", "allocated", "-f", "json")
    (gpu,) = json.loads(ran.out)
    assert (ran.code, gpu["server_name"], gpu["since"]) == (0, HOSTILE, "2026-01-02T03:04:05Z")


def test_a_partial_list_has_an_exit_code_of_its_own(cloud: StandIn, gpustack: Any) -> None:
    cloud.answers[LISTING] = (403, {"forbidden": {"message": "no"}})
    cloud.answers["compute /servers/detail?&"] = servers()
    ran = gpustack("gpu", "list", "-f", "json")
    assert (ran.code, len(json.loads(ran.out))) == (23, 2)
    assert "partial: Nova: " in ran.err


def test_sums(cloud: StandIn, gpustack: Any) -> None:
    ran = gpustack("gpu", "list", "--group-by", "host", "-f", "json")
    (group,) = json.loads(ran.out)
    assert (ran.code, group["Host"], group["GPUs"], group["Free"], group["Allocated"]) == (0, "gpu1", 2, 1, 1)
    assert len(cloud.requests) == 5
    cloud.answers[LISTING] = servers(instance("vm1", "gpu2"))
    cloud.answers["compute /servers/vm1"] = (200, {"server": instance("vm1", "gpu2")})  # read again to compare
    ran = gpustack("gpu", "list", "--group-by", "host", "--state", "inconsistent", "-f", "json")
    assert [(group["GPUs"], group["Inconsistent"]) for group in json.loads(ran.out)] == [(1, 1)]
    cloud.answers[LISTING] = servers(instance("vm1", name=HOSTILE))
    ran = gpustack("gpu", "list", "--group-by", "project", "-f", "json")
    (group,) = json.loads(ran.out)
    assert (ran.code, group["Project"], group["GPUs"], group["Instances"]) == (0, "research", 1, 1)


def test_a_gpu_of_an_unconfirmed_resize_belongs_to_the_project(monkeypatch: pytest.MonkeyPatch, gpustack: Any) -> None:
    """The migration holds what the flavor requested before, on the host that the instance leaves."""
    devices = [device("gpu1", 0x81, used=1), device("gpu2", 0x81, used=1)]
    stand_in = with_devices(devices, {"vm1": {"gpu1-81": 1}, "move": {"gpu2-81": 1}})
    resized = instance("vm1") | {"status": "VERIFY_RESIZE"}
    stand_in.answers[LISTING] = servers(resized)
    move = {"uuid": "move", "instance_uuid": "vm1", "status": "finished"}
    stand_in.answers["compute /os-migrations?"] = (200, {"migrations": [move]})
    monkeypatch.setattr(OpenStackCommand, "connection", lambda *arguments, **options: stand_in)
    ran = gpustack("gpu", "list", "--group-by", "project", "-f", "json")
    (group,) = json.loads(ran.out)
    assert (ran.code, group["Project"], group["GPUs"], group["Instances"]) == (0, "research", 2, 1)
