"""What holds of every plan and of every interruption, on a model of Nova's API."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustack.base.errors import FlavorError
from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.apply import deletion, plan, resulting
from gpustack.offer.flavor.compare import FlavorChoices
from gpustack.offer.flavor.flavors import ACCESS, PresentFlavor, WantedFlavor, access_mark
from gpustack.offer.flavor.operations import ChangeFlavor
from gpustack.spec.extra_specs import ALIAS
from support.change_runs import apply_flavors as apply
from support.flavor_model import NovaModel

PROJECTS = {"research": "1" * 32, "teaching": "2" * 32, "admin": "3" * 32}
SMALL, LARGE = Sizes(vcpus=8, ram=32768, disk=40), Sizes(vcpus=16, ram=65536, disk=80)
ALL = FlavorChoices(adopt=True, replace=frozenset({"a", "b", "c"}), prune=True, check_access=True)

keys = st.sampled_from(["hw:cpu_policy", "hw:numa_nodes", "quota:x", "x" * 255, "y" * 200, "trait:CUSTOM_A"])
values = st.sampled_from(["1", "2", "required"])
accesses = st.none() | st.lists(st.sampled_from(sorted(PROJECTS)), unique=True, max_size=3).map(tuple)
names = st.sampled_from(["a", "b", "c"])


@pytest.fixture(scope="module", autouse=True)
def _one_request_at_a_time() -> Iterator[None]:
    """An interrupted run ends at the same request each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpustack.cloud.session.AT_ONCE", 1)
        yield


@st.composite
def wanteds(draw: st.DrawFn) -> list[WantedFlavor]:
    return [
        WantedFlavor(
            name=name,
            sizes=draw(st.sampled_from([SMALL, LARGE])),
            gpus={"K4200": 1},
            extra_specs={ALIAS: draw(st.sampled_from(["K4200:1", "K4200:2"])), **draw(st.dictionaries(keys, values))},
            access=draw(accesses),
            description=draw(st.sampled_from(["", "for the course"])),
        )
        for name in draw(st.lists(names, unique=True))
    ]


@st.composite
def clouds(draw: st.DrawFn) -> NovaModel:
    """A cloud that somebody else's flavors and an earlier spec's are in, with hands laid on some of them."""
    foreign = [
        PresentFlavor(
            id=f"foreign-{name}",
            name=name,
            sizes=draw(st.sampled_from([SMALL, LARGE])),
            public=draw(st.booleans()),
            extra_specs=draw(st.dictionaries(keys, values)),
        )
        for name in draw(st.lists(names, unique=True, max_size=2))
    ]
    cloud = NovaModel(foreign, projects=PROJECTS)
    earlier = [flavor for flavor in draw(wanteds()) if cloud.by_name(flavor.name) is None]
    assert not apply(cloud, plan(cloud, earlier).operations, jobs=1)
    for flavor in list(cloud.by_id.values()):
        if draw(st.booleans()):
            specs = dict(flavor.extra_specs)
            for key in draw(st.lists(st.sampled_from(sorted([*specs, "foreign:key"])), unique=True)):
                if not specs.pop(key, None):
                    specs[key] = "by hand"
            cloud.by_id[flavor.id] = dataclasses.replace(flavor, extra_specs=specs)
        if flavor.id in cloud.lists and draw(st.booleans()):
            cloud.lists[flavor.id] ^= {PROJECTS["admin"]}
            cloud.lists_touched = True
    cloud.requests.clear()
    return cloud


def run(cloud: NovaModel, flavors: list[WantedFlavor], choices: FlavorChoices = ALL, jobs: int = 1) -> bool:
    """Whether it went through."""
    from gpustack.base.errors import CloudError

    try:
        return not apply(cloud, plan(cloud, flavors, choices).operations, jobs=jobs)
    except CloudError:
        return False


def holds(cloud: NovaModel, flavors: list[WantedFlavor]) -> bool:
    for flavor in flavors:
        present = cloud.by_name(flavor.name)
        assert present is not None
        assert (present.sizes, present.public) == (flavor.sizes, flavor.public)
        assert flavor.extra_specs.items() <= present.extra_specs.items()
        assert present.managed
        assert present.owned == flavor.extra_specs.keys()
        if flavor.access is not None:
            assert cloud.lists[present.id] == {PROJECTS[project] for project in flavor.access}
    return True


@settings(max_examples=200)
@given(cloud=clouds(), flavors=wanteds())
def test_after_apply_there_is_nothing_to_do(cloud: NovaModel, flavors: list[WantedFlavor]) -> None:
    assert run(cloud, flavors)
    assert holds(cloud, flavors)
    before = len(cloud.requests)
    assert plan(cloud, flavors, dataclasses.replace(ALL, check_access=False)).operations == ()
    named = sorted({project for flavor in flavors for project in flavor.access or ()})
    lookups = [f"GET /projects?name={project}" for project in named]
    assert sorted(cloud.requests[before:]) == ["GET /flavors/detail", *lookups]
    assert plan(cloud, flavors, ALL).operations == ()


@settings(max_examples=200)
@given(cloud=clouds(), flavors=wanteds(), choices=st.builds(FlavorChoices, prune=st.booleans()))
def test_what_is_not_gpustacks_is_not_touched(
    cloud: NovaModel, flavors: list[WantedFlavor], choices: FlavorChoices
) -> None:
    before = copy.deepcopy(cloud.by_id)
    lists = copy.deepcopy(cloud.lists)
    run(cloud, flavors, choices)
    for flavor in before.values():
        if not flavor.ours:
            assert cloud.by_id[flavor.id] == flavor
            assert cloud.lists.get(flavor.id) == lists.get(flavor.id)
        elif flavor.id in cloud.by_id:
            foreign = {k: v for k, v in flavor.extra_specs.items() if k not in flavor.owned and "gpustack" not in k}
            present = cloud.by_id[flavor.id]
            specified = next((w.extra_specs for w in flavors if w.name == flavor.name), {})
            assert {k: v for k, v in foreign.items() if k not in specified}.items() <= present.extra_specs.items()
            assert present.sizes == flavor.sizes


@settings(max_examples=200)
@given(
    cloud=clouds(),
    flavors=wanteds(),
    number=st.integers(0, 40),
    carried_out=st.booleans(),
    comes_back=st.booleans(),
    choices=st.sampled_from([ALL, dataclasses.replace(ALL, check_access=False)]),
)
def test_an_interrupted_run_is_completed_by_the_next(
    cloud: NovaModel,
    flavors: list[WantedFlavor],
    number: int,
    carried_out: bool,
    comes_back: bool,
    choices: FlavorChoices,
) -> None:
    calm = copy.deepcopy(cloud)
    run(calm, flavors)
    cloud.dies_at, cloud.carried_out, cloud.comes_back = number, carried_out, comes_back
    completed = run(cloud, flavors)
    died = len(cloud.requests) > number
    # A change whose answer was lost is confirmed by reading, if the API answers again.
    assert completed or died
    assert all(
        flavor.half_made or ALIAS in flavor.extra_specs
        for flavor in cloud.by_id.values()
        if "[gpustack]" in flavor.description
    ), "a GPU flavor without its alias was left behind, and nobody would know it"
    cloud.dies_at = 10**9
    # A list that somebody changed by hand is only read when asked to; one that the first run left half changed, always.
    assert run(cloud, flavors, ALL if cloud.lists_touched else choices)
    assert holds(cloud, flavors)
    assert plan(cloud, flavors, ALL).operations == ()
    assert cloud.state() == calm.state()


@settings(max_examples=50)
@given(cloud=clouds(), flavors=wanteds())
def test_the_flavors_after_a_plan_are_those_that_it_predicts(cloud: NovaModel, flavors: list[WantedFlavor]) -> None:
    def known(present: Iterable[PresentFlavor]) -> dict[str, object]:
        """Without the mark of projects, which a plan does not predict."""
        return {f.name: (f.sizes, {k: v for k, v in f.extra_specs.items() if k != ACCESS}) for f in present}

    operations = plan(cloud, flavors, ALL).operations
    expected = known(resulting(cloud.flavors(), operations))
    assert not apply(cloud, operations)
    assert known(cloud.by_id.values()) == expected


def test_several_at_a_time_come_to_the_same() -> None:
    flavors = [
        WantedFlavor(
            name=f"f{number}",
            sizes=SMALL,
            gpus={"A": 1},
            extra_specs={ALIAS: "A:1"},
            access=("research",) if number % 2 else None,
        )
        for number in range(40)
    ]
    sequential, parallel = NovaModel(projects=PROJECTS), NovaModel(projects=PROJECTS)
    assert run(sequential, flavors, FlavorChoices(), jobs=1)
    assert run(parallel, flavors, FlavorChoices(), jobs=8)
    assert sequential.state() == parallel.state()


def wanted_flavor(**changes: object) -> WantedFlavor:
    fields: dict[str, object] = {"name": "a", "sizes": SMALL, "gpus": {"K4200": 1}, "extra_specs": {ALIAS: "K4200:1"}}
    return WantedFlavor(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_public_flavor_takes_two_writes() -> None:
    cloud = NovaModel()
    assert run(cloud, [wanted_flavor()])
    assert len(cloud.writes) == 2


def test_a_flavor_whose_access_is_refused_waits_for_the_next_run() -> None:
    cloud = NovaModel(projects=PROJECTS)
    cloud.refuses = "addTenantAccess"
    flavor = wanted_flavor(access=("research",))
    (failure,) = apply(cloud, plan(cloud, [flavor]).operations)
    assert "injected" in failure.error
    assert list(cloud.lists.values()) == [set()]
    cloud.refuses = None
    assert not apply(cloud, plan(cloud, [flavor]).operations)
    assert holds(cloud, [flavor])


def test_a_flavor_whose_making_is_refused_is_removed() -> None:
    cloud = NovaModel(projects=PROJECTS)
    cloud.refuses = "os-extra_specs"
    flavor = wanted_flavor(access=("research",))
    failure, _waiting = apply(cloud, plan(cloud, [flavor]).operations)
    assert "nothing is left" in str(failure.error)
    assert "injected" in str(failure.error)
    assert not cloud.by_id


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_an_error_of_the_server_leaves_nothing_behind(number: int, carried_out: bool) -> None:
    cloud = NovaModel(projects=PROJECTS)
    flavor = wanted_flavor(access=("research",))
    operations = plan(cloud, [flavor]).operations
    cloud.fails_at, cloud.carried_out = len(cloud.requests) + number, carried_out
    failure, *_waiting = apply(cloud, operations)
    assert "HTTP 500" in str(failure.error)
    assert number > 1 or not cloud.by_id
    assert all(flavor.managed for flavor in cloud.by_id.values())
    assert not apply(cloud, plan(cloud, [flavor]).operations)
    assert not plan(cloud, [flavor]).operations


def test_a_flavor_that_another_run_created_meanwhile_is_unchanged() -> None:
    cloud = NovaModel()
    operations = plan(cloud, [wanted_flavor(id="chosen")]).operations
    assert not apply(copy.deepcopy(cloud), operations)
    other = copy.deepcopy(cloud)
    assert not apply(other, operations)
    cloud.by_id = other.by_id
    assert not apply(cloud, operations)
    assert not cloud.writes


@pytest.mark.parametrize("fault", ["dies_at", "fails_at"])
def test_a_flavor_that_another_run_may_have_created_is_kept(fault: str) -> None:
    """Two runs of one spec with a fixed id: the failed request of one may hide that the other created the flavor."""
    cloud = NovaModel()
    flavor = wanted_flavor(id="chosen")
    operations = plan(cloud, [flavor]).operations
    setattr(cloud, fault, len(cloud.requests) + 1)
    cloud.carried_out = True
    (failure,) = apply(cloud, operations)
    assert ("partly done" if fault == "dies_at" else "may be incomplete") in failure.error
    assert list(cloud.by_id) == ["chosen"]
    assert not apply(cloud, plan(cloud, [flavor]).operations)
    assert cloud.by_id["chosen"].extra_specs.items() >= flavor.extra_specs.items()
    assert not plan(cloud, [flavor]).operations


def test_a_flavor_of_the_chosen_id_that_can_not_be_completed_is_removed() -> None:
    cloud = NovaModel()
    cloud.refuses = "os-extra_specs"
    (failure,) = apply(cloud, plan(cloud, [wanted_flavor(id="chosen")]).operations)
    assert "nothing is left" in str(failure.error)
    assert not cloud.by_id


@pytest.mark.parametrize("changes", [{"name": "b"}, {"description": "by hand"}])
def test_a_flavor_of_another_origin_is_not_taken_back(changes: dict[str, str]) -> None:
    """Somebody renames or describes the flavor between its creation and a refusal."""
    cloud = NovaModel()
    operations = plan(cloud, [wanted_flavor(id="chosen")]).operations
    set_extra_specs = cloud.set_extra_specs

    def overtaken(flavor_id: str, specs: dict[str, str], *, restored: bool = False) -> None:
        cloud.by_id[flavor_id] = dataclasses.replace(cloud.by_id[flavor_id], **changes)  # type: ignore[arg-type]
        set_extra_specs(flavor_id, specs, restored=restored)

    cloud.set_extra_specs = overtaken  # type: ignore[method-assign]
    cloud.refuses = "os-extra_specs"
    (failure,) = apply(cloud, operations)
    assert "was not created" in str(failure.error)
    assert list(cloud.by_id) == ["chosen"]


def test_one_refusal_does_not_keep_the_others() -> None:
    cloud = NovaModel()
    cloud.refuses = "flavors b"
    failures = apply(cloud, plan(cloud, [wanted_flavor(name=name) for name in "abc"]).operations, jobs=1)
    assert [failure.name for failure in failures] == ["b"]
    assert sorted(cloud.state()) == ["a", "c"]


def test_nothing_new_is_begun_when_nothing_is_answered() -> None:
    cloud = NovaModel()
    cloud.dies_at, cloud.comes_back = 2, False
    failures = apply(cloud, plan(cloud, [wanted_flavor(name=name) for name in "abcd"]).operations, jobs=1)
    assert len(failures) == 4
    assert sum(request.startswith("POST /flavors ") for request in cloud.requests) == 1


def test_a_flavor_of_the_same_name_that_came_meanwhile_is_left_alone() -> None:
    cloud = NovaModel()
    operations = plan(cloud, [wanted_flavor(id="chosen")]).operations
    foreign = PresentFlavor(id="chosen", name="a", sizes=LARGE)
    cloud.by_id["chosen"] = foreign
    (failure,) = apply(cloud, operations)
    assert failure.error.startswith("changed since the plan: vcpus = 16")
    assert not cloud.writes
    assert cloud.by_id["chosen"] == foreign


def test_projects_are_let_in_only_when_the_alias_is_there() -> None:
    cloud = NovaModel(projects=PROJECTS)
    assert run(cloud, [wanted_flavor(access=("research", "teaching"))])
    kinds = [
        next(w for w in ("extra_specs", "addTenantAccess", "POST /flavors ") if w in line) for line in cloud.writes
    ]
    assert kinds == ["POST /flavors ", "extra_specs", "addTenantAccess", "addTenantAccess", "extra_specs"]
    (flavor,) = cloud.by_id.values()
    assert flavor.extra_specs[ACCESS] == access_mark([PROJECTS["teaching"], PROJECTS["research"]])


def test_a_project_that_was_renamed_or_created_again_is_a_change() -> None:
    """The list is the same, but its names mean other projects."""
    cloud = NovaModel(projects=dict(PROJECTS))
    wanted = [wanted_flavor(access=("research", "teaching"))]
    assert run(cloud, wanted)
    assert not plan(cloud, wanted).operations
    cloud.projects["research"] = "new"
    (operation,) = plan(cloud, wanted).operations
    assert operation.details() == ["+ project new", f"- project {PROJECTS['research']}"]
    assert run(cloud, wanted, FlavorChoices())
    assert list(cloud.lists.values()) == [{"new", PROJECTS["teaching"]}]
    assert not plan(cloud, wanted).operations


def test_going_back_after_an_interrupted_change_of_access_is_seen() -> None:
    """Interrupted between two projects, then the spec is taken back: the list must be read again."""
    cloud = NovaModel(projects=PROJECTS)
    old, new = wanted_flavor(access=("research",)), wanted_flavor(access=("research", "teaching", "admin"))
    assert run(cloud, [old], FlavorChoices())
    cloud.requests.clear()
    cloud.dies_at = (
        next(  # the second grant, known from a run that nothing disturbs
            number for number, line in enumerate(_requests_of(cloud, new)) if "addTenantAccess" in line
        )
        + 1
    )
    assert not run(cloud, [new], FlavorChoices())
    cloud.dies_at = 10**9
    assert run(cloud, [old], FlavorChoices())
    (list_,) = cloud.lists.values()
    assert list_ == {PROJECTS["research"]}


def _requests_of(cloud: NovaModel, flavor: WantedFlavor) -> list[str]:
    rehearsal = copy.deepcopy(cloud)
    assert run(rehearsal, [flavor], FlavorChoices())
    return rehearsal.requests


def test_a_change_of_one_extra_spec_is_one_write() -> None:
    cloud = NovaModel()
    assert run(cloud, [wanted_flavor()])
    cloud.requests.clear()
    assert run(cloud, [wanted_flavor(extra_specs={ALIAS: "K4200:1", "hw:cpu_policy": "dedicated"})])
    assert len(cloud.writes) == 1
    (operation,) = plan(cloud, [wanted_flavor()]).operations
    assert isinstance(operation, ChangeFlavor)
    assert operation.unset_specs == ("hw:cpu_policy",)


@pytest.mark.parametrize("number", [1, 2, 5, 9, 17, 30])
def test_interrupted_amid_several_a_second_run_completes(number: int) -> None:
    flavors = [wanted_flavor(name=f"f{n}", access=("research",) if n % 2 else None) for n in range(12)]
    cloud = NovaModel(projects=PROJECTS)
    cloud.dies_at, cloud.comes_back = number, False
    assert not run(cloud, flavors, FlavorChoices(), jobs=8)
    for flavor in cloud.by_id.values():
        assert flavor.half_made or ALIAS in flavor.extra_specs
    cloud.dies_at = 10**9
    assert run(cloud, flavors, FlavorChoices(), jobs=8)
    assert holds(cloud, flavors)
    assert not plan(cloud, flavors).operations


@pytest.mark.parametrize(
    ("description", "users", "force", "refusal"),
    [
        ("x [gpustack]", 0, False, ""),
        ("x [gpustack]", 1, False, "a is used by 1 instance"),
        ("theirs", 0, False, "gpustack did not make a"),
        ("theirs", 2, True, ""),
    ],
)
def test_a_flavor_is_deleted_by_name_if_it_is_unused_and_gpustacks(
    description: str, users: int, force: bool, refusal: str
) -> None:
    flavor = PresentFlavor(id="1", name="a", sizes=SMALL, description=description)
    cloud = NovaModel([flavor])
    cloud.instances["1"] = users
    if refusal:
        with pytest.raises(FlavorError, match=refusal):
            deletion(cloud, flavor, force=force)  # type: ignore[arg-type]
    else:
        operation = deletion(cloud, flavor, force=force)  # type: ignore[arg-type]
        assert (operation.flavor, operation.force) == (flavor, force)
        assert not apply(cloud, [operation])
        assert not cloud.by_id
