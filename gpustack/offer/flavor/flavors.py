"""Desired and present flavors, and the mark by which gpustack recognizes its flavors.

The mark has two parts. The description ends with ``[gpustack]``: it is set by the request that creates the flavor, so
an interrupted creation can be recognized. The extra spec ``gpustack:sets``, written together with the others, lists the
extra specs that gpustack set. A flavor with the first part only is half made. An extra spec that is not listed is never
removed, and changed only if the desired flavor sets it.

Nova's scheduler and validation ignore these names. ``ComputeCapabilitiesFilter`` reads names without a namespace or
with ``capabilities``, ``AggregateInstanceExtraSpecsFilter`` those without or with ``aggregate_instance_extra_specs``
(``nova/scheduler/filters``). An unknown namespace is not validated (``nova/api/validation/extra_specs/validators.py``).
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

from gpustack.cloud import Connection
from gpustack.cloud.flavors import Flavor, FlavorCloud, Sizes
from gpustack.cloud.identity import Lookup
from gpustack.cloud.servers import requested_classes
from gpustack.spec.extra_specs import ALIAS, parse_alias
from gpustack.spec.markers import MARKERS, RESOURCES
from gpustack.spec.models import DEFAULT_CLASS

SETS = "gpustack:sets"
ORIGIN = "gpustack:origin"
ACCESS = "gpustack:access"
ACCESS_CHANGES = "changing"
"""The access mark while projects are being added and removed; it matches no project list."""
MARK = "[gpustack]"
_MAX_VALUE = 255

Origin = Literal["spec", "hand"]


@dataclass(frozen=True, kw_only=True)
class WantedFlavor:
    """A desired flavor.

    :ivar gpus: the number of GPUs by alias.
    :ivar extra_specs: all extra specs that gpustack sets, without its mark.
    :ivar access: ids or names of the projects that may use it; None makes it public.
    :ivar origin: whether it comes from a spec or from a command.
    """

    name: str
    sizes: Sizes
    gpus: Mapping[str, int]
    extra_specs: Mapping[str, str]
    id: str | None = None
    description: str = ""
    access: tuple[str, ...] | None = None
    origin: Origin = "spec"

    @property
    def public(self) -> bool:
        """Whether all projects may use it."""
        return self.access is None

    def with_ids(self, projects: Mapping[str, str]) -> Self:
        """The flavor with the ids of its projects, which outlive their names; ``projects`` has them by reference."""
        return self if self.access is None else replace(self, access=tuple(projects[ref] for ref in self.access))

    @property
    def marks(self) -> dict[str, str]:
        """The mark as extra specs, without the access mark."""
        return {**sets_mark(self.extra_specs), ORIGIN: self.origin}

    @property
    def marked_description(self) -> str:
        """The description, or the GPUs if there is none, followed by the mark."""
        return f"{self.description or gpus_text(self.gpus)} {MARK}".lstrip()


@dataclass(frozen=True, kw_only=True)
class PresentFlavor(Flavor):
    """A flavor in Nova, with the meaning of its mark."""

    @property
    def ours(self) -> bool:
        """Whether the flavor has the mark, so that gpustack may change it."""
        return SETS in self.extra_specs or self.description.endswith(MARK)

    @property
    def half_made(self) -> bool:
        """Whether the flavor has the mark but is incomplete: its creation was interrupted, or its alias was removed.

        A flavor of mediated devices has a resource class instead of an alias.
        """
        of_classes = {key for key in self.owned if key.startswith(RESOURCES)}
        requests = {ALIAS} if ALIAS in self.owned else of_classes or {ALIAS}
        return self.ours and not {SETS, *requests} <= self.extra_specs.keys()

    @property
    def managed(self) -> bool:
        """Whether the flavor has the mark and is complete."""
        return self.ours and not self.half_made

    @property
    def state(self) -> str:
        """The state for display: managed, half made, or foreign."""
        return "managed" if self.managed else "half made" if self.half_made else "foreign"

    @property
    def owned(self) -> frozenset[str]:
        """The names of the extra specs that gpustack set."""
        return _owned(self.extra_specs)

    @property
    def gpus(self) -> dict[str, int]:
        """The number of GPUs by alias; empty without GPUs."""
        return parse_alias(self.extra_specs.get(ALIAS, ""))


def _owned(specs: Mapping[str, str | None]) -> frozenset[str]:
    chunks = [value or "" for key, value in specs.items() if is_sets_mark(key)]
    return frozenset(name for chunk in chunks for name in chunk.split(",") if name)


def gpus_without_spec(specs: Mapping[str, str | None]) -> dict[str, int]:
    """The number of GPUs that extra specs request: by alias, and of vGPUs by resource class.

    Only a spec has the custom classes of vGPUs. Without it, they are those of gpustack's flavors without alias.
    """
    gpus, own = parse_alias(specs.get(ALIAS) or ""), _owned(specs)
    for name, amount in requested_classes(specs).items():
        is_own = not gpus and f"{RESOURCES}{name}" in own and not name.startswith(MARKERS)
        gpus |= {name: amount} if name == DEFAULT_CLASS or is_own else {}
    return gpus


def is_sets_mark(key: str) -> bool:
    """Whether an extra spec is ``gpustack:sets`` or its continuation (``gpustack:sets.2``)."""
    return key == SETS or key.startswith(f"{SETS}.")


def sets_mark(keys: Iterable[str]) -> dict[str, str]:
    """Return the mark that lists these extra specs: ``gpustack:sets``, ``gpustack:sets.2``, …

    Each value has at most 255 characters, Nova's limit. No name contains a comma
    (``nova/api/openstack/compute/schemas/flavors_extraspecs.py``).
    """
    chunks = [""]
    for key in sorted(keys):
        longer = f"{chunks[-1]},{key}" if chunks[-1] else key
        if len(longer) <= _MAX_VALUE:
            chunks[-1] = longer
        else:
            chunks.append(key)
    return {SETS if number == 1 else f"{SETS}.{number}": chunk for number, chunk in enumerate(chunks, 1)}


def access_mark(projects: Collection[str]) -> str:
    """Return the mark for a project list: a hash of the ids.

    It is stored in the flavor, so that a run without changes does not have to read each flavor's project list.
    """
    return hashlib.sha256("\n".join(sorted(set(projects))).encode()).hexdigest()[:16]


def gpus_text(gpus: Mapping[str, int]) -> str:
    """Return the default description: ``2 x K4200``."""
    return ", ".join(f"{count} x {alias}" for alias, count in gpus.items())


def present_flavors(cloud: Connection, lookup: Lookup | None = None) -> FlavorCloud[PresentFlavor]:
    """Nova's flavors, with the meaning of their marks.

    :param lookup: finds projects; None to ask Keystone.
    """
    return FlavorCloud(cloud, PresentFlavor, lookup)
