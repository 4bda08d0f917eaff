"""The interface to Nova's API that this package uses."""

from __future__ import annotations

from typing import Protocol

from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.flavors import PresentFlavor


class FlavorApi(Protocol):
    """The requests on flavors, one for each method; listings may take several.

    :meth:`create` and the methods after it change something. Every method raises
    :class:`gpustack.cloud.session.Refused` or :class:`gpustack.cloud.session.Unanswered`.
    """

    def flavors(self) -> tuple[PresentFlavor, ...]:
        """Return all flavors, public and private, with their extra specs."""

    def access(self, flavor_id: str) -> frozenset[str]:
        """Return the ids of the projects that may use a private flavor."""

    def users(self, flavor_id: str) -> int:
        """Return the number of instances of a flavor, in all projects."""

    def project(self, name: str) -> str:
        """Return the id of a project.

        :param name: its id or name.
        """

    def get(self, flavor_id: str) -> PresentFlavor | None:
        """Return one flavor; None if it does not exist."""

    def create(self, flavor_id: str, name: str, sizes: Sizes, *, public: bool, description: str) -> None:
        """Create a flavor without extra specs and projects."""

    def set_extra_specs(self, flavor_id: str, specs: dict[str, str]) -> None:
        """Set extra specs atomically."""

    def unset_extra_spec(self, flavor_id: str, key: str) -> None:
        """Remove an extra spec; a missing one is not an error."""

    def grant(self, flavor_id: str, project: str) -> None:
        """Give a project access to a flavor; existing access is not an error."""

    def revoke(self, flavor_id: str, project: str) -> None:
        """Remove a project's access to a flavor; missing access is not an error."""

    def describe(self, flavor_id: str, description: str) -> None:
        """Change the description."""

    def delete(self, flavor_id: str) -> None:
        """Delete a flavor; a missing one is not an error."""
