"""The rules of a spec: ids of projects, times in UTC."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from gpustack.base.errors import SpecError
from gpustack.operate.reclaim.model import Candidate, Decision, ReclaimPlan, Step, rules_of
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


def test_a_candidate_and_a_plan() -> None:
    placed, nowhere = server("vm", "gpu1"), server("vm", "")
    assert [Candidate(server=entry).label for entry in (placed, nowhere)] == ["gpu1 VM (vm)", "VM (vm)"]
    decisions = tuple(Decision(server=placed, gpus=1, step=step) for step in Step)
    plan = ReclaimPlan(decisions=decisions)
    assert [entry.step for entry in plan.of(Step.SHELVE, Step.NOTIFY)] == [Step.NOTIFY, Step.SHELVE]
    assert plan.of() == ()


def test_an_empty_section_permits_nothing() -> None:
    rules = rules_of(spec("reclaim: {}"), str)
    assert (rules.projects, rules.idle_after, rules.expires, rules.metadata) == (frozenset(), {}, {}, False)


def test_no_section_is_an_error() -> None:
    with pytest.raises(SpecError, match="reclaim"):
        rules_of(spec(""), str)
