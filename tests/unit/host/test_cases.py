"""Host plans as data: each file in ``cases`` is facts and a spec, and the plan that comes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from simulation import Machine, changed, snapshot

from gpustack.host.plan import HostPlan, plan_host
from gpustack.operations import WriteFile
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec

CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))


def load(path: Path) -> tuple[dict[str, Any], Spec, Machine]:
    """A case: its data, its spec and its host. ``after`` says how far an earlier spec was carried out before."""
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
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
        elif "only" in step:  # the run broke after so many operations
            for operation in plan_host(spec, machine.host).operations[: step["only"]]:
                machine.do(operation)
        else:
            machine.raw = changed(machine.raw, step["changes"])
    return case, spec, machine


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_case(path: Path) -> None:
    case, spec, machine = load(path)
    plan = plan_host(spec, machine.host)
    wanted = case["plan"]
    assert summary(plan) == {
        "refused": wanted.get("refused", False),
        "operations": wanted.get("operations", []),
        "findings": wanted.get("findings", []),
        "reboot": wanted.get("reboot", []),
    }
    written = {op.path: op.content.splitlines() for op in plan.operations if isinstance(op, WriteFile)}
    for file, lines in wanted.get("lines", {}).items():
        assert [line for line in written[file] if line in lines] == lines
    for file, lines in wanted.get("no_lines", {}).items():
        assert not set(lines) & set(written[file])
    if "messages" in wanted:
        said = [finding.message for finding in plan.findings]
        assert [text for text in wanted["messages"] if not any(text in message for message in said)] == []
    if "gpus" in wanted:
        assert {gpu.address: " ".join(gpu.functions) for gpu in plan.gpus if not gpu.refused} == wanted["gpus"]
    if "refused_gpus" in wanted:
        assert [gpu.address for gpu in plan.gpus if gpu.refused] == wanted["refused_gpus"]


def summary(plan: HostPlan) -> dict[str, Any]:
    return {
        "refused": plan.refused,
        "operations": [operation.describe() for operation in plan.operations],
        "findings": [f"{f.code} {f.severity} {f.place}" for f in plan.findings],
        "reboot": list(plan.reboot),
    }


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 25
