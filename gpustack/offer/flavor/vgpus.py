"""The part of a flavor that requests mediated devices (vGPU): a resource class, and traits of its provider."""

from collections.abc import Iterator, Mapping

from gpustack.base.findings import Code, Finding, finding
from gpustack.nova_options import mediated
from gpustack.nova_options.mediated import class_of, required_traits
from gpustack.nova_options.options import Release
from gpustack.spec.extra_specs import REQUIRED, TRAIT
from gpustack.spec.markers import RESOURCES
from gpustack.spec.model import Spec
from gpustack.spec.requests import Entry
from gpustack.spec.vgpu_use import Frameworks


def is_mediated(spec: Spec, known: Frameworks, name: str) -> bool:
    """Whether flavors request the GPUs of a model, or of a selection by attribute, by resource class."""
    models = _models(spec, name)
    return bool(models) and known.mediated.issuperset(models)


def extra_specs(spec: Spec, known: Frameworks, models: Mapping[str, int]) -> dict[str, str]:
    """The extra specs that request the mediated devices among GPUs.

    :param models: the number of GPUs by model, or by alias of a selection.
    """
    specs: dict[str, str] = {}
    for name in (name for name in models if is_mediated(spec, known, name)):
        specs[f"{RESOURCES}{class_of(spec, _models(spec, name)[0])}"] = str(models[name])
        specs |= {f"{TRAIT}{trait}": REQUIRED for trait in required_traits(spec, name)}
    return specs


def problems(spec: Spec, known: Frameworks, entry: Entry, release: Release) -> Iterator[Finding]:
    """Requests that no instance gets, and models of which the facts do not show how flavors request them."""
    shared = {name: [m for m in _models(spec, name) if spec.models[m].vgpu] for name in entry.models}
    unknown = [m for of_name in shared.values() for m in of_name if m not in known.mediated | known.virtual]
    if unknown:
        yield finding(Code.VGPU_FRAMEWORK_UNKNOWN, place=entry.name, models=" and ".join(unknown))
    for name in entry.models:
        own = known.mediated.intersection(_models(spec, name))
        if own and (own & known.virtual or not is_mediated(spec, known, name)):
            yield finding(Code.VGPU_FRAMEWORKS_DIFFER, place=entry.name, models=name)
        elif len(classes := {class_of(spec, model) for model in own}) > 1:
            models, names = ", ".join(sorted(own)), ", ".join(sorted(classes))
            yield finding(Code.SELECTION_WITHOUT_CLASS, place=entry.name, models=models, classes=names)
    requested = {name: count for name, count in entry.models.items() if is_mediated(spec, known, name)}
    classes = {class_of(spec, _models(spec, name)[0]) for name in requested}
    one_class = len(classes) < len(requested) or (len(requested) > 1 and not mediated.takes_several(release))
    if one_class or any(count > 1 and known.single.intersection(_models(spec, n)) for n, count in requested.items()):
        text = ", ".join(f"{count} x {name}" for name, count in requested.items())
        yield finding(Code.VGPU_FLAVOR_OF_SEVERAL_CARDS, place=entry.name, models=text)


def _models(spec: Spec, name: str) -> tuple[str, ...]:
    return spec.selected.get(name, (name,))
