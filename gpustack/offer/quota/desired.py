"""The limits of a spec, by the resource class that Nova counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpustack.nova_options.pci_values import reported_class
from gpustack.spec.markers import marker_of
from gpustack.spec.model import Spec


@dataclass(frozen=True, kw_only=True)
class WantedLimits:
    """The limits of a spec.

    :ivar models: the model that each resource class counts.
    :ivar defaults: the default limit by resource class.
    :ivar projects: limits by project, as the spec names it, and resource class.
    """

    models: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, int] = field(default_factory=dict)
    projects: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def wanted(spec: Spec) -> WantedLimits:
    """The limits of a spec; empty if it has none."""
    if spec.quotas is None:
        return WantedLimits()
    names = {model: class_of(spec, model) for model in spec.quotas.default}
    return WantedLimits(
        models={names[model]: model for model in names},
        defaults={names[model]: limit for model, limit in spec.quotas.default.items()},
        projects={
            project: {names[model]: limit for model, limit in limits.items()}
            for project, limits in spec.quotas.projects.items()
        },
    )


def class_of(spec: Spec, model: str) -> str:
    """The resource class by which Nova counts the GPUs of a model."""
    if spec.quotas is None or spec.quotas.count == "marker":
        return marker_of(spec.alias_of(model))
    return reported_class(spec.resource_class_of(model), *spec.models[model].ids) or ""
