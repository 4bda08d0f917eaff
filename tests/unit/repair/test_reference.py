"""Each class, repair and outcome is described from the code that decides it."""

from __future__ import annotations

import enum

import pytest

from gpustack.changes.change import ChangeResult
from gpustack.cli.app import main
from gpustack.repair import reference
from gpustack.repair.classes import CLASSES
from gpustack.repair.verdict import Repair, Status


@pytest.mark.parametrize("kind", [Status, Repair, ChangeResult])
def test_each_member_is_listed(kind: type[enum.StrEnum]) -> None:
    assert reference.meanings(kind).keys() == {one.value for one in kind}


def test_each_repair_and_outcome_has_its_facts() -> None:
    assert reference.REPAIRS.keys() == set(Repair)
    assert reference.CODES.keys() == set(ChangeResult)
    assert {repair for letter in CLASSES for repair in reference.repairs(letter)} == set(Repair)


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        ("B", "fail-migration: asks both hosts of the migration"),
        ("L", "No repair: report only"),
        ("B", "Evidence: Since Victoria, Nova counts devices of migrations in ``error`` as used, also after"),
        ("fail-migration", "Repair fail-migration: Set an ``error`` migration to ``failed``"),
        ("undecided", "Status undecided: Not decided"),
        ("unknown", "Outcome unknown of apply and undo: The request got no answer"),
        ("failed", "Exit code 14"),
    ],
)
def test_explain_prints_it(subject: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", subject]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert text in printed
