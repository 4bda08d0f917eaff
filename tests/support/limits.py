"""A stand-in for Keystone's limits and Placement's use, as :class:`gpustack.cloud.limits.LimitsCloud`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gpustack.base.errors import CloudError
from gpustack.cloud.identity import Project
from gpustack.cloud.limits import Limit, Present

MARKER = "CUSTOM_GPU_QUOTA_K4200"


@dataclass
class StandInLimits:
    """Limits as data, read-only.

    :ivar fails: the names of the methods that raise :class:`CloudError`.
    """

    state: Present
    names: tuple[Project, ...] = ()
    uses: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    fails: Collection[str] = ()
    asked: list[str] = field(default_factory=list)

    def _ask(self, method: str) -> None:
        self.asked.append(method)
        if method in self.fails:
            raise CloudError(f"{method} does not answer")

    def present(self) -> Present:
        self._ask("present")
        return self.state

    def used(self, project: str) -> Mapping[str, int]:
        self._ask("used")
        return self.uses.get(project, {})

    def projects(self, ref: str = "") -> tuple[Project, ...]:
        if ref:
            raise NotImplementedError
        self._ask("all_projects")
        return self.names

    def inventories(self, hosts: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        raise NotImplementedError

    def create(self, resource_class: str, project: str | None, limit: int, description: str) -> None:
        raise NotImplementedError

    def change(self, limit: Limit, value: int) -> None:
        raise NotImplementedError

    def delete(self, limit: Limit) -> None:
        raise NotImplementedError


def limited(default: int | None = 1, complete: bool = True, **projects: int) -> Present:
    """The limits of one marker class."""
    defaults = () if default is None else (Limit(id="r1", resource_class=MARKER, limit=default),)
    limits = (Limit(id=f"l-{p}", resource_class=MARKER, limit=limit, project=p) for p, limit in projects.items())
    return Present(defaults=defaults, limits=tuple(limits), complete=complete)
