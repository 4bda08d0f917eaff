"""Host plans as data: each file in ``tests/unit/prepare/host/cases`` has facts, a spec, and the expected plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gpustack.prepare.host.plan import plan_host
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from support.boot_simulation import Machine
from support.host_samples import changed, snapshot

SPEC = parse_spec(
    'version: 1\nmodels:\n  k4200: {match: {vendor: "10de", product: "11b4"}}\nhosts: {gpu01: [k4200]}\n', "test"
)
"""The talk's cards, on one host."""
CASES = sorted((Path(__file__).parents[1] / "unit" / "prepare" / "host" / "cases").glob("*.yaml"))


def load(path: Path) -> tuple[dict[str, Any], Spec, Machine]:
    """A case: its data, its spec, and its host after the steps in ``before``."""
    case = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    machine = Machine(changed(snapshot(case["host"]), case.get("changes", {})))
    spec = parse_spec(yaml.safe_dump({"version": 1, **case["spec"]}), path.name)
    for step in case.get("before", []):
        if "spec" in step:
            machine.carry_out(
                plan_host(parse_spec(yaml.safe_dump({"version": 1, **step["spec"]}), path.name), machine.host)
            )
        elif step == "prepared":
            machine.carry_out(plan_host(spec, machine.host))
        elif step == "prepared, not rebooted":
            machine.carry_out(plan_host(spec, machine.host), reboot=False)
        elif step == "booted":
            machine.boot()
        elif "only" in step:  # the run was interrupted after this number of operations
            for operation in plan_host(spec, machine.host).operations[: step["only"]]:
                machine.do(operation)
        else:
            machine.raw = changed(machine.raw, step["changes"])
    return case, spec, machine
