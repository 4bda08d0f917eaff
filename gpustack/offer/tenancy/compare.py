"""Compare the wanted and the present state. Pure.

The order of the operations keeps each interruption harmless. First hosts are opened. Then the GPU hosts get the trait,
and aggregates their projects and hosts. Only then is an aggregate isolated, if all flavors of the spec require the
trait: before that, its hosts would refuse GPU instances. Traits are removed last, if no flavor requires them.

Guard the order of changes: flavors require a trait after hosts have it, and as long as aggregates require it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.hostnames import key
from gpustack.changes.change import CloudChange
from gpustack.cloud import Connection
from gpustack.cloud.compute import aggregates
from gpustack.cloud.placement import bearers
from gpustack.nova_options.aggregates import PROJECTS, Aggregate
from gpustack.offer.flavor.operations import ChangeFlavor, DeleteFlavor, FlavorOperation
from gpustack.offer.tenancy.changes import AggregateChange, HostChange, MetadataChange, TraitChange
from gpustack.offer.tenancy.check import doubts
from gpustack.offer.tenancy.model import MARK, Present, Wanted, WantedAggregate, is_foreign, is_ours
from gpustack.spec.extra_specs import REQUIRED, TRAIT, required_traits
from gpustack.spec.tenancy import Tenancy

_NOT_IN_SPEC = "not in the spec"


@dataclass(frozen=True, kw_only=True)
class TenancyPlan:
    """A plan: the operations in their order, and the findings.

    :ivar superfluous: names of aggregates of an earlier spec that stay without ``prune``.
    """

    operations: tuple[CloudChange, ...]
    findings: tuple[Finding, ...]
    superfluous: tuple[str, ...] = ()


def compare(wanted: Wanted, present: Present, *, prune: bool = False) -> TenancyPlan:
    """Return the plan that leads from the present to the wanted state.

    :param prune: whether to remove the aggregates and traits of an earlier spec.
    """
    by_name = {aggregate.name: aggregate for aggregate in present.aggregates}
    if foreign := [_foreign(by_name[of.name]) for of in wanted.aggregates if is_foreign(by_name.get(of.name))]:
        return TenancyPlan(operations=(), findings=tuple(foreign))
    names = {entry.name for entry in wanted.aggregates}
    others = [aggregate for aggregate in present.aggregates if is_ours(aggregate) and aggregate.name not in names]
    lacking = wanted.lacking(wanted.trait, present.flavors)[0]
    pairs = [(entry, by_name.get(entry.name)) for entry in wanted.aggregates]
    traits, kept = _superfluous_traits(wanted, present) if prune else ([], [])
    operations: list[CloudChange] = []
    for entry, aggregate in pairs:
        operations += _opened(entry, aggregate, wanted.trait)
    shared = [aggregate for aggregate in others if not all(map(_is_own, aggregate.metadata))]
    for aggregate in others if prune else ():
        operations += _emptied(aggregate, whole=aggregate not in shared)
    operations += _traits(wanted, present)
    for entry, aggregate in pairs:
        operations += _filled(entry, aggregate, wanted.trait)
    waiting = []
    for entry, aggregate in pairs:
        isolation = list(_isolated(entry, aggregate, wanted.trait))
        waiting += [entry.name] if isolation and lacking else []
        operations += [] if lacking else isolation
    operations += traits
    # The mark of an aggregate names the trait of an earlier spec; that of this spec is known without it.
    if prune and not [finding for finding in kept if not wanted.isolates or finding.place != wanted.trait]:
        operations += [AggregateChange.of(o.name, o.metadata, _NOT_IN_SPEC) for o in others if o not in shared]
    left = [
        finding(
            Code.AGGREGATE_KEPT,
            place=aggregate.name,
            hosts=", ".join(sorted(aggregate.hosts)) or "none",
            metadata=", ".join(sorted(name for name in aggregate.metadata if not _is_own(name))),
        )
        for aggregate in (shared if prune else ())
    ]
    waits = [
        finding(Code.ISOLATION_WAITS, place=name, trait=wanted.trait, flavors=", ".join(lacking)) for name in waiting
    ]
    return TenancyPlan(
        operations=tuple(_linked(operations)),
        findings=(*waits, *kept, *left, *doubts(wanted, present)),
        superfluous=() if prune else tuple(aggregate.name for aggregate in others),
    )


def _linked(changes: Sequence[CloudChange]) -> Iterator[CloudChange]:
    """The changes with what they need: an aggregate gets its metadata before hosts, and is deleted last."""
    last: dict[str, str] = {}
    every: dict[str, list[str]] = {}
    for number, change in enumerate(changes):
        name = change.about.get("aggregate", change.name)
        removal = isinstance(change, HostChange) and not change.wanted
        # Only the deletion of an aggregate has no wanted value.
        needs = every.get(name, ()) if change.wanted is None else () if removal else filter(None, [last.get(name)])
        # An aggregate's metadata may change twice in a plan, so the key has the number of the change.
        change = replace(change, needs=tuple(needs), tag=f"tenancy:{number}")
        every.setdefault(name, []).append(change.key)
        if not isinstance(change, HostChange):
            last[name] = change.key
        yield change


def _foreign(aggregate: Aggregate) -> Finding:
    content = f"hosts: {len(aggregate.hosts)}; metadata: {', '.join(sorted(aggregate.metadata)) or 'none'}"
    return finding(Code.AGGREGATE_FOREIGN, place=aggregate.name, content=content)


def _traits(wanted: Wanted, present: Present) -> Iterator[CloudChange]:
    bearers = present.bearers.get(wanted.trait, frozenset())
    for node in present.nodes if wanted.isolates else ():
        if node.host in wanted.gpu_hosts and node.uuid not in bearers:
            yield TraitChange.of(node, wanted.trait, "GPU flavors require it", wanted=True)


def _superfluous_traits(wanted: Wanted, present: Present) -> tuple[list[TraitChange], list[Finding]]:
    """The operations that remove the traits of this and earlier specs; findings about those that flavors require.

    The flavors of the spec find the hosts of the spec: hosts that left it lose the trait.
    """
    operations: list[TraitChange] = []
    findings: list[Finding] = []
    for trait in sorted({wanted.trait, *present.bearers}):
        needed = wanted.gpu_hosts if wanted.isolates and trait == wanted.trait else frozenset()
        bearers = present.bearers.get(trait, frozenset())
        nodes = [node for node in present.nodes if node.uuid in bearers and node.host not in needed]
        requiring = {flavor.name for flavor in present.flavors if trait in required_traits(flavor.extra_specs)}
        flavors = sorted(requiring - (wanted.flavors if needed else frozenset()))
        if nodes and flavors:
            findings.append(finding(Code.TRAIT_STILL_REQUIRED, place=trait, flavors=", ".join(flavors)))
            continue
        operations += [TraitChange.of(node, trait, _NOT_IN_SPEC, wanted=False) for node in nodes]
    return operations, findings


def _opened(entry: WantedAggregate, aggregate: Aggregate | None, trait: str) -> Iterator[CloudChange]:
    """Remove the requirement of traits, and hosts."""
    if aggregate is None:
        return
    kept = f"{TRAIT}{trait}" if entry.isolated else None
    if gone := {name: None for name in aggregate.metadata if name.startswith(TRAIT) and name != kept}:
        why = "the hosts accept ordinary instances" if kept is None else "the spec has another trait"
        yield MetadataChange.of(entry.name, gone, aggregate.metadata, why)
    hosts = {key(host) for host in entry.hosts}
    for host in sorted(aggregate.hosts):
        if key(host) not in hosts:
            yield HostChange.of(entry.name, host, _NOT_IN_SPEC, wanted=False)


def _is_own(name: str) -> bool:
    """Whether gpustack writes this metadata."""
    return name == MARK or name.startswith((TRAIT, PROJECTS))


def _emptied(aggregate: Aggregate, *, whole: bool) -> Iterator[CloudChange]:
    """Remove gpustack's part; the hosts stay if the aggregate has metadata of others, and it is theirs then."""
    if gone := {name: None for name in aggregate.metadata if _is_own(name) and (name != MARK or not whole)}:
        about = {} if whole else {"shared": "yes"}
        yield MetadataChange.of(aggregate.name, gone, aggregate.metadata, _NOT_IN_SPEC, **about)
    for host in sorted(aggregate.hosts) if whole else ():
        yield HostChange.of(aggregate.name, host, _NOT_IN_SPEC, wanted=False)


def _filled(entry: WantedAggregate, aggregate: Aggregate | None, trait: str) -> Iterator[CloudChange]:
    """Create an aggregate, and give it its projects, then its hosts."""
    if aggregate is None:
        yield AggregateChange.of(entry.name, None, "in the spec")
    before = aggregate.metadata if aggregate else {}
    projects = {PROJECTS: ",".join(sorted(entry.projects))} if entry.projects else {}
    target = {MARK: trait, **projects}
    values: dict[str, str | None] = {name: text for name, text in target.items() if before.get(name) != text}
    values |= {name: None for name in before if name.startswith(PROJECTS) and name not in target}
    if values:
        yield MetadataChange.of(entry.name, values, before, _reason(values))
    for host in sorted(entry.hosts):
        if aggregate is None or not aggregate.has(host):
            yield HostChange.of(entry.name, host, "in the spec", wanted=True)


def _reason(values: dict[str, str | None]) -> str:
    if PROJECTS not in values:
        return "gpustack's mark"
    return "the hosts accept certain projects only" if values[PROJECTS] else "the hosts accept all projects"


def _isolated(entry: WantedAggregate, aggregate: Aggregate | None, trait: str) -> Iterator[CloudChange]:
    """Require the trait: the last step, because the hosts refuse all others from then on."""
    before = aggregate.metadata if aggregate else {}
    name = f"{TRAIT}{trait}"
    if entry.isolated and before.get(name) != REQUIRED:
        yield MetadataChange.of(entry.name, {name: REQUIRED}, before, "the hosts refuse ordinary instances")


def guarded(
    connect: Callable[[], Connection],
    tenancy: Tenancy | None,
    operations: Sequence[FlavorOperation],
    later: tuple[Sequence[Aggregate], Collection[str]] | None = None,
) -> list[Finding]:
    """Findings about a plan of flavors.

    :param connect: connects to the cloud, which is necessary only if the plan changes required traits.
    :param later: the aggregates, and the traits that a host has, after other changes of the same plan; None if the plan
        has flavors only, so that the cloud must have them now.
    :raises CloudError: if Nova or Placement cannot be reached or refuses.
    """
    findings: list[Finding] = []
    trait = tenancy.trait if tenancy is not None and tenancy.isolates else ""
    moved = [_traits_of(operation) for operation in operations]
    gained = any(trait in after - before for before, after in moved)
    if gained and not (trait in later[1] if later else bearers(connect(), trait)):
        findings.append(finding(Code.TRAIT_WITHOUT_HOST, place="flavors", trait=trait))
    if lost := {lost for before, after in moved for lost in before - after}:
        findings += still_required(lost, later[0] if later else aggregates(connect()))
    return findings


def still_required(traits: Iterable[str], present: Sequence[Aggregate]) -> Iterator[Finding]:
    """Yield a finding for each trait that an aggregate of gpustack requires."""
    for trait in sorted(traits):
        if names := [entry.name for entry in present if is_ours(entry) and trait in entry.traits]:
            joined = ", ".join(names)
            yield finding(Code.TRAIT_REQUIRED_BY_AGGREGATE, place="flavors", trait=trait, aggregates=joined)


def _traits_of(operation: FlavorOperation) -> tuple[frozenset[str], frozenset[str]]:
    """The traits that a flavor requires before and after it is created or changed."""
    before = operation.before.extra_specs if isinstance(operation, ChangeFlavor) else {}
    after = {} if isinstance(operation, DeleteFlavor) else operation.flavor.extra_specs
    return required_traits(before), required_traits(after)
