"""A project's id or name means one project."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.base.errors import CloudError, PlanError
from gpustack.cloud.identity import Names, Project, distinct, names, project, project_id, project_ids, projects
from support.fleet_cloud import StandIn

VICTIM, FORGER = "a" * 32, "b" * 32


def entry(ref: str, name: str, domain: str = "default") -> dict[str, str]:
    return {"id": ref, "name": name, "domain_id": domain}


def keystone(*entries: dict[str, str]) -> Any:
    """A stand-in for Keystone with these projects. It compares names without case, as MySQL does."""
    answers: dict[str, Any] = {f"identity /projects/{e['id']}": (200, {"project": e}) for e in entries}
    for name in {e["name"] for e in entries}:
        alike = [e for e in entries if e["name"].lower() == name.lower()]
        answers[f"identity /projects?name={name}"] = (200, {"projects": alike})
    return StandIn(answers)


def test_a_project_named_like_an_id_gets_nothing_of_its_owner() -> None:
    cloud = keystone(entry(VICTIM, "victim"), entry(FORGER, VICTIM))
    assert [found.id for found in projects(cloud, VICTIM)] == [VICTIM]
    assert (project(cloud, VICTIM).name, project_id(cloud, VICTIM)) == ("victim", VICTIM)


def test_a_name_of_several_domains_lists_their_ids() -> None:
    cloud = keystone(entry(VICTIM, "research"), entry(FORGER, "research", "other"))
    with pytest.raises(PlanError, match=rf"2 projects .*{VICTIM} \(domain default\), {FORGER} \(domain other\)"):
        project_id(cloud, "research")


def test_a_project_that_was_deleted_leaves_the_spec() -> None:
    """It has no id any more by which it could be named."""
    alike = (Project(id=VICTIM, name="a", domain="x"), Project(id=FORGER, name="a", domain="y"))
    for found, remedy in (((), "by its id; if it was deleted, remove it from the spec"), (alike, "by its id")):
        with pytest.raises(PlanError) as caught:
            project_id(StandIn().connection, "a", lambda _ref, found=found: found)
        assert (caught.value.remedy or "").endswith(remedy)


def test_names_of_several_ids_are_shown_with_them() -> None:
    shown = distinct({"a": "x", "b": "y", "c": "x"})
    assert [shown(entry) for entry in "abcd"] == ["x (a)", "y", "x (c)", "d"]


@pytest.mark.parametrize(
    ("ref", "doing"), [("research", "can't look up the project 'research'"), ("", "can't list projects")]
)
def test_a_refusal_names_what_was_asked(ref: str, doing: str) -> None:
    cloud = StandIn({"identity /projects": (403, {"error": {"message": "no"}})})
    with pytest.raises(CloudError, match=doing):
        projects(cloud.connection, ref)


def test_case_distinguishes_names() -> None:
    cloud = keystone(entry(VICTIM, "Research"), entry(FORGER, "research"))
    assert project_id(cloud, "research") == FORGER


def test_keystone_lists_a_thousand_projects_at_a_time() -> None:
    """From 2025.2 on, Keystone cuts a list after `max_db_limit`, and names the next page only if a limit is asked."""
    more = {"links": {"next": "https://keystone/v3/projects?limit=1000&marker=x"}}
    answers = {
        "identity /projects?&limit=1000": (200, {"projects": [entry(VICTIM, "a")], **more}),
        f"identity /projects?&limit=1000&marker={VICTIM}": (200, {"projects": [entry(FORGER, "b")], "links": {}}),
    }
    cloud = StandIn(answers).connection
    assert [found.name for found in projects(cloud)] == ["a", "b"]
    assert names(cloud, "projects", {VICTIM, FORGER}) == Names(names={VICTIM: "a", FORGER: "b"})


def test_each_project_is_looked_up_once() -> None:
    asked: list[str] = []

    def find(name: str) -> str:
        asked.append(name)
        return f"id-{name}"

    assert project_ids(["y", "x", "y"], find) == {"x": "id-x", "y": "id-y"}
    assert sorted(asked) == ["x", "y"]
    assert project_ids([], find) == {}


def test_a_project_that_keystone_lacks_is_an_error() -> None:
    connection = StandIn({"identity /projects": (200, {"projects": []})}).connection
    with pytest.raises(PlanError, match="no project is called 'x'"):
        project_ids(["x"], lambda name: project_id(connection, name))
