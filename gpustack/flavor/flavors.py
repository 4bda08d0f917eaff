"""Flavors as they are wanted and as Nova has them, and the mark by which gpustack knows its own.

The mark has two parts. The description ends with ``[gpustack]``: Nova takes it in the very request that creates a
flavor, so that one whose making was interrupted can be told from anybody else's. And ``gpustack:sets``, an extra spec
that is written together with the others, lists the extra specs that gpustack set: a flavor with the first part and
without the second is only half made, and an extra spec that is not listed is never touched.

Nova's schedulers and its validation pass these names over: ``ComputeCapabilitiesFilter`` reads names without a
namespace and those of ``capabilities``, ``AggregateInstanceExtraSpecsFilter`` those without and those of
``aggregate_instance_extra_specs`` (``nova/scheduler/filters``), and an unknown namespace is not validated
(``nova/api/validation/extra_specs/validators.py``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from gpustack.spec.extra_specs import (
    AFFINITY,
    ALIAS,
    CPU_POLICY,
    HIDE,
    NAMESPACE,
    NUMA_NODES,
    OLD_HIDE,
    PAGE_SIZE,
    parse_alias,
)

_KNOWN = {
    ALIAS: r"[^\s:,]+:[1-9][0-9]*(,[^\s:,]+:[1-9][0-9]*)*",
    AFFINITY: "required|preferred|legacy",
    NUMA_NODES: "[1-9][0-9]*",
    CPU_POLICY: "shared|dedicated",
    PAGE_SIZE: "small|large|any|[0-9]+([kKMGT]i?)?(b|bit|B)?",
    HIDE: "true",
    OLD_HIDE: "true",
}
"""Extra specs and values that every release takes: what gpustack writes of itself, mostly."""
SETS = "gpustack:sets"
ORIGIN = "gpustack:origin"
ACCESS = "gpustack:access"
ACCESS_CHANGES = "changing"
"""The access mark while projects are being added and removed: it fits no list."""
MARK = "[gpustack]"
_MAX_VALUE = 255

Origin = Literal["spec", "hand"]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What can't be changed: memory and swap in MiB, disks in GiB, as Nova counts them."""

    vcpus: int
    ram: int
    disk: int
    ephemeral: int = 0
    swap: int = 0

    def to_dict(self) -> dict[str, int]:
        """The sizes as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [f"{self.vcpus} vCPUs", f"{readable(self.ram)} RAM", f"{self.disk} GiB disk"]
        parts += [f"{self.ephemeral} GiB ephemeral"] if self.ephemeral else []
        parts += [f"{readable(self.swap)} swap"] if self.swap else []
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class WantedFlavor:
    """A flavor as it is to be.

    :ivar gpus: how many GPUs it asks for, by alias.
    :ivar extra_specs: all that gpustack sets, without its mark.
    :ivar access: projects, by id or name, that may use it; None is everybody.
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
        """Whether everybody may use it."""
        return self.access is None

    @property
    def marks(self) -> dict[str, str]:
        """The mark, as extra specs; that of access is not among them."""
        return {**sets_mark(self.extra_specs), ORIGIN: self.origin}

    @property
    def marked_description(self) -> str:
        """The description with the mark at its end."""
        return f"{self.description or gpus_text(self.gpus)} {MARK}".lstrip()


@dataclass(frozen=True, kw_only=True)
class PresentFlavor:
    """A flavor as Nova has it.

    :ivar access: ids of the projects that may use it; None when that was not read.
    """

    id: str
    name: str
    sizes: Sizes
    public: bool = True
    description: str = ""
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    access: frozenset[str] | None = None

    @property
    def ours(self) -> bool:
        """Whether gpustack may change it."""
        return SETS in self.extra_specs or self.description.endswith(MARK)

    @property
    def half_made(self) -> bool:
        """Whether it is gpustack's and not whole: its making was interrupted, or somebody took its alias away."""
        return self.ours and not {SETS, ALIAS} <= self.extra_specs.keys()

    @property
    def managed(self) -> bool:
        """Whether it is gpustack's and whole."""
        return self.ours and not self.half_made

    @property
    def state(self) -> str:
        """In a word: managed, half made, or foreign."""
        return "managed" if self.managed else "half made" if self.half_made else "foreign"

    @property
    def owned(self) -> frozenset[str]:
        """The extra specs that gpustack set."""
        chunks = [value for key, value in self.extra_specs.items() if is_sets_mark(key)]
        return frozenset(name for chunk in chunks for name in chunk.split(",") if name)

    @property
    def gpus(self) -> dict[str, int]:
        """How many GPUs it asks for, by alias; empty when it asks for none."""
        return parse_alias(self.extra_specs.get(ALIAS, ""))

    def to_dict(self) -> dict[str, object]:
        """The flavor as plain data."""
        return {
            "id": self.id,
            "name": self.name,
            **self.sizes.to_dict(),
            "public": self.public,
            "description": self.description,
            "extra_specs": dict(self.extra_specs),
            "access": None if self.access is None else sorted(self.access),
        }


def needs_judging(key: str, value: str) -> bool:
    """Whether Nova had better be asked what it thinks of an extra spec: it is not one that every release takes."""
    if key.startswith(NAMESPACE):
        return False
    return key not in _KNOWN or re.fullmatch(_KNOWN[key], value) is None


def is_sets_mark(key: str) -> bool:
    """Whether an extra spec is ``gpustack:sets`` or goes on with it (``gpustack:sets.2``)."""
    return key == SETS or key.startswith(f"{SETS}.")


def sets_mark(keys: Iterable[str]) -> dict[str, str]:
    """The names of extra specs as values of ``gpustack:sets``, ``gpustack:sets.2``, …: each fits Nova's 255 characters.

    No name has a comma (``nova/api/openstack/compute/schemas/flavors_extraspecs.py``).
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
    """A mark for a list of projects, by the words that name them: the same list has the same mark.

    It is kept with the flavor, so that a run with nothing to do need not ask for each flavor's list.
    """
    return hashlib.sha256("\n".join(sorted(set(projects))).encode()).hexdigest()[:16]


def gpus_text(gpus: Mapping[str, int]) -> str:
    """``2 x K4200``: the description of a flavor that has no other."""
    return ", ".join(f"{count} x {alias}" for alias, count in gpus.items())


def readable(mib: int) -> str:
    """``32 GiB``, ``1.5 GiB``, ``512 MiB``."""
    return f"{mib / 1024:g} GiB" if mib >= 1024 and mib % 256 == 0 else f"{mib} MiB"
