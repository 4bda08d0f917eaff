"""Runs of changes in tests: without a journal on disk, and commands on stand-ins for clouds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpustack.changes.change import SUCCESSFUL, ChangeOutcome, CloudChange
from gpustack.changes.run import run
from gpustack.cli.cloud import OpenStackCommand
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.flavor.changes import changes, with_projects
from gpustack.offer.flavor.operations import FlavorOperation

PLACE = {"auth_url": "https://keystone/v3", "region": "R", "user": "admin", "project": "ops"}


class NoJournal:
    """Records nothing."""

    def begin(self, change: CloudChange, payload: Mapping[str, Any] | None = None) -> None:
        pass

    def end(self, outcome: ChangeOutcome) -> None:
        pass


UNRECORDED: Any = NoJournal()


@dataclass(frozen=True)
class Failure:
    """A change that was not made."""

    name: str
    error: str


def apply_flavors(api: Any, operations: Sequence[FlavorOperation], *, jobs: int = 8) -> tuple[Failure, ...]:
    """Carry operations on flavors out, and return what failed."""
    made = with_projects(api, changes(operations))
    outcomes = run(made, {"flavor": api, "flavor_access": api}, UNRECORDED, jobs=jobs)
    return tuple(
        Failure(outcome.change.name, outcome.detail) for outcome in outcomes if outcome.result not in SUCCESSFUL
    )


def results(made: Sequence[CloudChange], apis: Mapping[str, Any]) -> list[str]:
    """The results of changes, one at a time."""
    return [str(outcome.result) for outcome in run(made, apis, UNRECORDED)]


class LockStandIn:
    """The lock's requests to Nova."""

    def __init__(self) -> None:
        self.present: Aggregate | None = None

    def create_aggregate(self, cloud: object, name: str) -> int:
        self.present = Aggregate(name="gpustack-lock", hosts=frozenset(), id=1, created=datetime.now(UTC))
        return 1

    def lock(self, cloud: object) -> Aggregate | None:
        return self.present

    def change_aggregate(self, cloud: object, aggregate: int, action: str, body: Mapping[str, Any]) -> None:
        pass

    def delete_aggregate(self, cloud: object, aggregate: int) -> None:
        self.present = None


def without_cloud(monkeypatch: pytest.MonkeyPatch, state: Path, connection: object = None) -> None:
    """Let commands that change a cloud run without one: no signing in, no lock in Nova, records below ``state``."""
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setattr("gpustack.cloud.session.place_of", lambda connection: dict(PLACE))
    monkeypatch.setattr("gpustack.changes.lock.compute", LockStandIn())
    known = object() if connection is None else connection
    if connection is None:  # nobody deletes a project
        monkeypatch.setattr("gpustack.cloud.identity.projects", lambda cloud, ref: (ref,))
    monkeypatch.setattr(OpenStackCommand, "connection", lambda self, parsed_args, *, timeout=None: known)
