"""Changes of flavors one by one: which requests they send, what they refuse, and the way back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpustack.changes.change import ChangeOutcome, CloudChange, reversed_order
from gpustack.changes.run import run
from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.changes import AccessChange, FlavorChange, changes, with_projects
from gpustack.offer.flavor.flavors import ACCESS, ACCESS_CHANGES, MARK, SETS, PresentFlavor
from gpustack.offer.flavor.operations import CreateFlavor, DeleteFlavor, FlavorOperation
from gpustack.spec.extra_specs import ALIAS
from support.change_runs import NoJournal
from support.flavor_model import NovaModel
from support.flavor_operations import changed
from support.fleet_cloud import StandIn

SIZES = Sizes(vcpus=1, ram=64, disk=1, ephemeral=2, swap=3)
SPECS = {ALIAS: "K4200:1", SETS: ALIAS}
P, Q = "a" * 32, "b" * 32


def there(**fields: Any) -> PresentFlavor:
    known = {"id": "1", "name": "g", "sizes": SIZES, "description": MARK, "extra_specs": SPECS}
    return PresentFlavor(**{**known, **fields})


def creation(**fields: Any) -> CreateFlavor:
    return CreateFlavor(why="w", flavor=there(**{"id": "", **fields}))


def private(*projects: str, **fields: Any) -> CreateFlavor:
    return creation(public=False, access=frozenset(projects), extra_specs={**SPECS, ACCESS: "m"}, **fields)


NEW, PRIVATE = creation(), private(P, Q)


def made(cloud: NovaModel, planned: tuple[CloudChange, ...]) -> list[ChangeOutcome]:
    return list(run(planned, {"flavor": cloud, "flavor_access": cloud}, NoJournal()))


def result(cloud: NovaModel, planned: CloudChange) -> str:
    (outcome,) = made(cloud, (replace(planned, needs=()),))
    return f"{outcome.result}: {outcome.detail}".removesuffix(": ")


def one(operation: FlavorOperation) -> CloudChange:
    (change,) = changes([operation])
    return change


def actions(cloud: NovaModel) -> list[str]:
    """The writes, without the names of flavors."""
    short = {"POST /flavors/1/os-extra_specs": "set", "DELETE /flavors/1/os-extra_specs/": "unset "}
    lines = []
    for line in cloud.writes:
        for long, brief in short.items():
            line = line.replace(long, brief)
        lines.append(line.removeprefix("POST /flavors/1/action "))
    return lines


@pytest.mark.parametrize(
    ("operation", "fields", "first"),
    [
        (NEW, {}, "POST /flavors g"),  # a new UUID is nobody else's
        (NEW, {"recorded": True}, "GET"),  # an undo may find the flavor
        (creation(id="1"), {}, "GET"),
        (DeleteFlavor(why="w", flavor=there()), {}, "GET"),
    ],
)
def test_a_flavor_is_read_before_it_is_written(operation: FlavorOperation, fields: dict[str, Any], first: str) -> None:
    cloud = NovaModel([there()] if isinstance(operation, DeleteFlavor) else [])
    assert result(cloud, replace(one(operation), **fields)) == "done"
    assert cloud.requests[0].startswith(first)


def test_the_outcome_has_the_id_of_the_flavor() -> None:
    cloud = NovaModel()
    outcomes = made(cloud, changes([PRIVATE]))
    assert [outcome.id for outcome in outcomes] == list(cloud.by_id) * 2


@pytest.mark.parametrize(
    ("users", "force", "expected"),
    [(0, False, "done"), (1, False, "skipped: in use by 1 instance"), (3, True, "done")],
)
def test_a_flavor_in_use_is_deleted_only_by_force(users: int, force: bool, expected: str) -> None:
    cloud = NovaModel([there()])
    cloud.instances["1"] = users
    assert result(cloud, one(DeleteFlavor(why="w", flavor=there(), force=force))) == expected
    assert bool(cloud.by_id) is (expected != "done")


def test_a_change_does_not_ask_for_instances() -> None:
    cloud = NovaModel([there(extra_specs={**SPECS, "b": "1", "c": "1"})])
    cloud.instances["1"] = 1
    operation = changed(there(extra_specs={**SPECS, "b": "1"}), {"a": "2"}, ("b",), description=f"new {MARK}")
    assert result(cloud, one(operation)) == "done"
    assert cloud.by_id["1"] == there(extra_specs={**SPECS, "a": "2", "c": "1"}, description=f"new {MARK}")
    assert cloud.requests == [
        "GET /flavors/1",
        "DELETE /flavors/1/os-extra_specs/b",
        "POST /flavors/1/os-extra_specs ['a']",
        "PUT /flavors/1",
    ]
    (back,) = reversed_order([one(operation)])
    assert result(cloud, replace(back, recorded=True)) == "done"
    assert cloud.by_id["1"] == there(extra_specs={**SPECS, "b": "1", "c": "1"})


def test_only_what_changes_is_written() -> None:
    cloud = NovaModel([there(extra_specs={**SPECS, "b": "1"})])
    assert result(cloud, one(changed(there(extra_specs={**SPECS, "b": "1"}), {}, ("b",)))) == "done"
    assert actions(cloud) == ["unset b"]
    cloud.requests.clear()
    assert result(cloud, one(changed(there(), description=f"x {MARK}"))) == "done"
    assert cloud.writes == ["PUT /flavors/1"]


@pytest.mark.parametrize(
    ("fields", "private"),
    [({}, False), ({"public": False}, True), ({"public": False, "extra_specs": {**SPECS, ACCESS: "m"}}, True)],
)
def test_an_undo_of_a_deletion_restores_the_projects(fields: dict[str, Any], private: bool) -> None:
    """The mark of the projects is written after them: nobody uses the flavor before it is complete."""
    flavor = there(**fields, access=frozenset({P, Q}) if private else None)
    cloud = NovaModel([flavor])
    before = cloud.state()
    planned = with_projects(cloud, changes([DeleteFlavor(why="w", flavor=flavor)]))
    assert (planned[0].seen.get("access"), planned[0].seen["public"]) == ([P, Q] if private else None, not private)
    cloud.requests.clear()
    assert with_projects(cloud, planned) == planned
    assert cloud.requests == []
    assert [outcome.result for outcome in made(cloud, planned)] == ["done"]
    cloud.requests.clear()
    assert [outcome.result for outcome in made(cloud, reversed_order(planned))] == ["done"]
    assert cloud.state() == before
    grants = [f"addTenantAccess {project}" for project in (P, Q)] if private else []
    mark = ["set ['gpustack:access']"] if ACCESS in flavor.extra_specs else []
    assert actions(cloud) == ["POST /flavors g", f"set {sorted(SPECS)}", *grants, *mark]


def test_an_undo_leaves_a_private_flavor_to_which_others_gave_access() -> None:
    cloud = NovaModel()
    planned = changes([PRIVATE])
    made(cloud, planned)
    (flavor,) = cloud.by_id
    cloud.lists[flavor].add("c" * 32)
    undo = [replace(change, recorded=True) for change in reversed_order(planned)]
    access, deletion = made(cloud, tuple(undo))
    assert str(access.result) == "done"
    assert f"{deletion.result}: {deletion.detail}" == f"skipped: changed since the plan: access = {'c' * 32} (was none)"
    cloud.lists[flavor].clear()
    assert str(made(cloud, (replace(undo[1], needs=()),))[0].result) == "done"
    assert not cloud.by_id


@pytest.mark.parametrize("deleted", [True, False])
def test_an_undo_restores_extra_specs_that_nova_would_refuse(deleted: bool) -> None:
    """The flavor has them from a time, or from a client, without validation."""
    odd = {**SPECS, "quota:cpu_shares": "x"}
    cloud = NovaModel([there(extra_specs=odd)])
    before = cloud.state()
    correction = changed(there(extra_specs=odd), {"quota:cpu_shares": "9"})
    planned = changes([DeleteFlavor(why="w", flavor=there(extra_specs=odd)) if deleted else correction])
    assert [str(outcome.result) for outcome in made(cloud, planned)] == ["done"]
    undo = tuple(replace(change, recorded=True) for change in reversed_order(planned))
    assert [str(outcome.result) for outcome in made(cloud, undo)] == ["done"]
    assert cloud.state() == before


@pytest.mark.parametrize("flavors", [[there(public=False)], []])
def test_the_projects_of_other_changes_are_not_read(flavors: list[PresentFlavor]) -> None:
    cloud = NovaModel(flavors)
    operation = changed(there(public=False), grant=(P,)) if flavors else PRIVATE
    planned = changes([operation])
    assert with_projects(cloud, planned) == planned
    assert cloud.requests == []


@pytest.mark.parametrize("projects", [frozenset[str](), None])
def test_a_flavor_without_projects_has_its_mark_at_once(projects: frozenset[str] | None) -> None:
    cloud = NovaModel()
    operation = creation(id="1") if projects is None else private(id="1")
    assert result(cloud, one(operation)) == "done"
    marked = (projects is None, None if projects is None else "m")
    assert (cloud.by_id["1"].public, cloud.by_id["1"].extra_specs.get(ACCESS)) == marked
    assert len(cloud.writes) == 2


@pytest.mark.parametrize(
    ("grant", "revoke", "mark_before", "expected"),
    [
        ({Q}, set(), "old", [f"set {ACCESS}", f"+{Q}", f"set {ACCESS}"]),
        ({Q}, set(), None, [f"+{Q}", f"set {ACCESS}"]),
        (set(), {P}, "old", [f"set {ACCESS}", f"-{P}", f"set {ACCESS}"]),
        ({Q}, {P}, "old", [f"set {ACCESS}", f"+{Q}", f"-{P}", f"set {ACCESS}"]),
        ({Q}, {P}, None, [f"+{Q}", f"set {ACCESS}", f"-{P}", f"set {ACCESS}"]),
    ],
)
def test_the_mark_of_projects_is_no_old_one_while_they_change(
    grant: set[str], revoke: set[str], mark_before: str | None, expected: list[str]
) -> None:
    marked = {} if mark_before is None else {ACCESS: mark_before}
    flavor = there(public=False, access=frozenset({P}), extra_specs={**SPECS, **marked})
    cloud = NovaModel([flavor])
    before = cloud.state()
    operation = changed(flavor, grant=grant, revoke=revoke, mark="new")
    planned = changes([operation])
    assert {outcome.result for outcome in made(cloud, planned)} == {"done"}
    short = {"set ['gpustack:access']": f"set {ACCESS}", "addTenantAccess ": "+", "removeTenantAccess ": "-"}
    lines = []
    for line in actions(cloud):
        for long, brief in short.items():
            line = line.replace(long, brief)
        lines.append(line)
    assert lines == expected
    assert cloud.by_id["1"].extra_specs == {**SPECS, ACCESS: "new"}
    assert cloud.lists["1"] == ({P} | grant) - revoke
    back = [replace(change, recorded=True) for change in reversed_order(planned)]
    assert {outcome.result for outcome in made(cloud, tuple(back))} == {"done"}
    assert cloud.state() == before


def test_a_mark_of_an_interrupted_change_is_replaced() -> None:
    """Another run stopped between the projects and their mark: the next change of the flavor completes it."""
    marked = {**SPECS, ACCESS: ACCESS_CHANGES}
    cloud = NovaModel([there(public=False, access=frozenset({P}), extra_specs=marked)])
    operation = changed(there(extra_specs=marked), grant=(Q,), mark="new")
    assert result(cloud, one(operation)) == "done"
    assert actions(cloud) == [f"addTenantAccess {Q}", "set ['gpustack:access']"]
    assert cloud.by_id["1"].extra_specs[ACCESS] == "new"


def test_a_project_that_another_run_lets_in_meanwhile_is_left_to_that_run() -> None:
    marked = {**SPECS, ACCESS: ACCESS_CHANGES}
    cloud = NovaModel([there(public=False, access=frozenset({P, Q}), extra_specs=marked)])
    operation = changed(there(), grant=(Q,), mark="new")
    assert result(cloud, one(operation)) == "unchanged"
    assert cloud.writes == []


def test_an_undo_completes_an_interrupted_change_of_projects() -> None:
    """The projects are restored already, but their mark is that of the interrupted change."""
    cloud = NovaModel([there(public=False, access=frozenset({P}), extra_specs={**SPECS, ACCESS: ACCESS_CHANGES})])
    operation = changed(there(extra_specs={**SPECS, ACCESS: "old"}), grant=(Q,), mark="new")
    back = replace(one(operation).reverse(), recorded=True, partial=True)
    assert result(cloud, back) == "done"
    assert cloud.by_id["1"].extra_specs[ACCESS] == "old"
    assert cloud.lists["1"] == {P}
    assert result(cloud, back) == "unchanged"


def test_a_change_of_projects_is_shown_by_project() -> None:
    operation = changed(there(), grant=(Q,), revoke=(P,), mark="m")
    shown = [[change.describe(), *change.details()] for change in changes([operation])]
    head = "change the projects of g: w"
    assert shown == [[head, f"+ project {Q}"], [head, f"- project {P}"]]


@pytest.mark.parametrize("fields", [{"description": "theirs", "extra_specs": {}}, None])
def test_an_undo_leaves_a_flavor_without_the_mark(fields: dict[str, Any] | None) -> None:
    cloud = NovaModel([there(**fields)] if fields else [])
    specs = {"hw:numa_nodes": "1"}
    planned = FlavorChange(
        why="w", id="1", name="g", seen={"extra_specs": dict.fromkeys(specs)}, wanted={"extra_specs": specs}
    )
    expected = "the flavor does not have gpustack's mark" if fields else "it does not exist any more"
    assert result(cloud, replace(planned, recorded=True)) == f"skipped: {expected}"
    assert cloud.writes == []


COMPLETE = {**SIZES.to_dict(), "public": True, "description": MARK, "extra_specs": SPECS}


@pytest.mark.parametrize(
    ("seen", "wanted", "reason"),
    [
        (None, COMPLETE, ""),
        ({**COMPLETE, "access": [P]}, None, ""),
        (None, {key: value for key, value in COMPLETE.items() if key != "public"}, "a part of the flavor only"),
        ({"extra_specs": {}}, None, "a part of the flavor only"),
        (None, {**COMPLETE, "extra_specs": "a"}, "names and values"),
        ({"extra_specs": {"a": None}}, {"extra_specs": {"a": "1"}}, ""),
        ({"description": "a"}, {"description": "b"}, ""),
        ({"description": "a"}, {"extra_specs": {}}, "different keys"),
        ({"vcpus": 1}, {"vcpus": 2}, "Nova changes no sizes"),
        (COMPLETE, COMPLETE, "Nova changes no sizes"),
    ],
)
def test_a_journal_has_changes_that_nova_makes(seen: Any, wanted: Any, reason: str) -> None:
    found = FlavorChange(why="", id="1", name="g", seen=seen, wanted=wanted).permitted()
    assert reason in found
    assert bool(found) is bool(reason)


def keystone(*known: str) -> StandIn:
    return StandIn({f"identity /projects/{p}": (200, {"project": {"id": p, "name": p}}) for p in known})


@pytest.mark.parametrize(
    ("known", "flavor", "granted"),
    [((P, Q), [P, Q], {P: True, Q: False}), ((P,), [P], {P: True, Q: False}), ((), [], {Q: False})],
)
def test_an_undo_leaves_deleted_projects_out(
    known: tuple[str, ...], flavor: list[str], granted: dict[str, bool]
) -> None:
    cloud = keystone(*known).connection
    deleted = FlavorChange(why="", id="1", name="g", seen=None, wanted={**COMPLETE, "access": [P, Q]})
    assert deleted.remaining(cloud).wanted == {**COMPLETE, "access": flavor}
    about = {"mark": "", "mark_before": ""}
    access = AccessChange(why="", id="1", name="g", seen={P: False, Q: True}, wanted={P: True, Q: False}, about=about)
    remaining = access.remaining(cloud)
    assert remaining is not None
    assert remaining.wanted == granted
    assert remaining.seen == {project: not now for project, now in granted.items()}
    only = replace(access, seen={P: False}, wanted={P: True})
    assert (only.remaining(cloud) is None) is (P not in known)


def test_an_undo_needs_no_flavor_that_others_deleted() -> None:
    cloud = NovaModel()
    planned = changes([PRIVATE])
    made(cloud, planned)
    (flavor,) = cloud.by_id
    cloud.delete(flavor)
    back = [replace(change, recorded=True) for change in reversed_order(planned)]
    assert [outcome.result for outcome in made(cloud, back)] == ["unchanged", "unchanged"]
    grant = replace(back[0], seen={P: False}, wanted={P: True})
    assert [(outcome.result, outcome.detail) for outcome in made(cloud, [grant])] == [
        ("skipped", "it does not exist any more")
    ]


@pytest.mark.parametrize("wanted", [None, COMPLETE, {"extra_specs": {"a": "1"}}])
def test_an_undo_without_projects_asks_for_none(wanted: Any) -> None:
    cloud = keystone()
    planned = FlavorChange(why="", id="1", name="g", seen=COMPLETE if wanted is None else None, wanted=wanted)
    assert planned.remaining(cloud.connection) == planned
    assert cloud.requests == []


def test_changes_of_one_flavor_need_one_another() -> None:
    flavor = there(id="old")
    operations = [DeleteFlavor(why="w", flavor=flavor), PRIVATE, creation(name="other")]
    planned = changes(operations)
    assert [(change.key, change.needs) for change in planned] == [
        ("flavor:g:0", ()),
        ("flavor:g:1", ("flavor:g:0",)),
        ("flavor_access:g:2", ("flavor:g:1",)),
        ("flavor:other:3", ()),
    ]
    assert planned[1].id == planned[2].id != "old"


@pytest.mark.parametrize(
    ("seen", "wanted", "expected"),
    [
        (None, COMPLETE, ["+ pci_passthrough:alias = K4200:1"]),
        (
            {"extra_specs": {"a": "1", "b": None, SETS: "x"}},
            {"extra_specs": {"a": None, "b": "2", SETS: "y"}},
            ["- a (was 1)", "+ b = 2"],
        ),
        ({"description": "a"}, {"description": "b"}, ["~ description = b (was a)"]),
        ({"extra_specs": {SETS: "x"}}, {"extra_specs": {SETS: "y"}}, ["~ gpustack's mark"]),
    ],
)
def test_details_hide_the_mark(seen: Any, wanted: Any, expected: list[str]) -> None:
    shown = FlavorChange(why="", id="1", name="g", seen=seen, wanted=wanted).details()
    assert [line for line in expected if line not in shown] == []
    assert not [line for line in shown if "gpustack:" in line]
