"""A model of the flavors' part of Nova's API, as strict as Nova where it matters, with failures on demand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gpustack.cloud.flavors import Sizes
from gpustack.cloud.session import Refused, Unanswered
from gpustack.offer.flavor.flavors import PresentFlavor

NEVER = 10**9
T = TypeVar("T")


class NovaModel:
    """Flavors in memory.

    :param dies_at: the number of the request (from 0) from which on there are no answers.
    :param fails_at: the number of the request that is answered with a server error.
    :param carried_out: whether that request is carried out although its answer is lost, or an error.
    :param comes_back: whether later requests are answered again.
    """

    def __init__(self, flavors: Iterable[PresentFlavor] = (), *, projects: dict[str, str] | None = None) -> None:
        self.by_id = {flavor.id: flavor for flavor in flavors}
        self.lists: dict[str, set[str]] = {}
        self.projects = projects or {}
        self.instances: dict[str, int] = {}
        self.requests: list[str] = []
        self.dies_at = NEVER
        self.carried_out = False
        self.comes_back = True
        self.refuses: str | None = None
        self.fails_at = NEVER
        self.lists_touched = False
        for flavor in flavors:
            if not flavor.public:
                self.lists[flavor.id] = set(flavor.access or ())

    @property
    def writes(self) -> list[str]:
        return [request for request in self.requests if not request.startswith("GET")]

    def by_name(self, name: str) -> PresentFlavor | None:
        return next((flavor for flavor in self.by_id.values() if flavor.name == name), None)

    def state(self) -> dict[str, Any]:
        """All flavors by name, without generated ids."""
        entries = {}
        for flavor in self.by_id.values():
            entry = {**flavor.to_dict(), "access": sorted(self.lists.get(flavor.id, ()))}
            entry.pop("id")
            entries[flavor.name] = entry
        return entries

    def _request(self, line: str, carry_out: Callable[[], T]) -> T:
        number = len(self.requests)
        self.requests.append(line)
        if number in (self.dies_at, self.fails_at) and self.carried_out:
            carry_out()
        if number == self.fails_at:
            raise Refused("HTTP 500, injected", status=500)
        if number == self.dies_at or (number > self.dies_at and not self.comes_back):
            raise Unanswered("the connection died", remedy="run again")
        if self.refuses is not None and self.refuses in line:
            raise Refused("HTTP 400, injected", status=400)
        return carry_out()

    def _there(self, flavor_id: str) -> PresentFlavor:
        if flavor_id not in self.by_id:
            raise Refused("HTTP 404, no such flavor", status=404)
        return self.by_id[flavor_id]

    def _put(self, flavor_id: str, **changes: Any) -> None:
        self.by_id[flavor_id] = dataclasses.replace(self._there(flavor_id), **changes)

    def flavors(self) -> tuple[PresentFlavor, ...]:
        return self._request("GET /flavors/detail", lambda: tuple(self.by_id.values()))

    def get(self, flavor_id: str) -> PresentFlavor | None:
        return self._request(f"GET /flavors/{flavor_id}", lambda: self.by_id.get(flavor_id))

    def access(self, flavor_id: str) -> frozenset[str]:
        return self._request(f"GET /flavors/{flavor_id}/os-flavor-access", lambda: frozenset(self.lists[flavor_id]))

    def users(self, flavor_id: str) -> int:
        return self._request(f"GET /servers?flavor={flavor_id}", lambda: self.instances.get(flavor_id, 0))

    def project(self, name: str) -> str:
        return self._request(f"GET /projects?name={name}", lambda: self.projects[name])

    def create(
        self, flavor_id: str, name: str, sizes: Sizes, *, public: bool, description: str, rxtx_factor: float = 1.0
    ) -> None:
        def do() -> None:
            if flavor_id in self.by_id or self.by_name(name):
                raise Refused("HTTP 409, it exists", status=409)
            flavor = PresentFlavor(
                id=flavor_id, name=name, sizes=sizes, public=public, description=description, rxtx_factor=rxtx_factor
            )
            self.by_id[flavor_id] = flavor
            if not public:
                self.lists[flavor_id] = set()

        self._request(f"POST /flavors {name}", do)

    def set_extra_specs(self, flavor_id: str, specs: dict[str, str], *, restored: bool = False) -> None:
        assert specs
        if not restored and not specs.get("quota:cpu_shares", "1").isdecimal():
            raise Refused("HTTP 400, Validation failed", status=400)
        assert all(len(key) <= 255 and len(value) <= 255 for key, value in specs.items())

        def do() -> None:
            self._put(flavor_id, extra_specs={**self._there(flavor_id).extra_specs, **specs})

        self._request(f"POST /flavors/{flavor_id}/os-extra_specs {sorted(specs)}", do)

    def unset_extra_spec(self, flavor_id: str, key: str) -> None:
        def do() -> None:
            remaining = {k: v for k, v in self._there(flavor_id).extra_specs.items() if k != key}
            self._put(flavor_id, extra_specs=remaining)

        self._request(f"DELETE /flavors/{flavor_id}/os-extra_specs/{key}", do)

    def grant(self, flavor_id: str, project: str) -> None:
        def do() -> None:
            if self._there(flavor_id).public:
                raise Refused("HTTP 409, it is public", status=409)
            self.lists[flavor_id].add(project)

        self._request(f"POST /flavors/{flavor_id}/action addTenantAccess {project}", do)

    def revoke(self, flavor_id: str, project: str) -> None:
        def do() -> None:
            self._there(flavor_id)
            self.lists[flavor_id].discard(project)

        self._request(f"POST /flavors/{flavor_id}/action removeTenantAccess {project}", do)

    def describe(self, flavor_id: str, description: str) -> None:
        self._request(f"PUT /flavors/{flavor_id}", lambda: self._put(flavor_id, description=description))

    def delete(self, flavor_id: str) -> None:
        def do() -> None:
            self.by_id.pop(flavor_id, None)
            self.lists.pop(flavor_id, None)

        self._request(f"DELETE /flavors/{flavor_id}", do)
