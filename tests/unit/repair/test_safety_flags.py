"""What keeps each repair of each class from doing harm, against tables that are written here and derived from nothing.

All cases of ``cases/*.yaml`` are judged: each line of a table must be met, and no case may add one.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.novadb.view import HostState
from gpustack.repair import permission, rules
from gpustack.repair.hypervisor import Usage
from gpustack.repair.verdict import Question, Repair, Status, Verdict
from support import neighbourhood
from support.allocation import judged as allocated
from support.cleanup_cases import CASES

# Class, repair or status, state of the host, and whether nova-compute must be stopped, starts by itself, or is to be
# started: the questions to this host and to the other end of a migration.
# free: no guest has a device that becomes free; own: the owner has neither the device nor a relative;
# answer: no device becomes free there, but it must answer; start: each device in use stays its user's when nova-compute
# starts; near: relatives count too; absent: the owner may have no device there at all; since: nova-compute has started
# since; spared: no answer is needed.
QUESTIONS = """
A fail-migration up: here free absent, other answer since
A free down: here free absent spared
A free forced down: here free absent spared
A free stopped: here free absent
A free stopped: here free absent spared
B fail-migration up: here free absent, other answer
B free down: here free absent, other answer
C retire gone: here own near absent spared
C retire gone: here own near spared
D clear-deleted down: here own near absent spared
D clear-deleted gone: here own near absent spared
D clear-deleted up: here own near
E fail-migration up: here free absent, other answer absent
E free down: here free absent
E free down: here free absent spared
F free stopped stop: here free, here start
F free up stop: here free, here start
G free down: here free absent spared
G free up stop: here free, here start
H unblock down stop: here free near, here start
H unblock down stop: here free, here start
I block-parent down stop: here answer, here start
J clear-owner down stop: here free absent, here start
J clear-owner up stop: here free, here start
J heals down starts: none
J restart up: here start
K heals down starts: none
K restart up: here start
O report up then: here start
P restart up: here start
Q unset-allocation up: here own near absent
R report up then: here start
"""
# The tables whose rows the statement that writes compares again; C has free rows as well, which name no owner.
OF_A_HOST = {"compute_nodes", "services"}
OF_A_DEVICE = OF_A_HOST | {"pci_devices"}
OF_AN_OWNER = OF_A_DEVICE | {"instances", "migrations"}
COMPARED = {
    "A fail-migration": [OF_AN_OWNER],
    "A free": [OF_AN_OWNER],
    "B fail-migration": [OF_AN_OWNER],
    "B free": [OF_AN_OWNER],
    "C retire": [OF_AN_OWNER, OF_A_DEVICE],
    "D clear-deleted": [OF_AN_OWNER],
    "E fail-migration": [OF_AN_OWNER],
    "E free": [OF_AN_OWNER],
    "F free": [OF_AN_OWNER],
    "G free": [OF_AN_OWNER],
    "H unblock": [OF_A_DEVICE],
    "I block-parent": [OF_A_DEVICE],
    "J clear-owner": [OF_AN_OWNER],
    "J restart": [OF_A_DEVICE],
    "K restart": [OF_A_DEVICE],
    "P restart": [OF_A_HOST],
}
# The columns that such a statement compares, by table.
NODE = {"id", "uuid", "deleted", "host", "hypervisor_hostname"}
COLUMNS = {
    "compute_nodes": [NODE, NODE | {"updated_at"}],  # unless nova-compute is up, a start of it changes updated_at
    "services": [{"binary", "deleted", "host", "last_seen_up"}],
    "instances": [{"uuid", "host", "node", "vm_state", "task_state", "deleted"}],
    "migrations": [
        {"id", "deleted", "instance_uuid", "status", "source_compute", "source_node", "dest_compute", "dest_node"}
    ],
    "pci_devices": [{"id", "compute_node_id", "address", "status", "instance_uuid", "request_id", "deleted"}],
}


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    cases = [parameter.values[0] for parameter in CASES]
    return [verdict for case in cases for verdict in rules.judge(neighbourhood.view(case), neighbourhood.clock(case))]


def asked(question: Question) -> str:
    kinds = {"start": question.kept is not None, "own": question.by is not None, "free": question.offered}
    kind = next((kind for kind, value in kinds.items() if value), "answer")
    flags = {"near": question.near, "absent": question.absent, "since": question.younger, "spared": question.spared}
    host = {"gpu1": "here", "gpu2": "other"}[question.host]
    return " ".join([host, kind, *(flag for flag, value in flags.items() if value)])


def line(verdict: Verdict) -> str:
    settings = {"stop": verdict.stop, "starts": verdict.starts, "then": verdict.then}
    flags = " ".join(flag for flag, value in settings.items() if value)
    action = verdict.repair or verdict.status
    head = f"{verdict.klass} {action.value} {verdict.host_state.value} {flags}".strip()
    return f"{head}: {', '.join(map(asked, verdict.questions or ())) or 'none'}"


def test_each_class_asks_what_the_table_says(verdicts: list[Verdict]) -> None:
    allocation = allocated({}, owners={"stranger": {"age": 400}})
    acting = [verdict for verdict in (*verdicts, allocation) if verdict.repair or verdict.then or verdict.starts]
    assert sorted({line(verdict) for verdict in acting}) == sorted(QUESTIONS.strip().splitlines())


def test_nothing_is_asked_or_stopped_where_nothing_is_done(verdicts: list[Verdict]) -> None:
    for verdict in verdicts:
        if not verdict.repair and not verdict.then:
            assert not verdict.questions
            assert not verdict.stop


def test_each_class_compares_the_tables_that_the_table_says(verdicts: list[Verdict]) -> None:
    compared: dict[str, list[set[str]]] = {}
    for verdict in verdicts:
        tables = {fact.table for fact in verdict.seen}
        if verdict.repair and tables not in compared.setdefault(f"{verdict.klass} {verdict.repair.value}", []):
            compared[f"{verdict.klass} {verdict.repair.value}"].append(tables)
    in_order = {head: sorted(tables, key=len, reverse=True) for head, tables in compared.items()}
    assert in_order == COMPARED


def test_all_columns_of_a_fact_are_compared(verdicts: list[Verdict]) -> None:
    compared: dict[str, list[set[str]]] = {}
    for fact in (fact for verdict in verdicts for fact in verdict.seen if fact.count):
        columns = {name for name, _value in fact.match}
        if columns not in compared.setdefault(fact.table, []):
            compared[fact.table].append(columns)
    assert {table: sorted(columns, key=len) for table, columns in compared.items()} == COLUMNS


def stale_verdicts() -> list[Any]:
    cases = [(parameter.id, parameter.values[0]) for parameter in CASES]
    return [
        pytest.param(verdict, id=f"{name} {verdict.klass}")
        for name, case in cases
        for verdict in rules.judge(neighbourhood.view(case), neighbourhood.clock(case))
        if verdict.status is Status.STALE
    ]


@pytest.mark.parametrize("verdict", stale_verdicts())
def test_every_repair_of_every_class_asks_every_host(verdict: Verdict) -> None:
    """Whatever a rule yields: without any answer nothing is repaired but what Nova does by itself on a host down."""
    assert verdict.host in verdict.asks
    settled = permission.settle(verdict, {host: Usage(gap="no way") for host in verdict.asks})
    if settled.status is Status.STALE:
        silent = (HostState.DOWN, HostState.FORCED_DOWN, HostState.STOPPED, HostState.GONE)
        assert verdict.host_state in silent
        assert verdict.repair in (Repair.FREE, Repair.RETIRE, Repair.CLEAR_DELETED)
        assert not verdict.stop
        assert not verdict.migrations
    in_use = {
        host: Usage(users={row.address: frozenset({verdict.owner or "x"}) for row in verdict.rows})
        for host in verdict.asks
    }
    own_only = verdict.repair is Repair.RETIRE and not verdict.owner  # the device may be another's, by another row
    if verdict.rows and verdict.repair is not Repair.BLOCK_PARENT and not own_only:
        assert permission.settle(verdict, in_use).status is Status.REPORT


@pytest.mark.parametrize("verdict", stale_verdicts())
def test_every_repair_rests_on_facts_that_are_compared(verdict: Verdict) -> None:
    tables = {fact.table for fact in verdict.seen}
    assert {"compute_nodes", "services"} <= tables
    if verdict.owner:
        assert {"instances", "migrations"} <= tables


def test_no_class_starts_nova_compute_where_an_instance_lacks_its_device() -> None:
    """Whatever else is wrong on the host: no repair, and no advice."""
    lacking = {"lacks": {"host": "gpu1", "wants": ["nobody-has-it"]}}
    for parameter in CASES:
        case = dict(parameter.values[0])
        if case.get("node", {}).get("deleted") or "name" in case.get("node", {}):
            continue
        case["owners"] = {**case.get("owners", {}), **lacking}
        for verdict in rules.judge(neighbourhood.view(case), neighbourhood.clock(case)):
            starts = verdict.stop or verdict.repair is Repair.RESTART or verdict.starts or verdict.then
            assert not (starts and verdict.status in (Status.STALE, Status.HEALS, Status.REPORT)), (
                parameter.id,
                verdict,
            )
            assert "when it starts" not in verdict.because or verdict.status is not Status.HEALS, (
                parameter.id,
                verdict,
            )
            advice = verdict.advice.replace("do not restart nova-compute", "")
            assert "restart nova-compute" not in advice, (parameter.id, advice)


def test_all_rules_pass_through_one_place() -> None:
    assert len({rule.CLASS for rule in rules.RULES}) == len(rules.RULES)
    assert all(verdict.values[0].questions is not None for verdict in stale_verdicts())
