"""Checks of the section ``tenancy`` beyond its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpustack.spec.document import Document
from gpustack.spec.extra_specs import REQUIRED, TRAIT
from gpustack.spec.problems import Problem
from gpustack.spec.tenancy import DEFAULT_TRAIT


def check_tenancy(document: Document, flavors: Mapping[str, Any], tenancy: Mapping[str, Any]) -> Iterator[Problem]:
    """Aggregates that reserve nothing, and flavors that refuse the hosts."""
    aggregates = tenancy.get("aggregates")
    for name, entry in aggregates.items() if isinstance(aggregates, dict) else ():
        if isinstance(entry, dict) and entry.get("isolated") is False and not entry.get("projects"):
            message = "the aggregate reserves nothing: list projects, or set isolated: true"
            yield document.problem(("tenancy", "aggregates", name), message, at_key=True)
    key = f"{TRAIT}{tenancy.get('trait', DEFAULT_TRAIT)}"
    for name, flavor in flavors.items() if tenancy else ():
        specs = flavor.get("extra_specs") if isinstance(flavor, dict) else None
        if isinstance(specs, dict) and specs.get(key, REQUIRED) != REQUIRED:
            message = f"GPU hosts have the trait; expected {REQUIRED!r}, which gpustack derives from tenancy"
            yield document.problem(("flavors", name, "extra_specs", key), message)
