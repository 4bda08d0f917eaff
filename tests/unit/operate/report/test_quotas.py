"""Projects against their quotas on the page."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from gpustack.cloud.identity import Project
from gpustack.offer.quota.shares import Share
from gpustack.offer.quota.survey import Survey
from gpustack.operate.report.page import Report, parts
from gpustack.operate.report.quotas import QuotaTable, quota_table
from support.fleets import HOSTILE, fleet_of
from support.page import Page

AT = datetime.fromisoformat("2026-11-22T18:04:05")


def share(name: str, limit: int | None, used: int | None, own: bool = True) -> Share:
    project = Project(id=f"id-{name}", name=name)
    return Share(project=project, model="k4200", resource_class="CUSTOM_K", limit=limit, own=own, used=used)


def page(quotas: QuotaTable | None) -> Page:
    shown = Page("".join(parts(Report(fleet=fleet_of(1), at=AT, quotas=quotas))))
    assert shown.problems() == []
    return shown


def rows(shown: Page) -> list[list[str]]:
    lines = shown.find(".//*[@id='quotas']/table/tbody/tr")
    return [["|".join(" ".join(cell.itertext()).split()) for cell in line] for line in lines]


def test_projects_over_their_limit_are_first() -> None:
    table = quota_table(Survey(shares=(share("lab", 4, 1), share("all", 1, 0, own=False), share("zoo", 1, 3))))
    assert rows(page(table)) == [
        ["zoo|id-zoo|k4200|over|its|limit", "1", "3", "0"],
        ["all|id-all|k4200,|default|limit", "1", "0", "1"],
        ["lab|id-lab|k4200", "4", "1", "3"],
    ]


def test_rows_are_by_state_then_project_then_model() -> None:
    free = share("b", 4, 1)
    shares = (
        free,
        replace(free, model="a100"),
        share("a", 4, 4),
        share("c", 2, None),
        share("d", 1, 2),
        share("a", 9, 0),
    )
    rows = quota_table(Survey(shares=shares)).rows
    assert [(row["state"], row["name"], row["model"]) for row in rows] == [
        ("over", "d", "k4200"),
        ("full", "a", "k4200"),
        ("unknown", "c", "k4200"),
        ("free", "a", "k4200"),
        ("free", "b", "a100"),
        ("free", "b", "k4200"),
    ]
    unnamed = replace(free, project=Project(id="p1", name="p1"))
    assert [row["identity"] for row in quota_table(Survey(shares=(free, unnamed))).rows] == ["id-b", ""]
    assert quota_table(Survey(shares=(free,) * 500)).more == 0


def test_unknown_numbers_are_question_marks() -> None:
    table = quota_table(Survey(shares=(share("lab", None, 1, own=False), share("zoo", 2, None))))
    assert [row[1:] for row in rows(page(table))] == [["?", "1", "?"], ["2", "?", "?"]]


def test_unread_and_missing_limits_are_named() -> None:
    assert (
        "The limits are unknown: Keystone does not answer."
        in page(QuotaTable(unknown="Keystone does not answer")).words
    )
    words = page(QuotaTable(unregistered=["k4200"])).words
    assert "Keystone has no limit for k4200" in words
    assert "No project has GPUs or a limit of its own" in words


def test_without_quotas_there_is_no_table() -> None:
    shown = page(None)
    assert not shown.find(".//*[@id='quotas']")
    assert "Limits are not shown" in shown.words


def test_long_tables_are_cut_and_names_are_text() -> None:
    shown = page(quota_table(Survey(shares=tuple(share(f"{HOSTILE}{n:03}", 1, 0) for n in range(501)))))
    assert len(rows(shown)) == 500
    assert "and 1 more" in shown.words
