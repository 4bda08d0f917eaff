"""No verdict is bolder than its evidence: whatever single piece is removed, added or falsified, nothing bolder follows.

``GPUSTACK_CELLS`` is the number of small clouds (``make explore``), ``GPUSTACK_SEED`` the first; without it a sample.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa
from sqlalchemy.sql import visitors

from gpustack.cloud import placement
from gpustack.novadb import read, tables
from gpustack.novadb.clock import Clock
from gpustack.novadb.hardware import Hardware
from gpustack.repair.hypervisor import Usage
from gpustack.repair.rules import q_allocation_drift
from support.cellfile import silent
from support.small_cells import (
    DECLARED,
    DERIVED,
    FALSIFIED,
    PRIMARY,
    SELECTION,
    SmallCloud,
    answers,
    draw,
    honest,
    set_clock,
)

CELLS, FIRST = int(os.environ.get("GPUSTACK_CELLS", "2")), int(os.environ.get("GPUSTACK_SEED", "1"))
seen: Counter[int] = Counter()


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallCloud]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        made = SmallCloud(Path(directory))
        monkeypatch.setattr(read, "now", set_clock(made, read.now))
        for name in ("providers", "inventory", "allocations_of"):
            monkeypatch.setattr(placement, name, getattr(made.placement, name))
        monkeypatch.setattr(q_allocation_drift, "stranger", made.placement.stranger)
        yield made


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CELLS))
def test_no_falsification_makes_a_verdict_bolder(cloud: SmallCloud, seed: int) -> None:
    draw(cloud, Random(seed))  # noqa: S311
    base = cloud.judged()
    seen.update(base.values())
    host_answers = honest(cloud)
    written = {answer: cloud.written(answer) for answer in (host_answers, silent)}
    for name, falsifications in FALSIFIED.items():
        for number, falsify in enumerate(falsifications):
            falsify(cloud)
            judged = cloud.judged()
            bolder = {key: bold for key, bold in judged.items() if bold > base.get(key, 0)}
            assert not bolder, f"seed {seed}, {name} {number}: {bolder}, before {base}"
            for answer, allowed in written.items() if max(judged.values(), default=0) > 1 else ():
                cloud.restore()
                falsify(cloud)
                more = cloud.written(answer) - allowed
                assert not more, f"seed {seed}, {name} {number}: apply writes {more} too"
            cloud.restore()
    for down in (1, 30, 3600, 86400):
        selection = replace(SELECTION, service_down_time=timedelta(seconds=down))
        bolder = {key: bold for key, bold in cloud.judged(selection).items() if bold > base.get(key, 0)}
        assert not bolder, f"seed {seed}, --service-down-time {down}: {bolder}, before {base}"
    for name, answer in answers(host_answers):
        assert cloud.written(answer) <= written[host_answers], f"seed {seed}, the hosts' {name}"


def test_the_sample_has_bold_and_cautious_verdicts() -> None:
    if not seen:
        pytest.skip("no small cloud was judged in this process")
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
