"""Which migrations and devices gpustack reads. A stand-in answers for Nova: tests/nova/maintenance asks a real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpustack.cloud.session import Unanswered
from gpustack.prepare.drain import cloud
from gpustack.prepare.drain.cloud import ServiceCloud


class Entry(SimpleNamespace):
    """A resource of novaclient."""

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class Nova:
    """Answers in the place of novaclient: migrations by the time of their last change, in days ago (None: never)."""

    def __init__(self) -> None:
        self.moves: dict[str, tuple[str, int | None]] = {}
        self.extra_specs: dict[str, str] = {}
        self.broken = False
        self.migrations = self.servers = self

    def list(self, *, host: str, changes_since: str | None, marker: str | None) -> list[Entry]:
        if self.broken:
            raise TypeError
        moves = {
            uuid: status
            for uuid, (status, age) in self.moves.items()
            if changes_since is None or (age is not None and age < 7)
        }
        return [] if marker else [_move(uuid, host, status) for uuid, status in moves.items()]

    def get(self, server_id: str) -> Entry:
        return Entry(id=server_id, status="ACTIVE", flavor={"extra_specs": self.extra_specs})


def _move(uuid: str, host: str, status: str) -> Entry:
    return Entry(uuid=uuid, instance_uuid=f"vm-{uuid}", status=status, source_compute=host, dest_compute="other")


@pytest.fixture
def nova() -> Nova:
    return Nova()


@pytest.fixture
def api(nova: Nova, monkeypatch: pytest.MonkeyPatch) -> ServiceCloud:
    compute = SimpleNamespace(get_endpoint=lambda: "")
    monkeypatch.setattr(cloud, "compute_of", lambda connection: (compute, None, (2, 84)))
    monkeypatch.setattr(cloud, "_client", lambda *arguments, **options: nova)
    return ServiceCloud(None)  # type: ignore[arg-type]


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
    with pytest.raises(Unanswered):
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
    assert server.devices == ((device,) if device else ())
