"""Why an instance counts as idle, and since when: it is stopped, or it has expired.

The time of a stop is that of the newest action, because Nova changes ``updated`` for many other reasons. Nova also
records the stop of an instance whose guest was shut down from inside (``force_stop`` in nova/compute/api.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpustack.base.findings import Code, Finding, finding
from gpustack.cloud.servers import Event
from gpustack.operate.reclaim.model import Candidate, Rules
from gpustack.operate.reclaim.notice import EXPIRES
from gpustack.spec.reclaim import moment

STOPS = {"SHUTOFF": "stop", "PAUSED": "pause", "SUSPENDED": "suspend", "SHELVED": "shelve"}
"""The action that leads to each status of a stopped instance."""
HELD = frozenset({*STOPS, "ERROR", "RESCUE"})
"""The statuses of instances that hold GPUs without using them."""
_WITHOUT_EFFECT = frozenset(
    {
        *("attach_interface", "attach_share", "attach_volume", "changePassword", "confirmResize", "createBackup"),
        *("createImage", "detach_interface", "detach_share", "detach_volume", "evacuate", "extend_volume", "lock"),
        *("migrate", "refresh_volume_attachment", "resize", "revertResize", "swap_volume", "trigger_crash_dump"),
        "unlock",
    }
)
"""Actions that leave a stopped instance stopped (nova/compute/instance_actions.py)."""
AHEAD = timedelta(minutes=5)
"""The permitted difference between the clocks of Nova and of this machine."""


@dataclass(frozen=True, kw_only=True)
class Idle:
    """Why an instance counts as idle.

    :ivar stopped: whether it is stopped; otherwise it has expired.
    """

    since: datetime
    reason: str
    stopped: bool


def idle(candidate: Candidate, rules: Rules, now: datetime) -> tuple[Idle | None, tuple[Finding, ...]]:
    """Return why an instance counts as idle, None if it does not; and findings about times that can't be used."""
    expired, findings = _expired(candidate, rules, now)
    if expired is not None:
        return expired, findings
    stopped, unknown = _stopped(candidate, rules, now)
    return stopped, findings + unknown


def _expired(candidate: Candidate, rules: Rules, now: datetime) -> tuple[Idle | None, tuple[Finding, ...]]:
    server = candidate.server
    expiry = rules.expires.get(server.id)
    source = "the spec"
    if expiry is None:
        text = server.metadata.get(EXPIRES)
        if not rules.metadata or text is None:
            return None, ()
        try:
            expiry, source = moment(text), EXPIRES
        except ValueError:
            return None, (finding(Code.RECLAIM_TIME_UNREADABLE, place=candidate.label, key=EXPIRES, text=text),)
    if expiry > now:
        return None, ()
    return Idle(since=expiry, reason=f"expired ({source})", stopped=False), ()


def _stopped(candidate: Candidate, rules: Rules, now: datetime) -> tuple[Idle | None, tuple[Finding, ...]]:
    status = candidate.server.status
    # A shelved instance that still has a host holds its GPUs like a stopped one.
    if (permitted := rules.idle_after.get("SHUTOFF" if status == "SHELVED" else status)) is None:
        return None, ()
    since, problem = stopped_since(status, candidate.actions)
    if since is not None and since > now + AHEAD:
        since, problem = None, f"its action `{STOPS[status]}` is in the future: {since:%FT%TZ}"
    if since is None:
        unknown = finding(Code.RECLAIM_SINCE_UNKNOWN, place=candidate.label, status=status, problem=problem)
        return None, (unknown,)
    if now - since < permitted:
        return None, ()
    return Idle(since=since, reason=f"{status} for {length(now - since)}", stopped=True), ()


def stopped_since(status: str, actions: Sequence[Event]) -> tuple[datetime | None, str]:
    """Return since when an instance has a status, or None and why this is unknown.

    :param actions: the actions of the instance, newest first.
    """
    for action in actions:
        if action.what in _WITHOUT_EFFECT:
            continue
        if action.what == STOPS[status] and not action.failed and action.at is not None:
            return action.at, ""
        return None, f"its last action is `{action.what}`{' (failed)' if action.failed else ''}"
    return None, "Nova has no action of it"


def length(time: timedelta) -> str:
    """A length of time in days and hours, or in minutes."""
    minutes = int(time.total_seconds()) // 60
    days, hours = divmod(minutes // 60, 24)
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    return f"{hours} h" if hours else f"{minutes} min"
