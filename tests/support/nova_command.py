"""``gpustack nova …`` with a spec for one host and its facts."""

from __future__ import annotations

from typing import Any

from gpustack.cli.app import main
from support.nova_hosts import SNAPSHOTS

SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu01: [k4200]}
nova: {release: "2025.2"}
"""
SNAPSHOT = SNAPSHOTS / "k4200-prepared.json"
DROP_IN = "etc/nova/nova.conf.d/300-gpustack.conf"


def run(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    code = main(["nova", *(str(argument) for argument in arguments)])
    return code, *capsys.readouterr()
