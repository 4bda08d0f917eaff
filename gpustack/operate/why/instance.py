"""Why an instance failed and whether it fits now; where each GPU of a running one comes from."""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from gpustack.base.columns import described
from gpustack.base.errors import CloudError, DatabaseError, UsageError
from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.hostnames import key
from gpustack.base.text import counted, listed
from gpustack.cloud import Connection, placement, servers
from gpustack.cloud.boot import BootRecord, ServerGroup, boot, console_log, server_group
from gpustack.cloud.servers import ActionStep, Event, Server
from gpustack.hosts.health.kernel_log import table
from gpustack.offer.guest import check
from gpustack.offer.guest.inside import console
from gpustack.operate.capacity.aggregates import ZONE
from gpustack.operate.capacity.assess import State
from gpustack.operate.capacity.assess import findings as doubts
from gpustack.operate.capacity.flavors import demand_of_present
from gpustack.operate.capacity.model import Neighbors, Reason
from gpustack.operate.capacity.walk import GROUPS, HINTS
from gpustack.operate.why.flavor import columns
from gpustack.operate.why.links import COLUMNS, HeldGpu, held_gpus
from gpustack.operate.why.read import FlavorAnswer, WhySources, judged, unknown
from gpustack.spec.load import load_spec
from gpustack.spec.reclaim import SERVER_PATTERN

if TYPE_CHECKING:
    from gpustack.novadb.as_stored import Record
    from gpustack.novadb.model import Request

T = TypeVar("T")
_MOVES = ("resize", "migrate", "live-migration", "evacuate", "unshelve", "confirmResize", "revertResize")
_BOOT_AGAIN = "boot it again (`openstack server create`), and delete the failed one (`openstack server delete`)"
_MOVE_AGAIN = "request the move again; keep the instance"
_RUNNING = (1, 3)
"""The power states with a domain."""
_SHOWN = 8
_RESULT = re.compile(r"(?<!\w)(\w+): \(start: (\d+), end: (\d+)\)")
_REFUSED_CLAIM = re.compile(r"(?:Failed to claim|Insufficient compute resources): (.*?)\.?(?:\"|$)")
"""What nova-compute logs, also as JSON, and what a fault repeats, if its claim fails (nova/compute/claims.py)."""
_CLAIMED = (Reason.FRAGMENTS, Reason.NUMA)
"""The reasons for which a claim fails."""
_CLAIM, _RESULTS, _OF_DEBUG = "Failed to claim", "Filter results: [", "Filter results: [("  # with the name of each host
_NO_CANDIDATES = "Got no allocation candidates from the Placement API"


class FailedPhase(enum.StrEnum):
    """The part of Nova in which an instance failed."""

    API = "API"
    SCHEDULER = "scheduler"
    BUILD = "build"
    MOVE = "move"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failure of an instance.

    :ivar at: naive UTC; None if unknown.
    :ivar request: the id of the request, which the logs of Nova have.
    :ivar tried: the hosts whose nova-compute worked on it.
    :ivar errors: the errors of these hosts; Nova keeps none of a host after which it tried another one.
    """

    phase: FailedPhase
    at: datetime | None
    request: str
    reason: str
    tried: tuple[str, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class InstanceAnswer:
    """The answer about an instance.

    :ivar failure: None if it did not fail.
    :ivar now: whether it fits now; None if it was not compared.
    :ivar log: the lines of the logs about it; those of nova-scheduler last.
    :ivar gpus: its GPUs in each record.
    :ivar gaps: what could not be read.
    """

    boot: BootRecord
    failure: Failure | None = None
    now: FlavorAnswer | None = None
    log: tuple[str, ...] = ()
    gpus: tuple[HeldGpu, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """The answer in one line."""
        server, failure = self.boot.server, self.failure
        if failure is None:
            broken = sum(bool(gpu.broken) for gpu in self.gpus)
            has = f"{counted(server.count, 'GPU')}, {broken} with a broken link"
            return f"{server.label}: {server.status}, {has if server.placed else 'no GPU: it is on no host'}"
        at = f"{failure.at:%F %T} UTC" if failure.at else "an unknown time"
        text = f"{server.label}: {server.status}; failed at {at} ({failure.phase}): {failure.reason}"
        return text if self.now is None else f"{text}; fits on {counted(len(_fitting(self.now)), 'host')} now"

    def to_dict(self) -> dict[str, object]:
        """The answer as plain data, in the order of output."""
        server, failure, now = self.boot.server, self.failure, self.now
        return {
            "instance": server.id,
            "name": server.name,
            "status": server.status,
            "host": server.host or None,
            "flavor": server.flavor,
            "phase": failure.phase.value if failure else None,
            "failed_at": f"{failure.at:%FT%TZ}" if failure and failure.at else None,
            "request": failure.request or None if failure else None,
            "reason": failure.reason if failure else None,
            "tried": list(failure.tried) if failure else [],
            "log": list(self.log),
            "fits_on": None if now is None else _fitting(now),
            "causes": [described(columns(later=True), cause) for cause in now.causes] if now else [],
            "gpus": [described(COLUMNS, gpu) for gpu in self.gpus],
            "findings": [entry.to_dict() for entry in self.findings],
        }


def _fitting(now: FlavorAnswer) -> list[str]:
    return [host.host for host in now.capacity.hosts if host.fits]


def answer(cloud: Connection, name: str, sources: WhySources) -> InstanceAnswer:
    """Answer a question about an instance.

    :param name: its name or id.
    :raises UsageError: if there is no such instance, or more than one.
    :raises CloudError: if Nova does not answer.
    """
    found = InstanceAnswer(boot=_find(cloud, name))
    server = found.boot.server
    if not server.count:
        found.gaps.append(f"the flavor {server.flavor} requests no GPU, or this user may not read its extra specs")
    events = _or_gap(found, lambda: servers.actions(cloud, server.id)) or []
    failed = next((event for event in events[:1] if event.failed or server.status == "ERROR"), None)
    if failed is not None or server.status == "ERROR":
        request = failed.request if failed else ""
        steps = _or_gap(found, lambda: servers.steps_of(cloud, server.id, request)) if request else None
        found.failure = failure(found.boot, failed, steps or [])
        found.log = quoted(sources.log or (), server.id, found.failure.request)
        if sources.log is not None and not found.log:
            found.gaps.append("no line of the logs is about its failure; nova-scheduler writes one at level INFO")
        if found.failure.phase is not FailedPhase.API and server.count:
            try:
                _compare(cloud, found, failed, sources)
            except CloudError as error:
                found.gaps.append(f"whether it fits now is unknown: {error.what}; {error.remedy}")
        found.findings += _of_failure(found, found.failure)
    if server.placed and server.status != "ERROR":
        _follow(cloud, found, sources)
    return found


def _find(cloud: Connection, name: str) -> BootRecord:
    """The instance with a name or id."""
    uuid = name.lower()
    if not re.fullmatch(SERVER_PATTERN, uuid):
        same = servers.named(cloud, name)
        if len(same) > 1:
            ids = listed([server.id for server in same], _SHOWN)
            raise UsageError(f"{len(same)} instances are named {name!r}", remedy=f"use an id: {ids}")
        if not same:
            listed_servers = servers.listing(cloud)
            noun = "instance" if listed_servers.everything else "instance of your project"
            raise unknown(noun, name, [server.name for server in listed_servers.servers])
        uuid = same[0].id
    if (found := boot(cloud, uuid)) is None:
        remedy = "only Nova's databases have deleted instances, and only the role admin sees those of other projects"
        raise UsageError(f"there is no instance {uuid}", remedy=remedy)
    return found


def _or_gap(found: InstanceAnswer, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (CloudError, DatabaseError) as error:
        found.gaps += {str(error).partition("\n")[0]} - {*found.gaps}
        return None


def failure(known: BootRecord, failed: Event | None, steps: Sequence[ActionStep]) -> Failure:
    """The failure that Nova's records of an instance show.

    :param failed: its last action, if that failed.
    :param steps: those of this action.
    """
    reason = (known.fault or next((step.error for step in steps if step.error), "Nova reports no reason")).strip()
    tried = {step.host: step.error for step in steps if step.name.startswith("compute_") and step.host}
    phase = FailedPhase.SCHEDULER
    if failed is not None and failed.what in _MOVES:
        phase = FailedPhase.MOVE
    elif tried or "maximum number of retries" in reason:
        phase = FailedPhase.BUILD
    elif "uota" in reason:  # Nova counts again after it created the instance
        phase = FailedPhase.API
    at = known.failed or (failed.at if failed else None)
    request, errors = failed.request if failed else "", {host: error for host, error in tried.items() if error}
    return Failure(phase=phase, at=at, request=request, reason=reason, tried=tuple(tried), errors=errors)


def is_quoted(line: bytes) -> bool:
    """Whether a line of a log is about the refusal of some instance."""
    return any(words.encode() in line for words in (_CLAIM, _RESULTS, _NO_CANDIDATES))


def quoted(log: Sequence[str], uuid: str, request: str) -> tuple[str, ...]:
    """The refused claims of nova-compute and the results of nova-scheduler about an instance, oldest first."""
    claims = (line for line in log if _CLAIM in line and uuid in line)
    results = (line for line in log if _RESULTS in line and _OF_DEBUG not in line and f"'{uuid}'" in line)
    empty = (line for line in log if request and request in line and _NO_CANDIDATES in line)
    return tuple(line.strip() for line in (*claims, *empty, *results))


def _compare(cloud: Connection, found: InstanceAnswer, failed: Event | None, sources: WhySources) -> None:
    """Walk the instance's own request again."""
    if failed is not None and failed.what == "resize":
        found.gaps.append("Nova shows the new flavor of a resize nowhere: use gpustack why flavor")
        return
    known = _or_gap(found, lambda: _with_request(found.boot, sources)) or found.boot
    lacking = {"availability zone": known.zone, "image properties": known.image, "scheduler hints": known.hints}
    found.gaps += [
        f"this Nova does not show the {name} of instances, and no database of --config-file has it"
        for name, value in lacking.items()
        if value is None
    ]
    hints = known.hints or {}
    if others := [name for name in hints if name not in (*HINTS, "group")]:
        found.gaps.append(f"these scheduler hints are not evaluated: {', '.join(others)}")
    spec, server = load_spec(sources.spec, sources.facts), known.server
    state = _in_zone(sources.state(cloud, spec), known.zone or "")
    if failed is not None and failed.what in _MOVES and server.host:  # Nova ignores the host that it moves from
        state = replace(state, hosts=tuple(host for host in state.hosts if key(host.name) != key(server.host)))
    read = _or_gap(found, lambda: [server_group(cloud, uuid) for uuid in known.groups])
    groups = [group for group in read or () if group is not None]
    rules = None if read is None else neighbors(server.host, groups, hints, state.placed)
    demand = demand_of_present(spec, known.flavor, sources.scheduler, known.image)
    ports = (f"{counted(known.ports, 'PCI device')} of its ports",) if known.ports else ()
    demand = replace(demand, project=server.project, neighbors=rules, unmodelled=(*demand.unmodelled, *ports))
    found.now = judged(cloud, state, demand, progress=sources.progress)
    found.gaps += found.now.gaps


def _with_request(known: BootRecord, sources: WhySources) -> BootRecord:
    """The image of an instance, the devices of its ports, and for older APIs zone and hints, from the API database.

    No API shows the traits that an image requires.

    :raises DatabaseError: if the database cannot be read.
    """
    api = sources.databases().api if sources.databases is not None else None
    if api is None:
        return known
    from gpustack.novadb.databases import snapshot
    from gpustack.novadb.requests import scheduler_request

    with snapshot(api) as connection:
        request = scheduler_request(connection, known.server.id)
    if request is None:
        return known
    shown = {} if known.hints is None else {"zone": known.zone, "hints": known.hints}
    return replace(known, **{**request._asdict(), **shown})


def _in_zone(read: State, zone: str) -> State:
    """The hosts of a zone. Nova ignores a zone that no aggregate has, such as that of hosts without one."""
    if all(entry.metadata.get(ZONE) != zone for entry in read.aggregates):
        return read
    hosts = (h if h.closed or h.zone == zone else replace(h, closed=Reason.ZONE) for h in read.hosts)
    return replace(read, hosts=tuple(hosts))


def _of_failure(found: InstanceAnswer, failed: Failure) -> list[Finding]:
    """The findings about a failure, with its fixes."""
    now, place = found.now, found.boot.server.label
    findings: list[Finding] = []
    if failed.phase is FailedPhase.API:
        findings.append(finding(Code.WHY_QUOTA, place=place, reason=failed.reason))
    if failed.phase is FailedPhase.BUILD:
        findings += _of_build(found, failed)
    if now is not None:
        findings += [*now.findings, *doubts([now.capacity])]
        if fitting := _fitting(now):
            again = _MOVE_AGAIN if failed.phase is FailedPhase.MOVE else _BOOT_AGAIN
            findings.append(finding(Code.WHY_FITS_NOW, place=place, hosts=listed(fitting, _SHOWN), again=again))
        names = {name for cause in now.causes for name in (cause.step.name, *cause.later)}
        for line in [line for line in found.log if not _REFUSED_CLAIM.search(line)][-1:]:
            last = next((name for name, _start, end in _RESULT.findall(line) if end == "0"), "Placement")
            if not fitting and not any(name == last or name.startswith(f"{last}:") for name in names):
                steps = ", ".join(sorted(names)) or "none"
                findings.append(finding(Code.WHY_LOG_DIFFERS, place=place, logged=last, steps=steps))
    return findings


def _of_build(found: InstanceAnswer, failed: Failure) -> Iterator[Finding]:
    """A finding for each host that was tried: a lost claim, or another failure of nova-compute."""
    place, causes = found.boot.server.label, found.now.causes if found.now else ()
    lacking = {host: cause for cause in causes if cause.step.reason in _CLAIMED for host in cause.hosts}
    claims = [match[1] for text in (failed.reason, *found.log) if (match := _REFUSED_CLAIM.search(text))]
    for host in failed.tried or ("unknown hosts",):
        because, error = "", failed.errors.get(host, "")
        if claims and len(claims) >= len(failed.tried):  # a line of the log does not name its host
            because = claims[-1]
        elif host in lacking:
            because = f"now {lacking[host].text}, so that another instance probably was faster"
        if because and not error:
            yield finding(Code.WHY_CLAIM_LOST, place=place, hosts=host, because=because)
        else:
            reason, request = error or failed.reason, failed.request or "?"
            yield finding(Code.WHY_BUILD_FAILED, place=place, hosts=host, reason=reason, request=request)


def _follow(cloud: Connection, found: InstanceAnswer, sources: WhySources) -> None:
    """Find the GPUs of an instance in each record, from the request to the guest."""
    server = found.boot.server
    rows, requests = _or_gap(found, lambda: _stored(server.id, sources)) or (None, ())
    # While it waits for the confirmation of a resize, it has rows of two hosts, perhaps with the same addresses.
    here = None if rows is None else [row for row in rows if server.host in ("", row["host"])]
    allocated = _or_gap(found, lambda: _allocated(cloud, server))
    used, usages = None, None
    if sources.ask is not None and server.host and server.power in _RUNNING:
        usage = sources.ask(server.host)
        usages = {server.host: usage}
        used = frozenset(address for address, users in usage.users.items() if server.id in users)
        if usage.gap:
            found.gaps.append(f"{server.host}: {usage.gap}")
            used = used or None
    found.gpus = tuple(held_gpus(server.id, server.devices, here, requests, allocated, used))
    found.findings += [entry for gpu in found.gpus for entry in [gpu.finding] if entry]
    if sources.databases is not None and server.host:
        from gpustack.repair.plan import Selection, make

        hosts = {server.host, *(row["host"] for row in rows or () if row["host"])}
        where = Selection(hosts=frozenset(hosts), instance=server.id)
        plan = _or_gap(found, lambda: make(sources.databases(), where, None, usages))  # type: ignore[misc]
        for verdict in plan.verdicts if plan else ():
            values = {name: getattr(verdict, name) for name in ("klass", "title", "because", "host")}
            found.findings.append(finding(Code.WHY_DISAGREEMENT, place=server.label, **values))
    if server.count:
        log = _or_gap(found, lambda: console_log(cloud, server.id)) or ""
        facts = console.facts(log, check.consoles(), table())
        if facts["complete"]:
            promise = check.Promise(count=server.count)
            for entry in check.findings(facts, promise, server.name or server.id):
                lacking = entry.code == Code.GUEST_UNKNOWN  # a console log never shows everything
                found.findings.append(replace(entry, severity=Severity.INFO) if lacking else entry)
        else:
            found.gaps.append("the console log has no messages of a Linux kernel: the guest is unknown")


def _stored(uuid: str, sources: WhySources) -> tuple[list[Record] | None, tuple[Request, ...]]:
    """The rows and the PCI requests of an instance; None without databases.

    :raises DatabaseError: if no cell has the instance.
    """
    if sources.databases is None:
        return None, ()
    from gpustack.novadb import tables
    from gpustack.novadb.as_stored import stored_records
    from gpustack.novadb.requests import parse_requests

    rows: list[Record] = []
    extras: list[Record] = []
    for cell in sources.databases().with_hosts:
        with stored_records(cell) as stored:
            rows += stored.devices_of({uuid})
            extras += stored.of(tables.instance_extra, "instance_uuid", {uuid})
    if not (extras or rows):
        raise DatabaseError("the databases do not have the instance: --config-file is of another cloud or region")
    return rows, tuple(entry for extra in extras for entry in parse_requests(extra["pci_requests"]).requests or ())


def _allocated(cloud: Connection, server: Server) -> frozenset[str] | None:
    """The addresses of an instance's devices on its host in Placement; None if Placement has none of its host."""
    if not (held := placement.allocations_of(cloud, server.id)["allocations"]):
        return frozenset()
    # An evacuated instance holds devices of two hosts, and shared storage is a tree of its own.
    roots = placement.listed(cloud, f"name={quote(server.place, safe='')}")
    trees = [placement.listed(cloud, f"in_tree={root.uuid}") for root in roots]
    devices = [provider for tree in trees for provider in tree if provider.address]
    return frozenset(provider.address for provider in devices if provider.uuid in held) if devices else None


def neighbors(
    host: str, groups: Sequence[ServerGroup], hints: Mapping[str, Collection[str]], placed: Mapping[str, str]
) -> tuple[Neighbors, ...]:
    """The rules for an instance, as the filters of nova/scheduler/filters/affinity_filter.py apply them.

    Soft policies refuse no host. A group with ``affinity`` and no instance on a host accepts every host.

    :param host: that of the instance; empty if it has none.
    :param placed: the host of each instance on one, by its id.
    """
    rules = []
    for group in groups:
        if group.policy not in GROUPS:
            continue
        hosts = _counted(group.members, placed)
        apart = group.policy == "anti-affinity"
        if apart:  # an instance may always stay on its host
            hosts.pop(host, None)
        if apart or hosts:
            limit, of = group.most if apart else None, f"the server group {group.name}"
            rules.append(Neighbors(step=GROUPS[group.policy], of=of, hosts=hosts, limit=limit))
    for hint, step in HINTS.items():
        if uuids := hints.get(hint):
            limit = 1 if hint == "different_host" else None
            rules.append(Neighbors(step=step, of=f"the hint {hint}", hosts=_counted(uuids, placed), limit=limit))
    return tuple(rules)


def _counted(uuids: Collection[str], placed: Mapping[str, str]) -> Counter[str]:
    return Counter(placed[uuid] for uuid in map(str.lower, uuids) if uuid in placed)
