"""Which migrations and devices the drain of a host reads. tests/nova/maintenance asks a real Nova."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest

from gpustack.base.errors import CloudError
from gpustack.cloud import server_actions
from gpustack.cloud.server_actions import ServiceCloud
from support.fleet_cloud import Answer, StandIn


@dataclass
class Nova:
    """Migrations by the time of their last change, in days ago (None: never)."""

    moves: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    extra_specs: dict[str, str] = field(default_factory=dict)
    broken: bool = False
    task: str | None = None

    def migrations(self, path: str) -> Answer:
        if self.broken:
            return 200, {}
        since = parse_qs(path.partition("?")[2]).get("changes-since", [None])[0]
        first = datetime.fromisoformat(since) if since else None
        moves = {
            uuid: status
            for uuid, (status, age) in self.moves.items()
            if first is None or (age is not None and datetime.now(UTC) - timedelta(days=age) > first)
        }
        return 200, {"migrations": [_move(uuid, status) for uuid, status in moves.items()]}

    def server(self, path: str) -> Answer:
        flavor = {"extra_specs": self.extra_specs}
        state = {"status": "ACTIVE", "OS-EXT-STS:task_state": self.task}
        return 200, {"server": {"id": path.rpartition("/")[2], "flavor": flavor, **state}}


def _move(uuid: str, status: str) -> dict[str, Any]:
    instance = f"vm-{uuid}"
    return {
        "uuid": uuid,
        "instance_uuid": instance,
        "status": status,
        "source_compute": "gpu1",
        "dest_compute": "other",
    }


@pytest.fixture
def nova() -> Nova:
    return Nova()


@pytest.fixture
def api(nova: Nova, monkeypatch: pytest.MonkeyPatch) -> ServiceCloud:
    monkeypatch.setattr(server_actions, "_client", lambda *arguments: SimpleNamespace())
    cloud = StandIn({"compute /os-migrations?host=gpu1": nova.migrations, "compute /servers/": nova.server})
    return ServiceCloud(cloud.connection)


def statuses(api: ServiceCloud) -> dict[str, str]:
    return {move.server: move.status for move in api.migrations("gpu1")}


def test_old_unfinished_migrations_are_found(api: ServiceCloud, nova: Nova) -> None:
    nova.moves = {"new": ("running", 0), "old": ("migrating", 30), "never": ("accepted", None), "over": ("done", 30)}
    expected = {"vm-new": "running", "vm-old": "migrating", "vm-never": "accepted"}
    assert statuses(api) == expected
    assert statuses(api) == expected


def test_an_old_migration_that_ends_is_over(api: ServiceCloud, nova: Nova) -> None:
    nova.moves = {"old": ("migrating", 30)}
    assert statuses(api) == {"vm-old": "migrating"}
    nova.moves = {"old": ("error", 0), "new": ("running", 0)}
    assert statuses(api) == {"vm-new": "running"}


def test_all_migrations_are_read_again_after_a_failed_first_read(api: ServiceCloud, nova: Nova) -> None:
    nova.moves = {"old": ("migrating", 30)}
    nova.broken = True
    with pytest.raises(CloudError):
        api.migrations("gpu1")
    nova.broken = False
    assert statuses(api) == {"vm-old": "migrating"}


def test_instances_that_left_are_those_of_a_week(api: ServiceCloud, nova: Nova) -> None:
    nova.moves = {"new": ("confirmed", 1), "old": ("confirmed", 30)}
    assert api.left("gpu1") == ("vm-new",)


@pytest.mark.parametrize(
    ("key", "device"),
    [
        ("resources:VGPU", "VGPU"),
        ("resources1:VGPU", "VGPU"),
        ("resources:CUSTOM_NVIDIA_11", "CUSTOM_NVIDIA_11"),
        ("resources_gpu-1:CUSTOM_NVIDIA_11", "CUSTOM_NVIDIA_11"),
        ("resources:VCPU", None),
        ("trait:CUSTOM_NVIDIA_11", None),
    ],
)
def test_resource_classes_of_mediated_devices(api: ServiceCloud, nova: Nova, key: str, device: str | None) -> None:
    nova.extra_specs = {key: "1"}
    server = api.server("vm")
    assert server is not None
    assert server.demands == ((device,) if device else ())


def test_an_instance_is_read_alone(api: ServiceCloud) -> None:
    found = api.server("vm1")
    assert found is not None
    assert (found.id, found.status) == ("vm1", "ACTIVE")


@pytest.mark.parametrize(
    ("status", "task", "idle"),
    [("running", None, True), ("confirming", None, False), ("migrating", "migrating", False)],
)
def test_a_migration_is_idle_if_nothing_happens_to_its_instance(
    api: ServiceCloud, nova: Nova, status: str, task: str | None, idle: bool
) -> None:
    nova.moves, nova.task = {"a": (status, 0)}, task
    assert [move.idle for move in api.migrations("gpu1")] == [idle]


def test_an_old_nova_is_refused_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_actions, "_client", lambda *arguments: SimpleNamespace())
    with pytest.raises(CloudError, match="can't take a host out of service"):
        ServiceCloud(StandIn(newest=(2, 60)).connection)
