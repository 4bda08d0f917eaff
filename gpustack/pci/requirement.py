"""What a guest needs to use a card: driver branches, kernel modules, compute targets (``requirements.toml``).

An absent fact is unknown, and never means that nothing is needed.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpustack.base.files import data_dir, data_table

_SELECTORS = ("family", "kind", "cards")


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """The requirement of a card; None is unknown or does not apply to the vendor.

    :ivar first: the first NVIDIA driver branch that lists the card: 535.
    :ivar first_release: the first release of that branch, if it is not the first one: ``580.142``.
    :ivar last: the last NVIDIA driver branch that supports the card; None if support continues.
    :ivar modules: the NVIDIA kernel modules that support it: ``open``, ``proprietary``, ``either``.
    :ivar first_open: the first branch whose open kernel modules support it without an option.
    :ivar compute: CUDA compute capability: ``8.0``.
    :ivar mig: the most MIG instances; 0 if the architecture has no MIG.
    :ivar gfx: AMD's compute target: ``gfx942``.
    :ivar module: the driver in Linux: ``amdgpu``, ``i915``, ``xe``.
    :ivar kernel: the first release of Linux whose driver supports it: ``6.12``. Of AMD's cards, the first of the
        releases from which ``driver_tables.jsonl`` is made.
    :ivar force_probe: whether the driver ignores the card without its option ``force_probe``.
    :ivar releases: NVIDIA: the first release of each branch that lists the card; None before Turing.
    :ivar functions: product ids of its virtual functions, if they differ from the card's.
    :ivar sources: the source of each fact, by the fact's name.
    """

    first: int | None = None
    first_release: str | None = None
    last: int | None = None
    modules: str | None = None
    first_open: int | None = None
    compute: str | None = None
    mig: int | None = None
    gfx: str | None = None
    module: str | None = None
    kernel: str | None = None
    force_probe: bool = False
    releases: Mapping[str, str] | None = None
    functions: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)


def read(vendor: str, product: str, family: str, kind: str) -> Requirement:
    """The requirement of a card with these ids, family and kind."""
    data, facts, sources = data_table("requirements.toml"), {}, {}
    selected = {"family": family, "kind": kind, "cards": product}
    for entry in data["facts"].get(vendor, ()):
        if all(selected[key] in entry[key] for key in _SELECTORS if key in entry):
            new = {key: value for key, value in entry.items() if key not in (*_SELECTORS, "source")}
            facts.update(new)
            sources.update(dict.fromkeys(new, data["sources"][entry["source"]]))
    if listed := _tables().get((vendor, product)):
        facts = {**listed, **facts}
        sources = {**dict.fromkeys(listed, "driver_tables.jsonl, from the drivers' sources"), **sources}
    facts["functions"] = tuple(facts.get("functions", ()))
    return Requirement(**facts, sources=sources)


def quirks(requirement: Requirement) -> tuple[str, ...]:
    """The keys of the quirks that follow from a requirement."""
    last = (f"driver-r{requirement.last}",) if requirement.last else ()
    return (*last, *(("open-modules",) if requirement.modules == "open" else ()))


@functools.cache
def _tables() -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """The facts that are generated from the drivers' sources, by vendor and product."""
    lines = data_dir("driver_tables.jsonl").read_text(encoding="utf-8").splitlines()
    return {(row.pop("vendor"), row.pop("product")): row for row in map(json.loads, lines)}
