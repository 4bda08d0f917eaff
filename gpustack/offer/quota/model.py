"""Limits in Keystone, and who uses what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CLASS = "class:"
"""The prefix of the limits of resource classes (``nova/limit/placement.py``)."""
MARK = "[gpustack]"
"""The end of the description of limits that gpustack created."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit of Nova in Keystone.

    :ivar resource_class: the class, without Keystone's prefix.
    :ivar project: the project's id; None for the default of all projects (a registered limit).
    """

    id: str
    resource_class: str
    limit: int
    project: str | None = None
    description: str = ""

    @property
    def ours(self) -> bool:
        """Whether gpustack created it."""
        return self.description.endswith(MARK)


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project, with the domain that distinguishes it from others of the same name."""

    id: str
    name: str
    domain: str = ""


@dataclass(frozen=True, kw_only=True)
class Present:
    """The limits and the use of a cloud.

    :ivar defaults: the default of each resource class.
    :ivar limits: the limits of projects.
    :ivar complete: whether ``limits`` has those of all projects.
    :ivar model: Keystone's enforcement model.
    :ivar used: the units in use, by project id and resource class.
    """

    defaults: tuple[Limit, ...] = ()
    limits: tuple[Limit, ...] = ()
    complete: bool = True
    model: str = "flat"
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
