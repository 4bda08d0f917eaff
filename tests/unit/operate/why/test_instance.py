"""Why an instance failed: phases, the scheduler's log, names, other instances. Nova's answers are made."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gpustack.base.errors import UsageError
from gpustack.base.findings import Code, Severity
from gpustack.cloud.boot import BootRecord, ServerGroup
from gpustack.cloud.flavors import Flavor, Sizes
from gpustack.cloud.servers import ActionStep, Event, Server
from gpustack.hosts.facts.store import load_snapshot
from gpustack.nova_options.scheduler import Scheduler
from gpustack.novadb.databases import database
from gpustack.novadb.sources import Sources as Cells
from gpustack.operate.capacity.model import Capacity, Demand, Outcome
from gpustack.operate.why.instance import FailedPhase, InstanceAnswer, answer, failure, is_quoted, neighbors, quoted
from gpustack.operate.why.read import FlavorAnswer, WhySources
from gpustack.repair.hypervisor import Usage
from support import growing_fleets
from support.cellfile import CellFile, nova_conf
from support.fleet_answers import device
from support.fleet_cloud import StandIn, instance, with_devices

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


def test_reasons_times_and_hosts_of_a_failure() -> None:
    known = BootRecord(server=Server(id=VM), flavor=Flavor(id="g", name="g", sizes=Sizes(vcpus=1, ram=1, disk=1)))
    noon, later = datetime(2026, 11, 24, 12), datetime(2026, 11, 24, 13)  # noqa: DTZ001 - naive UTC
    steps = [
        ActionStep(name="compute_reserve", host=""),
        ActionStep(name="compute__do_build", host="gpu1", error="no vfio"),
        ActionStep(name="compute__do_build", host="gpu2"),
        ActionStep(name="conductor_schedule", host="controller", error="later"),
    ]
    event = Event(what="create", failed=True, request="req-1", at=noon)
    found = failure(known, event, steps)
    assert (found.tried, dict(found.errors), found.reason) == (("gpu1", "gpu2"), {"gpu1": "no vfio"}, "no vfio")
    assert (found.at, failure(replace(known, failed=later), event, ()).at) == (noon, later)
    silent = failure(known, None, ())
    assert (silent.at, silent.request, silent.reason) == (None, "", "Nova reports no reason")
    assert (silent.phase, silent.tried) == (FailedPhase.SCHEDULER, ())
    assert failure(replace(known, fault="No valid host was found. "), None, ()).reason == "No valid host was found."


def test_only_lines_about_the_instance_are_quoted() -> None:
    log = [
        "INFO [None req-1 u p] Filtering removed all hosts for 'other'. Filter results: ['X: (start: 1, end: 0)']",
        f"INFO [None req-1 u p] Filtering removed all hosts for '{VM}'. Filter results: ['X: (start: 1, end: 0)']",
        "INFO [None req-2 u p] Got no allocation candidates from the Placement API.",
        "INFO [None req-1 u p] Got no allocation candidates from the Placement API.",
    ]
    debug = f"DEBUG [None req-1 u p] Filtering removed all hosts for '{VM}'. Filter results: [('X', [('h1', 'h1')])]"
    assert quoted([debug, *log], VM, "") == (log[1],)  # nova-scheduler writes both lines
    claims = [f" [instance: {uuid}] Failed to claim: x\n" for uuid in ("other", VM)]
    assert quoted([*log, *claims], VM, "req-1") == (claims[1].strip(), log[3], log[1])
    assert quoted(log, VM, "") == (log[1],)
    assert [
        is_quoted(line.encode()) for line in (*log, *claims, f"DEBUG [None req-1] [instance: {VM}] Claim successful")
    ] == [
        *[True] * 6,
        False,
    ]


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
    log: tuple[str, ...] | None = None,
    sources: dict[str, Any] | None = None,
    zones: dict[str, list[str]] | None = None,
    refused: str = "nothing",
    **more: Any,
) -> tuple[InstanceAnswer, StandIn]:
    """The answer about a failed instance with one GPU, in a cloud of 20 hosts whose K4200s are in use."""
    sizes = growing_fleets.Sizes(hosts=20)
    places = growing_fleets.written(directory, sizes)
    cloud = growing_fleets.cloud(sizes)
    cloud.newest = newest
    aggregates = [
        {"id": 9, "uuid": zone, "name": zone, "hosts": hosts, "metadata": {"availability_zone": zone}}
        for zone, hosts in (zones or {}).items()
    ]
    cloud.answers["compute /os-aggregates"] = (200, {"aggregates": aggregates})
    entry = server(VM, "vm", status="ERROR", **{"fault": FAULT, **more})
    if "flavor" not in more:
        entry["flavor"]["extra_specs"] = {"pci_passthrough:alias": "k4200:1"}
    cloud.answers[f"compute /servers/{VM}"] = (200, {"server": entry})
    known_action = {"action": action, "request_id": "req-1", "start_time": "2026-11-24T14:01:59", "message": "Error"}
    cloud.answers[f"compute /servers/{VM}/os-instance-actions"] = (200, {"instanceActions": [known_action]})
    known = event or {"event": "conductor_schedule", "result": "Error", "traceback": NO_HOST, "host": None}
    answered = {"instanceAction": {**known_action, "events": [known]}}
    cloud.answers[f"compute /servers/{VM}/os-instance-actions/req-1"] = (200, answered)
    cloud.answers["compute /os-server-groups/team"] = (200, {"server_group": GROUP})
    cloud.answers |= {path: REFUSED for path in (refused, *cloud.answers) if path.startswith(refused)}
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


def test_data_have_the_failure_and_the_causes_of_today(tmp_path: Path) -> None:
    lines = (f"Filtering removed all hosts for '{VM}'. Filter results: []",)
    found, _cloud = failed_in_a_large_cloud(tmp_path, log=lines, event={**BUILD, "host": "gpu9"}, fault=LOST)
    shown = found.to_dict()
    assert (shown["instance"], shown["name"], shown["status"], shown["flavor"]) == (VM, "vm", "ERROR", "g1")
    assert (shown["phase"], shown["request"], shown["tried"], shown["host"]) == ("build", "req-1", ["gpu9"], None)
    assert (shown["reason"], shown["log"], shown["fits_on"]) == (LOST["message"], list(lines), [])
    (cause,) = shown["causes"]  # type: ignore[misc]
    assert len(cause["hosts"]) == 20
    assert list(cause)[-1] == "steps"
    assert shown["findings"] == [entry.to_dict() for entry in found.findings]
    assert found.summary.endswith("; fits on 0 hosts now")
    assert not [gap for gap in found.gaps if "no line" in gap]


def test_logs_without_a_line_about_the_failure_are_a_gap(tmp_path: Path) -> None:
    found, _cloud = failed_in_a_large_cloud(
        tmp_path, log=("Filtering removed all hosts for 'other'. Filter results: []",)
    )
    assert found.log == ()
    assert "no line of the logs is about its failure; nova-scheduler writes one at level INFO" in found.gaps


ACTIONS = (
    {"action": "start", "request_id": "req-2", "start_time": "2026-11-24T15:00:00", "message": None},
    {"action": "resize", "request_id": "req-1", "start_time": "2026-11-24T14:00:00", "message": "Error"},
)


@pytest.mark.parametrize(
    ("actions", "status", "phase", "request_id"),
    [
        (ACTIONS, "ACTIVE", None, ""),
        (ACTIONS[1:], "ACTIVE", FailedPhase.MOVE, "req-1"),
        (ACTIONS, "ERROR", FailedPhase.SCHEDULER, "req-2"),  # the newest request made it so
        ((), "ERROR", FailedPhase.SCHEDULER, ""),
        ((), "ACTIVE", None, ""),
    ],
)
def test_only_the_newest_request_counts(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    actions: tuple[dict[str, Any], ...],
    status: str,
    phase: FailedPhase | None,
    request_id: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("no.yaml").write_text(SPEC, encoding="utf-8")
    cloud = running(status=status)
    cloud.answers[f"compute /servers/{VM}/os-instance-actions"] = (200, {"instanceActions": list(actions)})
    found = followed(cloud, None, None)
    assert (found.failure and found.failure.phase, found.failure.request if found.failure else "") == (
        phase,
        request_id,
    )
    assert bool(found.gpus) == (status == "ACTIVE")


def test_hosts_that_may_not_be_listed_leave_the_reason(tmp_path: Path) -> None:
    found, _cloud = failed_in_a_large_cloud(tmp_path, refused="placement ")
    assert (found.now, found.to_dict()["fits_on"], found.to_dict()["reason"]) == (None, None, NO_HOST)
    (gap,) = [gap for gap in found.gaps if gap.startswith("whether it fits now is unknown: ")]
    assert "role admin" in gap


def test_a_resize_is_not_compared(tmp_path: Path) -> None:
    """Nova shows its new flavor nowhere. A quota and an instance without GPUs have no causes on hosts either."""
    for more, gap in (
        ({"action": "resize"}, "use gpustack why flavor"),
        ({"fault": {"message": "Quota exceeded"}}, ""),
        ({"flavor": {"original_name": "cpu", "vcpus": 1, "ram": 1, "disk": 1}}, "requests no GPU"),
    ):
        directory = tmp_path / (gap or "quota").replace(" ", "")
        directory.mkdir()
        found, cloud = failed_in_a_large_cloud(directory, **more)
        assert (found.now, "; fits on" in found.summary) == (None, False)
        assert any(gap in entry for entry in found.gaps) == bool(gap)
        assert not [line for line in cloud.requests if "placement" in line]


@pytest.mark.parametrize(("zone", "refused"), [("", 0), ("az1", 19), ("az2", 20), ("nova", 0)])
def test_a_zone_leaves_out_other_hosts(tmp_path: Path, zone: str, refused: int) -> None:
    """Nova ignores ``nova``, the zone of hosts without one: no aggregate has it."""
    found, _cloud = failed_in_a_large_cloud(
        tmp_path, zones={"az1": ["gpu00003"], "az2": []}, pinned_availability_zone=zone or None
    )
    assert found.now is not None
    of_zone = [cause for cause in found.now.causes if cause.finding.code == Code.WHY_AGGREGATE]
    assert sum(len(cause.hosts) for cause in of_zone) == refused


@pytest.mark.parametrize(
    ("results", "logged"),
    [
        ("['ComputeFilter: (start: 9, end: 9)', 'NUMATopologyFilter: (start: 9, end: 0)']", "NUMATopologyFilter"),
        ("['ComputeFilter: (start: 9, end: 9)', 'Placement: (start: 9, end: 0)']", ""),
        ("[]", ""),  # Placement had none
    ],
)
def test_a_log_of_another_cause_is_named(tmp_path: Path, results: str, logged: str) -> None:
    """The last lines count, except those of claims."""
    lines = (
        f"Filtering removed all hosts for '{VM}'. Filter results: ['RamFilter: (start: 9, end: 0)']",
        f"Filtering removed all hosts for '{VM}'. Filter results: {results}",
        f"[instance: {VM}] Failed to claim: Claim pci failed",
    )
    found, _cloud = failed_in_a_large_cloud(tmp_path, log=lines)
    differing = [entry.message for entry in found.findings if entry.code == Code.WHY_LOG_DIFFERS]
    assert [logged in message and "Placement: CUSTOM" in message for message in differing] == ([True] if logged else [])


def test_each_tried_host_has_a_finding(tmp_path: Path) -> None:
    event = {**BUILD, "host": "gpu9", "details": "vfio: no reset", "result": "Error"}
    found, _cloud = failed_in_a_large_cloud(tmp_path, event=event, fault=LOST)
    (build,) = [entry for entry in found.findings if entry.code == Code.WHY_BUILD_FAILED]
    assert "no reset" in build.message
    assert "req-1" in f"{build.message}{build.remedy}"
    lost = {**LOST, "message": "Exceeded maximum number of retries. Insufficient compute resources: Claim pci failed."}
    found, _cloud = failed_in_a_large_cloud(tmp_path, event=event, fault=lost)
    assert [entry.code.value for entry in found.findings if entry.code in ("GPU581", "GPU597")] == ["GPU581"]
    found, _cloud = failed_in_a_large_cloud(tmp_path, event={"event": "conductor", "result": "Error"}, fault=LOST)
    (build,) = [entry for entry in found.findings if entry.code == Code.WHY_BUILD_FAILED]
    assert "unknown hosts" in build.message


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


def stored(directory: Path, **fields: object) -> Cells:
    """The API database with the request of the instance."""
    text = json.dumps({"nova_object.data": fields})
    engine = sa.create_engine(f"sqlite:///{directory}/api.sqlite", poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE request_specs (id INTEGER, instance_uuid TEXT, spec TEXT)"))
        connection.execute(sa.text("INSERT INTO request_specs VALUES (1, :vm, :text)"), {"vm": VM, "text": text})
    return Cells(api=database("API database", str(engine.url)), cells=())


def test_a_group_of_an_older_nova_is_read_from_its_api_database(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before 2025.1, Nova shows neither the image nor the hints of an instance."""
    cells = stored(tmp_path, availability_zone="az", scheduler_hints={"same_host": ["vm-gpu00004"]})
    filters = Scheduler(filters=("SameHostFilter",))
    more = {"databases": lambda: cells, "scheduler": filters}
    found, _cloud = failed_in_a_large_cloud(tmp_path, newest=(2, 90), sources=more)
    assert not any("does not show" in gap for gap in found.gaps)
    assert refusing(found, "SameHostFilter") == {f"gpu{n:05d}" for n in range(20)} - {"gpu00004"}
    monkeypatch.delitem(more, "databases")
    found, _cloud = failed_in_a_large_cloud(tmp_path, newest=(2, 90), sources=more)
    assert sum("does not show" in gap for gap in found.gaps) == 3


@pytest.mark.parametrize("newest", [(2, 90), (2, 100)])
def test_a_trait_of_the_image_is_read_from_the_database(tmp_path: Path, newest: tuple[int, int]) -> None:
    """No API shows it: Nova lists the properties of an image by the names of its own fields."""
    image = {"properties": {"nova_object.data": {"traits_required": ["CUSTOM_FAST"]}}}
    cells = stored(tmp_path, image={"nova_object.data": image})
    found, _cloud = failed_in_a_large_cloud(tmp_path, newest=newest, sources={"databases": lambda: cells})
    assert found.now is not None
    assert found.now.capacity.demand.required == {"CUSTOM_FAST"}


def test_devices_of_ports_are_a_doubt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def judged(_cloud: object, _state: object, demand: Demand, **_more: object) -> FlavorAnswer:
        return FlavorAnswer(
            capacity=Capacity(demand=demand, least=0, most=1, free=1, doubts=demand.unmodelled), causes=()
        )

    monkeypatch.setattr("gpustack.operate.why.instance.judged", judged)
    requests = [{"nova_object.data": {"alias_name": name}} for name in ("k4200", None)]
    cells = stored(tmp_path, pci_requests={"nova_object.data": {"requests": requests}})
    found, _cloud = failed_in_a_large_cloud(tmp_path, sources={"databases": lambda: cells})
    doubts = [entry.message for entry in found.findings if entry.code == Code.CAPACITY_UNCERTAIN]
    assert doubts == ["1 PCI device of its ports"]


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
            LOST,
            (f'{{"message": "[instance: {VM}] Failed to claim: Claim pci failed.", "levelname": "INFO"}}',),
            "GPU597",
            "Claim pci failed",
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
    assert '"' not in build.message


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


KERNEL = "[ 0.0] Linux version 6.12.1 (d)\n[ 0.4] pci 0000:00:04.0: [1af4:1000] type 00 class 0x020000\n"
IN_GUEST = KERNEL + "[ 0.4] pci 0000:00:05.0: [10de:11b4] type 00 class 0x030000\n"
GPU, ANOTHER = "0000:81:00.0", "0000:82:00.0"
IDS = {GPU: "p-81", ANOTHER: "p-82"}
SPEC = 'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {gpu1: [k4200]}\n'
REFUSED = (403, {"forbidden": {"message": "not permitted"}})


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    """A cell in which the instance has a GPU of gpu1, and another GPU is free."""
    made = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    node = made.host("gpu1", seen=1)
    made.instance(VM, "gpu1")
    made.device(node, GPU, "allocated", instance_uuid=VM, request_id="r1")
    made.device(node, ANOTHER)
    return made


def running(
    held: tuple[str, ...] = (GPU,), *, console: str = IN_GUEST, power: int = 1, host: str | None = "gpu1", **more: Any
) -> StandIn:
    """A cloud in which the instance runs on gpu1, with these devices in Placement."""
    cloud = with_devices([device("gpu1", 0x81, used=1), device("gpu1", 0x82)])
    entry = {**instance(VM, host), "OS-EXT-STS:power_state": power, **more}
    cloud.answers[f"compute /servers/{VM}"] = (200, {"server": entry})
    cloud.answers[f"compute /servers/{VM}/os-instance-actions"] = (200, {"instanceActions": []})
    cloud.answers[f"compute POST /servers/{VM}/action"] = (200, {"output": console})
    listed = [{"uuid": IDS[gpu], "name": f"gpu1_{gpu}", "root_provider_uuid": "p"} for gpu in IDS]
    listed.append({"uuid": "p", "name": "gpu1", "root_provider_uuid": "p"})
    cloud.answers["placement /resource_providers?in_tree=p"] = (200, {"resource_providers": listed})
    cloud.answers["placement /resource_providers?name=gpu1"] = (200, {"resource_providers": listed[-1:]})
    allocated = {IDS[gpu]: {"resources": {"CUSTOM_GPU": 1}} for gpu in held}
    allocated |= {"p": {"resources": {"VCPU": 1}}}
    cloud.answers[f"placement /allocations/{VM}"] = (200, {"allocations": allocated})
    return cloud


def followed(cloud: StandIn, cell: CellFile | None, usage: Usage | None) -> InstanceAnswer:
    cells = None
    if cell is not None:
        directory = Path(cell.url.removeprefix("sqlite:///")).parent
        conf = directory / "nova.conf"
        cells = Cells.from_nova_conf([conf if conf.exists() else nova_conf(directory, {"cell1": cell.url})])
    ask = None if usage is None else lambda _host: usage
    sources = WhySources(spec=Path("no.yaml"), databases=None if cells is None else lambda: cells, ask=ask)
    return answer(cloud.connection, VM, sources)


def test_databases_without_the_instance_show_no_row(tmp_path: Path) -> None:
    """Those of another region have hosts with the same names."""
    other = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    other.device(other.host("gpu1", seen=1), GPU)
    found = followed(running(), other, None)
    assert [(gpu.records["row"], gpu.broken) for gpu in found.gpus] == [(None, "")]
    assert "the databases do not have the instance: --config-file is of another cloud or region" in found.gaps


def using(*addresses: str, gap: str = "", owner: str = VM) -> Usage:
    functions = dict.fromkeys((GPU, ANOTHER), "10de:11b4")
    return Usage(users={address: frozenset({owner}) for address in addresses}, functions=functions, gap=gap)


def records(found: InstanceAnswer) -> list[tuple[str, str, tuple[bool | None, ...]]]:
    """The alias, the address and what row, Placement and domain have, of each GPU."""
    return [(gpu.alias, gpu.address, tuple(gpu.records.values())) for gpu in found.gpus]


@pytest.mark.parametrize(
    ("cloud", "usage", "gpus"),
    [
        (running(), using(GPU), [("k4200", GPU, (True, True, True))]),
        (running(), None, [("k4200", GPU, (True, True, None))]),
        (running(), using(GPU, owner="other"), [("k4200", GPU, (True, True, False))]),
        (running(), using(GPU, ANOTHER), [("k4200", GPU, (True, True, True)), ("", ANOTHER, (False, False, True))]),
        (running(), using(GPU, gap="libvirt is silent"), [("k4200", GPU, (True, True, True))]),
        (running(), using(gap="libvirt is silent"), [("k4200", GPU, (True, True, None))]),
        # Paused, it has a domain; shut down, it has none.
        (running(power=3), using(), [("k4200", GPU, (True, True, False))]),
        (running(power=4), using(), [("k4200", GPU, (True, True, None))]),
        (running(()), using(GPU), [("k4200", GPU, (True, False, True))]),
        (running((ANOTHER,)), None, [("k4200", GPU, (True, False, None)), ("", ANOTHER, (False, True, None))]),
    ],
)
def test_each_record_of_a_running_instance_is_compared(
    cell: CellFile, cloud: StandIn, usage: Usage | None, gpus: list[tuple[str, str, tuple[bool | None, ...]]]
) -> None:
    found = followed(cloud, cell, usage)
    assert records(found) == gpus
    broken = sum(False in has for _alias, _address, has in gpus)
    assert found.summary == f"VM: ACTIVE, 1 GPU, {broken} with a broken link".replace("VM", f"{VM.upper()} ({VM})")
    of_links = [entry for entry in found.findings if entry.code in ("GPU584", "GPU585", "GPU586")]
    assert len(of_links) == broken
    assert found.gaps == ([f"gpu1: {usage.gap}"] if usage and usage.gap else [])


def test_a_shelved_instance_has_no_gpu(cell: CellFile) -> None:
    found = followed(running(), cell, None)
    shelved = replace(found.boot.server, status="SHELVED_OFFLOADED", placed=False)
    found = replace(found, boot=replace(found.boot, server=shelved))
    assert found.summary.endswith(": SHELVED_OFFLOADED, no GPU: it is on no host")


def test_gpus_of_another_host_are_left_to_clean_up(cell: CellFile) -> None:
    """During a resize and after an evacuation, an instance has GPUs of two hosts, perhaps at the same address."""
    node = cell.host("gpu0", seen=1)
    cell.device(node, GPU, "allocated", instance_uuid=VM, request_id="r0")
    cell.device(node, ANOTHER, "allocated", instance_uuid=VM, request_id="r0")
    cloud = running()
    allocations = cloud.answers[f"placement /allocations/{VM}"][1]["allocations"]
    allocations |= {"0": {"resources": {"VCPU": 1}}, "1": {"resources": {"CUSTOM_GPU": 1}}}
    found = followed(cloud, cell, using(GPU))
    assert records(found) == [("k4200", GPU, (True, True, True))]
    remedies = [entry.remedy for entry in found.findings if entry.code == Code.WHY_DISAGREEMENT]
    assert remedies
    assert all("--host gpu0" in remedy for remedy in remedies)


def test_a_record_that_can_not_be_read_is_a_gap(cell: CellFile) -> None:
    cloud = running()
    cloud.answers[f"placement /allocations/{VM}"] = (503, {"error": {"message": "silent"}})
    found = followed(cloud, cell, None)
    assert records(found) == [("k4200", GPU, (True, None, None))]
    assert ["silent" in gap for gap in found.gaps] == [True]
    cell.engine.dispose()
    Path(cell.url.removeprefix("sqlite:///")).write_text("no database")
    found = followed(running(), cell, None)
    assert records(found) == [("", GPU, (None, True, None))]
    (gap,) = found.gaps  # rows and clean-up's plan lack it for the same reason
    assert gap.startswith("cell cell1 (sqlite:")
    assert gap.endswith("): the database refused or was lost: file is not a database")


def test_without_pci_in_placement_its_record_is_unknown(cell: CellFile) -> None:
    cloud = running()
    root = [{"uuid": "p", "name": "gpu1", "root_provider_uuid": "p"}]
    cloud.answers["placement /resource_providers?in_tree=p"] = (200, {"resource_providers": root})
    assert records(followed(cloud, cell, None)) == [("k4200", GPU, (True, None, None))]
    cloud.answers[f"placement /allocations/{VM}"] = (200, {"allocations": {}})
    assert records(followed(cloud, cell, None)) == [("k4200", GPU, (True, False, None))]
    assert records(followed(running(), None, None)) == [("", GPU, (None, True, None))]


@pytest.mark.parametrize(
    ("console", "codes", "gap"),
    [
        (IN_GUEST, {}, ""),
        (KERNEL, {"GPU845": "error"}, ""),
        ("GRUB loading", {}, "the console log has no messages of a Linux kernel: the guest is unknown"),
        ("", {}, "the console log has no messages of a Linux kernel: the guest is unknown"),
    ],
)
def test_the_console_shows_the_gpus_of_the_guest(console: str, codes: dict[str, str], gap: str) -> None:
    found = followed(running(console=console), None, None)
    important = {
        entry.code.value: entry.severity.value for entry in found.findings if entry.severity is not Severity.INFO
    }
    assert (important, found.gaps) == (codes, [gap] if gap else [])
    assert [entry.severity for entry in found.findings if entry.code == Code.GUEST_UNKNOWN] == (
        [Severity.INFO] if console is IN_GUEST else []  # a console never shows everything
    )


def test_a_console_that_may_not_be_read_is_a_gap() -> None:
    cloud = running()
    cloud.answers[f"compute POST /servers/{VM}/action"] = REFUSED
    assert ["not permitted" in gap for gap in followed(cloud, None, None).gaps] == [True, False]
    without = running(flavor={"original_name": "cpu", "extra_specs": {}})
    assert followed(without, None, None).findings == []
    assert not [line for line in without.requests if "POST" in line]


def test_disagreements_that_clean_up_finds_are_named(cell: CellFile) -> None:
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE instances SET host = NULL, node = NULL")
    found = followed(running(), cell, using(GPU))
    disagreements = [entry for entry in found.findings if entry.code == Code.WHY_DISAGREEMENT]
    assert {entry.message.partition(",")[0] for entry in disagreements} == {
        "class R of clean-up",
        "class T of clean-up",
    }
    assert {entry.remedy for entry in disagreements} == {
        f"run `gpustack cleanup plan --ask-hosts --host gpu1 --class {letter}`" for letter in "RT"
    }
    for silent in (None, using(gap="libvirt is silent")):
        known = followed(running(), cell, silent)
        assert not [
            entry for entry in known.findings if entry.code == Code.WHY_DISAGREEMENT and "class T" in entry.message
        ]


def test_a_failed_instance_is_not_followed(cell: CellFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("no.yaml").write_text(SPEC, encoding="utf-8")
    found = followed(running(status="ERROR"), cell, using())
    assert (found.gpus, found.failure is not None) == ((), True)
    nowhere = running(host=None)
    assert followed(nowhere, cell, using()).gpus == ()


PLACED = {"a": "gpu1", "b": "gpu1", "c": "gpu2"}
"""The hosts of instances; ``d`` has none."""
HOSTS = ("gpu1", "gpu2", "gpu3")


def group(policy: str, *members: str, most: int = 1) -> ServerGroup:
    return ServerGroup(name="g", policy=policy, members=members, most=most)


@pytest.mark.parametrize(
    ("groups", "hints", "host", "accepting"),
    [
        ([group("anti-affinity", "a", "d")], {}, "", {"gpu2", "gpu3"}),
        ([group("anti-affinity", "a", "b", "c", most=2)], {}, "", {"gpu2", "gpu3"}),
        ([group("anti-affinity", "a", "c")], {}, "gpu1", {"gpu1", "gpu3"}),
        ([group("affinity", "a", "d")], {}, "", {"gpu1"}),
        ([group("affinity", "d")], {}, "", {"gpu1", "gpu2", "gpu3"}),
        ([group("soft-anti-affinity", "a", "b", "c")], {}, "", {"gpu1", "gpu2", "gpu3"}),
        ([], {"different_host": ("A",)}, "", {"gpu2", "gpu3"}),
        ([], {"same_host": ("a", "c")}, "", {"gpu1", "gpu2"}),
        ([], {"same_host": ("gone",)}, "", set()),
        ([group("affinity", "a")], {"different_host": ("b",)}, "", set()),
        ([], {"query": ("[]",)}, "", {"gpu1", "gpu2", "gpu3"}),
    ],
)
def test_hosts_are_accepted_as_by_novas_filters(
    groups: list[ServerGroup], hints: dict[str, tuple[str, ...]], host: str, accepting: set[str]
) -> None:
    rules = neighbors(host, groups, hints, PLACED)
    assert {name for name in HOSTS if all(rule.accepts(name) for rule in rules)} == accepting


def test_rules_name_the_filter_and_the_group() -> None:
    (apart, hint) = neighbors("", [group("anti-affinity", "a", most=3)], {"same_host": ("c",)}, PLACED)
    assert (apart.step, apart.wanted) == (
        "ServerGroupAntiAffinityFilter",
        "fewer than 3 instances of the server group g",
    )
    assert (hint.step, hint.wanted) == ("SameHostFilter", "a host with instances of the hint same_host")
