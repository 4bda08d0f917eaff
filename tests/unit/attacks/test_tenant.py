"""A tenant writes gpustack's marks into metadata, and names a project like the id of another one."""

from __future__ import annotations

import argparse
import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import PlanError
from gpustack.cli.app import Gpustack
from gpustack.cli.common import Lister
from gpustack.cloud import identity
from gpustack.cloud.marks import MarkKind, Since, marks, metadata_after, metadata_of
from gpustack.cloud.servers import Event, Server
from support.attacks import attacked, variants
from support.fleet_cloud import StandIn

VICTIM = "0123456789abcdef0123456789abcdef"
EVENTS: dict[str, list[tuple[str, str, str]]] = {
    # what, who, request; the newest first
    "none": [],
    "own stop": [("stop", "tenant", "r1"), ("create", "tenant", "r0")],
    "own move": [("live-migration", "tenant", "r1"), ("create", "tenant", "r0")],
    "another request": [("reboot", "admin", "r1"), ("create", "tenant", "r0")],
    "unknown request": [("stop", "admin", "r1"), ("create", "tenant", "gone")],
    "a stop before": [("create", "tenant", "r0"), ("stop", "admin", "r9")],
}


def forged(mark: tuple[MarkKind, list[tuple[str, str, str]]], _directory: Path) -> None:
    kind, events = mark
    actions = tuple(Event(what=what, user=user, request=request) for what, user, request in events)
    metadata = {**metadata_of(kind, "gpu1"), **metadata_after("r0")}
    for found in marks(Server(id="vm", metadata=metadata, actions=actions), "admin"):
        assert not found.recorded
        assert found.since is not Since.OURS


def named_like_an_id(_directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    attacker = {"id": "f" * 32, "name": VICTIM, "domain_id": "d"}
    victim = {"id": VICTIM, "name": "victim", "domain_id": "d"}
    answers: dict[str, Any] = {
        f"identity /projects/{VICTIM}": (200, {"project": victim}),
        "identity /projects?name=": (200, {"projects": [attacker]}),
    }
    cloud: Any = StandIn(answers=answers)
    assert [entry.id for entry in identity.projects(cloud, VICTIM)] == [VICTIM]
    assert identity.project_id(cloud, VICTIM) == VICTIM


def twins(_directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [{"id": letter * 32, "name": "team", "domain_id": letter} for letter in "ab"]
    listed += [{"id": "c" * 32, "name": "TEAM", "domain_id": "c"}]
    cloud: Any = StandIn(answers={"identity /projects?name=": (200, {"projects": listed})})
    with pytest.raises(PlanError, match="2 projects"):
        identity.project(cloud, "team")


class ProjectList(Lister):
    """A list with the names of projects."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        name: str = parsed_args.name
        return ("a", "b", "c"), [(name, "-1.5", "-")]


FORMULAS = (
    *("=1+1", "+1-1", "-1+cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "\r=1", "\n=1"),
    *("\uff1d1+1", "\uff0b1-1", "\uff0d1+1", "\uff20SUM(1)"),  # full-width
)


def formula(name: str, _directory: Path) -> None:
    """A spreadsheet runs text that begins like a formula."""
    listing = ProjectList(Gpustack(), None)
    listing.app.stdout = io.StringIO()
    arguments = listing.get_parser("gpustack list").parse_args(["-f", "csv"])
    arguments.name = name
    listing.run(arguments)
    _, row = csv.reader(io.StringIO(listing.app.stdout.getvalue(), newline=""))
    assert row == [f"'{name}", "-1.5", "-"]


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {
        **variants(
            forged,
            {f"{kind.name} {name}": (kind, events) for kind in MarkKind for name, events in EVENTS.items()},
        ),
        **variants(formula, {name: name for name in FORMULAS}),
        "named like an id": named_like_an_id,
        "twins": twins,
    },
    {
        "gpustack.cloud.marks:marks": {"gpustack.cloud.marks:_compared": lambda *_: (Since.OURS, True)},
        "gpustack.cloud.identity:projects": {"gpustack.cloud.identity:_ID": re.compile("(?!)")},
    },
)
