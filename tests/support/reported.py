"""Each finding that a command reports in a test is compared with its page, which names the command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from reporters import reporters

from gpustack.base.findings import Finding
from gpustack.cli import common
from gpustack.cli.registry import gpustack_name


def compare(name: str | None, findings: Iterable[Finding]) -> None:
    """Fail the test if the page of a finding does not name the command. No command reports this failure as its own."""
    command = gpustack_name(" ".join((name or "").split()))
    for code in {finding.code for finding in findings}:
        commands, _ = reporters()[code]
        if command not in commands:
            pytest.fail(f"gpustack {command} reports {code}, but its page names only: {', '.join(commands)}")


def install() -> None:
    """Compare the findings of all commands from now on."""
    noted = common.Command.note

    def note(self: Any, findings: Iterable[Finding]) -> None:
        findings = tuple(findings)
        if type(self).__module__.startswith("gpustack."):
            compare(self.cmd_name, findings)
        noted(self, findings)

    common.Command.note = note  # type: ignore[method-assign]
