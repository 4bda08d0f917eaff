"""Decide whether nova-compute of a host may be restarted outside a repair; ``nova.yml`` asks before each restart.

A starting nova-compute trusts the rows and loses the state in its memory: it offers a device whose row is free, even if
the device is in use. On a host without a device in use, a restart is safe. Otherwise the rows are compared with the
devices in use, as for :attr:`~gpustack.repair.verdict.Repair.RESTART` (:mod:`gpustack.repair.permission`).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpustack.base.errors import DatabaseError, GpustackError
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.task_results import TaskResult, reported
from gpustack.novadb.databases import reusing_connections
from gpustack.novadb.read import reading
from gpustack.novadb.sources import Sources
from gpustack.novadb.view import Clock, NodeView
from gpustack.repair import permission, questions
from gpustack.repair.evidence import about
from gpustack.repair.hypervisor import Usage, usage
from gpustack.repair.plan import Selection
from gpustack.repair.verdict import Repair, Status, Verdict


@dataclass(frozen=True, kw_only=True)
class Restart:
    """A pending restart of nova-compute.

    :ivar host: the host as Nova names it.
    :ivar answer: the output of :mod:`gpustack.repair.domains` on the host.
    :ivar managed: vendor and product (``10de:11b4``) of the devices that nova-compute will manage.
    """

    host: str
    answer: Mapping[str, Any]
    managed: frozenset[str] = frozenset()

    @property
    def usage(self) -> Usage:
        """The parsed answer. An answer without devices in use counts as complete."""
        answered = usage(self.answer)
        return replace(answered, gap="") if self.idle else answered

    @property
    def idle(self) -> bool:
        """Whether no device of the host is in use, according to the kernel's open VFIO devices."""
        return self.answer.get("used") == {} and self.answer.get("unread") == []

    @property
    def used(self) -> str:
        """The addresses of the devices in use, for messages."""
        return ", ".join(sorted(address for address, users in self.usage.users.items() if users))


@reusing_connections()
def checked(restart: Restart, databases: Collection[str], unchecked: Collection[str]) -> TaskResult:
    """Return the objections to a restart, as plain data for the action plugin.

    :param databases: files or directories of nova-api's configuration; empty if the databases are out of reach.
    :param unchecked: hosts that the operator has checked; objections become a warning.
    """
    findings = list(objections(restart, [Path(path) for path in databases]))
    if findings and restart.host in unchecked:
        findings = [
            finding(Code.RESTART_UNCHECKED, place=restart.host, what="; ".join(reason.message for reason in findings))
        ]
    return reported(findings)


def objections(restart: Restart, databases: Collection[Path]) -> Iterator[Finding]:
    """Yield the objections to a restart; none if it is safe."""
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
    """Yield the objections from the host's rows. An unreadable cell leaves owners in doubt."""
    selection = Selection(hosts=frozenset({restart.host}))
    unread: list[str] = []
    known = False
    for cell in sources.with_hosts:
        try:
            with reading(sources, cell, selection) as (reader, clock):
                views = [view for view in reader.views(selection.hosts) if not view.node.deleted]
                findings = [objection for view in views for objection in _of_node(restart, view, clock)]
        except DatabaseError as error:
            unread.append(str(error))
            continue
        known |= bool(views)
        yield from findings
    if unread or not (known or restart.idle):
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
    """Return the restart of this node's nova-compute as a verdict: *stale* if it is permitted."""
    if view.unread:
        wanted = replace(_wanted(view, clock), status=Status.UNDECIDED, because=view.unread)
    else:
        wanted = questions.prepared(_wanted(view, clock), view, clock)
    return permission.settle(wanted, {view.node.host or "": answered})


def _wanted(view: NodeView, clock: Clock) -> Verdict:
    return Verdict(
        **about("", "a restart of nova-compute", view, clock),
        status=Status.STALE,
        evidence=(),
        because="",
        repair=Repair.RESTART,
    )
