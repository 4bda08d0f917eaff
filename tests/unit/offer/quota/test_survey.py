"""Projects with their limits and use: unknown numbers are unknown."""

from __future__ import annotations

import pytest

from gpustack.base.errors import CloudError
from gpustack.cloud.identity import Project
from gpustack.cloud.limits import Limit, Present
from gpustack.offer.quota.desired import WantedLimits
from gpustack.offer.quota.survey import survey
from support.limits import MARKER, StandInLimits, limited

WANTED = WantedLimits(models={MARKER: "k4200"}, defaults={MARKER: 1})
NAMES = (Project(id="p1", name="research"), Project(id="p2", name="lab"))


def rows(api: StandInLimits, *projects: str) -> list[tuple[str | int | None, ...]]:
    return [
        (share.project.name, share.model, share.limit, share.source, share.used, share.free, share.state)
        for share in survey(api, WANTED, projects).shares
    ]


def test_projects_with_gpus_or_limits_are_listed() -> None:
    api = StandInLimits(limited(1, p1=4, p3=0), NAMES, {"p1": {MARKER: 5, "VCPU": 9}, "p2": {MARKER: 1}})
    assert rows(api, "p2", "") == [
        ("research", "k4200", 4, "project", 5, 0, "over"),
        ("lab", "k4200", 1, "default", 1, 0, "full"),
        ("p3", "k4200", 0, "project", 0, 0, "full"),
    ]


@pytest.mark.parametrize(
    ("api", "expected", "gap"),
    [
        pytest.param(
            StandInLimits(limited(1, complete=False, p1=4), NAMES, {"p1": {MARKER: 1}}),
            [("research", "k4200", 4, "project", 1, 3, "free"), ("lab", "k4200", None, "unknown", 0, None, "unknown")],
            "the limits of other projects may be missing",
            id="a default may be replaced by a limit that is not listed",
        ),
        pytest.param(
            StandInLimits(limited(1, p1=4), NAMES, fails=("used",)),
            [
                ("research", "k4200", 4, "project", None, None, "unknown"),
                ("lab", "k4200", 1, "default", None, None, "unknown"),
            ],
            "used does not answer; the use of limits is unknown",
            id="Placement does not answer",
        ),
        pytest.param(
            StandInLimits(limited(-1, p1=2), NAMES),
            [("research", "k4200", 2, "project", 0, 2, "free"), ("lab", "k4200", -1, "default", 0, None, "unknown")],
            "",
            id="-1 depends on the version of oslo.limit",
        ),
        pytest.param(
            StandInLimits(limited(1), fails=("all_projects",)),
            [("p1", "k4200", 1, "default", 0, 1, "free"), ("p2", "k4200", 1, "default", 0, 1, "free")],
            "",
            id="names are not known",
        ),
    ],
)
def test_unknown_numbers_are_not_guessed(api: StandInLimits, expected: list[object], gap: str) -> None:
    assert rows(api, "p1", "p2") == expected
    gaps = survey(api, WANTED, ["p1"]).gaps
    assert ("; ".join(gaps).startswith(gap) and bool(gaps)) if gap else gaps == ()


def test_missing_defaults_are_named() -> None:
    assert survey(StandInLimits(limited(None)), WANTED, ["p1"]).unregistered == ("k4200",)


def test_keystone_must_answer() -> None:
    with pytest.raises(CloudError, match="present does not answer"):
        survey(StandInLimits(Present(), fails=("present",)), WANTED, [])


def test_metrics_need_no_request_for_each_project() -> None:
    api = StandInLimits(Present(defaults=(Limit(id="r", resource_class=MARKER, limit=1),)))
    survey(api, WANTED, [f"p{number}" for number in range(50)], with_use=False)
    assert api.asked == ["present", "all_projects"]
