"""``python -m gpustack_demo.examples.metadata CLOUD.json NAME``: the script that an instance's cloud-init gets.

In a real instance: ``curl http://169.254.169.254/openstack/latest/vendor_data.json``. Here, the program asks Nova's
metadata API as Neutron's agent does.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

_INSTANCE = "SELECT uuid, project_id FROM instances WHERE deleted = 0 AND display_name = ?"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the part of the vendor data for cloud-init."""
    from gpustack_demo.embedded.metadata import Metadata

    path, name = sys.argv[1:] if arguments is None else arguments
    access = json.loads(Path(path).read_text(encoding="utf-8"))
    with contextlib.closing(sqlite3.connect(f"file:{access['database']}?mode=ro", uri=True)) as cell:
        ((uuid, project),) = cell.execute(_INSTANCE, (name,))
    print(Metadata(**access["metadata"]).vendor_data(uuid, project)["cloud-init"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
