"""Who may boot where: each deviation from the spec is named, also in states that no plan makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustack.cloud.compute import Hypervisor
from gpustack.nova_options.aggregates import PROJECTS, Aggregate
from gpustack.offer.cloud_plan.access import AccessState, FlavorRight
from gpustack.offer.cloud_plan.admission import admissions, deviations, differences
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
