"""The table of who may boot where, in drawn states of aggregates, traits and flavors: Nova decides the same."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from gpustack.nova_options.aggregates import PROJECTS
from gpustack.offer.tenancy.model import MARK
from gpustack.spec.extra_specs import REQUIRED, TRAIT
from gpustack.spec.tenancy import DEFAULT_TRAIT
from support.clouds import NAMED
from support.tenancy_cloud import GPU_HOST, Reserved

DRAWN = int(os.environ.get("GPUSTACK_TENANCY_STATES", "0"))
"""The number of drawn states, for ``make states``; beside them, those of :data:`KNOWN` are tried."""
REQUIREMENT = f"{TRAIT}{DEFAULT_TRAIT}"


@dataclass(frozen=True)
class Part:
    """An aggregate that somebody made.

    :ivar projects: names of projects, or a text that is none; None without this metadata.
    :ivar mirrored: whether Placement has its host.
    """

    ours: bool = True
    projects: str | None = None
    key: str = PROJECTS
    isolated: bool = False
    contains: bool = True
    mirrored: bool = True


@dataclass(frozen=True)
class State:
    """A state of the cloud; ``trait`` is whether the GPU host has it, ``flavors`` what they say about it."""

    parts: tuple[Part, ...] = ()
    trait: bool = True
    flavors: str | None = REQUIRED
    access: tuple[str, ...] = ("research",)


RESERVED = Part(projects="research", isolated=True)
KNOWN = {
    "nothing": State(trait=False, flavors=None),
    "reserved": State(parts=(RESERVED,)),
    "isolated-only": State(parts=(Part(isolated=True),)),
    "projects-only": State(parts=(Part(projects="research"),), flavors=None),
    "flavors-lost-the-trait": State(parts=(RESERVED,), flavors=None),
    "host-lost-the-trait": State(parts=(RESERVED,), trait=False),
    "host-left": State(parts=(replace(RESERVED, contains=False),)),
    "earlier-aggregate": State(parts=(RESERVED, Part(projects="teaching"))),
    "aggregate-of-others": State(parts=(RESERVED, Part(ours=False, projects="teaching", isolated=True))),
    "not-in-placement": State(parts=(replace(RESERVED, mirrored=False),)),
    "no-project": State(parts=(Part(projects=""),)),
    "second-key": State(parts=(RESERVED, Part(projects="teaching", key=f"{PROJECTS}2"))),
    "forbidden": State(flavors="forbidden"),
    "nobody-has-access": State(parts=(RESERVED,), access=()),
}


def drawn(number: int) -> State:
    """The state of a number."""
    draw = random.Random(number)  # noqa: S311 - no secret
    parts = tuple(
        Part(
            ours=ours,
            projects=draw.choice([None, "", "research", "teaching", "research, teaching"]),
            key=draw.choice([PROJECTS, f"{PROJECTS}2"]),
            isolated=draw.random() < 0.5,
            contains=draw.random() < 0.8,
            # The plan reads Placement's copies of gpustack's aggregates only.
            mirrored=not ours or draw.random() < 0.8,
        )
        for ours in (True, True, False)
        if draw.random() < 0.6
    )
    access = tuple(name for name in ("research", "teaching") if draw.random() < 0.5)
    flavors = draw.choice([REQUIRED, REQUIRED, "forbidden", None])
    return State(parts=parts, trait=draw.random() < 0.7, flavors=flavors, access=access)


STATES = {**KNOWN, **{f"drawn-{number}": drawn(number) for number in range(DRAWN)}}


@pytest.mark.skipif(not DRAWN, reason="make states")
@pytest.mark.parametrize("cloud", [pytest.param(name, id=name) for name in NAMED], indirect=True)
@pytest.mark.parametrize("name", STATES)
def test_the_table_is_novas(cloud: Reserved, name: str) -> None:
    assert list(made_and_compared(cloud, STATES[name])) == []


def made_and_compared(cloud: Reserved, state: State) -> Iterator[tuple[str, str, bool]]:
    """Make a state by hand, compare each pair of project and flavor, and remove it."""
    cloud.apply("flavor", cloud.spec())
    compute, placement = cloud.admin.compute, cloud.admin.placement
    (node,) = (found for found in compute.hypervisors(details=True) if found.name == GPU_HOST)
    flavor = compute.find_flavor("g1", ignore_missing=False)
    if state.flavors:
        compute.create_flavor_extra_specs(flavor, {REQUIREMENT: state.flavors})
    private = cloud.private_flavor("g1", *state.access)
    _trait(cloud, node.id, present=state.trait)
    made = [_aggregate(cloud, part, f"part{number}") for number, part in enumerate(state.parts)]
    for part, uuid in zip(state.parts, made, strict=True):
        path = f"/resource_providers/{node.id}/aggregates"
        document = placement.get(path, microversion="1.19").json()
        if part.contains and not part.mirrored:
            document["aggregates"].remove(uuid)
            assert placement.put(path, json=document, microversion="1.19").ok
    with cloud.only_gpu_host():
        yield from cloud.differences(("g1", private.name, "ordinary"))
    for aggregate in compute.aggregates():
        for host in aggregate.hosts or ():
            compute.remove_host_from_aggregate(aggregate, host)
        compute.delete_aggregate(aggregate)
    compute.delete_flavor(private)
    if state.flavors:
        compute.delete_flavor_extra_specs_property(flavor, REQUIREMENT)
    _trait(cloud, node.id, present=False)


def _trait(cloud: Reserved, provider: str, *, present: bool) -> None:
    placement, path = cloud.admin.placement, f"/resource_providers/{provider}/traits"
    assert placement.put(f"/traits/{DEFAULT_TRAIT}", microversion="1.6").ok
    document = placement.get(path, microversion="1.6").json()
    document["traits"] = sorted({*document["traits"], DEFAULT_TRAIT} - (set() if present else {DEFAULT_TRAIT}))
    assert placement.put(path, json=document, microversion="1.6").ok


def _aggregate(cloud: Reserved, part: Part, name: str) -> str:
    """Create an aggregate; its id in Placement."""
    compute = cloud.admin.compute
    made = compute.create_aggregate(name=name)
    ids = {project: str(connection.current_project_id) for project, connection in cloud.connections.items()}
    metadata = {MARK: DEFAULT_TRAIT} if part.ours else {"rack": "r1"}
    if part.projects is not None:
        metadata[part.key] = ", ".join(ids.get(project, "") for project in part.projects.split(", "))
    if part.isolated:
        metadata[REQUIREMENT] = REQUIRED
    compute.set_aggregate_metadata(made, metadata)
    if part.contains:
        compute.add_host_to_aggregate(made, GPU_HOST)
    return str(made.uuid)
