"""The interface to Keystone's and Placement's API that this package uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from gpustack.cloud.identity import Project
from gpustack.cloud.limits import Limit, Present


class LimitsApi(Protocol):
    """Every method raises :class:`gpustack.cloud.session.Refused` or :class:`gpustack.cloud.session.Unanswered`."""

    def present(self) -> Present:
        """Return the limits of Nova's resource classes, without the use."""

    def projects(self, name: str) -> tuple[Project, ...]:
        """Return the projects with this id or name."""

    def all_projects(self) -> tuple[Project, ...]:
        """Return all projects."""

    def used(self, project: str) -> Mapping[str, int]:
        """Return the units that a project uses, by resource class."""

    def inventories(self, hosts: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """Return the totals of each resource class of these hosts; without hosts that Placement does not have."""

    def create(self, resource_class: str, project: str | None, limit: int, description: str) -> None:
        """Create a limit; the default of all projects if ``project`` is None."""

    def change(self, limit: Limit, value: int) -> None:
        """Change a limit."""

    def delete(self, limit: Limit) -> None:
        """Delete a limit; a missing one is not an error."""
