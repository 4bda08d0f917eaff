"""Compare the limits of a spec with those in Keystone, and plan the operations between them.

Compare the markers of hosts in Placement, and those of flavors, with their GPUs.

What a release of Nova checks against the limits of GPUs: ``gpustack/data/enforcement.toml`` as objects.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpustack.base.files import data_table
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import quoted
from gpustack.cloud.identity import Project, several
from gpustack.cloud.limits import Limit, Present
from gpustack.fleet.cards import requested_gpus
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.nova_options.options import Release
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.offer.quota.changes import LimitChange
from gpustack.offer.quota.desired import WantedLimits, class_of
from gpustack.spec.markers import RESOURCES, markers
from gpustack.spec.model import Placement, Spec
from gpustack.spec.quotas import CountedBy
from gpustack.spec.verdict import verdicts
from gpustack.spec.vgpu_use import devices, offered_vgpus

_FLAT = "flat"
_RENEWED = "Keystone changes a default only if no project has a limit of its own"
Projects = Mapping[str, Sequence[Project]]
"""The projects in the cloud, by the id or name in the spec."""


@dataclass(frozen=True, kw_only=True)
class QuotaPlan:
    """A plan of limits.

    :ivar operations: in the order in which they are carried out. Keystone changes or deletes a default only if no
        project has a limit of its own, so limits of projects are deleted before that, and created again after it.
    :ivar unchanged: the number of limits that need no operation.
    """

    operations: tuple[LimitChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    unchanged: int = 0


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One limit of the spec."""

    resource_class: str
    limit: int
    project: Project | None = None
    before: Limit | None = None

    @property
    def differs(self) -> bool:
        """Whether Keystone has another limit."""
        return self.before is not None and self.before.limit != self.limit


def compare(
    wanted: WantedLimits,
    present: Present,
    projects: Projects,
    *,
    prune: bool = False,
    totals: Mapping[str, int] | None = None,
) -> QuotaPlan:
    """Return the plan that syncs ``present`` with ``wanted``. Limits of other resource classes are left alone.

    :param prune: delete limits with gpustack's mark that the spec lacks.
    :param totals: the GPUs of all hosts by resource class; None if unknown.
    """
    known = {ref: found[0] for ref, found in projects.items() if len(found) == 1}
    entries = list(_entries(wanted, present, known))
    names = {entry.project.id: entry.project for entry in entries if entry.project}
    kept = {entry.before.id for entry in entries if entry.before}
    surplus = [  # of the spec's resource classes, and of others that gpustack limited before
        limit
        for limit in (*present.limits, *present.defaults)
        if limit.id not in kept and (limit.ours or limit.resource_class in wanted.models)
    ]
    foreign = {limit.resource_class for limit in present.limits if limit.id not in kept and not (limit.ours and prune)}
    superfluous = [
        limit for limit in surplus if limit.ours and prune and (limit.project or limit.resource_class not in foreign)
    ]
    gone = {limit.id for limit in superfluous}
    removed = [_deletion(wanted, limit, names) for limit in superfluous]
    renewed = {e.resource_class for e in entries if e.project is None and e.differs} - foreign
    blocked = [e for e in entries if e.project is None and e.differs and e.resource_class in foreign]
    operations: list[LimitChange] = []
    for entry in entries:
        if entry.project and entry.before and entry.resource_class in renewed:
            removed.append(_deletion(wanted, entry.before, names, why=_RENEWED))
            operations.append(_change(wanted, entry, _RENEWED))
        elif entry.before is None:
            operations.append(_change(wanted, entry, "it is in the spec and not in Keystone"))
        elif entry.differs and entry not in blocked:
            operations.append(_change(wanted, entry, "it differs from the spec", entry.before))
    findings = [
        *(finding(Code.DEFAULT_FIXED, place="default", model=wanted.models[e.resource_class]) for e in blocked),
        *_unknown(projects),
        *_of_cloud(present),
        *_doubtful(wanted, entries, present, totals),
        *(_not_in_spec(wanted, limit, names) for limit in surplus if limit.id not in gone),
    ]
    changes = (
        *(change for change in removed if not change.of_default),
        *(change for change in operations if change.of_default),
        *(change for change in operations if not change.of_default),
        *(change for change in removed if change.of_default),
    )
    return QuotaPlan(
        # A limit that is deleted and created again in one plan is changed twice, so the key has a number.
        operations=tuple(replace(change, tag=f"limit:{number}") for number, change in enumerate(changes)),
        findings=tuple(findings),
        unchanged=len(entries) - len(operations) - len(blocked),
    )


def _entries(wanted: WantedLimits, present: Present, known: Mapping[str, Project]) -> Iterator[_Entry]:
    defaults = {limit.resource_class: limit for limit in present.defaults}
    limits = {(limit.project, limit.resource_class): limit for limit in present.limits}
    for name, value in wanted.defaults.items():
        yield _Entry(resource_class=name, limit=value, before=defaults.get(name))
    for ref, of_project in wanted.projects.items():
        if ref not in known:
            continue
        project = known[ref] if ref == known[ref].name else replace(known[ref], name=f"{known[ref].name} ({ref})")
        for name, value in of_project.items():
            yield _Entry(resource_class=name, limit=value, project=project, before=limits.get((project.id, name)))


def _change(wanted: WantedLimits, entry: _Entry, why: str, before: Limit | None = None) -> LimitChange:
    name, model = entry.resource_class, wanted.models[entry.resource_class]
    return LimitChange.of((name, model), entry.project, before, entry.limit, why)


def _deletion(
    wanted: WantedLimits, limit: Limit, names: Mapping[str, Project], *, why: str = "it is not in the spec"
) -> LimitChange:
    model = wanted.models.get(limit.resource_class, limit.resource_class)
    return LimitChange.of((limit.resource_class, model), _project(limit, names), limit, None, why)


def _project(limit: Limit, names: Mapping[str, Project]) -> Project | None:
    return None if limit.project is None else names.get(limit.project, Project(id=limit.project, name=limit.project))


def _not_in_spec(wanted: WantedLimits, limit: Limit, names: Mapping[str, Project]) -> Finding:
    project = _project(limit, names)
    model = wanted.models.get(limit.resource_class, limit.resource_class)
    remedy = (
        "`gpustack quota apply --prune` deletes it"
        if limit.ours
        else f"add it to the spec, or run `openstack limit delete {quoted(limit.id)}`"
    )
    place = project.name if project else "default"
    return finding(Code.LIMIT_NOT_IN_SPEC, place=place, limit=limit.limit, model=model, remedy=remedy)


def _unknown(projects: Projects) -> Iterator[Finding]:
    for ref, found in projects.items():
        if not found:
            yield finding(Code.QUOTA_PROJECT_UNKNOWN, place=ref)
        elif len(found) > 1:
            yield finding(Code.QUOTA_PROJECT_AMBIGUOUS, place=ref, count=len(found), projects=several(found))


def _of_cloud(present: Present) -> Iterator[Finding]:
    if present.model != _FLAT:
        yield finding(Code.ENFORCEMENT_MODEL_UNSUPPORTED, place="Keystone", model=present.model)
    if not present.complete:
        yield finding(Code.LIMITS_INCOMPLETE, place="Keystone")


def _doubtful(
    wanted: WantedLimits, entries: Sequence[_Entry], present: Present, totals: Mapping[str, int] | None
) -> Iterator[Finding]:
    for entry in entries:
        model = wanted.models[entry.resource_class]
        project, limit = entry.project or Project(id="", name="default"), entry.limit
        total = None if totals is None else totals.get(entry.resource_class, 0)
        if total is not None and limit > total:
            yield finding(Code.QUOTA_ABOVE_TOTAL, place=project.name, limit=limit, model=model, total=total)
        used = present.used.get(project.id, {}).get(entry.resource_class, 0)
        if used > limit:
            yield finding(
                Code.QUOTA_BELOW_USE, place=project.name, project=project.id, limit=limit, model=model, used=used
            )


Totals = Mapping[str, Mapping[str, int]]
"""The units of each resource class on each host."""


def gpus_of(spec: Spec, hosts: Sequence[Host]) -> dict[str, dict[str, int]]:
    """The GPUs that each host offers, by the resource class that Nova counts."""
    limited = set(spec.quotas.default) if spec.quotas else set()
    aliases = {spec.alias_of(model): model for model in limited}
    counted: dict[str, dict[str, int]] = {}
    for host in hosts:
        of_host = counted.setdefault(host.hostname, {})
        offered = [(target.model, 1) for target in verdicts(spec, host).offered]
        offered += [(card.model, devices(card)) for card in offered_vgpus(spec, host)]
        for of_card, number in offered:
            model = of_card if of_card in limited else aliases.get(spec.alias_of(of_card))
            if model is not None:
                name = class_of(spec, model)
                of_host[name] = of_host.get(name, 0) + number
    return counted


def sums(gpus: Totals, wanted: WantedLimits) -> dict[str, int]:
    """The GPUs of all hosts by resource class."""
    return {name: sum(of_host.get(name, 0) for of_host in gpus.values()) for name in wanted.models}


def differing(spec: Spec, gpus: Totals, inventories: Totals) -> Iterator[Finding]:
    """Findings about hosts with another number of markers in Placement than GPUs."""
    for host, of_host in gpus.items():
        for marker in markers(spec).values():
            total, number = inventories.get(host, {}).get(marker, 0), of_host.get(marker, 0)
            if total != number:
                yield finding(
                    Code.MARKER_TOTAL_DIFFERS, place=host, total=total, marker=marker, where="Placement", gpus=number
                )


def uncounted(spec: Spec, flavors: Iterable[PresentFlavor]) -> Iterator[Finding]:
    """Findings about flavors that request other markers than GPUs."""
    for flavor in flavors:
        counts = requested_gpus(spec, flavor.extra_specs)
        for alias, marker in markers(spec).items():
            gpus, key = counts.get(alias, 0), f"{RESOURCES}{marker}"
            requested = flavor.extra_specs.get(key)
            if requested is None and gpus:
                yield finding(
                    Code.FLAVOR_NOT_COUNTED, place=flavor.name, flavor=flavor.name, count=gpus, alias=alias, key=key
                )
            elif requested is not None and requested != str(gpus):
                yield finding(
                    Code.FLAVOR_MARKER_DIFFERS,
                    place=flavor.name,
                    flavor=flavor.name,
                    markers=requested,
                    marker=marker,
                    gpus=gpus,
                    key=key,
                )


Effect = Literal["enforced", "none"]
OPERATIONS = ("boot", "resize", "unshelve")
FIRST = 25
"""Yoga, the first release with unified limits."""
_NOT_THERE = "not checked: this release has no unified limits"


@dataclass(frozen=True, kw_only=True)
class Check:
    """What Nova checks in one operation.

    :ivar placement: the stages of PCI in Placement to which it applies; empty for all.
    :ivar test: the test that proves it.
    """

    count: CountedBy
    operation: str
    effect: Effect
    text: str
    since: int = 0
    until: int | None = None
    placement: tuple[Placement, ...] = ()
    test: str = ""
    source: str = ""

    def applies(self, release: Release, placement: Placement) -> bool:
        """Whether it is about a release and a stage of PCI in Placement."""
        in_time = self.since <= release.major and (self.until is None or release.major <= self.until)
        return in_time and (not self.placement or placement in self.placement)

    def to_dict(self) -> dict[str, str]:
        return {"operation": self.operation, "effect": self.effect, "text": self.text}


@functools.cache
def checks() -> tuple[Check, ...]:
    """All entries; of those that apply, the first counts."""
    return tuple(
        Check(**{**entry, "placement": tuple(entry.get("placement", ()))})
        for entry in data_table("enforcement.toml")["check"]
    )


def enforced(count: CountedBy, release: Release, placement: Placement) -> tuple[Check, ...]:
    """What Nova checks at boot, resize and unshelve."""
    known = [check for check in checks() if check.count == count and check.applies(release, placement)]
    known += [Check(count=count, operation=name, effect="none", text=_NOT_THERE) for name in OPERATIONS]
    return tuple(next(check for check in known if check.operation == name) for name in OPERATIONS)


def gaps(count: CountedBy, release: Release, placement: Placement) -> Iterator[Finding]:
    """Findings about boots and resizes that Nova does not check."""
    place, since = f"Nova {release}", releases.first_with(FIRST)
    for check in enforced(count, release, placement):
        if check.effect == "none" and check.operation != "unshelve":
            operation, effect = check.operation, check.text
            yield finding(Code.QUOTA_NOT_ENFORCED, place=place, operation=operation, effect=effect, since=since)
