"""A stand-in for openstacksdk's connection: answers by path, and the requests that were made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn, cast

from openstack.connection import Connection

from gpustack.base.errors import CloudError
from gpustack.cloud import reads
from gpustack.fleet.placement import Device

Answer = tuple[int, Any] | Exception


@dataclass
class Response:
    """An answer of requests."""

    status_code: int
    content: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    reason: str = "as the test wants"

    def json(self) -> Any:
        return json.loads(self.content) if isinstance(self.content, str) else self.content


@dataclass
class _EndpointData:
    max_microversion: tuple[int, int]
    url: str = "http://compute"


@dataclass
class _Proxy:
    service: str
    cloud: StandIn

    def request(self, path: str, method: str, json: Any = None, **_more: Any) -> Response:
        if method != "GET":
            reads.forget()  # as the HTTP adapter of a connection does
            self.cloud.written.append(json)
            path = f"{method} {path}"
        self.cloud.requests.append(f"{self.service} {path}")
        answer = self.cloud.answer(self.service, path)
        if isinstance(answer, Exception):
            raise answer
        return Response(*answer, self.cloud.headers)

    def get_endpoint(self) -> str:
        return "http://compute"

    def get_endpoint_data(self) -> _EndpointData:
        return _EndpointData(max_microversion=self.cloud.newest)


@dataclass
class StandIn:
    """The cloud. A path without an answer is not found.

    :ivar answers: by service and the beginning of the path, after ``PUT`` for writing; the longest beginning counts.
    :ivar written: the bodies of all writes.
    :ivar newest: the newest microversion of Nova.
    """

    answers: dict[str, Answer | Callable[[str], Answer]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    written: list[Any] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    newest: tuple[int, int] = (2, 96)

    def answer(self, service: str, path: str) -> Answer:
        line = f"{service} {path}"
        beginnings = (line[:length] for length in range(len(line), 0, -1))
        known = next((beginning for beginning in beginnings if beginning in self.answers), None)
        if known is None:
            return 404, {"error": {"message": "nothing there"}}
        answer = self.answers[known]
        return answer(path) if callable(answer) else answer

    @property
    def session(self) -> SimpleNamespace:
        """The session of a user of the project ``own``."""
        return SimpleNamespace(get_project_id=lambda: "own", get_user_id=lambda: "operator")

    config = SimpleNamespace(name="", auth={}, get_region_name=lambda *_service: None)
    current_project_id = "own"

    def __getattr__(self, name: str) -> _Proxy:
        if name not in ("compute", "placement", "identity", "image"):
            raise AttributeError(name)
        return _Proxy(name, self)

    def connect_as(self, **scope: str) -> NoReturn:
        """No user may have a token for the system."""
        raise CloudError(f"no token for {scope}")

    @property
    def connection(self) -> Connection:
        return cast("Connection", self)


def with_devices(devices: Iterable[Device], held: Mapping[str, Mapping[str, int]] | None = None) -> StandIn:
    """A Placement with these devices, all below hosts with free memory; ``held`` is by consumer and device."""
    known = list(devices)
    listed = [{"uuid": d.uuid, "name": d.name, "root_provider_uuid": d.root} for d in known]
    summaries = {
        d.uuid: {
            "resources": {d.resource_class: {"capacity": d.capacity, "used": d.used}},
            "traits": [*([] if d.mediated else ["COMPUTE_MANAGED_PCI_DEVICE"]), *sorted(d.traits)],
            "root_provider_uuid": d.root,
        }
        for d in known
    }
    whole = {name: {"capacity": 1 << 20, "used": 1} for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
    summaries |= {d.root: {"resources": whole, "traits": [], "root_provider_uuid": d.root} for d in known}
    roots = [{"uuid": root, "name": root, "root_provider_uuid": root} for root in {d.root: None for d in known}]
    cloud = StandIn()
    cloud.answers["placement /resource_providers"] = partial(_all_providers, listed)
    cloud.answers["placement /resource_providers?"] = (200, {"resource_providers": listed})
    cloud.answers["placement /resource_providers?resources="] = (200, {"resource_providers": roots})
    cloud.answers["placement /resource_classes"] = (
        200,
        {"resource_classes": [{"name": name} for name in sorted({d.resource_class for d in known})]},
    )
    cloud.answers["placement /allocation_candidates"] = (200, {"provider_summaries": summaries})
    for d in known:
        consumers: dict[str, object] = {
            uuid: {"resources": {d.resource_class: amounts[d.uuid]}}
            for uuid, amounts in (held or {}).items()
            if d.uuid in amounts
        }
        cloud.answers[f"placement /resource_providers/{d.uuid}/allocations"] = (200, {"allocations": consumers})
    for uuid, amounts in (held or {}).items():
        allocations = {device: {"resources": {"CUSTOM_GPU": amount}} for device, amount in amounts.items()}
        content = {"allocations": allocations, "project_id": "p1", "user_id": "u1"}
        cloud.answers[f"placement /allocations/{uuid}"] = (200, content)
    nodes = {d.node: d.root for d in known}
    cloud.answers["compute /os-services"] = (200, {"services": [service(node) for node in nodes]})
    hypervisors = [hypervisor(node, root) for node, root in nodes.items()]
    cloud.answers["compute /os-hypervisors/detail"] = (200, {"hypervisors": hypervisors})
    cloud.answers["compute /os-aggregates"] = (200, {"aggregates": []})
    cloud.answers["compute /flavors/detail"] = (200, {"flavors": []})
    cloud.answers["compute /os-migrations"] = (200, {"migrations": []})
    cloud.answers["identity /projects"] = (200, {"projects": [{"id": "p1", "name": "research"}]})
    cloud.answers["identity /users"] = (200, {"users": [{"id": "u1", "name": "ada"}]})
    return cloud


def _all_providers(listed: list[dict[str, str]], path: str) -> Answer:
    return (200, {"resource_providers": listed}) if path == "/resource_providers" else (404, {})


def service(host: str, **more: Any) -> dict[str, Any]:
    """A nova-compute, as Nova lists it."""
    return {"host": host, "binary": "nova-compute", "zone": "nova", "status": "enabled", "state": "up", **more}


def hypervisor(node: str, uuid: str) -> dict[str, Any]:
    """A compute node, as Nova lists it."""
    of_service = {"host": node, "id": uuid, "disabled_reason": None}
    free = {"free_ram_mb": 1 << 20, "free_disk_gb": 1 << 20, "vcpus": 1 << 20, "vcpus_used": 1}
    state = {"status": "enabled", "state": "up", "service": of_service}
    return {"id": uuid, "hypervisor_hostname": node, **state, **free}


def instance(uuid: str, host: str | None = "gpu1", **more: Any) -> dict[str, Any]:
    """An instance with one K4200, as Nova lists it."""
    flavor = {"original_name": "g1", "extra_specs": {"pci_passthrough:alias": "k4200:1"}}
    return {
        "id": uuid,
        "name": uuid.upper(),
        "status": "ACTIVE",
        "tenant_id": "p1",
        "user_id": "u1",
        "flavor": flavor,
        "hostId": "5f4e" if host else "",
        "OS-EXT-SRV-ATTR:host": host,
        "OS-EXT-SRV-ATTR:hypervisor_hostname": host,
        "OS-EXT-STS:task_state": None,
        "OS-SRV-USG:launched_at": "2026-01-02T03:04:05.000000",
        **more,
    }


def servers(*entries: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Nova's answer with these instances."""
    return 200, {"servers": list(entries)}
