"""``gpustack reclaim``: what is read, output, exit codes. The cloud is a stand-in; tests/nova/fleet has a real one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from gpustack.cli.cloud import OpenStackCommand
from gpustack.cloud.compute import Service
from gpustack.cloud.servers import Event, Server
from gpustack.cloud.servers import server as one_server
from support.change_runs import without_cloud
from support.fleet_answers import device
from support.fleet_cloud import StandIn, instance, servers, with_devices

PROJECT = "0" * 32
LISTING = "compute /servers/detail?all_tenants=1"
SPEC = """
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu1: [k4200]}
reclaim: {projects: [PROJECT], idle_after: {shutoff: 1h}, grace: 1h, expired: true}
"""
HOSTILE = "\x1b[2Jgone\n\u202e"


def ago(hours: float) -> str:
    return f"{datetime.now(UTC) - timedelta(hours=hours):%FT%T.000000}"


def stopped(uuid: str, hours: float = 5, **more: Any) -> dict[str, Any]:
    """A stopped instance of a volume."""
    return instance(uuid, status="SHUTOFF", tenant_id=PROJECT, image="", **more)


class Services:
    """The part of :class:`ServiceCloud` that the commands use; novaclient has no stand-in of its own."""

    def __init__(self, connection: object) -> None:
        self.marks: dict[str, dict[str, str]] = {}

    def services(self) -> tuple[Service, ...]:
        return (Service(id="1", host="gpu1", enabled=True, up=True),)

    def mark(self, server_id: str, metadata: dict[str, str]) -> None:
        MARKS[server_id] = metadata

    def act(self, server_id: str, action: str) -> None:
        ACTS.append(f"{action} {server_id}")

    def actions(self, server_id: str) -> tuple[Event, ...]:
        return (Event(what="shelve", request="req-2"),)

    def server(self, server_id: str) -> Server | None:
        if ACTS:
            return Server(id=server_id, name="VM", host="", status="SHELVED_OFFLOADED")
        return one_server(READ[-1], server_id)  # type: ignore[arg-type]


READ: list[StandIn] = []
MARKS: dict[str, dict[str, str]] = {}
ACTS: list[str] = []


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC.replace("PROJECT", f'"{PROJECT}"'), encoding="utf-8")
    return str(path)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StandIn:
    stand_in = with_devices([device("gpu1", 0x81, used=1)], {"vm1": {"gpu1-81": 1}})
    give(stand_in, stopped("vm1", name=HOSTILE))
    stand_in.answers["compute /servers?limit=1"] = (200, {})
    stand_in.answers["compute /os-aggregates"] = (200, {"aggregates": []})
    action = {"action": "stop", "request_id": "req-1", "start_time": ago(5), "user_id": "u1"}
    stand_in.answers["compute /servers/vm1/os-instance-actions"] = (200, {"instanceActions": [action]})
    without_cloud(monkeypatch, tmp_path / "state", stand_in)
    monkeypatch.setattr("gpustack.cli.reclaim.ServiceCloud", Services)
    monkeypatch.setattr("gpustack.operate.reclaim.changes.ServiceCloud", Services)
    READ.append(stand_in)
    MARKS.clear()
    ACTS.clear()
    return stand_in


def give(cloud: StandIn, *entries: dict[str, Any]) -> None:
    """The instances of the cloud, listed and one by one."""
    cloud.answers[LISTING] = servers(*entries)
    for entry in entries:
        cloud.answers[f"compute /servers/{entry['id']}"] = (200, {"server": entry})


def noticed(uuid: str = "vm1", hours: float = 1) -> dict[str, Any]:
    """The same instance with a notice that was over so many hours ago."""
    due = f"{datetime.now(UTC) - timedelta(hours=hours):%FT%TZ}"
    return stopped(uuid, metadata={"gpustack:reclaim_at": due, "gpustack:reclaim_after": "req-1"})


def test_the_plan_lists_idle_instances(cloud: StandIn, spec: str, gpustack: Any) -> None:
    ran = gpustack("reclaim", "plan", spec, "-f", "json", "--exit-code")
    (row,) = json.loads(ran.out)
    assert (ran.code, row["server"], row["server_name"], row["step"]) == (3, "vm1", HOSTILE, "notify")
    assert (row["reason"], row["gpus"], row["user_name"]) == ("SHUTOFF for 5 h", 1, "ada")
    assert "idle instances: 1, GPUs of them: 1" in ran.err
    for form in ("table", "csv", "yaml", "value"):
        ran = gpustack("reclaim", "plan", spec, "-f", form)
        assert (ran.code, "vm1" in ran.out, "\x1b" in ran.out) == (0, True, False)
    give(cloud, stopped("vm1", **{"OS-EXT-STS:task_state": "powering-on"}))
    ran = gpustack("reclaim", "plan", spec, "--exit-code")
    assert (ran.code, "GPU792" in ran.out, "GPU792" in ran.err) == (3, True, True)  # a warning


def test_instances_that_no_rule_covers_are_listed_only(cloud: StandIn, spec: str, gpustack: Any) -> None:
    without = [{**stopped(f"{status.lower()}1"), "status": status} for status in ("PAUSED", "ERROR", "RESCUE")]
    give(cloud, *without, instance("active1"))
    ran = gpustack("reclaim", "plan", spec, "-f", "json", "--exit-code")
    rows = {row["server"]: row for row in json.loads(ran.out)}
    assert (ran.code, rows.keys()) == (0, {"paused1", "error1", "rescue1"})
    for name, row in rows.items():
        assert row["held"].startswith(f"held, no rule ({name[:-1].upper()} with its GPUs for ")
        assert (row["step"], row["reason"], row["gpus"]) == ("nothing", None, 1)
    assert "instances that no rule covers: 3, GPUs of them: 3" in ran.err
    assert not [line for line in cloud.requests if any(f"servers/{name}" in line for name in rows)]
    for form in ("table", "csv", "yaml"):
        assert "held, no rule (RESCUE" in gpustack("reclaim", "plan", spec, "-f", form).out
    for command in ("notify", "apply"):
        ran = gpustack("reclaim", command, spec, "--yes")
        assert (ran.code, "nothing to do" in ran.err + ran.out) == (0, True)


def test_only_instances_that_may_be_idle_take_requests(cloud: StandIn, spec: str, gpustack: Any) -> None:
    others = [instance(f"other{number}") for number in range(9)]
    give(cloud, stopped("vm1"), *others)
    gpustack("reclaim", "plan", spec)
    assert [line for line in cloud.requests if "other" in line] == []
    assert len([line for line in cloud.requests if "vm1" in line]) == 3  # actions, migrations, allocations


def test_a_notice_is_written_then_the_instance_is_shelved(
    cloud: StandIn, spec: str, gpustack: Any, tmp_path: Path
) -> None:
    assert gpustack("reclaim", "notify", spec).code == 2  # no terminal
    assert MARKS == {}
    ran = gpustack("reclaim", "notify", spec, "--yes")
    assert (ran.code, MARKS["vm1"]["gpustack:reclaim_after"]) == (0, "req-1")
    assert "notify " in ran.out
    assert "to undo: gpustack undo 2" in ran.err
    journal = tmp_path / "journal.jsonl"
    apply = ("reclaim", "apply", spec, "--yes", "--journal", str(journal))
    ran = gpustack(*apply)
    assert (ran.code, ACTS, journal.exists()) == (0, [], False)
    give(cloud, noticed())
    ran = gpustack(*apply)
    assert (ran.code, ACTS) == (0, ["shelve vm1"]), ran
    assert f"to undo: gpustack undo {journal}" in ran.err
    # The journal is never overwritten.
    assert gpustack(*apply).code == 15
    assert len(ACTS) == 1


def test_an_instance_that_is_started_meanwhile_is_skipped(cloud: StandIn, spec: str, gpustack: Any) -> None:
    give(cloud, noticed())
    cloud.answers["compute /servers/vm1"] = (200, {"server": instance("vm1", tenant_id=PROJECT)})
    ran = gpustack("reclaim", "apply", spec, "--yes")
    assert (ran.code, ACTS) == (14, [])
    assert "skipped: changed since the plan: ACTIVE (was SHUTOFF)" in ran.err


def test_hosts_isolated_since_the_notice_block(cloud: StandIn, spec: str, gpustack: Any) -> None:
    """The instance requires no trait: nothing would accept it again."""
    give(cloud, noticed())
    isolated = {"name": "gpu", "hosts": ["gpu1"], "metadata": {"trait:CUSTOM_GPU_HOST": "required"}}
    cloud.answers["compute /os-aggregates"] = (200, {"aggregates": [isolated]})
    ran = gpustack("reclaim", "apply", spec, "--yes")
    assert ACTS == []
    assert "GPU900 gpu1 " in ran.err, ran
    assert "gpu1 requires CUSTOM_GPU_HOST" in ran.err


def test_placement_that_does_not_answer_blocks(cloud: StandIn, spec: str, gpustack: Any) -> None:
    cloud.answers["placement /resource_providers"] = (503, {"error": {"message": "down"}})
    ran = gpustack("reclaim", "plan", spec, "-f", "json")
    (row,) = json.loads(ran.out)
    assert [found["code"] for found in row["findings"]] == ["GPU794"]
    cloud.answers["placement /resource_providers"] = (200, {"resource_providers": []})  # no PCI in Placement
    (row,) = json.loads(gpustack("reclaim", "plan", spec, "-f", "json").out)
    assert row["step"] == "notify"


def test_an_allocation_too_many_blocks(cloud: StandIn, spec: str, gpustack: Any, monkeypatch: Any) -> None:
    devices = [device("gpu1", 0x81, used=1), device("gpu1", 0x82, used=1)]
    surplus = with_devices(devices, {"vm1": {"gpu1-81": 1, "gpu1-82": 1}})
    surplus.answers = {**cloud.answers, **surplus.answers}
    monkeypatch.setattr(OpenStackCommand, "connection", lambda *arguments, **options: surplus)
    (row,) = json.loads(gpustack("reclaim", "plan", spec, "-f", "json").out)
    assert {found["code"] for found in row["findings"]} == {"GPU794"}
    assert "GPU701" in row["findings"][0]["message"]


def test_a_partial_list_has_an_exit_code_of_its_own(cloud: StandIn, spec: str, gpustack: Any) -> None:
    cloud.answers[LISTING] = (403, {"forbidden": {"message": "no"}})
    cloud.answers["compute /servers/detail?&"] = servers(stopped("vm1"))
    ran = gpustack("reclaim", "plan", spec, "-f", "json")
    assert (ran.code, len(json.loads(ran.out))) == (23, 1)


@pytest.mark.parametrize(("minutes", "code"), [(0, 0), (-4, 0), (6, 21), (-6, 21)])
def test_a_wrong_clock_stops_everything(cloud: StandIn, spec: str, gpustack: Any, minutes: int, code: int) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(minutes=minutes), usegmt=True)
    cloud.headers["Date"] = date
    assert gpustack("reclaim", "plan", spec).code == code


def test_a_spec_without_the_section_is_an_error(cloud: StandIn, spec: str, gpustack: Any) -> None:
    Path(spec).write_text(SPEC.partition("reclaim:")[0], encoding="utf-8")
    assert gpustack("reclaim", "plan", spec).code == 10
    assert cloud.requests == []
