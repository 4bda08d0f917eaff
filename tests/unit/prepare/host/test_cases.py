"""Host plans as data: each file in ``cases`` is facts and a spec, and the plan that comes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpustack.base.operations import WriteFile
from gpustack.prepare.host.plan import HostPlan, plan_host
from support.host_cases import CASES, load


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_case(path: Path) -> None:
    case, spec, machine = load(path)
    plan = plan_host(spec, machine.host)
    expected = case["plan"]
    assert summary(plan) == {
        "refused": expected.get("refused", False),
        "operations": expected.get("operations", []),
        "findings": expected.get("findings", []),
        "reboot": expected.get("reboot", []),
    }
    contents = {op.path: op.content.splitlines() for op in plan.operations if isinstance(op, WriteFile)}
    for file, lines in expected.get("lines", {}).items():
        assert [line for line in contents[file] if line in lines] == lines
    for file, lines in expected.get("no_lines", {}).items():
        assert not set(lines) & set(contents[file])
    if "messages" in expected:
        messages = [finding.message for finding in plan.findings]
        assert [text for text in expected["messages"] if not any(text in message for message in messages)] == []
    if "gpus" in expected:
        assert {gpu.address: " ".join(gpu.functions) for gpu in plan.gpus if not gpu.refused} == expected["gpus"]
    if "refused_gpus" in expected:
        assert [gpu.address for gpu in plan.gpus if gpu.refused] == expected["refused_gpus"]


def summary(plan: HostPlan) -> dict[str, Any]:
    return {
        "refused": plan.refused,
        "operations": [operation.describe() for operation in plan.operations],
        "findings": [f"{f.code} {f.severity} {f.place}" for f in plan.findings],
        "reboot": list(plan.reboot),
    }


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 25
