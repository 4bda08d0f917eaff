"""Guard the order of changes: flavors require a trait after hosts have it, and as long as aggregates require it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from gpustack.base.findings import Code, Finding, finding
from gpustack.cloud import Connection
from gpustack.cloud.compute import aggregates
from gpustack.cloud.placement import bearers
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.flavor.operations import ChangeFlavor, CreateFlavor, FlavorOperation
from gpustack.offer.tenancy.model import is_ours
from gpustack.spec.extra_specs import required_traits
from gpustack.spec.tenancy import Tenancy


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
    if trait in _required(operations) and not (trait in later[1] if later else bearers(connect(), trait)):
        findings.append(finding(Code.TRAIT_WITHOUT_HOST, place="flavors", trait=trait))
    lost = _lost(operations)
    if lost:
        findings += still_required(lost, later[0] if later else aggregates(connect()))
    return findings


def still_required(traits: Iterable[str], present: Sequence[Aggregate]) -> Iterator[Finding]:
    """Yield a finding for each trait that an aggregate of gpustack requires."""
    for trait in sorted(traits):
        names = [entry.name for entry in present if is_ours(entry) and trait in entry.traits]
        if names:
            joined = ", ".join(names)
            yield finding(Code.TRAIT_REQUIRED_BY_AGGREGATE, place="flavors", trait=trait, aggregates=joined)


def _required(operations: Sequence[FlavorOperation]) -> frozenset[str]:
    """The traits that flavors are about to require."""
    created = [required_traits(op.extra_specs) for op in operations if isinstance(op, CreateFlavor)]
    changed = [required_traits(op.set_specs) for op in operations if isinstance(op, ChangeFlavor)]
    return frozenset().union(*created, *changed)


def _lost(operations: Sequence[FlavorOperation]) -> frozenset[str]:
    """The traits that flavors are about to lose."""
    return frozenset().union(
        *(
            required_traits({name: op.before.get(name) or "" for name in (*op.unset_specs, *op.set_specs)})
            - required_traits(op.set_specs)
            for op in operations
            if isinstance(op, ChangeFlavor)
        )
    )
