"""``python -m gpustack_demo.examples.devices CLOUD.json``: the owner of each GPU by Nova and by the hypervisor.

With a real cloud, read ``nova.pci_devices`` with a database client, and run ``virsh dumpxml`` on each host.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.base.files import write_atomic

if TYPE_CHECKING:
    from gpustack_demo.embedded.control import Control
    from gpustack_demo.embedded.nova import EmbeddedNova

_ROWS = """
SELECT c.host, p.address, p.status, p.instance_uuid FROM pci_devices p JOIN compute_nodes c ON c.id = p.compute_node_id
WHERE p.deleted = 0 AND c.deleted = 0 ORDER BY c.host, p.address
"""


def write_access(nova: EmbeddedNova, path: Path) -> None:
    """Write the access data of an embedded Nova's hypervisors, cell database and metadata API. Mode 0600."""
    port, token = nova.control.access
    database = nova.database_url().removeprefix("sqlite:///")
    content = {"port": port, "token": token, "database": database, "metadata": asdict(nova.metadata)}
    write_atomic(path, json.dumps(content), mode=0o600)


def rows(database: str, control: Control) -> list[tuple[str, str, str, str]]:
    """Host, address, state in the row, and state on the hypervisor, of every device."""
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as cell:
        names = dict(cell.execute("SELECT uuid, display_name FROM instances WHERE deleted = 0"))
        records = list(cell.execute(_ROWS))
    used = {
        (host, address): names.get(domain["uuid"], domain["name"])
        for host in {row[0] for row in records}
        for domain in control.domains(host)
        if domain["state"] == "running"
        for address in domain["hostdevs"]
    }
    return [
        (
            host,
            address,
            f"{status} to {names.get(owner, owner)}" if owner else status,
            f"in {used[host, address]}" if (host, address) in used else "in no instance",
        )
        for host, address, status, owner in records
    ]


def table(lines: Iterable[tuple[str, ...]]) -> str:
    """The rows in aligned columns."""
    all_lines = [("Host", "Address", "pci_devices", "Hypervisor"), *lines]
    widths = [max(map(len, column)) for column in zip(*all_lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in all_lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    from gpustack_demo.embedded.control import Control

    (path,) = sys.argv[1:] if arguments is None else arguments
    access = json.loads(Path(path).read_text(encoding="utf-8"))
    print(table(rows(access["database"], Control(access["port"], access["token"]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
