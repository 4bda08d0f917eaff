"""Why new instances get fewer GPUs of a host than it has: the first broken link of each GPU."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpustack.base.errors import CloudError, DatabaseError
from gpustack.base.findings import Code, Finding, finding, once
from gpustack.base.hostnames import key
from gpustack.cloud import Connection, compute
from gpustack.cloud.closed import UNSTATED, gpu_reason
from gpustack.fleet.cards import models_of
from gpustack.fleet.index import Answers, Index
from gpustack.fleet.join import join
from gpustack.fleet.model import Fleet, Gpu, Source, State
from gpustack.fleet.read import OTHER_CLOUD, Detail, Given
from gpustack.fleet.read import read as read_fleet
from gpustack.hosts.readiness.assessment import State as Readiness
from gpustack.operate.why import links
from gpustack.operate.why.read import WhySources, unknown
from gpustack.spec.load import load_spec
from gpustack.spec.verdict import Verdict, verdicts

_NEEDS = "use a cloud of clouds.yaml with the role admin"
_CLOSED = {"disabled": Code.WHY_DISABLED, "down": Code.WHY_DOWN, "unmapped": Code.HOST_NOT_MAPPED}


@dataclass(frozen=True, kw_only=True)
class HostAnswer:
    """The answer about a host.

    :ivar aggregates: the names of its aggregates.
    :ivar findings: the causes with their fixes, and what Nova, Placement and the host disagree about.
    :ivar gaps: what could not be read.
    """

    host: str
    gpus: Sequence[links.HostGpu]
    aggregates: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    gaps: Sequence[str] = ()

    @property
    def summary(self) -> str:
        """The answer in one line."""
        names = f"; aggregates: {', '.join(self.aggregates)}" if self.aggregates else ""
        gpus = links.counts(self.gpus) if self.gpus or not self.gaps else "its GPUs are unknown"
        return f"{self.host}: {gpus}{names}"


def answer(cloud: Connection, name: str, sources: WhySources) -> HostAnswer:
    """Answer a question about a host.

    :param name: of the host or its compute node.
    :raises UsageError: if no source has the host.
    :raises CloudError: if neither Nova nor Placement answers.
    """
    spec = load_spec(sources.spec, sources.facts)
    given = Given(hosts=tuple(sources.facts), models=models_of(spec, sources.scheduler), spec=spec)
    gaps: list[str] = []
    answers = _with_rows(read_fleet(lambda: cloud, Detail.STATES, given, progress=sources.progress), sources, gaps)
    index, fleet = Index(answers), join(answers)
    if not (fleet.at(name) or index.facts(name) or index.service(name)):
        known = {service.host for service in answers.services or ()} | {host.hostname for host in sources.facts}
        if answers.services is None:
            reasons = "; ".join(gap.reason for gap in fleet.partial)
            raise CloudError(f"whether there is a host {name!r} is unknown: {reasons}", remedy=_NEEDS)
        raise unknown("host", name, sorted(known))
    name = index.host_of(name)
    aggregates: list[str] = []
    try:
        aggregates = [entry.name for entry in compute.aggregates(cloud) if entry.has(name)]
    except CloudError as error:
        gaps.append(error.what)
    gpus = tuple(_gpus(index, fleet, name, sources))
    if not gpus and not fleet.located:
        gaps.append(f"no source shows the GPUs of {name}; --config-file reads them from Nova's databases")
    places = {place for gpu in gpus for place in (f"{gpu.host} {gpu.address}", gpu.host)}
    of_fleet = [entry for entry in fleet.findings if entry.place in places and entry.code != Code.GPU_NOT_OFFERED]
    return HostAnswer(
        host=name,
        gpus=gpus,
        aggregates=aggregates,
        findings=once([*(entry for gpu in gpus for entry in gpu.findings), *of_fleet]),
        gaps=[*fleet.gaps, *gaps],
    )


def _with_rows(answers: Answers, sources: WhySources, gaps: list[str]) -> Answers:
    """The rows of the databases, instead of the instances of Nova's API."""
    if sources.databases is None:
        return answers
    from gpustack.fleet import databases

    try:
        known, _ = databases.cells(databases.with_facts(sources.databases(), sources.facts))
    except DatabaseError as error:
        gaps.append(str(error).partition("\n")[0])
        return answers
    if known.is_elsewhere(answers.nodes):
        gaps.append(OTHER_CLOUD)
        return answers
    of_api = tuple(gap for gap in answers.gaps if gap.source is not Source.NOVA)
    more = {"servers": known.servers, "rows": known.rows, "verdicts": known.verdicts}
    return replace(answers, **more, everything=known.everything, gaps=(*of_api, *known.gaps))  # type: ignore[arg-type]


def _gpus(index: Index, fleet: Fleet, name: str, sources: WhySources) -> Iterator[links.HostGpu]:
    """The GPUs of the host's facts, of Nova and of Placement, by address."""
    facts, spec = index.facts(name), index.answers.spec
    offered = None
    if sources.device_specs and facts is not None:
        from gpustack.nova_options.device_spec import offered as matched

        offered = matched(sources.device_specs, facts)
    of_facts = {entry.address: entry for entry in verdicts(spec, facts).all} if facts else {}
    known = {gpu.address: gpu for gpu in fleet.at(name) if gpu.address}
    service, outages = index.service(name), index.outages(name)
    for address in sorted({*of_facts, *known}):
        verdict, gpu = of_facts.get(address), known.get(address)
        if verdict is None and facts is not None and gpu is not None and gpu.parent in of_facts:
            verdict = of_facts[gpu.parent]
        outage = outages.get(gpu_reason(address))  # its link is the first, as an outage breaks others with it
        records = {
            links.IN_SERVICE: _in_service(verdict, gpu) if outage is None else False,
            links.HOST: None if facts is None else address in facts.functions,
            **_prepared(verdict),
            links.DEVICE_SPEC: None if offered is None else address in offered,
            **_offered(index, name, address, gpu),
            links.SERVICE: service == "up" if service else None,
        }
        reasons = verdict.readiness.reasons if verdict else ()
        if service in _CLOSED and all(records[link] is not False for link in (links.READY, links.BOUND)):
            reasons = (finding(_CLOSED[service], place=name, step=f"nova-compute is {service}"),)
        yield links.HostGpu(
            address=address,
            host=name,
            model=verdict.gpu.name if verdict else gpu.model if gpu else "",
            state=gpu.state.value if gpu and gpu.sources != (Source.SNAPSHOT,) else "",
            because=_because(verdict, gpu) if outage is None else f"out of service in Nova: {outage or UNSTATED}",
            records=records,
            reasons=reasons,
        )


def _prepared(verdict: Verdict | None) -> Mapping[str, bool | None]:
    if verdict is None:
        return {links.SPEC: None, links.READY: None, links.BOUND: None}
    known = verdict.state is not Readiness.UNKNOWN
    return {
        links.SPEC: verdict.target is not None,
        links.READY: verdict.state is not Readiness.BLOCKED if known else None,
        links.BOUND: verdict.state is Readiness.READY if known else None,
    }


def _offered(index: Index, name: str, address: str, gpu: Gpu | None) -> Mapping[str, bool | None]:
    """Whether Nova has a row, and Placement a device that is free if the row is."""
    node = key(gpu.node if gpu else name)
    row = index.rows.get((node, address)) or next(
        (row for spot, row in index.rows.items() if spot[0] == node and row.parent == address), None
    )
    device = index.devices.get((node, row.parent if row and row.parent else address))
    scheduled = index.answers.models.scheduled
    placed: bool | None = None
    if index.answers.devices is not None and scheduled is not False and (node in index.reporting or scheduled):
        placed = device is not None and not (row and row.status == "available" and not row.parent and device.used)
    elif scheduled and gpu is not None:
        placed = False
    is_read = index.answers.has_all_rows or any(spot[0] == node for spot in index.rows)
    return {links.ROW: row is not None if is_read else None, links.PLACEMENT: placed}


def _in_service(verdict: Verdict | None, gpu: Gpu | None) -> bool | None:
    if (verdict and verdict.out_of_service) or (gpu and (gpu.out_of_service or gpu.reserved)):
        return False
    return None if gpu is None or gpu.state is State.UNAVAILABLE else True


def _because(verdict: Verdict | None, gpu: Gpu | None) -> str:
    entry = verdict.out_of_service if verdict else None
    text = entry.why if entry else gpu.out_of_service if gpu else ""
    return f"out of service in the spec: {text}" if text else "reserved in Placement"
