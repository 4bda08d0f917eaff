"""Read a cloud once, and plan what syncs it with a spec: limits, tenancy and flavors, as one list of changes."""

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from gpustack.base.by_key import by_key
from gpustack.base.errors import SpecError
from gpustack.base.findings import Finding
from gpustack.changes.change import CloudChange
from gpustack.cloud import Connection
from gpustack.cloud.flavors import FlavorCloud
from gpustack.cloud.identity import Lookup, project_ids
from gpustack.cloud.image import ImageCloud
from gpustack.cloud.limits import LimitsCloud
from gpustack.cloud.limits import Present as PresentLimits
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.aggregates import Aggregate
from gpustack.nova_options.options import Release
from gpustack.nova_options.scheduler import wanted_stage
from gpustack.offer.cloud_plan.access import ANYBODY, AccessState, FlavorRight, decisive, flavor_rights
from gpustack.offer.cloud_plan.admission import Admissions, admissions, deviations, differences
from gpustack.offer.cloud_plan.order import ordered
from gpustack.offer.flavor import apply as flavor_plans
from gpustack.offer.flavor.changes import changes as flavor_changes
from gpustack.offer.flavor.compare import FlavorChoices, FlavorPlan, Questions
from gpustack.offer.flavor.desired import wanted as wanted_flavors
from gpustack.offer.flavor.flavors import ACCESS, PresentFlavor, access_mark, present_flavors
from gpustack.offer.guest.requirements import conflicts
from gpustack.offer.image.changes import changes as image_changes
from gpustack.offer.image.check import unmatched
from gpustack.offer.image.needs import needs_of, pairs
from gpustack.offer.quota.compare import Check, QuotaPlan, differing, enforced, gaps, gpus_of, sums, uncounted
from gpustack.offer.quota.compare import compare as compare_limits
from gpustack.offer.quota.desired import class_of
from gpustack.offer.quota.desired import wanted as wanted_limits
from gpustack.offer.tenancy.cloud import present as present_tenancy
from gpustack.offer.tenancy.compare import TenancyPlan, guarded
from gpustack.offer.tenancy.compare import compare as compare_tenancy
from gpustack.offer.tenancy.model import Present as PresentTenancy
from gpustack.offer.tenancy.model import Wanted as WantedTenancy
from gpustack.offer.tenancy.model import outside_placement
from gpustack.offer.tenancy.model import wanted as wanted_tenancy
from gpustack.spec.markers import markers
from gpustack.spec.model import Placement, Spec
from gpustack.spec.quotas import CountedBy
from gpustack.spec.tenancy import DEFAULT_TRAIT
from gpustack.spec.verdict import doubts

_Check = TypeVar("_Check", Check, Finding)
GROUPS = ("quotas", "tenancy", "images", "flavors")
"""What a plan syncs: sections of the spec, and the images that its flavors name."""
_FIRST_UNLIMITED = 31
"""Nova 2025.1: since then, a class without default in Keystone is not limited (``[quota]
unified_limits_resource_strategy``); before, nobody gets any of it."""
_EXAMPLES = {
    "quotas": "quotas: {default: {MODEL: 0}}; to delete limits",
    "tenancy": "tenancy: {aggregates: {gpu: {}}}; to remove the aggregates",
}


@dataclass(frozen=True, kw_only=True)
class CloudChoices:
    """The operator's choices.

    :ivar groups: the groups to sync; None for those of which the spec has the section.
    :ivar release: the release of Nova.
    :ivar hosts: the facts of hosts, for sizes ``auto`` and for totals; None without facts.
    """

    groups: frozenset[str] | None = None
    prune: bool = False
    flavors: FlavorChoices = flavor_plans.NOTHING
    release: Release
    hosts: Sequence[Host] | None = None


@dataclass(frozen=True, kw_only=True)
class CloudPlan:
    """A plan over several groups.

    :ivar operations: in the order in which they are carried out.
    :ivar flavors: the plan of flavors, if they are in the plan; in the same way ``quotas`` and ``tenancy``.
    :ivar checks: what this release of Nova checks against limits.
    :ivar access: each difference of who may boot on which host, before and after, in one line; with tenancy only.
    :ivar admissions: who may boot on which host before; with tenancy only.
    """

    operations: tuple[CloudChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    flavors: FlavorPlan | None = None
    quotas: QuotaPlan | None = None
    tenancy: TenancyPlan | None = None
    checks: tuple[Check, ...] = ()
    access: tuple[str, ...] = ()
    admissions: Admissions = field(default_factory=dict)
    release: Release

    @property
    def unchanged(self) -> dict[str, int]:
        """The number of flavors and limits that need no change, by group."""
        flavors = {} if self.flavors is None else {"flavors": len(self.flavors.unchanged)}
        return flavors if self.quotas is None else {**flavors, "quotas": self.quotas.unchanged}


def groups_of(spec: Spec, choices: CloudChoices, where: str) -> frozenset[str]:
    """The groups of a plan.

    :raises SpecError: if the spec lacks the section of a chosen group, and nothing is pruned; or all sections.
    """
    sections = {"images": any(flavor.images for flavor in spec.flavors.values())}
    present = frozenset(name for name in GROUPS if sections.get(name) or getattr(spec, name, None))
    if choices.groups is None:
        if not present:
            raise SpecError("the spec has no section to sync", where=where, remedy=f"add one of: {', '.join(GROUPS)}")
        return present
    for name in sorted(choices.groups - present - {"flavors", "images"}) if not choices.prune else ():
        remedy = f"add {_EXAMPLES[name]} of an earlier spec, use --prune"
        raise SpecError(f"the spec has no section `{name}`", where=where, remedy=remedy)
    return choices.groups


def plan(connection: Connection, spec: Spec, groups: frozenset[str], choices: CloudChoices) -> CloudPlan:
    """Read the cloud, each listing once, and plan.

    :param groups: those of :func:`groups_of`.
    :raises CloudError: if an API cannot be read.
    """
    return _Planning(connection, spec, choices).plan(groups)


class _ReadOnce:
    """Nova's flavors; the list of projects of each is read once."""

    def __init__(self, flavors: FlavorCloud[PresentFlavor]) -> None:
        self._flavors = flavors
        self.access = functools.cache(flavors.access)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the other requests
        return getattr(self._flavors, name)


@dataclass
class _Planning:
    """A plan in the making, with what was read so far."""

    connection: Connection
    spec: Spec
    choices: CloudChoices
    findings: list[Finding] = field(default_factory=list)
    changes: list[CloudChange] = field(default_factory=list)
    present: tuple[PresentFlavor, ...] | None = None
    limits: PresentLimits | None = None
    nodes: PresentTenancy | None = None
    lists: Mapping[str, Collection[str]] = field(default_factory=dict)
    projects: Mapping[str, str] = field(default_factory=dict)
    desired: WantedTenancy | None = None

    def __post_init__(self) -> None:
        self.keystone = LimitsCloud(self.connection)
        self.lookup: Lookup = functools.cache(self.keystone.projects)
        self.api = cast("FlavorCloud[PresentFlavor]", _ReadOnce(present_flavors(self.connection, self.lookup)))

    def plan(self, groups: frozenset[str]) -> CloudPlan:
        flavors = self._flavors() if "flavors" in groups else None
        tenancy = self._tenancy(flavors) if "tenancy" in groups else None
        quotas = self._quotas(flavors) if "quotas" in groups else None
        if "images" in groups:
            self._images()
        if flavors is not None:
            later = self._after(tenancy.operations) if tenancy else None
            self.findings += guarded(lambda: self.connection, self.spec.tenancy, flavors.operations, later)
        operations, order = ordered(self.changes, self._state()) if self.changes else ((), ())
        before, access = self._access(operations) if tenancy else ({}, ())
        return CloudPlan(
            operations=operations,
            findings=(*self.findings, *order),
            flavors=flavors,
            quotas=quotas,
            tenancy=tenancy,
            checks=self._checks(enforced) if quotas else (),
            access=access,
            admissions=before,
            release=self.choices.release,
        )

    def _after(self, changes: Sequence[CloudChange]) -> tuple[list[Aggregate], set[str]]:
        """The aggregates, and the traits that a host has, after changes."""
        state = self._state().after(changes)
        return list(state.aggregates.values()), {trait for trait, _ in state.bearers}

    def _access(self, operations: Sequence[CloudChange]) -> tuple[Admissions, tuple[str, ...]]:
        """Who may boot where, and the differences that changes make; adds findings about deviations from the spec."""
        assert self.desired is not None  # noqa: S101 - tenancy was planned
        before = self._state()
        after = before.after(operations)
        projects = before.projects() | after.projects()
        names = {flavor.id: flavor.name for flavor in self._present()}
        names |= {change.id: change.name for change in operations if change.object_kind == "flavor"}
        names |= {found: name for name, found in self.projects.items()}
        self.findings += deviations(after, self.desired, projects, names)
        old, new = admissions(before, projects), admissions(after, projects)
        return old, tuple(differences(old, new, projects, names))

    def _present(self) -> tuple[PresentFlavor, ...]:
        if self.present is None:
            self.present = self.api.flavors()
        return self.present

    def _flavors(self) -> FlavorPlan:
        desired = wanted_flavors(self.spec, release=self.choices.release, hosts=self.choices.hosts or ())
        self.present = self.api.flavors()
        plan = flavor_plans.plan(self.api, desired.flavors, self.choices.flavors, present=self.present)
        self.findings += (*desired.findings, *conflicts(self.spec), *plan.findings)
        changes = flavor_changes(plan.operations)
        private = {flavor.id for flavor in self.present if not flavor.public}
        asked = frozenset(private.intersection(decisive(changes)))
        self.lists = flavor_plans.answers(self.api, Questions(access=asked)).access
        self.changes += changes
        return plan

    def _tenancy(self, flavors: FlavorPlan | None) -> TenancyPlan:
        tenancy = self.spec.tenancy
        reserved = tenancy.aggregates.values() if tenancy else ()
        self.projects = project_ids((project for entry in reserved for project in entry.projects), self.api.project)
        trait = tenancy.trait if tenancy else DEFAULT_TRAIT
        self.nodes = present_tenancy(self.connection, trait, flavors=self._present())
        desired = self.desired = wanted_tenancy(self.spec, self.nodes.nodes, self.projects)
        later = flavor_plans.resulting(self._present(), flavors.operations if flavors else ())
        self.lists = {**dict(self._marked()), **self.lists}
        private = frozenset(flavor.id for flavor in self._present() if not flavor.public) - self.lists.keys()
        asked = flavor_plans.answers(self.api, Questions(access=private))
        self.lists = {**self.lists, **asked.access}
        plan = compare_tenancy(desired, replace(self.nodes, flavors=later), prune=self.choices.prune)
        self.findings += plan.findings
        self.changes += plan.operations
        return plan

    def _marked(self) -> Iterator[tuple[str, Collection[str]]]:
        """The projects of private flavors whose mark shows that they are those of the spec: nothing is read."""
        for flavor in () if self.choices.flavors.check_access else self._present():
            wanted = self.spec.flavors.get(flavor.name) if flavor.ours else None
            if wanted and wanted.access is not None:
                found = [project.id for ref in wanted.access for project in self.lookup(ref)]
                if flavor.extra_specs.get(ACCESS) == access_mark(found):
                    yield flavor.id, found

    def _quotas(self, flavors: FlavorPlan | None) -> QuotaPlan:
        spec, hosts = self.spec, self.choices.hosts
        wanted = wanted_limits(spec)
        gpus = None if hosts is None else gpus_of(spec, hosts)
        totals = None if gpus is None else sums(gpus, wanted)
        self.limits = self.keystone.present()
        projects = {name: self.lookup(name) for name in wanted.projects}
        ids = [found[0].id for found in projects.values() if len(found) == 1]
        present = replace(self.limits, used={project: self.keystone.used(project) for project in ids})
        plan = compare_limits(wanted, present, projects, prune=self.choices.prune, totals=totals)
        self.findings += plan.findings
        self.findings += [entry for entry in doubts(spec, hosts or ()) if entry not in self.findings]
        self.findings += self._checks(gaps)
        if markers(spec):
            later = flavor_plans.resulting(self._present(), flavors.operations if flavors else ())
            self.findings += uncounted(spec, later)
        if gpus and markers(spec):
            self.findings += differing(spec, gpus, self.keystone.inventories(gpus))
        self.changes += plan.operations
        return plan

    def _images(self) -> None:
        needs = needs_of(self.spec, self.choices.release, self.choices.hosts or ())
        if names := [name for entry in needs for name in entry.images]:
            cloud = ImageCloud(self.connection)
            paired, missing = pairs(cloud.images(names), needs, (), cloud.project())
            self.findings += unmatched(missing)
            self.changes += image_changes(paired)

    def _checks(self, what: Callable[[CountedBy, Release, Placement], Iterable[_Check]]) -> tuple[_Check, ...]:
        """What Nova checks, or does not check, against the limits of the spec."""
        quotas = self.spec.quotas
        return tuple(what(quotas.count, self.choices.release, wanted_stage(self.spec))) if quotas else ()

    def _state(self) -> AccessState:
        """The state that decides about access, as far as it was read."""
        spec = self.spec
        limited = spec.quotas.default if spec.quotas else ()
        classes = {spec.alias_of(model): class_of(spec, model) for model in limited}
        of_vgpus = by_key((vgpu.resource_class, class_of(spec, m)) for m in limited if (vgpu := spec.models[m].vgpu))
        classes |= {name: counted[0] for name, counted in of_vgpus.items() if len(counted) == 1}
        limits = (*self.limits.defaults, *self.limits.limits) if self.limits else ()
        nodes = self.nodes or PresentTenancy()
        if self.present is None:  # one flavor for each alias
            flavors = {alias: FlavorRight(gpus=frozenset({alias})) for alias in classes}
        else:
            flavors = flavor_rights(self.present, self.changes, self.lists)
        return AccessState(
            flavors=flavors,
            hosts={node.host: node.uuid for node in nodes.nodes},
            outside=frozenset(outside_placement(nodes)),
            aggregates={aggregate.name: aggregate for aggregate in nodes.aggregates},
            bearers=frozenset((trait, uuid) for trait, uuids in nodes.bearers.items() for uuid in uuids),
            known=frozenset(nodes.bearers),
            limits={(limit.resource_class, limit.project or ANYBODY): limit.limit for limit in limits},
            classes=classes if self.limits is not None else {},
            absent=math.inf if self.choices.release.major >= _FIRST_UNLIMITED else 0,
        )
