"""Which row of ``instance_extra`` counts if an instance has several."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.novadb.model import Request
from gpustack.novadb.requests import Asked, read_requests
from support.cellfile import CellFile

ONE = '[{"count": 1, "alias_name": "k4200", "request_id": "r1"}]'
REQUESTS = (Request(request_id="r1", count=1, alias_name="k4200"),)
Row = tuple[str, int]
"""The text of ``pci_requests`` and ``deleted``."""


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], None),
        ([(ONE, 0)], Asked(REQUESTS, ONE)),
        ([(ONE, 0), ("[]", 7)], Asked(REQUESTS, ONE)),
        ([("[]", 7), (ONE, 0)], Asked(REQUESTS, ONE)),
        ([(ONE, 0), (ONE, 0)], Asked(REQUESTS, ONE)),
        ([(ONE, 0), ("[]", 0)], Asked(None, None)),
        ([(ONE, 0), ("[]", 0), ("[]", 0)], Asked(None, None)),
        ([(ONE, 7)], Asked(REQUESTS, ONE)),
        ([(ONE, 7), ("[]", 8)], Asked(None, None)),
    ],
)
def test_rows_that_are_not_deleted_count_first(rows: list[Row], expected: Asked | None, tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    for text, deleted in rows:
        cell.insert("instance_extra", instance_uuid="vm", pci_requests=text, deleted=deleted)
    with cell.engine.connect() as connection:
        assert read_requests(connection, {"vm"}).get("vm") == expected
