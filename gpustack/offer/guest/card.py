"""The requirement of one card, for display."""

from __future__ import annotations

from collections.abc import Iterator

from gpustack.offer.guest.requirements import ModelRequirement, combined
from gpustack.pci.catalogue import Card, requirement_of

_UNKNOWN = "unknown"


def driver_text(card: Card) -> str:
    """The driver that a guest needs: ``R450 or later, open or proprietary kernel modules``."""
    needs = combined(card.name, [_model(card)])
    linux = (f"{module}, Linux {kernel} or later" if kernel else module for module, kernel in needs.linux.items())
    return "; ".join(filter(None, (str(needs.nvidia or ""), *linux))) or _UNKNOWN


def fields(card: Card) -> Iterator[tuple[str, str]]:
    """The facts that the catalogue has, each with its name."""
    needs = requirement_of(card)
    yield "Guest driver", driver_text(card)
    if unknown := _model(card).unknown:
        yield "Unknown", ", ".join(unknown)
    if needs.force_probe:
        yield "Kernel argument", f"{needs.module}.force_probe={card.product}"
    if needs.compute or needs.gfx:
        yield "Compute target", needs.compute or needs.gfx or ""
    if needs.mig:
        yield "MIG", f"up to {needs.mig} instances"
    if needs.functions:
        yield "Virtual functions", ", ".join(f"{card.vendor}:{product}" for product in needs.functions)


def _model(card: Card) -> ModelRequirement:
    return ModelRequirement(model=card.name, vendor=card.vendor, card=card, requirement=requirement_of(card))
