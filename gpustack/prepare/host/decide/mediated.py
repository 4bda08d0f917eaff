"""Mediated devices (vGPU) on GPUs that the plan passes through as complete devices."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from gpustack.base.codes import Code
from gpustack.base.findings import Finding, finding
from gpustack.hosts.facts.model import Host
from gpustack.prepare.host.decide.targets import Targets

_DEFINITION = re.compile(r"/etc/mdevctl\.d/([^/]+)/([^/]+)")


def findings(host: Host, targets: Targets) -> Iterator[Finding]:
    """Findings about active mediated devices, and about those that mdevctl starts at boot."""
    going = targets.functions
    for function in sorted(host.pci, key=lambda f: f.bdf):
        if function.mediated and (function.address in going or function.physical_function in going):
            place = f"{host.hostname} {function.address}"
            yield finding(Code.MEDIATED_DEVICES_ACTIVE, place=place, devices=", ".join(function.mediated))
    for path, file in sorted(host.files.items()):
        defined = _DEFINITION.fullmatch(path)
        if defined is not None and _starts(file.text):
            parent = host.functions.get(defined[1])
            if parent is not None and (parent.address in going or parent.physical_function in going):
                yield finding(
                    Code.MEDIATED_DEVICE_AT_BOOT, place=f"{host.hostname} {path}", uuid=defined[2], address=defined[1]
                )


def _starts(text: str) -> bool:
    """Whether mdevctl starts a device at boot (mdevctl(8)); True if the definition can't be parsed."""
    try:
        return bool(json.loads(text).get("start") == "auto")
    except (ValueError, AttributeError, RecursionError):
        return True
