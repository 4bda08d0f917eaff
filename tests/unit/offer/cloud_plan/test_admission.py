"""Who may boot where: each deviation from the spec is named, also in states that no plan makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustack.cloud.compute import Hypervisor
from gpustack.nova_options.aggregates import PROJECTS, Aggregate
from gpustack.offer.cloud_plan.access import AccessState, FlavorRight
from gpustack.offer.cloud_plan.admission import admissions, deviations, differences, in_words
from gpustack.offer.tenancy.model import MARK, Wanted, WantedAggregate
from gpustack.spec.extra_specs import TRAIT

TRAIT_NAME = "CUSTOM_GPU_HOST"
NODE = Hypervisor(uuid="n1", node="gpu1", host="gpu1")
NAMES = {"g1": "g1", "plain": "plain", "p1": "research", "p2": "teaching"}
GPU = FlavorRight(gpus=frozenset({"k4200"}), traits=frozenset({TRAIT_NAME}))


def aggregate(name: str = "gpu", projects: str = "p1", **metadata: str) -> Aggregate:
    required = {f"{TRAIT}{TRAIT_NAME}": "required"}
    known = {MARK: TRAIT_NAME, PROJECTS: projects, **required, **metadata}
    return Aggregate(name=name, hosts=frozenset({"gpu1"}), metadata={key: of for key, of in known.items() if of})


ISOLATED = AccessState(
    flavors={"g1": GPU, "plain": FlavorRight(gpus=frozenset())},
    hosts={"gpu1": "n1"},
    aggregates={"gpu": aggregate()},
    bearers=frozenset({(TRAIT_NAME, "n1")}),
    known=frozenset({TRAIT_NAME}),
)
WANTED = Wanted(
    trait=TRAIT_NAME,
    gpu_hosts=frozenset({"gpu1"}),
    aggregates=(WantedAggregate(name="gpu", hosts=frozenset({"gpu1"}), projects=frozenset({"p1"})),),
    aliases=frozenset({"k4200"}),
    flavors=frozenset({"g1"}),
)


def found(state: AccessState, wanted: Wanted = WANTED) -> list[tuple[str, str]]:
    projects = state.projects() | {"p1", "p2"}
    return [(str(entry.code), entry.message) for entry in deviations(state, wanted, projects, NAMES)]


def test_a_cloud_as_the_spec_wants_it_has_no_finding() -> None:
    assert found(ISOLATED) == []
    projects = ISOLATED.projects() | {"p2"}
    assert admissions(ISOLATED, projects) == {("gpu1", "g1"): frozenset({"p1"}), ("gpu1", "plain"): frozenset()}


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        # A flavor that lost the trait after isolation.
        ({"flavors": {"g1": replace(GPU, traits=frozenset())}}, "GPU455", "refuses research with g1"),
        # An aggregate of an earlier spec that still admits projects.
        (
            {"aggregates": {"gpu": aggregate(), "old": aggregate("old", "p2")}},
            "GPU456",
            "admits teaching with g1",
        ),
        # The host lost its trait.
        ({"bearers": frozenset()}, "GPU455", "refuses research with g1"),
        # Projects that somebody added to the aggregate, and one that somebody removed.
        ({"aggregates": {"gpu": aggregate(projects="p1,p2")}}, "GPU456", "admits teaching with g1"),
        ({"aggregates": {"gpu": aggregate(projects="p2")}}, "GPU455", "refuses research with g1"),
        # An isolated host without any flavor that reaches it.
        ({"flavors": {"plain": FlavorRight(gpus=frozenset())}}, "GPU457", "accepts only flavors that require"),
        # Placement lacks the host in the aggregate, so that Nova does not isolate it; the projects still hold.
        ({"outside": frozenset({("gpu", "gpu1")})}, "GPU456", "admits research with plain"),
        # A flavor of the spec that forbids the trait.
        ({"flavors": {"g1": FlavorRight(gpus=GPU.gpus, forbidden=GPU.traits)}}, "GPU455", "refuses research with g1"),
        # An empty name is no project: nobody is admitted.
        ({"aggregates": {"gpu": aggregate(), "old": aggregate("old", " ")}}, "", ""),
        # A private flavor whose list is empty.
        ({"flavors": {"g1": replace(GPU, projects=frozenset())}}, "GPU457", "accepts only flavors that require"),
    ],
)  # fmt: skip
def test_a_deviation_names_who_is_refused_or_admitted(change: dict[str, object], code: str, text: str) -> None:
    messages = found(replace(ISOLATED, **change))  # type: ignore[arg-type]
    assert (messages == []) == (code == "")
    assert not code or any(of == code and text in message for of, message in messages), messages


def test_a_host_that_left_its_aggregate_is_open_to_all() -> None:
    state = replace(ISOLATED, aggregates={"gpu": replace(aggregate(), hosts=frozenset())})
    ((code, message),) = found(state)
    assert (code, message.partition(" after")[0]) == ("GPU456", "admits all projects but research with g1, plain")


def test_aggregates_of_others_have_findings_of_their_own() -> None:
    foreign = Aggregate(name="az", hosts=frozenset({"gpu1"}), metadata={PROJECTS: "p2"})
    assert found(replace(ISOLATED, aggregates={"gpu": aggregate(), "az": foreign})) == []


def test_each_difference_is_one_line() -> None:
    before = replace(ISOLATED, aggregates={})
    projects = frozenset({"", "p1", "p2"})
    lines = list(differences(admissions(before, projects), admissions(ISOLATED, projects), projects, NAMES))
    assert lines == ["gpu1: g1: all projects → research", "gpu1: plain: all projects → nobody"]
    private = replace(before, flavors={"g1": replace(GPU, projects=frozenset({"p1", "p2"}))})
    old, new = (admissions(state, projects) for state in (before, private))
    assert next(differences(old, new, projects, NAMES)) == "gpu1: g1: all projects → research, teaching"


EVERYBODY = frozenset({"", "p1", "p2"})


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (EVERYBODY, "all projects"),
        (frozenset(), "nobody"),
        (frozenset({"p2", "p1"}), "research, teaching"),
        (frozenset({"x"}), "x"),
        (frozenset({"", "p1"}), "all projects but teaching"),
        (frozenset({""}), "all projects but research, teaching"),
    ],
)
def test_projects_in_words(group: frozenset[str], words: str) -> None:
    assert in_words(group, EVERYBODY, NAMES) == words


def test_only_the_first_five_names_are_shown() -> None:
    many = frozenset(f"p{number}" for number in range(7))
    assert in_words(many, EVERYBODY | many, {}) == "p0, p1, p2, p3, p4 and 2 more"
    table = {("h", f"f{number}"): frozenset({"p1"}) for number in range(6)}
    assert list(differences({}, table, EVERYBODY, NAMES)) == ["h: f0, f1, f2, f3, f4 and 1 more: nobody → research"]


def test_differences_are_grouped_by_host_and_kind() -> None:
    p1, p2 = frozenset({"p1"}), frozenset({"p2"})
    before = {("a", "g1"): p1, ("a", "plain"): p1, ("b", "g1"): p1, ("b", "plain"): EVERYBODY, ("gone", "g1"): p1}
    after = {("a", "g1"): p2, ("a", "plain"): p2, ("b", "g1"): p1, ("b", "plain"): p2}
    assert list(differences(before, after, EVERYBODY, NAMES)) == [
        "a: g1, plain: research → teaching",
        "b: plain: all projects → teaching",
        "gone: g1: research → nobody",
    ]


def test_admission_needs_host_flavor_and_traits() -> None:
    private = replace(GPU, projects=frozenset({"p2"}))
    state = replace(ISOLATED, flavors={"g1": GPU, "private": private}, hosts={"gpu1": "n1", "cpu1": "n2"})
    assert admissions(state, EVERYBODY) == {
        ("gpu1", "g1"): frozenset({"p1"}),
        ("gpu1", "private"): frozenset(),
        ("cpu1", "g1"): frozenset(),
        ("cpu1", "private"): frozenset(),
    }


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"hosts": {}}, {}),  # no compute node
        ({"hosts": {"cpu1": "n2"}}, {}),
        ({"flavors": {"g1": replace(GPU, traits=frozenset())}}, {"aggregates": ()}),
        ({"flavors": {"g1": replace(GPU, traits=frozenset())}}, {"gpu_hosts": frozenset()}),
    ],
)
def test_hosts_that_the_spec_does_not_reserve_have_no_deviation(
    changes: dict[str, object], wanted: dict[str, object]
) -> None:
    assert found(replace(ISOLATED, **changes), replace(WANTED, **wanted)) == []  # type: ignore[arg-type]


def test_a_host_that_waits_for_its_isolation_is_open_to_plain_flavors() -> None:
    """Isolation has a finding of its own; the projects count already."""
    waiting = replace(aggregate(), metadata={MARK: TRAIT_NAME, PROJECTS: "p1"})
    assert found(replace(ISOLATED, aggregates={"gpu": waiting})) == []


def test_an_aggregate_without_projects_admits_all() -> None:
    entry = replace(WANTED.aggregates[0], projects=frozenset())
    state = replace(ISOLATED, aggregates={"gpu": aggregate(projects="")})
    assert found(state, replace(WANTED, aggregates=(entry,))) == []
    ((code, message),) = found(state)
    assert (code, "admits all projects but research with g1" in message) == ("GPU456", True)


def test_deviations_name_the_flavors_with_one_cause_together() -> None:
    lost = replace(GPU, traits=frozenset())
    flavors = {"g1": lost, "g2": lost, "plain": FlavorRight(gpus=frozenset())}
    wanted = replace(WANTED, flavors=frozenset({"g1", "g2"}))
    messages = found(replace(ISOLATED, flavors=flavors), wanted)
    assert ("GPU455", True) in [(code, "refuses research with g1, g2" in message) for code, message in messages]
    assert [code for code, _ in messages] == ["GPU455", "GPU457"]
