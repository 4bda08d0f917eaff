"""The table of the demo: who has which device, by Nova's books and by the hypervisor's word."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from gpustack_demo.embedded.control import Control
from gpustack_demo.examples.devices import rows, table


class Hypervisors:
    """Two guests of gpu01, one of which is off."""

    def domains(self, host: str) -> list[dict[str, Any]]:
        if host != "gpu01":
            return []
        return [
            {"uuid": "u1", "name": "instance-1", "state": "running", "hostdevs": ["0000:84:00.0"]},
            {"uuid": "u2", "name": "instance-2", "state": "shut off", "hostdevs": ["0000:88:00.0"]},
        ]


def test_rows_and_hypervisor_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "cell.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            "CREATE TABLE instances (uuid, display_name, deleted);"
            "CREATE TABLE compute_nodes (id, host, deleted);"
            "CREATE TABLE pci_devices (compute_node_id, address, status, instance_uuid, deleted);"
            "INSERT INTO instances VALUES ('u1', 'vm1', 0), ('u2', 'vm2', 0);"
            "INSERT INTO compute_nodes VALUES (1, 'gpu01', 0), (2, 'gpu04', 0);"
            "INSERT INTO pci_devices VALUES (1, '0000:84:00.0', 'allocated', 'u1', 0),"
            " (1, '0000:88:00.0', 'allocated', 'gone', 0), (2, '0000:84:00.0', 'available', NULL, 0),"
            " (2, '0000:88:00.0', 'available', NULL, 7);"
        )
    devices = rows(str(path), cast("Control", Hypervisors()))
    assert devices == [
        ("gpu01", "0000:84:00.0", "allocated to vm1", "in vm1"),
        ("gpu01", "0000:88:00.0", "allocated to gone", "in no instance"),
        ("gpu04", "0000:84:00.0", "available", "in no instance"),
    ]
    assert table(devices).splitlines()[1] == "gpu01  0000:84:00.0  allocated to vm1   in vm1"
