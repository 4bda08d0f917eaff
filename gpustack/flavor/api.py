"""What the flavors' part of Nova's API offers, as the rest of this package sees it, and how it fails."""

from __future__ import annotations

from typing import Protocol

from gpustack.flavor.flavors import PresentFlavor, Sizes


class FlavorApi(Protocol):
    """Each method is one request; all but the first three change something.

    Every method raises :class:`gpustack.cloudapi.Refused` or :class:`gpustack.cloudapi.Unanswered`.
    """

    def flavors(self) -> tuple[PresentFlavor, ...]:
        """All flavors, public and private, with their extra specs."""

    def access(self, flavor_id: str) -> frozenset[str]:
        """The ids of the projects that may use a private flavor."""

    def users(self, flavor_id: str) -> int:
        """How many instances, of all projects, use a flavor."""

    def project(self, name: str) -> str:
        """The id of a project, by its id or name."""

    def get(self, flavor_id: str) -> PresentFlavor | None:
        """One flavor; None when there is none."""

    def create(self, flavor_id: str, name: str, sizes: Sizes, *, public: bool, description: str) -> None:
        """Create a flavor, without extra specs and projects."""

    def set_extra_specs(self, flavor_id: str, specs: dict[str, str]) -> None:
        """Set extra specs; all of them, or none."""

    def unset_extra_spec(self, flavor_id: str, key: str) -> None:
        """Remove an extra spec; one that is not there is no error."""

    def grant(self, flavor_id: str, project: str) -> None:
        """Let a project use a flavor; one that may already is no error."""

    def revoke(self, flavor_id: str, project: str) -> None:
        """Let a project use a flavor no longer; one that may not is no error."""

    def describe(self, flavor_id: str, description: str) -> None:
        """Change the description."""

    def delete(self, flavor_id: str) -> None:
        """Delete a flavor; one that is not there is no error."""
