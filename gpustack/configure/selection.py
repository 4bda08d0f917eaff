"""Checks of flavors that select GPUs by attribute, before rendering."""

from collections.abc import Collection, Iterator, Sequence

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import listed
from gpustack.nova_options.pci_values import reported_class
from gpustack.spec.assignment import Assigned
from gpustack.spec.attributes import alias_trait, memory_of
from gpustack.spec.model import Placement, Spec

_SHOWN = 5


def doubts(spec: Spec, present: Collection[str], mediated: Collection[str], placement: Placement) -> Iterator[Finding]:
    """Yield findings about selections, and about one resource class for all GPUs.

    :param present: the models of which hosts have GPUs that Nova passes through.
    :param mediated: those of mediated devices, which flavors request without an alias.
    """
    for alias, attributes in spec.selections.items():
        place = f"alias {alias}"
        if attributes.min_memory is not None:
            for name in spec.models:
                if memory_of(spec.models[name]) is None:
                    yield finding(Code.MEMORY_UNKNOWN, place=f"models.{name}", model=name, alias=alias)
        if not (models := [name for name in spec.selected[alias] if name in present]):
            if not set(mediated).intersection(spec.selected[alias]):
                yield finding(Code.SELECTION_WITHOUT_CARD, place=place)
            continue
        if placement == "schedule" and len(classes := _classes(spec, models)) > 1:
            yield finding(
                Code.SELECTION_WITHOUT_CLASS, place=place, models=", ".join(models), classes=", ".join(sorted(classes))
            )
        if placement != "schedule":
            yield from _indistinct(spec, place, models, present)
        sizes = {name: memory_of(spec.models[name]) for name in models}
        if len(set(sizes.values())) > 1:
            cards = [f"{name} ({memory} GiB)" if memory else name for name, memory in sizes.items()]
            yield finding(Code.SELECTION_TAKES_LARGER, place=place, cards=listed(cards, _SHOWN))
    if placement != "off" and spec.pooled:
        yield finding(Code.CLASS_OF_GPU_IN_USE, place="nova.class_by")
        yield from _same_traits(spec)


def moves(
    spec: Spec, alias: str, vendor: str | None, product: str | None, kind: str | None, targets: Sequence[Assigned]
) -> Iterator[Finding]:
    """Yield the hosts on which a move may claim a GPU that an alias does not request.

    Nova's claim of a move compares ids and device type, and leaves out resource class and traits
    (``nova/compute/resource_tracker.py``, ``_move_claim``; ``nova/pci/stats.py``, ``ignored_spec_tags``).
    """
    models = frozenset(spec.models_of(alias))
    hosts = {target.host.hostname for target in targets if target.model in models}
    others: dict[str, list[str]] = {}
    for target in (target for target in targets if target.host.hostname in hosts and target.model not in models):
        compared = (vendor, target.gpu.main.vendor), (product, target.gpu.main.product), (kind, target.gpu.dev_type)
        if all(requested in (None, own) for requested, own in compared):
            others.setdefault(target.host.hostname, []).append(f"{target.address} ({target.model})")
    for host, gpus in others.items():
        yield finding(Code.MOVE_CLAIMS_OTHER_KIND, place=host, alias=alias, others=listed(gpus, _SHOWN))


def _indistinct(spec: Spec, place: str, models: Sequence[str], present: Collection[str]) -> Iterator[Finding]:
    """Models that are not selected, and that Nova can't tell from a selected one: it compares ids and device type."""
    kinds = {(spec.models[name].ids, spec.models[name].is_virtual): name for name in models}
    for other in (name for name in spec.models if name in present and name not in models):
        ids = spec.models[other].ids
        if (name := kinds.get((ids, spec.models[other].is_virtual))) is not None:
            pair, alias = f"{name} and {other}", spec.alias_of(other)
            yield finding(Code.ALIASES_WITH_SAME_CARDS, place=place, ids=":".join(ids), models=pair, other=alias)


def _classes(spec: Spec, models: Sequence[str]) -> set[str]:
    ids = ((spec.resource_class_of(name), spec.models[name].ids) for name in models)
    return {str(reported_class(name, vendor, product)) for name, (vendor, product) in ids}


def _same_traits(spec: Spec) -> Iterator[Finding]:
    """Aliases whose names differ only in case or signs: their cards have the same trait."""
    by_trait: dict[str, str] = {}
    for name in spec.models:
        alias = spec.alias_of(name)
        other = by_trait.setdefault(alias_trait(alias), alias)
        if other != alias:
            yield finding(Code.ALIASES_WITH_SAME_TRAIT, place=f"alias {alias}", other=other, trait=alias_trait(alias))
