"""Whether nova-compute may be restarted on a host, outside a repair: asked by ``nova.yml`` before it does.

When nova-compute starts, it takes the rows for the truth and forgets what it had in memory: a device in use whose row
is free is offered. On a host that uses no device nothing can go wrong. Elsewhere the rows must be compared with the
devices in use, as for the repair :attr:`~gpustack.cleanup.verdict.Repair.RESTART` (:mod:`gpustack.cleanup.permission`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpustack.cleanup import permission, plan, questions
from gpustack.cleanup.clock import Clock
from gpustack.cleanup.hypervisor import Usage, usage
from gpustack.cleanup.judgement import place
from gpustack.cleanup.plan import Selection, Sources
from gpustack.cleanup.verdict import Repair, Status, Verdict
from gpustack.cleanup.view import NodeView
from gpustack.codes import Code
from gpustack.errors import DatabaseError, GpustackError
from gpustack.findings import Finding, finding
from gpustack.task_results import TaskResult, reported


@dataclass(frozen=True, kw_only=True)
class Restart:
    """A restart of nova-compute that is due.

    :ivar host: what Nova calls the host.
    :ivar answer: what :mod:`gpustack.cleanup.domains` printed there.
    :ivar managed: vendor and product of the devices that nova-compute will manage, as 10de:11b4.
    """

    host: str
    answer: Mapping[str, Any]
    managed: frozenset[str] = frozenset()

    @property
    def usage(self) -> Usage:
        """The answer; one that shows that nothing is in use is complete."""
        answered = usage(self.answer)
        return replace(answered, gap="") if self.idle else answered

    @property
    def idle(self) -> bool:
        """Whether no device of the host is in use, by the kernel, which knows all open VFIO devices."""
        return self.answer.get("used") == {} and self.answer.get("unread") == []

    @property
    def used(self) -> str:
        """The devices in use."""
        return ", ".join(sorted(address for address, users in self.usage.users.items() if users))


def checked(restart: Restart, databases: Collection[str], unchecked: Collection[str]) -> TaskResult:
    """What speaks against a restart, as plain data for the action plugin.

    :param databases: files or directories of nova-api's configuration; none if the databases are out of reach.
    :param unchecked: hosts for which the operator has checked it.
    """
    findings = list(objections(restart, [Path(path) for path in databases]))
    if findings and restart.host in unchecked:
        findings = [
            finding(Code.RESTART_UNCHECKED, place=restart.host, what="; ".join(reason.message for reason in findings))
        ]
    return reported(findings)


def objections(restart: Restart, databases: Collection[Path]) -> Iterator[Finding]:
    """What speaks against it; nothing if it is safe."""
    if not databases:
        if not restart.idle:
            problem = f"devices in use: {restart.used}" if restart.used else restart.usage.gap
            yield _against(Code.RESTART_UNCHECKABLE, restart, problem)
        return
    try:
        yield from _compared(restart, Sources.from_nova_conf(list(databases)))
    except GpustackError as error:
        yield _against(Code.RESTART_UNDECIDED, restart, error.what)


def _compared(restart: Restart, sources: Sources) -> Iterator[Finding]:
    """What the rows of the host have against it. A cell that cannot be read matters only if no other has the host."""
    selection = Selection(hosts=frozenset({restart.host}))
    unread: list[str] = []
    known = False
    for cell in sources.with_hosts:
        try:
            with plan.reading(sources, cell, selection) as (reader, clock):
                views = [view for view in reader.views(selection.hosts) if not view.node.deleted]
                findings = [objection for view in views for objection in _of_node(restart, view, clock)]
        except DatabaseError as error:
            unread.append(str(error))
            continue
        known |= bool(views)
        yield from findings
    if not known and (unread or not restart.idle):
        because = "; ".join(unread) or f"no cell has a compute node of {restart.host}"
        yield _against(Code.RESTART_UNDECIDED, restart, because)


def _of_node(restart: Restart, view: NodeView, clock: Clock) -> Iterator[Finding]:
    verdict = judged(view, clock, restart.usage)
    if verdict.status is Status.UNDECIDED:
        yield _against(Code.RESTART_UNDECIDED, restart, verdict.because)
    elif verdict.status is not Status.STALE:
        yield _against(Code.RESTART_HARMFUL, restart, verdict.because.removeprefix("; but "))
    rows = {row.address.lower() for row in view.rows if row.live}
    for address, users in sorted(restart.usage.users.items()):
        if users and address not in rows and restart.usage.functions.get(address) in restart.managed:
            because = f"{address} is in use and has no row: nova-compute would make one and offer it"
            yield _against(Code.RESTART_HARMFUL, restart, because)


def _against(code: Code, restart: Restart, because: str) -> Finding:
    return finding(code, place=restart.host, host=restart.host, because=because)


def judged(view: NodeView, clock: Clock, answered: Usage) -> Verdict:
    """A restart of this node's nova-compute as a verdict: *stale* if it is permitted."""
    if view.unread:
        wanted = replace(_wanted(view, clock), status=Status.UNDECIDED, because=view.unread)
    else:
        wanted = questions.prepared(_wanted(view, clock), view, clock)
    return permission.settle(wanted, {view.node.host or "": answered})


def _wanted(view: NodeView, clock: Clock) -> Verdict:
    return Verdict(
        klass="",
        title="a restart of nova-compute",
        status=Status.STALE,
        **place(view, clock),
        rows=(),
        owner=None,
        evidence=(),
        because="",
        repair=Repair.RESTART,
    )
