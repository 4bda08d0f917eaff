"""Which row of ``instance_extra`` counts if an instance has several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gpustack.novadb.model import Request
from gpustack.novadb.requests import Asked, SchedulerRequest, read_requests, scheduler_request
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


def test_requests_of_an_instance_in_capitals(tmp_path: Path) -> None:
    """Only MySQL ignores case."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell.insert("instance_extra", instance_uuid="VM-A", pci_requests=ONE)
    with cell.engine.connect() as connection:
        assert read_requests(connection, {"vm-a"}) == {"vm-a": Asked(REQUESTS, ONE)}


def test_deleted_rows_do_not_count_for_an_instance_that_lives(tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    for uuid, deleted in (("gone", 7), ("vm", 8), ("both", 0), ("both", 9)):
        cell.insert("instance_extra", instance_uuid=uuid, pci_requests=ONE, deleted=deleted)
    with cell.engine.connect() as connection:
        assert set(read_requests(connection, {"gone", "vm", "both"}, {"vm", "both"})) == {"gone", "both"}


def data(**fields: Any) -> dict[str, Any]:
    """An object as Nova serializes it."""
    return {"nova_object.name": "any", "nova_object.data": fields}


PROPERTIES = data(hw_cpu_policy="dedicated", hw_numa_nodes=2, hw_numa_mem=[512, 256], hw_numa_cpus=[[0, 1], [2]])
PROPERTIES["nova_object.data"] |= {"traits_required": ["CUSTOM_FAST"], "img_hide_hypervisor_id": True, "hw_boot": None}
HINTS = {"group": ["g"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("{", None),
        ("[]", None),
        ("[" * 100_000, None),
        (json.dumps(data(image=7)), None),
        (json.dumps(data()), SchedulerRequest(zone="", image={}, hints={})),
        (json.dumps(data(image=None, availability_zone=None)), SchedulerRequest(zone="", image={}, hints={})),
        (
            json.dumps(data(pci_requests=data(requests=[data(alias_name="a"), data(alias_name=None), data()]))),
            SchedulerRequest(zone="", image={}, hints={}, ports=2),
        ),
        (
            json.dumps(data(availability_zone="az", image=data(properties=PROPERTIES), scheduler_hints=HINTS)),
            SchedulerRequest(
                zone="az",
                image={
                    "hw_cpu_policy": "dedicated",
                    "hw_numa_nodes": "2",
                    "hw_numa_mem.0": "512",
                    "hw_numa_mem.1": "256",
                    "hw_numa_cpus.0": "0,1",
                    "hw_numa_cpus.1": "2",
                    "trait:CUSTOM_FAST": "required",
                    "img_hide_hypervisor_id": "True",
                },
                hints={"group": ("g",)},
            ),
        ),
    ],
)
def test_the_scheduler_request_is_that_of_the_row(text: str | None, expected: SchedulerRequest | None) -> None:
    with sa.create_engine("sqlite://", poolclass=sa.NullPool).connect() as connection:
        connection.execute(sa.text("CREATE TABLE request_specs (id INTEGER, instance_uuid TEXT, spec TEXT)"))
        if text is not None:
            connection.execute(sa.text("INSERT INTO request_specs VALUES (1, 'vm', :text)"), {"text": text})
        assert scheduler_request(connection, "vm") == expected
