"""The tables of options are those of the installed releases: names, types, limits, deprecated names, defaults."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gpustack.nova_options import releases, tables
from gpustack.nova_options.options import ValueType
from gpustack_demo.embedded.environment import ensure

TOOL = Path(__file__).parents[3] / "tools" / "nova_imported.py"
LIBRARIES = sorted({r["source"] for r in tables.table("options").records if "/" not in r["source"]})


def imported(name: str) -> list[dict]:
    """The options as the installed Nova has them."""
    environment = ensure(name)
    namespaces = "".join(f"namespace = {name}\n" for name in ("nova.conf", *LIBRARIES))
    command = [str(environment.program("python")), "-W", "ignore", str(TOOL)]
    run = subprocess.run(
        command, input=namespaces, capture_output=True, text=True, check=True, env=environment.variables()
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.parametrize("name", ["2025.2", "2026.2"])
def test_the_tables_are_those_of_installed_nova(name):
    table = releases.table(releases.release(name))
    different, names = {}, set()
    for record in imported(name):
        path = f"{record['group']}/{record['name']}"
        names.add(path)
        option = table.named.get(path)
        if option is None or record["type"] == "Unknown" or option.type.name == "Unknown":
            different |= {} if option else {path: "not in the tables"}
            continue
        old = {old if "/" in old else f"{record['group']}/{old}" for old in record.get("old", ())}
        default = record["default"]
        expected = (ValueType.of(record), record.get("multi", False), record.get("secret", False), len(old))
        actual = (option.type, option.multi, option.secret, len(option.old_names))
        if expected != actual:
            different[path] = (expected, actual)
        if not option.computed and option.default != (tuple(default) if isinstance(default, list) else default):
            different[f"{path}: default"] = (default, option.default)
    assert different == {}
    dynamic = {option.path for option in table.dynamic} | {"neutron_tunnel/numa_nodes"}
    assert set(table.named) - names <= dynamic
