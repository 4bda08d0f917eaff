"""No verdict is bolder than its evidence: whatever single piece is removed, added or falsified, nothing bolder follows.

``GPUSTACK_CELLS`` is the number of small clouds (``make explore``), ``GPUSTACK_SEED`` the first; without it a sample.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from random import Random

import pytest
import sqlalchemy as sa
from sqlalchemy.sql import visitors

from gpustack.cloud import placement
from gpustack.novadb import other_cells, tables
from gpustack.novadb.hardware import Hardware
from gpustack.novadb.model import Instance
from gpustack.novadb.other_cells import Elsewhere, OtherCells
from gpustack.novadb.view import Clock, Owner
from gpustack.repair import evidence
from gpustack.repair.hypervisor import Usage
from support.cellfile import silent
from support.evidence_rule import check, small_cloud
from support.small_cells import (
    DECLARED,
    DERIVED,
    FALSIFIED,
    PRIMARY,
    SmallCloud,
    answers,
    draw,
    draw_family,
    honest,
    leak,
)

CELLS, FIRST = int(os.environ.get("GPUSTACK_CELLS", "2")), int(os.environ.get("GPUSTACK_SEED", "1"))


@pytest.fixture(scope="module")
def cloud() -> Iterator[SmallCloud]:
    with small_cloud() as made:
        yield made


_COUNTS = {draw: CELLS, draw_family: (CELLS + 3) // 4}
SAMPLE = [
    (draw, 755),  # no service has a uuid
    *((drawn, FIRST + number) for drawn, count in _COUNTS.items() for number in range(count)),
]


@pytest.mark.parametrize(("drawn", "seed"), SAMPLE)
def test_no_falsification_makes_a_verdict_bolder(
    cloud: SmallCloud, drawn: Callable[[SmallCloud, Random], None], seed: int
) -> None:
    drawn(cloud, Random(seed))  # noqa: S311
    check(cloud, f"seed {seed}")


def test_repairs_of_related_functions_make_no_new_leak(cloud: SmallCloud) -> None:
    """Nova has a physical function unavailable while a virtual one is taken, and vice versa."""
    beside = 0
    for seed in range(FIRST, FIRST + max(CELLS, 24)):
        draw_family(cloud, Random(seed))  # noqa: S311
        contradictory, leaks, taken = offered_beside_taken(cloud), cloud.leaks(), relatives_of_taken(cloud)
        freed = cloud.repaired(honest(cloud))
        beside += len(freed & taken)
        assert offered_beside_taken(cloud) <= contradictory, f"seed {seed}: offered beside a taken relative"
        assert not freed or cloud.leaks() <= leaks, f"seed {seed}: {cloud.leaks() - leaks} are new"
    assert beside, "no function was freed beside a taken one: the sample proves nothing"


_RELATIVES = (
    "SELECT DISTINCT p.id FROM pci_devices p JOIN pci_devices r ON r.compute_node_id = p.compute_node_id"
    " AND (r.address = p.parent_addr OR r.parent_addr = p.address)"
    " WHERE p.deleted = 0 AND r.deleted = 0 AND r.instance_uuid IS NOT NULL"
)


def relatives_of_taken(cloud: SmallCloud, more: str = "") -> set[int]:
    """The functions with a related one that an instance has."""
    with cloud.cells[0].engine.connect() as connection:
        return set(connection.execute(sa.text(_RELATIVES + more)).scalars())


def offered_beside_taken(cloud: SmallCloud) -> set[int]:
    return relatives_of_taken(cloud, " AND p.status = 'available'")


def only_where_mapped(others: OtherCells, here: Mapping[str, Instance | None], own_cell: str) -> dict[str, Elsewhere]:
    """A mutant of ``OtherCells.look_up``: instances are looked up only in the cell to which they are mapped."""
    assert others.sources.api
    mapped = {pointer.cell for pointer in others._mapped(others.sources.api).of_instances(here).values()}
    cells = tuple(cell for cell in others.sources.all_cells if cell.uuid in mapped)
    fewer = OtherCells(sources=replace(others.sources, all_cells=cells))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(other_cells, "contradiction", lambda *_evidence: None)
        return look_up(fewer, here, own_cell)


def sure_if_alive_here(owner: Owner | None) -> list[str]:
    """A mutant of ``evidence.doubts``: an instance that is alive in one cell is in no other."""
    return [] if owner is not None and owner.alive else evidence.doubts(owner)


look_up = OtherCells.look_up
MUTANTS = [
    (OtherCells, "look_up", only_where_mapped, ("h3",), "instance_mappings.cell_id"),
    (evidence, "doubts", sure_if_alive_here, ("h2", "h3"), "cell_mappings.database_connection"),
]


@pytest.mark.parametrize("mutated", [False, True])
@pytest.mark.parametrize(("owner", "name", "mutant", "places", "evidence"), MUTANTS, ids=["pointer", "alive"])
def test_bolder_verdicts_of_the_past_are_found(
    cloud: SmallCloud,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    mutant: Callable[..., object],
    places: tuple[str, ...],
    evidence: str,
    *,
    mutated: bool,
) -> None:
    leak(cloud, places)
    if mutated:
        monkeypatch.setattr(owner, name, mutant)
    base = cloud.judged()
    bolder = False
    for falsify in FALSIFIED[evidence]:
        falsify(cloud)
        bolder |= any(bold > base.get(key, 0) for key, bold in cloud.judged().items())
        cloud.restore()
    assert bolder == mutated


def test_the_sample_has_bold_and_cautious_verdicts(cloud: SmallCloud) -> None:
    """Drawn again here, as other processes may have judged the clouds of the test above."""
    seen: Counter[int] = Counter()
    for drawn, seed in SAMPLE:
        drawn(cloud, Random(seed))  # noqa: S311
        seen.update(cloud.judged().values())
    assert 0 in seen
    assert max(seen) > 2
    print(f"verdicts by boldness: {dict(sorted(seen.items()))}")


def test_each_column_that_a_reader_selects_has_a_falsification_or_is_primary(cloud: SmallCloud) -> None:
    """A new one is a new piece of evidence."""
    columns: set[str] = set()

    def collect(_connection: object, clause: object, *_more: object) -> None:
        if isinstance(clause, sa.Select):
            columns.update(str(one) for one in visitors.iterate(clause) if isinstance(one, sa.Column) and one.table.key)

    sa.event.listen(sa.Engine, "before_execute", collect)
    try:
        for seed in range(1, 4):
            draw(cloud, Random(seed))  # noqa: S311
            cloud.judged()
    finally:
        sa.event.remove(sa.Engine, "before_execute", collect)
    known = {column for column in columns if column.split(".")[0] in {*tables.metadata.tables, *PRIMARY}}
    assert {"services.last_seen_up", "pci_devices.status", "host_mappings.cell_id"} <= known
    assert not {column for column in known if column not in FALSIFIED and column.split(".")[0] not in PRIMARY}


def test_each_field_of_a_clock_and_of_an_answer_has_a_falsification_or_a_reason() -> None:
    changed = {f"Usage.{name}" for name, _answer in answers(silent)}
    known = {*FALSIFIED, *DECLARED, *DERIVED, *changed, "Clock.service_down_time"}
    for kind in (Clock, Usage, placement.Provider, Hardware):
        assert {f"{kind.__name__}.{one.name}" for one in fields(kind)} <= known
    assert set(DERIVED.values()) <= FALSIFIED.keys()
