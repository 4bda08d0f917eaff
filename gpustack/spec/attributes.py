"""Select GPUs by attribute: memory, generation, and traits that the spec gives to models.

Memory and generation come from the catalogue. Placement compares no numbers, so each card has a trait for each
threshold up to its memory. An alias requires all of its traits: it cannot request one of several generations.
"""

import re
from collections.abc import Mapping

from gpustack.pci import catalogue
from gpustack.spec.flavors import Attributes
from gpustack.spec.models import Model

POOL_CLASS = "CUSTOM_GPU"
"""The resource class of all GPUs with ``class_by: pool``."""


def memory_of(model: Model) -> int | None:
    """The memory of one GPU in GiB: of the spec, else the least that the catalogue has for the ids; None if unknown.

    That of a vGPU is known from the facts of its host (:func:`gpustack.spec.vgpu_use.with_memory`).
    """
    card = None if model.vgpu else card_of(model)
    return model.memory or (min(card.memory_gib, default=None) if card else None)


def traits_of(model: Model, alias: str, thresholds: tuple[int, ...]) -> tuple[str, ...]:
    """The traits of a model's cards beyond those of the spec: alias, generation, and thresholds up to the memory."""
    card, memory = card_of(model), memory_of(model) or 0
    generation = (_generation(card.family),) if card else ()
    return (alias_trait(alias), *generation, *(_memory(size) for size in thresholds if size <= memory))


def alias_trait(alias: str) -> str:
    """The trait of the cards of one alias, if all GPUs have the same resource class."""
    return f"CUSTOM_GPU_MODEL_{_word(alias)}"


def required(attributes: Attributes) -> tuple[str, ...]:
    """The traits that an alias requires."""
    memory = (_memory(attributes.min_memory),) if attributes.min_memory else ()
    generation = (_generation(attributes.generation),) if attributes.generation else ()
    return (*memory, *generation, *attributes.traits)


def fits(attributes: Attributes, model: Model) -> bool:
    """Whether the cards of a model have all attributes. Unknown memory fits no threshold."""
    card, generation = card_of(model), attributes.generation
    declared = {trait.upper() for trait in model.traits}
    return (
        (attributes.min_memory is None or (memory_of(model) or 0) >= attributes.min_memory)
        and (generation is None or (card is not None and same_generation(generation, card.family)))
        and all(trait.upper() in declared for trait in attributes.traits)
    )


def alias_name(attributes: Attributes) -> str:
    """The alias of the GPUs with these attributes, such as ``any-16gb-ampere``."""
    memory = f"{attributes.min_memory}gb" if attributes.min_memory else ""
    parts = (memory, _word(attributes.generation or ""), *sorted(attributes.traits))
    return "-".join(("any", *(part.lower() for part in parts if part))) if any(parts) else "any-gpu"


def same_generation(name: str, family: str) -> bool:
    """Whether two names mean the same generation, ignoring case and signs."""
    return _word(name) == _word(family)


def generations() -> Mapping[str, str]:
    """The generations of the catalogue, by their normalized name."""
    return {_word(card.family): card.family for card in catalogue.cards()}


def card_of(model: Model) -> catalogue.Card | None:
    """The card of a model in the catalogue; None if the catalogue lacks it."""
    match = model.match
    return catalogue.lookup(match.vendor, match.product, match.subsystem_vendor, match.subsystem_product)


def _memory(gib: int) -> str:
    return f"CUSTOM_GPU_MEM_GE_{gib}GB"


def _generation(name: str) -> str:
    return f"CUSTOM_GPU_GEN_{_word(name)}"


def _word(name: str) -> str:
    return re.sub(r"[^0-9A-Z]+", "_", name.upper()).strip("_")
