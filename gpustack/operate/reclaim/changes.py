"""The steps of reclaiming as changes: write and withdraw notices, shelve; unshelve as the undo.

Each instance is read and judged again directly before its step. If the decision is another one by then, for example
because the instance was started, it is left alone. Nova has no request that shelves only an instance that is still
stopped, so one that is started within these milliseconds is shut down and shelved; unshelving starts it again.

An instance starts when it is unshelved, also one that was stopped. It needs free GPUs and may get others; without free
ones it stays shelved and can be unshelved later.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

from gpustack.base.errors import CloudError
from gpustack.base.text import counted
from gpustack.changes.change import CloudChange, Value
from gpustack.cloud import Connection
from gpustack.cloud.server_actions import ServiceCloud
from gpustack.cloud.servers import Event, Server
from gpustack.cloud.session import CONFLICT, Refused, Unanswered
from gpustack.operate.reclaim.decide import judge
from gpustack.operate.reclaim.model import Candidate, Decision, Rules, Step
from gpustack.operate.reclaim.notice import AFTER, DUE, KEYS

PAUSE = 2.0
"""Seconds between two reads."""
SECONDS = 3600
"""The time limit for an instance."""
_OFFLOADED, _SHELVED = "SHELVED_OFFLOADED", "SHELVED"


@dataclass(frozen=True, kw_only=True)
class _InstanceChange(CloudChange):
    """A change of an instance.

    :ivar judged: why the decision of the plan is not valid any more, empty if it is; None for an undo.
    """

    judged: Callable[[], str] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def client(cls, connection: Connection) -> ServiceCloud:
        return ServiceCloud(connection)

    def obstacle(self, api: ServiceCloud, made: Sequence[CloudChange]) -> str:
        return self.judged() if self.judged else ""


@dataclass(frozen=True, kw_only=True)
class NoticeChange(_InstanceChange):
    """Write or withdraw the notice of an instance: the value is its metadata."""

    kind: ClassVar[str] = "change_notice"
    object_kind: ClassVar[str] = "notice"
    value: ClassVar[Any] = dict[str, str | None]
    written: ClassVar[tuple[str, ...]] = KEYS

    def describe(self) -> str:
        return f"{'notify' if self.wanted[DUE] else 'withdraw the notice of'} {self.name}: {self.why}"

    def read(self, api: ServiceCloud) -> Value:
        server = api.server(self.id)
        return None if server is None else _notice(server)

    def carry_out(self, api: ServiceCloud) -> str:
        if new := {key: value for key, value in self.wanted.items() if value is not None}:
            api.mark(self.id, new)
        for key in [key for key in self.wanted if key not in new]:
            api.unmark(self.id, key)
        return self.id


@dataclass(frozen=True, kw_only=True)
class ShelvingChange(_InstanceChange):
    """Shelve an instance, and wait until its host has freed its GPUs: the value is its status.

    The id is that of the request, which Nova assigns: so an undo leaves an instance that somebody used since.
    """

    kind: ClassVar[str] = "shelve_instance"
    object_kind: ClassVar[str] = "shelving"
    undone: ClassVar[str] = "unshelves the instance if nobody used it since"
    value: ClassVar[Any] = str
    described: ClassVar[tuple[str, ...]] = ("server",)

    def describe(self) -> str:
        return f"shelve {self.name}: {self.why}"

    def read(self, api: ServiceCloud) -> Value:
        if (server := api.server(self.about["server"])) is None:
            return None
        # The host is empty only after nova-compute has freed the devices.
        place = f" on {server.host}" if server.status == _OFFLOADED and server.host else ""
        return f"{server.status}{place}" + (f", task {server.task}" if server.task else "")

    def carry_out(self, api: ServiceCloud) -> str:
        api.act(self.about["server"], "shelve")
        offloading = False
        for server in self._reads(api):
            if server.status == _OFFLOADED:
                if not server.host:
                    break
            elif server.status == _SHELVED and not offloading:
                # With shelved_offload_time other than 0, Nova keeps the instance and its GPUs on the host.
                offloading = _offload(api, server)
            else:
                actions = api.actions(server.id)
                reason = api.why_failed(server.id, actions[0].request) if actions else ""
                raise CloudError(f"the instance is {server.status}: {reason or 'see the log of nova-compute'}")
        shelving = _last_shelving(api, self.about["server"])
        return shelving.request if shelving else ""

    def _reads(self, api: ServiceCloud) -> Iterator[Server]:
        """Read the instance again and again, while Nova works on it and afterwards.

        :raises Unanswered: if the time is over.
        """
        seconds = float(self.about.get("wait", SECONDS))
        end = time.monotonic() + seconds
        while True:
            if (server := api.server(self.about["server"])) is None:
                raise CloudError("the instance does not exist any more")
            if not server.task:
                yield server
            if time.monotonic() >= end:
                raise Unanswered(f"still {server.status}, task {server.task}, after {seconds:g} s")
            time.sleep(PAUSE)

    def reverse(self) -> CloudChange:
        return UnshelvingChange(**{**vars(super().reverse()), "judged": None})


@dataclass(frozen=True, kw_only=True)
class UnshelvingChange(ShelvingChange):
    """Unshelve an instance that nobody used since. It starts, also if it was stopped."""

    kind: ClassVar[str] = "unshelve_instance"
    object_kind: ClassVar[str] = "unshelving"
    undone: ClassVar[str] = "none: it would stop an instance without notice"
    reversible: ClassVar[bool] = False

    def describe(self) -> str:
        return f"unshelve {self.name}, which starts it: {self.why}"

    def obstacle(self, api: ServiceCloud, made: Sequence[CloudChange]) -> str:
        newest = _last_shelving(api, self.about["server"])
        if newest is None or (not self.id and newest.user not in ("", api.user())):
            return "Nova has no record that gpustack shelved the instance"
        return "somebody shelved the instance again since" if self.id and newest.request != self.id else ""

    def carry_out(self, api: ServiceCloud) -> str:
        api.act(self.about["server"], "unshelve")
        server = next(self._reads(api))
        if server.status != "ACTIVE":
            raise CloudError(f"the instance is still {server.status}: no host has free GPUs for it")
        return self.id


def changes(
    decisions: Sequence[Decision],
    again: Callable[[str], Candidate | None],
    rules: Rules,
    *,
    projects: Mapping[str, str],
    seconds: int = SECONDS,
    now: Callable[[], datetime] = lambda: datetime.now(UTC).replace(tzinfo=None),
) -> tuple[CloudChange, ...]:
    """The steps of decisions as changes; after one whose time is over, no other one begins.

    :param again: reads an instance by its id; None if it does not exist.
    :param projects: names of projects by id.
    :param seconds: the time limit for an instance.
    :param now: the current time, naive UTC.
    """
    made: list[CloudChange] = []
    for decision in decisions:
        server = decision.server
        why, owner = decision.reason or "not idle any more", projects.get(server.project, server.project)
        known: dict[str, Any] = {
            "why": f"{counted(decision.gpus, 'GPU')} of {server.host} for {owner}, {why}",
            "name": f"{server.name} ({server.id})",
            "judged": partial(_outdated, decision, again, rules, now),
        }
        if decision.step is Step.SHELVE:
            about = {"server": server.id, "wait": str(seconds)}
            made.append(
                ShelvingChange(**known, seen=server.status, wanted=_OFFLOADED, about=about, tag=f"shelving:{server.id}")
            )
            continue
        due = f"{(now() + rules.grace).replace(microsecond=0):%FT%TZ}"
        notice = {DUE: due, AFTER: decision.newest} if decision.step is Step.NOTIFY else dict.fromkeys(KEYS)
        made.append(NoticeChange(**known, id=server.id, seen=_notice(server), wanted=notice))
    return tuple(made)


def former(line: Mapping[str, Any]) -> ShelvingChange:
    """The change in a line of a journal of 0.1.0 (``gpustack_reclaim_journal``)."""
    name, about = f"{line['name']} ({line['server']})", {"server": line["server"]}
    request = line.get("request", "")
    return ShelvingChange(
        why=line["reason"], id=request, name=name, seen=line["status"], wanted=_OFFLOADED, about=about
    )


def _outdated(
    decision: Decision, again: Callable[[str], Candidate | None], rules: Rules, now: Callable[[], datetime]
) -> str:
    """Read and judge an instance again: why its decision is not valid any more; empty if it is."""
    if (candidate := again(decision.server.id)) is None:
        return "the instance does not exist any more"
    if (current := judge(candidate, rules, now())) is None:
        return f"the instance is {candidate.server.status} now, and not idle any more"
    if current.step is not decision.step:
        reasons = "; ".join(f"{found.code}: {found.message}" for found in current.findings)
        return reasons or f"the next step is now: {current.step}"
    return "" if current.newest == decision.newest else "the instance was used since the plan"


def _notice(server: Server) -> dict[str, str | None]:
    return {key: server.metadata.get(key) for key in KEYS}


def _offload(api: ServiceCloud, server: Server) -> bool:
    """Request the offloading; return whether Nova accepted it. After a conflict, its own periodic task has begun it."""
    try:
        api.act(server.id, "shelve_offload")
    except Refused as error:
        if error.status != CONFLICT:
            raise CloudError(f"the instance is SHELVED and keeps its GPUs: {error.what}") from error
        return False
    return True


def _last_shelving(api: ServiceCloud, server: str) -> Event | None:
    """The newest request that shelved an instance."""
    return next((action for action in api.actions(server) if action.what == "shelve"), None)
