"""Why an instance failed: phases, the scheduler's log, names. Nova's answers are made."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gpustack.base.errors import UsageError
from gpustack.cloud.boot import BootRecord
from gpustack.cloud.flavors import Flavor, Sizes
from gpustack.cloud.servers import ActionStep, Event, Server
from gpustack.hosts.facts.store import load_snapshot
from gpustack.nova_options.scheduler import Scheduler
from gpustack.novadb.databases import database
from gpustack.novadb.sources import Sources as Cells
from gpustack.operate.capacity.model import Outcome
from gpustack.operate.why.instance import FailedPhase, InstanceAnswer, answer, failure, quoted
from gpustack.operate.why.read import WhySources
from support import growing_fleets
from support.fleet_cloud import StandIn

VM = "5f0c1b8e-6f5e-4b5f-9a55-1e1d6a1c2b3d"
NO_HOST = "No valid host was found. There are not enough hosts available."


@pytest.mark.parametrize(
    ("action", "steps", "fault", "phase", "tried"),
    [
        ("create", [ActionStep(name="conductor_schedule")], NO_HOST, FailedPhase.SCHEDULER, ()),
        ("create", [], "Exceeded maximum number of retries.", FailedPhase.BUILD, ()),
        ("create", [ActionStep(name="compute__do_build", host="gpu1")], "Build aborted", FailedPhase.BUILD, ("gpu1",)),
        ("create", [], "Quota exceeded for instances: Requested 1", FailedPhase.API, ()),
        ("resize", [ActionStep(name="cold_migrate", error=NO_HOST)], "", FailedPhase.MOVE, ()),
    ],
)
def test_the_phase_is_that_of_novas_records(
    action: str, steps: list[ActionStep], fault: str, phase: FailedPhase, tried: tuple[str, ...]
) -> None:
    known = BootRecord(
        server=Server(id=VM),
        flavor=Flavor(id="g", name="g", sizes=Sizes(vcpus=1, ram=1, disk=1)),
        fault=fault,
    )
    found = failure(known, Event(what=action, failed=True, request="req-1"), steps)
    assert (found.phase, found.tried, found.request) == (phase, tried, "req-1")
    assert found.errors == {}
    assert found.reason == fault or found.reason == NO_HOST


def test_only_lines_about_the_instance_are_quoted() -> None:
    log = [
        "INFO [None req-1 u p] Filtering removed all hosts for 'other'. Filter results: ['X: (start: 1, end: 0)']",
        f"INFO [None req-1 u p] Filtering removed all hosts for '{VM}'. Filter results: ['X: (start: 1, end: 0)']",
        "INFO [None req-2 u p] Got no allocation candidates from the Placement API.",
        "INFO [None req-1 u p] Got no allocation candidates from the Placement API.",
    ]
    assert quoted(log, VM, "req-1") == (log[3], log[1])
    assert quoted(log, VM, "") == (log[1],)


def server(uuid: str, name: str, **more: Any) -> dict[str, Any]:
    flavor = {"original_name": "g1", "vcpus": 1, "ram": 512, "disk": 1, "extra_specs": {}}
    return {"id": uuid, "name": name, "status": "ACTIVE", "flavor": flavor, **more}


def test_names_lead_to_one_instance_or_to_a_usage_error() -> None:
    cloud = StandIn()
    entries = [server(VM, "vm.1"), server(VM.replace("5", "6"), "twin"), server(VM.replace("5", "7"), "twin")]
    cloud.answers["compute /servers/detail"] = (200, {"servers": entries})
    cloud.answers[f"compute /servers/{VM}"] = (200, {"server": entries[0]})
    cloud.answers[f"compute /servers/{VM}/os-instance-actions"] = (200, {"instanceActions": []})
    sources = WhySources(spec=Path("no.yaml"))
    found = answer(cloud.connection, "vm.1", sources)
    assert found.to_dict()["instance"] == VM
    assert "requests no GPU" in found.gaps[0]
    assert any("name=vm.1&" in line or line.endswith("name=vm.1&limit=1000") for line in cloud.requests)
    with pytest.raises(UsageError, match="2 instances are named 'twin'") as twins:
        answer(cloud.connection, "twin", sources)
    assert VM.replace("5", "7") in str(twins.value.remedy)
    with pytest.raises(UsageError, match=r"there is no instance 'vn\.1'") as near:
        answer(cloud.connection, "vn.1", sources)
    assert "vm.1" in str(near.value.remedy)
    with pytest.raises(UsageError, match="there is no instance"):
        answer(cloud.connection, VM.replace("5", "8"), sources)


def test_a_failed_action_of_an_unknown_flavor_has_its_reason() -> None:
    cloud = StandIn()
    fault = {"message": "Quota exceeded,\ntoo many instances \x1b[31m", "created": "2026-11-24T14:02:00Z"}
    cloud.answers[f"compute /servers/{VM}"] = (200, {"server": server(VM, "vm", status="ERROR", fault=fault)})
    found = answer(cloud.connection, VM, WhySources(spec=Path("no.yaml")))
    shown = found.to_dict()
    assert (shown["phase"], shown["failed_at"]) == ("API", "2026-11-24T14:02:00Z")
    assert [entry.code for entry in found.findings] == ["GPU587"]
    assert "failed at 2026-11-24 14:02:00 UTC (API)" in found.summary


FAULT = {"message": NO_HOST, "created": "2026-11-24T14:02:00Z"}
GROUP = {"name": "apart", "policy": "anti-affinity", "rules": {}, "members": [VM]}
LOST = {"message": "Exceeded maximum number of retries. Exhausted all hosts", "created": "2026-11-24T14:02:00Z"}
BUILD = {"event": "compute__do_build_and_run_instance", "result": "Success"}


def failed_in_a_large_cloud(
    directory: Path,
    *,
    newest: tuple[int, int] = (2, 100),
    action: str = "create",
    event: dict[str, Any] | None = None,
    log: tuple[str, ...] = (),
    sources: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[InstanceAnswer, StandIn]:
    """The answer about a failed instance with one GPU, in a cloud of 20 hosts whose K4200s are in use."""
    sizes = growing_fleets.Sizes(hosts=20)
    places = growing_fleets.written(directory, sizes)
    cloud = growing_fleets.cloud(sizes)
    cloud.newest = newest
    entry = server(VM, "vm", status="ERROR", **{"fault": FAULT, **more})
    entry["flavor"]["extra_specs"] = {"pci_passthrough:alias": "k4200:1"}
    cloud.answers[f"compute /servers/{VM}"] = (200, {"server": entry})
    known_action = {"action": action, "request_id": "req-1", "start_time": "2026-11-24T14:01:59", "message": "Error"}
    cloud.answers[f"compute /servers/{VM}/os-instance-actions"] = (200, {"instanceActions": [known_action]})
    known = event or {"event": "conductor_schedule", "result": "Error", "traceback": NO_HOST, "host": None}
    answered = {"instanceAction": {**known_action, "events": [known]}}
    cloud.answers[f"compute /servers/{VM}/os-instance-actions/req-1"] = (200, answered)
    cloud.answers["compute /os-server-groups/team"] = (200, {"server_group": GROUP})
    facts = partial(load_snapshot, places["snapshot"])
    read = WhySources(spec=places["spec"], snapshot=facts, log=log, **(sources or {}))
    return answer(cloud.connection, VM, read), cloud


def test_a_failed_instance_takes_few_requests_in_a_large_cloud(tmp_path: Path) -> None:
    found, cloud = failed_in_a_large_cloud(
        tmp_path, server_groups=["team"], scheduler_hints={"group": ["team"], "query": "[]"}
    )
    assert found.failure is not None
    assert (found.failure.phase, found.now is not None) == (FailedPhase.SCHEDULER, True)
    assert "these scheduler hints are not evaluated: query" in found.gaps
    assert "compute /os-server-groups/team" in cloud.requests
    assert len(cloud.requests) <= 15, cloud.requests


def refusing(found: InstanceAnswer, step: str) -> set[str]:
    """The hosts that a step refuses, also after another one."""
    walks = {host: done for cause in (found.now.causes if found.now else ()) for host, done in cause.walks.items()}
    return {
        host
        for host, done in walks.items()
        if any(entry.name == step and entry.outcome is Outcome.FAILED for entry in done.steps)
    }


def test_members_of_a_server_group_keep_an_instance_off_their_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step = "ServerGroupAntiAffinityFilter"
    found, _cloud = failed_in_a_large_cloud(tmp_path, server_groups=["team"])
    assert refusing(found, step) == set()
    monkeypatch.setitem(GROUP, "members", [VM, "vm-gpu00003"])
    found, _cloud = failed_in_a_large_cloud(tmp_path, server_groups=["team"])
    assert refusing(found, step) == {"gpu00003"}
    found, _cloud = failed_in_a_large_cloud(tmp_path, server_groups=["gone"])
    assert refusing(found, step) == set()


def test_a_group_of_an_older_nova_is_read_from_its_api_database(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before 2025.1, Nova shows neither the image nor the hints of an instance."""
    text = json.dumps(
        {"nova_object.data": {"availability_zone": "az", "scheduler_hints": {"same_host": ["vm-gpu00004"]}}}
    )
    engine = sa.create_engine(f"sqlite:///{tmp_path}/api.sqlite", poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE request_specs (id INTEGER, instance_uuid TEXT, spec TEXT)"))
        connection.execute(sa.text("INSERT INTO request_specs VALUES (1, :vm, :text)"), {"vm": VM, "text": text})
    cells = Cells(api=database("API database", str(engine.url)), cells=())
    filters = Scheduler(filters=("SameHostFilter",))
    more = {"databases": lambda: cells, "scheduler": filters}
    found, _cloud = failed_in_a_large_cloud(tmp_path, newest=(2, 90), sources=more)
    assert not any("does not show" in gap for gap in found.gaps)
    assert refusing(found, "SameHostFilter") == {f"gpu{n:05d}" for n in range(20)} - {"gpu00004"}
    monkeypatch.delitem(more, "databases")
    found, _cloud = failed_in_a_large_cloud(tmp_path, newest=(2, 90), sources=more)
    assert sum("does not show" in gap for gap in found.gaps) == 3


@pytest.mark.parametrize(
    ("host", "fault", "log", "code", "text"),
    [
        ("gpu9", LOST, (), "GPU581", "Exhausted all hosts"),
        ("gpu00001", LOST, (), "GPU597", "another instance probably was faster"),
        (
            "gpu9",
            LOST,
            (f"INFO nova.compute.claims [instance: {VM}] Failed to claim: Claim pci failed",),
            "GPU597",
            "Claim pci",
        ),
        (
            "gpu9",
            {**LOST, "message": "Insufficient compute resources: Claim pci failed."},
            (),
            "GPU597",
            "Claim pci failed",
        ),
    ],
)
def test_a_build_is_a_lost_claim_only_with_a_reason(
    tmp_path: Path, host: str, fault: dict[str, str], log: tuple[str, ...], code: str, text: str
) -> None:
    found, _cloud = failed_in_a_large_cloud(tmp_path, event={**BUILD, "host": host}, log=log, fault=fault)
    assert found.failure is not None
    assert (found.failure.phase, found.failure.tried) == (FailedPhase.BUILD, (host,))
    (build,) = [entry for entry in found.findings if entry.code in ("GPU581", "GPU597")]
    assert (build.code, text in build.message, host in build.message) == (code, True, True)


@pytest.mark.parametrize(
    ("action", "source", "text"),
    [("create", set(), "delete the failed one"), ("migrate", {"gpu00002"}, "keep the instance")],
)
def test_a_move_leaves_out_its_source_and_keeps_the_instance(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, action: str, source: set[str], text: str
) -> None:
    """Nova ignores the host that an instance moves from: room there is no help."""
    monkeypatch.setattr("gpustack.operate.why.instance._fitting", lambda _now: ["gpu00009"])
    host = {"OS-EXT-SRV-ATTR:host": "gpu00002", "hostId": "1"}
    found, _cloud = failed_in_a_large_cloud(tmp_path, action=action, **host)
    assert found.now is not None
    judged = {name for cause in found.now.causes for name in cause.hosts}
    assert {f"gpu{number:05d}" for number in range(20)} - judged == source
    (fits,) = [entry for entry in found.findings if entry.code == "GPU583"]
    assert text in (fits.remedy or "")
