"""The section ``quotas`` of the spec: how many GPUs of a model each project may have."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from gpustack.spec.fields import Name, SpecSection, integer
from gpustack.spec.flavors import Project

MAX_LIMIT = 2**31 - 1
"""Keystone's highest limit (``keystone/limit/schema.py``)."""
Limit = Annotated[int, integer(0, MAX_LIMIT, "a number of GPUs")]
Limits = Annotated[
    Mapping[Name, Limit],
    Field(min_length=1, json_schema_extra={"errorMessage": "expected numbers of GPUs by model, like {k4200: 4}"}),
]
CountedBy = Literal["marker", "device"]


class Quotas(SpecSection):
    """How many GPUs of each model a project may have."""

    count: CountedBy = "marker"
    """The resource class that Nova counts. `marker`: a class of gpustack's own, which each host has as often as GPUs (`provider.yaml`) and each flavor requests with its GPUs; it needs no PCI in Placement. `device`: the class of the devices, with `placement: schedule`; Nova counts it since 2026.2, at boot only; not for models with `vgpu`."""  # noqa: E501
    default: Limits
    """The limit of each project without an entry in `projects`, by model."""
    projects: Mapping[Project, Limits] = {}
    """Limits by project (id or name) and model. For other models, the default applies."""
