"""The rows of the plan: for programs, and in words for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from gpustack.base.columns import described
from gpustack.base.findings import Code, finding
from gpustack.operate.reclaim.model import Decision, Step
from gpustack.operate.reclaim.table import columns
from support.fleet_answers import server

NOON = datetime(2026, 11, 22, 12, 5, 30)  # noqa: DTZ001 - naive UTC, as in the fleet
LOCKED = finding(Code.RECLAIM_LOCKED, place="gpu1 VM (vm)")
COLUMNS = columns({"p1": "research"}, {"u1": "ada"})


def decision(step: Step = Step.NOTIFY, **more: Any) -> Decision:
    known = {"server": server("vm", "gpu1", status="SHUTOFF"), "gpus": 2, "reason": "SHUTOFF for 5 h", **more}
    return Decision(step=step, **known)


def cells(entry: Decision) -> dict[str, object]:
    """The columns for people."""
    return {column.title: column.cell(entry) for column in COLUMNS if column.title}


def test_programs_have_ids_and_names() -> None:
    row = described(COLUMNS, decision(since=NOON, due=NOON, snapshot=20, findings=(LOCKED,)))
    assert (row["server"], row["server_name"], row["host"], row["flavor"]) == ("vm", "VM", "gpu1", "g1")
    assert (row["project"], row["project_name"], row["user"], row["user_name"]) == ("p1", "research", "u1", "ada")
    assert (row["gpus"], row["status"], row["reason"], row["held"]) == (2, "SHUTOFF", "SHUTOFF for 5 h", None)
    assert (row["since"], row["due"], row["step"]) == ("2026-11-22T12:05:30Z", "2026-11-22T12:05:30Z", "notify")
    assert (row["snapshot_gib"], row["findings"]) == (20, [LOCKED.to_dict()])
    bare = described(COLUMNS, decision(server=server("vm", ""), reason="", snapshot=None))
    unknown = ("host", "reason", "since", "due", "snapshot_gib")
    assert {name: bare[name] for name in unknown} == dict.fromkeys(unknown)


def test_people_see_names_or_ids() -> None:
    row = cells(decision())
    assert (row["ID"], row["Instance"], row["Project"], row["User"], row["Host"], row["GPUs"]) == (
        *("vm", "VM", "research", "ada", "gpu1", 2),
    )
    gone = cells(decision(server=server("vm", "", project="p2", user="u2")))
    assert (gone["Project"], gone["User"], gone["Host"]) == ("p2", "u2", "-")


@pytest.mark.parametrize(
    ("entry", "idle", "step"),
    [
        (decision(), "SHUTOFF for 5 h", "notify"),
        (decision(Step.NOTHING, findings=(LOCKED,)), "SHUTOFF for 5 h", "nothing (GPU791)"),
        (decision(Step.NOTHING, reason="", held="held, no rule (ERROR)"), "held, no rule (ERROR)", "nothing"),
        (decision(Step.WITHDRAW, reason=""), "no", "withdraw"),
        (decision(Step.WAIT, due=NOON), "SHUTOFF for 5 h", "wait until 2026-11-22 12:05 UTC"),
        (decision(Step.SHELVE, due=NOON, snapshot=20), "SHUTOFF for 5 h", "shelve (snapshot of up to 20 GiB)"),
        (decision(Step.SHELVE, due=NOON, snapshot=0), "SHUTOFF for 5 h", "shelve"),
    ],
)
def test_the_next_step_in_words(entry: Decision, idle: str, step: str) -> None:
    row = cells(entry)
    assert (row["Idle"], row["Next step"]) == (idle, step)
