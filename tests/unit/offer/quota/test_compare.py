"""Plans of limits as data: the words of operations and findings, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.cloud.identity import Project
from gpustack.cloud.limits import Limit, Present
from gpustack.offer.quota.compare import compare
from gpustack.offer.quota.desired import WantedLimits

A, B = "CUSTOM_GPU_QUOTA_A100", "CUSTOM_GPU_QUOTA_K4200"
RESEARCH = Project(id="p1", name="research", domain="default")
TWIN = Project(id="p2", name="research", domain="lab")
WANTED = WantedLimits(models={A: "a100", B: "k4200"}, defaults={A: 0, B: 1}, projects={"research": {A: 4}})
OURS = "GPUs: a100 [gpustack]"


def default(name: str, limit: int, description: str = OURS) -> Limit:
    return Limit(id=f"d-{name}", resource_class=name, limit=limit, description=description)


def of(project: str, name: str, limit: int, description: str = OURS) -> Limit:
    return Limit(id=f"{project}-{name}", resource_class=name, limit=limit, project=project, description=description)


SYNCED = Present(defaults=(default(A, 0), default(B, 1)), limits=(of("p1", A, 4),))


@pytest.mark.parametrize(
    ("present", "projects", "options", "expected"),
    [
        pytest.param(
            Present(),
            [RESEARCH],
            {},
            [
                "create the default limit for a100: 0",
                "create the default limit for k4200: 1",
                "create the limit of research for a100: 4",
                "0 unchanged",
            ],
            id="empty",
        ),
        pytest.param(SYNCED, [RESEARCH], {}, ["3 unchanged"], id="synced"),
        pytest.param(
            Present(defaults=(default(A, 2, ""), default(B, 1)), limits=(of("p1", A, -1, ""),)),
            [RESEARCH],
            {},
            [
                "delete the limit of research for a100 (was -1)",
                "change the default limit for a100: 0 (was 2)",
                "create the limit of research for a100: 4",
                "1 unchanged",
            ],
            id="a default changes only without limits of projects",
        ),
        pytest.param(
            Present(defaults=(default(A, 2), default(B, 1)), limits=(of("p9", A, 3), of("p1", A, 1))),
            [RESEARCH],
            {},
            [
                "change the limit of research for a100: 4 (was 1)",
                "1 unchanged",
                "GPU753 default",
                "GPU749 p9",
            ],
            id="foreign limits keep the default",
        ),
        pytest.param(
            Present(defaults=(default(A, 0), default(B, 1)), limits=(of("p1", A, -1, ""),)),
            [RESEARCH],
            {},
            ["change the limit of research for a100: 4 (was -1)", "2 unchanged"],
            id="changed by hand",
        ),
        pytest.param(
            SYNCED,
            [],
            {},
            ["2 unchanged", "GPU740 research", "GPU749 p1: has the limit 4 of a100, which the spec lacks"],
            id="no such project",
        ),
        pytest.param(
            SYNCED,
            [RESEARCH, TWIN],
            {},
            [
                "2 unchanged",
                "GPU741 research: 2 projects have this name: p1 (domain default), p2 (domain lab)",
                "GPU749 research: has the limit 4 of a100, which the spec lacks",
            ],
            id="two of this name",
        ),
        pytest.param(
            Present(
                defaults=(*SYNCED.defaults, default("CUSTOM_GPU_QUOTA_T4", 1)),
                limits=(*SYNCED.limits, of("p9", A, 7, "by hand"), of("p9", "CUSTOM_GPU_QUOTA_T4", 2)),
            ),
            [RESEARCH],
            {"prune": True},
            [
                "delete the limit of p9 for CUSTOM_GPU_QUOTA_T4 (was 2)",
                "delete the default limit for CUSTOM_GPU_QUOTA_T4 (was 1)",
                "3 unchanged",
                "GPU749 p9: has the limit 7 of a100, which the spec lacks",
            ],
            id="prune: defaults last, and only with the mark",
        ),
        pytest.param(
            Present(defaults=(*SYNCED.defaults, default("T4", 1)), limits=(*SYNCED.limits, of("p9", "T4", 2, ""))),
            [RESEARCH],
            {"prune": True},
            ["3 unchanged", "GPU749 default: has the limit 1 of T4"],
            id="prune: not with limits of others",
        ),
        pytest.param(
            Present(
                defaults=(*SYNCED.defaults, default("VCPU", 8, "")), limits=(*SYNCED.limits, of("p9", "VCPU", 7, ""))
            ),
            [RESEARCH],
            {"prune": True},
            ["3 unchanged"],
            id="limits of others",
        ),
        pytest.param(
            Present(defaults=SYNCED.defaults, limits=SYNCED.limits, used={"p1": {A: 5, "VCPU": 9}}),
            [RESEARCH],
            {},
            ["3 unchanged", "GPU742 research: uses 5 of a100, and its limit is 4"],
            id="below the use",
        ),
        pytest.param(
            SYNCED,
            [RESEARCH],
            {"totals": {A: 3}},
            [
                "3 unchanged",
                "GPU743 default: the limit 1 of k4200 is above the 0 GPUs of all hosts",
                "GPU743 research: the limit 4 of a100 is above the 3 GPUs of all hosts",
            ],
            id="above the total",
        ),
        pytest.param(
            Present(defaults=SYNCED.defaults, limits=SYNCED.limits, complete=False, model="strict_two_level"),
            [RESEARCH],
            {},
            [
                "3 unchanged",
                "GPU751 Keystone: the enforcement model is strict_two_level; expected flat",
                "GPU748 Keystone",
            ],
            id="doubts about Keystone",
        ),
    ],
)
def test_plans(present: Present, projects: list[Project], options: dict[str, Any], expected: list[str]) -> None:
    plan = compare(WANTED, present, {"research": projects}, **options)
    lines = [operation.describe() for operation in plan.operations]
    lines.append(f"{plan.unchanged} unchanged")
    lines += [f"{found.code} {found.place}: {found.message}" for found in plan.findings]
    assert len(lines) == len(expected), lines
    assert [line for line, start in zip(lines, expected, strict=True) if not line.startswith(start)] == []
