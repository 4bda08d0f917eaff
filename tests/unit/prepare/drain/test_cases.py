"""What is done before a reboot and after it, as cases in data (``cases.yaml``)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.cloud.compute import Service
from gpustack.cloud.network import Ports
from gpustack.cloud.servers import Event, Migration, Server
from gpustack.prepare.drain.drain import plan_empty
from gpustack.prepare.drain.model import InstanceChoices, Policy, World
from gpustack.prepare.drain.plan import ServicePlan, show
from gpustack.prepare.drain.restore import plan_resume

STOPPED, MOVED, AFTER = "gpustack_stopped_for", "gpustack_moved_from", "gpustack_after"
CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "cases.yaml").read_text(encoding="utf-8"))
NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


def server(name: str, *, stopped: Any = None, moved: Any = None, actions=None, by="", forgot=False, **more: Any):
    marks = {STOPPED: stopped, MOVED: moved}
    metadata = {key: "gpu1" if value is True else value for key, value in marks.items() if value}
    latest = [Event(what=action, request=f"r{number + 1}", user=by) for number, action in enumerate(actions or ())]
    before = [] if forgot else [Event(what="create", request="r0")]
    more["demands"] = tuple(more.pop("devices", ()))
    return Server(
        id=name,
        name=name,
        metadata={**metadata, **({AFTER: "r0"} if metadata else {})},
        actions=(*latest, *before) if metadata else None,
        **{"host": "gpu1", "status": "ACTIVE", **more},
    )


def world(situation: dict[str, Any]) -> World:
    service = {"id": "s1", "host": "gpu1", "enabled": True, "up": True, **(situation.get("service") or {})}
    return World(
        service=Service(**service),
        servers=tuple(server(**entry) for entry in situation.get("servers", ())),
        away=tuple(server(**entry) for entry in situation.get("away", ())),
        migrations=tuple(
            Migration(kind="migration", source="gpu2", target="gpu1", **entry)
            for entry in situation.get("migrations", ())
        ),
        user=situation.get("user", ""),
        ports=Ports(
            kinds={name: tuple(kinds) for name, kinds in situation.get("ports", {}).items()},
            none=situation.get("no_ports", ""),
            unknown=situation.get("unknown_ports", ""),
        ),
        requests=situation.get("asked", {}),
    )


def planned(case: dict[str, Any]) -> ServicePlan:
    situation = case.get("empty", case.get("resume"))
    if "resume" in case:
        return plan_resume("gpu1", world(situation), alive=situation.get("alive", True))
    choices = InstanceChoices(
        guests=Policy(situation.get("guests", "refuse")),
        device_guests=Policy(situation.get("device_guests", "refuse")),
        live_migratable=frozenset(situation.get("live_migratable", ())),
        plain_ports=frozenset(situation.get("plain_ports", ())),
        not_running=frozenset(situation.get("not_running", ())),
    )
    return plan_empty("gpu1", world(situation), choices, why="its GPUs", now=NOW)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_cases(case: dict[str, Any]) -> None:
    plan = planned(case)
    reported = sorted(
        f"{finding.code} {finding.place.removeprefix('gpu1 ').partition(' ')[0]}" for finding in plan.findings
    )
    assert reported == case.get("findings", [])
    if not plan.refused or "steps" in case:
        steps = [f"{step.kind} {getattr(step, 'name', '')}".strip() for step in plan.steps]
        assert steps == case["steps"]
    assert len(plan.waits) == case.get("waits", 0)
    text = show(plan)
    assert text.startswith("gpu1: ")
    assert all(step.describe() in text for step in plan.steps if not plan.refused)


def test_every_finding_has_a_case() -> None:
    from gpustack.base.findings import definitions

    reported = {finding.partition(" ")[0] for case in CASES for finding in case.get("findings", ())}
    elsewhere = {
        "GPU602",
        "GPU603",
        "GPU604",
        "GPU614",
        "GPU619",
        "GPU620",
        "GPU621",
    }  # test_match.py, test_run.py, test_room.py
    maintenance = {"GPU453", *(code for code in definitions() if "GPU600" <= code < "GPU623")}
    assert maintenance == reported | elsewhere


def test_a_guests_name_can_not_move_the_cursor() -> None:
    bad = server(name="\x1b[2Jx\nGPU", status="SHUTOFF", power=4)
    plan = plan_empty("gpu1", World(service=world({}).service, servers=(bad,)), InstanceChoices(), why="", now=NOW)
    assert "\x1b" not in show(plan)
    assert "\nGPU" not in show(plan)
