"""The rules of a spec: ids of projects, times in UTC; the columns of decisions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from gpustack.base.columns import described
from gpustack.base.errors import SpecError
from gpustack.base.findings import Code, finding
from gpustack.operate.reclaim.model import Candidate, Decision, Step, columns, rules_of
from gpustack.spec.load import examine
from gpustack.spec.model import Spec
from support.fleet_answers import server

HEAD = """
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}, alias: quadro}
  m60: {match: {vendor: "10de", product: "13f2"}}
hosts: {gpu1: [k4200]}
"""
VM = "3f2b8c1e-5d0a-4b7c-9e6f-1a2b3c4d5e6f"


def spec(text: str) -> Spec:
    examination = examine(HEAD + text, "gpustack.yaml")
    assert examination.spec is not None, examination.problems
    return examination.spec


def test_the_rules_of_a_spec() -> None:
    section = f"""
reclaim:
  projects: [research, research, lab]
  idle_after: {{shutoff: 90m, suspended: 2d}}
  grace: 12h
  expires: {{{VM}: "2026-12-31T18:00:00+01:30"}}
"""
    rules = rules_of(spec(section), {"research": "p1", "lab": "p2"}.__getitem__)
    assert rules.aliases == {"quadro", "m60"}
    assert rules.projects == {"p1", "p2"}
    assert rules.idle_after == {"SHUTOFF": timedelta(minutes=90), "SUSPENDED": timedelta(days=2)}
    assert rules.grace == timedelta(hours=12)
    assert rules.expires == {VM: datetime(2026, 12, 31, 16, 30)}  # noqa: DTZ001 - naive UTC
    assert (rules.metadata, rules.running) == (False, False)


def test_gpus_by_attribute_and_their_hosts_count() -> None:
    """A flavor for any GPU has an alias of its own."""
    flavor = """
nova: {release: "2026.2", placement: schedule}
flavors: {any: {gpu: {min_memory: 4GiB}, vcpus: 1, ram: 1GiB, disk: 1}}
reclaim: {}
"""
    rules = rules_of(spec(flavor), str)
    (selection,) = rules.aliases - {"quadro", "m60"}
    assert rules.has_gpus("gpu1", [selection, "fpga"])
    assert rules.has_gpus("gpu1", ["quadro"])
    assert not rules.has_gpus("gpu1", ["quadro", "m60"])
    assert not rules.has_gpus("gpu2", [selection])


def test_vgpus_are_gpus_of_their_resource_class() -> None:
    """They have no alias: Placement alone has them."""
    text = HEAD.replace("hosts: {gpu1: [k4200]}", "hosts: {gpu1: [k4200], gpu2: [a16]}").replace(
        "models:", 'models:\n  a16: {match: {vendor: "10de", product: "25b6"}, vgpu: {type: A16-8Q}}'
    )
    examination = examine(f"{text}reclaim: {{}}", "gpustack.yaml")
    assert examination.spec is not None, examination.problems
    rules = rules_of(examination.spec, str)
    assert rules.has_gpus("gpu2", ["VGPU", "fpga"])
    assert not rules.has_gpus("gpu1", ["VGPU"])


def test_a_candidate_is_named_by_its_host() -> None:
    placed, nowhere = server("vm", "gpu1"), server("vm", "")
    assert [Candidate(server=entry).label for entry in (placed, nowhere)] == ["gpu1 VM (vm)", "VM (vm)"]


def test_an_empty_section_permits_nothing() -> None:
    rules = rules_of(spec("reclaim: {}"), str)
    assert (rules.projects, rules.idle_after, rules.expires, rules.metadata) == (frozenset(), {}, {}, False)


def test_no_section_is_an_error() -> None:
    with pytest.raises(SpecError, match="reclaim"):
        rules_of(spec(""), str)


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
