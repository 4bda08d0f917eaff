"""Migrations of a cell: which are read, and by what."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.novadb import moves
from support.cellfile import CellFile


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    return CellFile(f"sqlite:///{tmp_path}/cell1.sqlite")


def test_unfinished_ones_are_those_that_nova_does_not_treat_as_finished(cell: CellFile) -> None:
    for status in ("confirmed", "finished", "error", "of a later Nova", None):
        cell.move(f"vm-{status}", "gpu1", "gpu2", status)  # type: ignore[arg-type]
    cell.move("vm-deleted", "gpu1", "gpu2", "finished", deleted=3)
    with cell.engine.connect() as connection:
        assert set(moves.unfinished(connection)) == {"vm-finished", "vm-error", "vm-of a later nova", "vm-none"}


def test_all_migrations_of_instances_in_their_order(cell: CellFile) -> None:
    numbers = [cell.move(uuid, "gpu1", "gpu2", "confirmed") for uuid in ("vm1", "VM1", "vm2", "vm3")]
    with cell.engine.connect() as connection:
        found = moves.moves_of(connection, ["vm1", "vm3", "unknown"])
    assert {uuid: [move.id for move in of_one] for uuid, of_one in found.items()} == {
        "vm1": numbers[:2],
        "vm3": numbers[3:],
    }


def test_the_time_of_a_migration_is_that_of_its_last_write(cell: CellFile) -> None:
    cell.move("vm1", "gpu1", "gpu2", "error")
    cell.move("vm2", "gpu1", "gpu2", "error", updated_at=None, cross_cell_move=True)
    with cell.engine.connect() as connection:
        ((first,), (second,)) = moves.unfinished(connection).values()
    assert first.updated_at is not None
    assert second.updated_at is not None
    assert first.updated_at > second.updated_at
    assert (first.cross_cell_move, second.cross_cell_move) == (False, True)


def test_a_consumer_of_placement_may_be_a_migration(cell: CellFile) -> None:
    cell.insert("migrations", instance_uuid="vm1", status="confirmed", uuid="m1", deleted=1)
    number = cell.insert("migrations", instance_uuid="vm2", status="error", uuid="m1")
    with cell.engine.begin() as connection:
        found = moves.by_uuids(connection, {"m1", "vm1"})
        assert found.keys() == {"m1"}
        assert (found["m1"]["id"], found["m1"]["status"], found["m1"]["instance_uuid"]) == (number, "error", "vm2")
        connection.exec_driver_sql("ALTER TABLE migrations DROP COLUMN uuid")
    with cell.engine.connect() as connection:
        assert moves.by_uuids(connection, {"m1"}) == {}


def test_migrations_are_found_by_both_of_their_places(cell: CellFile) -> None:
    cell.move("vm1", "gpu1", "gpu2", "error")
    cell.move("vm2", "gpu2", "gpu2", "error")
    with cell.engine.connect() as connection:
        found = moves.by_place(moves.unfinished(connection))
    assert {place: [move.instance_uuid for move in of_place] for place, of_place in found.items()} == {
        ("gpu1", "gpu1"): ["vm1"],
        ("gpu2", "gpu2"): ["vm1", "vm2"],
    }
