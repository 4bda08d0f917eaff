"""The section ``tenancy`` of the spec: which instances the GPU hosts accept."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, StrictBool

from gpustack.spec.extra_specs import REQUIRED, TRAIT
from gpustack.spec.fields import Pattern, SpecSection, matching
from gpustack.spec.flavors import Project

AGGREGATE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_. -]{0,126}$"
TRAIT_PATTERN = r"^CUSTOM_[A-Z0-9_]{1,240}$"
MAX_PROJECTS = 7
"""As many ids as one value of an aggregate's metadata holds. Nova 2023.1 reads one key only."""
DEFAULT_TRAIT = "CUSTOM_GPU_HOST"
_Trait = Annotated[
    str,
    matching(TRAIT_PATTERN, "a name that begins with CUSTOM_, of capital letters, digits and '_'", "CUSTOM_GPU_HOST"),
]
AggregateName = Annotated[str, matching(AGGREGATE_PATTERN, "the name of an aggregate", "gpu-research")]


class GpuAggregate(SpecSection):
    """GPU hosts that accept the same instances."""

    hosts: Annotated[
        tuple[Pattern, ...], Field(min_length=1, json_schema_extra={"errorMessage": "expected a list of hosts"})
    ] = ()
    """The hosts, by name or pattern. Without this key, all hosts of the spec."""
    projects: Annotated[
        tuple[Project, ...],
        Field(
            min_length=1,
            max_length=MAX_PROJECTS,
            json_schema_extra={"errorMessage": f"expected a list of 1 to {MAX_PROJECTS} projects"},
        ),
    ] = ()
    """The projects (id or name) whose instances the hosts accept. Without this key, those of all projects. A host in several aggregates accepts the projects of all of them."""  # noqa: E501
    isolated: StrictBool = True
    """Whether the hosts refuse instances whose flavor does not require `trait`, so that GPU hosts stay free for GPU instances."""  # noqa: E501


class Tenancy(SpecSection):
    """Which instances the GPU hosts accept: those of certain projects, or those with GPUs only."""

    trait: _Trait = DEFAULT_TRAIT
    """The trait of all hosts of the spec if an aggregate is isolated. All flavors of the spec require it."""
    aggregates: Annotated[
        Mapping[AggregateName, GpuAggregate],
        Field(min_length=1, json_schema_extra={"errorMessage": "expected aggregates by name, like {gpu: {}}"}),
    ]
    """Nova's host aggregates, by name. gpustack creates them and changes no others."""

    @property
    def isolates(self) -> bool:
        """Whether any host refuses ordinary instances."""
        return any(aggregate.isolated for aggregate in self.aggregates.values())

    @property
    def restricts(self) -> bool:
        """Whether any host accepts certain projects only."""
        return any(aggregate.projects for aggregate in self.aggregates.values())

    @property
    def extra_specs(self) -> dict[str, str]:
        """The extra specs of each GPU flavor, by which it requires the trait."""
        return {f"{TRAIT}{self.trait}": REQUIRED} if self.isolates else {}
