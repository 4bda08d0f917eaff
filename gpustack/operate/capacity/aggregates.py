"""Hosts that nova-scheduler refuses because of their aggregates. Pure.

The filters that do so are not among Nova's default filters. If the configuration of nova-scheduler is not known, hosts
that they would refuse count as a doubt.
"""

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpustack.nova_options.aggregates import BY_PROJECT, MOST, PROJECTS, Aggregate, metadata_of
from gpustack.nova_options.scheduler import Scheduler
from gpustack.operate.capacity.model import Demand, Host, Outcome, Reason, Step
from gpustack.spec.extra_specs import REQUIRED, required_traits

EXTRA_SPECS, TYPES = "AggregateInstanceExtraSpecsFilter", "AggregateTypeAffinityFilter"
NUMBER = "AggregateNumInstancesFilter"
IMAGES = "AggregateImagePropertiesIsolation"
"""It compares properties of images, and has no effect without an image."""
ISOLATED, TENANTS = "isolate_aggregates", "require_tenant_aggregate"
"""Filters of requests, which make Placement leave out hosts."""
_OPTIONS = {
    ISOLATED: "[scheduler] enable_isolated_aggregate_filtering",
    TENANTS: "[scheduler] limit_tenants_to_placement_aggregate",
}
"""The options that enable them."""
ZONE = "availability_zone"
_OPERATORS: Mapping[str, tuple[Callable[[Any, Any], bool], Callable[[str], Any]]] = {
    **dict.fromkeys(("=", ">="), (operator.ge, float)),
    "==": (operator.eq, float),
    "!=": (operator.ne, float),
    "<=": (operator.le, float),
    "s==": (operator.eq, str),
    "s!=": (operator.ne, str),
    "s<": (operator.lt, str),
    "s<=": (operator.le, str),
    "s>": (operator.gt, str),
    "s>=": (operator.ge, str),
    "<in>": (operator.contains, str),
}
"""The comparisons, and the type of what they compare."""


def zone_of(metadata: Mapping[str, frozenset[str]]) -> str:
    """The availability zone of a host; empty for Nova's default zone."""
    return next(iter(metadata.get(ZONE, ())), "")


def refusals(host: Host, demand: Demand, scheduler: Scheduler) -> Iterator[Step]:
    """Yield the steps at which a host refuses a flavor, or may refuse it if the option is not known."""
    on, lacks = scheduler.enables, ", ".join(sorted(demand.aggregate))
    own = f"{PROJECTS}={demand.project or 'PROJECT'}"
    projects = {project for name, ids in host.metadata.items() if name.startswith(PROJECTS) for project in ids}
    traits = required_traits({name: REQUIRED for name, values in host.metadata.items() if REQUIRED in values})
    has = all(any(matches(v, text) for v in host.metadata.get(name, ())) for name, text in demand.aggregate.items())
    types = host.metadata.get("instance_type", (demand.flavor,))
    needed = f"a flavor with the traits {', '.join(sorted(traits))}"
    metadata = ", ".join(f"{name}={value}" for name, value in sorted(demand.aggregate.items()))
    outside = bool(scheduler.required and not projects)  # no project has an aggregate with the host
    if demand.confined is not None:
        outside = host.name not in demand.confined
    other = bool(demand.project and projects) and demand.project not in projects
    for step, enabled, applies, refused, wanted in (
        (EXTRA_SPECS, on(EXTRA_SPECS), not has, f"without {lacks} in an aggregate", metadata),
        (ISOLATED, scheduler.isolated, traits - demand.required, "of aggregates with other traits", needed),
        (BY_PROJECT, on(BY_PROJECT), other, "of other projects", own),
        (TENANTS, scheduler.by_project, outside, "outside the project's aggregates", own),
        (NUMBER, None if on(NUMBER) is None else False, MOST in host.metadata, f"with {MOST} in an aggregate", ""),
        (TYPES, on(TYPES), demand.flavor not in types, "for other flavors", f"instance_type={demand.flavor}"),
    ):
        if applies and enabled:
            yield Step(name=step, outcome=Outcome.FAILED, wanted=wanted, reason=Reason.AGGREGATE)
        elif applies and enabled is None:
            doubt = f"{_OPTIONS.get(step, step)}, if it is enabled, refuses hosts {refused}"
            yield Step(name=step, outcome=Outcome.UNKNOWN, doubt=doubt)
    if projects and not demand.project and (scheduler.by_project, on(BY_PROJECT)) != (False, False):
        yield Step(name=TENANTS, outcome=Outcome.UNKNOWN, doubt="some hosts are in aggregates for projects")


def with_faults(demand: Demand, aggregates: Sequence[Aggregate], scheduler: Scheduler) -> Demand:
    """A request with the metadata for which nova-scheduler ends it with an error if a host reaches the filter."""
    compared = demand.aggregate.items() if scheduler.enables(EXTRA_SPECS) is not False else ()
    faults = dict.fromkeys(
        f"{name}={value} in an aggregate ({EXTRA_SPECS} fails: no number for {text!r})"
        for aggregate, (name, text) in itertools.product(aggregates, compared)
        for value in sorted(metadata_of(min(aggregate.hosts, default=""), [aggregate]).get(name, ()))
        if matches(value, text) is None
    )
    return replace(demand, unmodelled=(*demand.unmodelled, *faults))


def matches(value: str, requirement: str) -> bool | None:
    """Whether a value of metadata meets an extra spec (``nova/scheduler/filters/extra_specs_ops.py``).

    None if Nova's comparison fails: it expects numbers.
    """
    word, *operands = requirement.split() or [""]
    if word == "<or>":
        return value in operands[::2]
    if word == "<all-in>":
        return bool(operands) and all(operand in value for operand in operands)
    if word not in _OPERATORS:
        return value == requirement
    compare, type_ = _OPERATORS[word]
    try:
        return bool(operands) and compare(type_(value), type_(operands[0]))
    except ValueError:
        return None
