"""Random specs on random clouds: after each operation, nobody has access that neither the old nor the new state allows.

The old state is that of another spec, with flavors that somebody made by hand. Operations run one at a time, in each
order that their needs permit; some are refused. Undo restores the state before, by the same rule.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpustack.base.findings import Code
from gpustack.changes import run as changes_run
from gpustack.changes.change import SUCCESSFUL, ChangeOutcome, ChangeResult, CloudChange, reversed_order
from gpustack.changes.run import run, without_a_write
from gpustack.cloud.compute import Hypervisor
from gpustack.cloud.flavors import Sizes
from gpustack.cloud.identity import Project
from gpustack.cloud.image import Image
from gpustack.cloud.limits import Limit
from gpustack.offer.cloud_plan.access import AccessState, FlavorRight, decisive, flavor_rights
from gpustack.offer.cloud_plan.order import ordered
from gpustack.offer.flavor.apply import answers, resulting
from gpustack.offer.flavor.changes import AccessChange, FlavorChange, with_projects
from gpustack.offer.flavor.changes import changes as flavor_changes
from gpustack.offer.flavor.compare import FlavorChoices, questions
from gpustack.offer.flavor.compare import compare as compare_flavors
from gpustack.offer.flavor.flavors import PresentFlavor, WantedFlavor
from gpustack.offer.image.changes import ImageChange
from gpustack.offer.image.changes import changes as image_changes
from gpustack.offer.image.model import FlavorNeeds
from gpustack.offer.image.needs import pairs
from gpustack.offer.quota.changes import LimitChange
from gpustack.offer.quota.compare import compare as compare_limits
from gpustack.offer.quota.desired import WantedLimits
from gpustack.offer.tenancy.changes import AggregateChange, HostChange, MetadataChange, TraitChange
from gpustack.offer.tenancy.compare import compare as compare_tenancy
from gpustack.offer.tenancy.model import Present, Wanted, WantedAggregate
from gpustack.spec.extra_specs import ALIAS
from support.change_runs import NoJournal
from support.cloud_model import CloudModel, Images, Use

HOSTS, PROJECTS, TRAIT = ("h1", "h2", "h3"), ("a" * 32, "b" * 32, "c" * 32), "CUSTOM_GPU_HOST"
CLASSES = {"x": "CUSTOM_X", "y": "CUSTOM_Y"}
MODELS = {"CUSTOM_X": "x", "CUSTOM_Y": "y"}
NODES = tuple(Hypervisor(uuid=f"p-{host}", node=host, host=host) for host in HOSTS)
SIZES = Sizes(vcpus=1, ram=1, disk=1)
IMAGES = ("debian", "windows-11", "plain")
RANDOM_CASES = 120


@dataclass
class _Spec:
    flavors: list[WantedFlavor] = field(default_factory=list)
    limits: WantedLimits = field(default_factory=WantedLimits)
    tenancy: Wanted = field(default_factory=lambda: Wanted(trait=TRAIT))
    needs: list[FlavorNeeds] = field(default_factory=list)


def _random_spec(dice: random.Random) -> _Spec:
    aggregates, free = [], list(HOSTS)
    for name in ("gpu-1", "gpu-2"):
        if dice.random() < 0.7:
            hosts = frozenset(host for host in free if dice.random() < 0.5)
            free = free if dice.random() < 0.3 else [host for host in free if host not in hosts]
            projects = frozenset(dice.sample(PROJECTS, dice.choice((0, 1, 1, 2))))
            isolated = dice.random() < 0.5
            aggregates.append(WantedAggregate(name=name, hosts=hosts, projects=projects, isolated=isolated))
    isolates = any(aggregate.isolated for aggregate in aggregates)
    flavors = []
    for number in range(4):
        if dice.random() < 0.7:
            alias = dice.choice("xy")
            specs = {"pci_passthrough:alias": f"{alias}:1", **({f"trait:{TRAIT}": "required"} if isolates else {})}
            access = None if dice.random() < 0.3 else tuple(dice.sample(PROJECTS, dice.randrange(4)))
            name = f"g{number}-{'public' if access is None else 'private'}"
            flavors.append(WantedFlavor(name=name, sizes=SIZES, gpus={alias: 1}, extra_specs=specs, access=access))
    chosen = {name: model for name, model in MODELS.items() if dice.random() < 0.8}
    limits = WantedLimits(
        models=chosen,
        defaults={name: dice.choice((0, 1, 2, -1)) for name in chosen},
        projects={
            project: {name: dice.choice((0, 1, 2, 3, -1)) for name in chosen if dice.random() < 0.6}
            for project in PROJECTS
            if dice.random() < 0.7
        },
    )
    wanted = Wanted(
        trait=TRAIT,
        gpu_hosts=frozenset(HOSTS),
        aggregates=tuple(aggregates),
        aliases=frozenset("xy"),
        flavors=frozenset(flavor.name for flavor in flavors),
    )
    return _Spec(flavors, limits, wanted, [_needs(flavor.name, dice) for flavor in flavors])


def _needs(name: str, dice: random.Random) -> FlavorNeeds:
    """What a flavor requires of its images; half of all hide the hypervisor from Windows."""
    return FlavorNeeds(
        name=name,
        models=("x",),
        vendors=frozenset({"10de"}),
        images=tuple(dice.sample(IMAGES, dice.randrange(3))),
        windows=dice.random() < 0.5,
        disk=1,
        hidden_from=("x",) if dice.random() < 0.5 else (),
    )


def _random_images(dice: random.Random) -> dict[str, Image]:
    """Images with some of the properties that gpustack sets, and one that it does not."""
    known = {"hw_machine_type": ("q35", "pc"), "os_type": ("windows", "Windows", "linux"), "os_distro": ("debian",)}
    return {
        name: Image(
            id=name,
            name=name,
            owner=PROJECTS[0],
            properties={key: dice.choice(values) for key, values in known.items() if dice.random() < 0.4},
        )
        for name in IMAGES
    }


def _planned(cloud: CloudModel, spec: _Spec) -> tuple[tuple[CloudChange, ...], set[Code]]:
    """The operations of a plan over all groups, and the codes of its findings."""
    cloud.nova.projects = {project: project for project in PROJECTS}
    present, choices = cloud.nova.flavors(), FlavorChoices(prune=True)
    asked = questions(spec.flavors, present, choices)
    flavors = compare_flavors(spec.flavors, present, choices, answers(cloud.nova, asked))
    known = frozenset(cloud.places.bearers(None, TRAIT))
    nodes = Present(aggregates=tuple(cloud.places.aggregates(None)), nodes=NODES, bearers={TRAIT: known})
    tenancy = compare_tenancy(spec.tenancy, replace(nodes, flavors=resulting(present, flavors.operations)), prune=True)
    limits = cloud.keystone.present()
    projects = {project: (Project(id=project, name=project),) for project in spec.limits.projects}
    quotas = compare_limits(spec.limits, limits, projects, prune=True)
    paired, _missing = pairs(tuple(cloud.glance.known.values()), spec.needs) if spec.needs else ((), ())
    every = (
        *flavor_changes(flavors.operations),
        *tenancy.operations,
        *quotas.operations,
        *image_changes(paired),
    )
    private = {flavor.id for flavor in present if not flavor.public}
    lists = {flavor: cloud.nova.access(flavor) for flavor in private.intersection(decisive(every))}
    state = AccessState(
        flavors=flavor_rights(present, every, lists),
        hosts={node.host: node.uuid for node in NODES},
        aggregates={aggregate.name: aggregate for aggregate in nodes.aggregates},
        bearers=frozenset((TRAIT, uuid) for uuid in known),
        known=frozenset({TRAIT}),
        limits={
            (limit.resource_class, limit.project or ""): limit.limit for limit in (*limits.defaults, *limits.limits)
        },
        classes=CLASSES,
    )
    made, findings = ordered(every, state)
    return with_projects(cloud.nova, made), {finding.code for finding in findings}


def _shuffled(changes: Sequence[CloudChange], dice: random.Random) -> list[CloudChange]:
    return dice.sample(list(changes), len(changes))


class _Watched:
    """A run, after each operation of which the rule of access is checked."""

    def __init__(self, cloud: CloudModel, changes: Sequence[CloudChange]) -> None:
        self.cloud, self.changes = cloud, changes
        limits = [change for change in changes if isinstance(change, LimitChange)]
        renewed = {change.about["resource_class"] for change in limits if change.of_default}
        self.open = Counter(name for c in limits if (name := c.about["resource_class"]) in renewed)
        self.all = dict(self.open)
        self.states = [(("before", ""), cloud.uses(), False)]

    def begin(self, change: CloudChange) -> None:
        pass

    def end(self, outcome: ChangeOutcome) -> None:
        change = outcome.change
        if isinstance(change, LimitChange) and change.about["resource_class"] in self.all:
            self.open[change.about["resource_class"]] -= 1
        # While a default changes, its limits are absent.
        between = any(0 < self.open[name] < number for name, number in self.all.items())
        self.states.append(((change.describe(), str(outcome.result)), self.cloud.uses(), between))

    def check(self, new: frozenset[Use]) -> None:
        old = self.states[0][1]
        for name, now, between in self.states:
            assert between or now <= old | new, (name, sorted(now - (old | new)))
            assert between or now >= old & new, (name, sorted((old & new) - now))


def _cloud(monkeypatch: pytest.MonkeyPatch, dice: random.Random) -> CloudModel:
    cloud = CloudModel(hosts=HOSTS, projects=PROJECTS, classes=CLASSES, glance=Images(_random_images(dice)))
    monkeypatch.setattr("gpustack.offer.tenancy.changes.compute", cloud.places)
    monkeypatch.setattr("gpustack.offer.tenancy.changes.placement", cloud.places)
    monkeypatch.setattr("gpustack.offer.tenancy.changes.present_flavors", lambda api: cloud.nova)
    by_hand = PresentFlavor(id="hand", name="hand", sizes=SIZES, extra_specs={"pci_passthrough:alias": "x:1"})
    if dice.random() < 0.3:
        cloud.nova.by_id["hand"] = by_hand
    _applied(cloud, _planned(cloud, _random_spec(dice))[0])
    return cloud


def _applied(cloud: CloudModel, changes: Sequence[CloudChange]) -> None:
    outcomes = run(changes, cloud.apis(), NoJournal())
    assert all(outcome.result in SUCCESSFUL for outcome in outcomes), [o for o in outcomes if o.detail]


@pytest.mark.parametrize("seed", range(RANDOM_CASES))
def test_access_follows_the_rule_and_undo_is_the_identity(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)  # noqa: S311 - no secret
    cloud = _cloud(monkeypatch, dice)
    before, uses = cloud.state(), cloud.uses()
    changes, codes = _planned(cloud, _random_spec(dice))
    watched = _Watched(cloud, changes)
    outcomes = run(_shuffled(changes, dice), cloud.apis(), watched)
    assert all(outcome.result in SUCCESSFUL for outcome in outcomes), [o for o in outcomes if o.detail]
    if Code.ACCESS_INTERRUPTED not in codes:
        watched.check(cloud.uses())
    back = reversed_order(changes)
    undone = _Watched(cloud, back)
    outcomes = run(_shuffled(back, dice), cloud.apis(), undone)
    assert all(outcome.result in SUCCESSFUL for outcome in outcomes), [o for o in outcomes if o.detail]
    assert cloud.state() == before
    if Code.ACCESS_INTERRUPTED not in codes:
        undone.check(uses)


@pytest.mark.parametrize("seed", range(RANDOM_CASES))
def test_access_follows_the_rule_without_changes_of_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are skipped in a run, and in its undo, as after others changed their objects."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    cloud = _cloud(monkeypatch, dice)
    before, uses = cloud.state(), cloud.uses()
    changes, codes = _planned(cloud, _random_spec(dice))
    back = reversed_order(changes)
    _applied(cloud, changes)
    new = cloud.uses()
    if not changes or Code.ACCESS_INTERRUPTED in codes:
        return
    renewed = {
        change.about["resource_class"] for change in changes if isinstance(change, LimitChange) and change.of_default
    }
    # Between the deletion of limits and their creation, the default applies.
    keys = [change.key for change in changes if change.about.get("resource_class") not in renewed]
    skipped = set(dice.sample(keys, min(1 + seed % 4, len(keys))))
    for run_back in (True, False):
        made = back if run_back else changes
        watched = _Watched(cloud, made)
        with monkeypatch.context() as patch:
            patch.setattr(changes_run, "without_a_write", lambda change, api, made=(): _skipped(change, skipped, api))
            outcomes = run(_shuffled(made, dice), cloud.apis(), watched)
        watched.check(uses if run_back else new)
        results = {outcome.change.key: outcome.result for outcome in outcomes}
        assert {
            key for key in skipped if results[key] is ChangeResult.SKIPPED
        } or ChangeResult.NOT_BEGUN in results.values()
        _applied(cloud, [change for change in made if results[change.key] not in SUCCESSFUL])
        assert not run_back or cloud.state() == before


def _skipped(change: CloudChange, keys: set[str], api: Any) -> ChangeOutcome | None:
    if change.key in keys:
        return ChangeOutcome(change=change, result=ChangeResult.SKIPPED)
    return without_a_write(change, api)


def test_what_needs_no_skipped_change_is_made() -> None:
    """A project gets a second flavor when its limit is lower; nothing else needs that limit."""
    rights = {name: FlavorRight(gpus=frozenset(name[0]), projects=frozenset()) for name in ("x1", "y1")}
    limits = {("CUSTOM_X", "p"): 4, ("CUSTOM_Y", "p"): 4}
    state = AccessState(flavors=rights, limits=limits, classes=CLASSES)
    changes = [a_limit("CUSTOM_X", "p", 4, 1)]
    changes += [AccessChange(why="", id=n, name=n, seen={"p": False}, wanted={"p": True}) for n in ("x1", "y1")]
    limit, *grants = made = ordered(changes, state)[0]
    assert [grant.after for grant in grants] == [(limit.key,)] * 2
    assert {grant.name: grant.needs for grant in grants} == {"x1": (limit.key,), "y1": ()}
    assert [(back.name, back.needs) for back in reversed_order(made)] == [
        ("y1", ()),
        ("x1", ()),
        (limit.name, (grants[0].key,)),
    ]


def test_flavors_require_a_trait_as_long_as_hosts_have_it() -> None:
    given, taken = TraitChange.of(NODES[0], "T", "", wanted=True), TraitChange.of(NODES[1], "U", "", wanted=False)
    both: list[dict[str, str | None]] = [{"trait:T": None, "trait:U": "required"}, {T: "required", "trait:U": None}]
    flavor = a_flavor("f", *({"extra_specs": specs} for specs in both))
    made, _ = ordered([taken, flavor, given], AccessState())
    assert [(change.name, change.needs) for change in made] == [
        (given.name, ()),
        ("f", (given.key,)),
        (taken.name, ("flavor:f",)),
    ]


def test_random_changes_are_of_each_kind_that_a_spec_leads_to(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Counter[str] = Counter()
    for seed in range(10):
        dice = random.Random(seed)  # noqa: S311 - no secret
        made.update(change.object_kind for change in _planned(_cloud(monkeypatch, dice), _random_spec(dice))[0])
    spec = set(CloudModel(hosts=(), projects=(), classes={}).apis())
    assert made.keys() == spec, made


NODE = NODES[0]
T = "trait:T"
IMAGE = ImageChange(why="", id="i", name="image", seen={"os_type": None}, wanted={"os_type": "windows"})
COMPLETE = {"public": False, "description": "", "extra_specs": {}}


def a_flavor(name: str, seen: Any, wanted: Any) -> FlavorChange:
    return FlavorChange(why="", id=name, name=name, seen=seen, wanted=wanted)


def a_limit(name: str, project: str, seen: int | None, wanted: int | None) -> LimitChange:
    before = None if seen is None else Limit(id="1", resource_class=name, limit=seen)
    owner = Project(id=project, name=f"name of {project}") if project else None
    return LimitChange.of((name, f"model of {name}"), owner, before, wanted, "")


IN_STEPS: list[list[CloudChange]] = [
    [MetadataChange.of("open", {T: None}, {T: "required"}, "")],
    [a_limit("CUSTOM_T", "p", 3, 1)],
    [TraitChange.of(NODE, "T", "", wanted=True)],
    [
        AggregateChange.of("new", None, ""),
        MetadataChange.of("projects", {"filter_tenant_id": "p"}, {}, ""),
        HostChange.of("new", "h2", "", wanted=True),
    ],
    [IMAGE],
    [
        a_flavor("private", None, COMPLETE),
        a_flavor("described", {"description": "a"}, {"description": "b"}),
        a_flavor("alias", {"extra_specs": {ALIAS: "x:1"}}, {"extra_specs": {ALIAS: "x:2"}}),
        a_flavor("narrower", {"extra_specs": {T: None}}, {"extra_specs": {T: "required"}}),
        a_flavor("wider", {"extra_specs": {T: "required"}}, {"extra_specs": {T: None}}),
    ],
    [MetadataChange.of("isolated", {T: "required"}, {}, "")],
    [a_limit("CUSTOM_L", "p", 1, 3)],
    [
        a_flavor("public", None, {**COMPLETE, "public": True}),
        a_flavor("shared", None, {**COMPLETE, "access": ["p"]}),
        AccessChange(why="", id="a", name="grant", seen={"p": False, "q": True}, wanted={"p": True, "q": False}),
    ],
    [
        AccessChange(why="", id="b", name="revoke", seen={"p": True}, wanted={"p": False}),
        a_flavor("deleted", COMPLETE, None),
        HostChange.of("old", "h1", "", wanted=False),
        TraitChange.of(NODES[1], "OLD", "", wanted=False),
        AggregateChange.of("old", {}, ""),
    ],
]


def test_changes_run_in_steps() -> None:
    numbers = {change.key: number for number, step in enumerate(IN_STEPS) for change in step}
    reversed_steps = [change for step in reversed(IN_STEPS) for change in reversed(step)]
    limits = {("CUSTOM_T", "p"): 3, ("CUSTOM_L", "p"): 1}
    made, findings = ordered(reversed_steps, AccessState(limits=limits))
    assert [numbers[change.key] for change in made] == sorted(numbers.values())
    assert findings == ()


@pytest.mark.parametrize(
    ("change", "depends"),
    [(IMAGE, False), (IN_STEPS[3][0], False), (IN_STEPS[9][4], False), (IN_STEPS[5][0], False), (IN_STEPS[5][1], False)]
    + [(change, True) for step in (2, 5, 6, 8, 9) for change in IN_STEPS[step][-1:] if step != 9]
    + [(IN_STEPS[9][0], True), (IN_STEPS[9][1], True), (IN_STEPS[9][2], True), (IN_STEPS[9][3], True)],
)
def test_only_changes_of_access_wait_for_one_another(change: CloudChange, depends: bool) -> None:
    first = IN_STEPS[0][0]
    made, _ = ordered([change, first], AccessState())
    assert [(one.key, one.after) for one in made] == [(first.key, ()), (change.key, (first.key,) if depends else ())]
    assert not any(one.needs for one in made)


def test_changes_of_one_direction_run_at_the_same_time() -> None:
    grants = [
        AccessChange(why="", id=name, name=name, seen={"p": False}, wanted={"p": True}) for name in ("a", "b", "c")
    ]
    traits = [TraitChange.of(node, "T", "", wanted=True) for node in NODES[:2]]
    made, _ = ordered([*grants, *traits], AccessState())
    keys = tuple(change.key for change in made)
    assert [change.after for change in made] == [(), (), *[keys[:2]] * 3]


def metadata(name: str, **values: str | None) -> MetadataChange:
    named = {key.replace("__", ":"): value for key, value in values.items()}
    return MetadataChange.of(name, named, dict.fromkeys(named, "before"), "")


@pytest.mark.parametrize(
    ("changes", "at_once"),
    [
        ([metadata("a", trait__T="required"), metadata("b", trait__T="required")], True),
        ([metadata("a", trait__T=None), metadata("b", trait__T=None)], True),
        ([metadata("a", trait__T=None, trait__U=None), metadata("b", trait__T=None)], True),
        ([metadata("a", filter_tenant_id="p"), metadata("b", filter_tenant_id="p")], False),
        ([metadata(name, trait__T="required", filter_tenant_id="required") for name in "ab"], False),
        ([metadata(name, trait__T=None, filter_tenant_id=None) for name in "ab"], False),
        ([metadata(name, trait__T=None, trait__U="required") for name in "ab"], False),
        ([a_flavor(name, {"extra_specs": {T: None}}, {"extra_specs": {T: "required"}}) for name in "ab"], True),
        ([a_flavor(name, {"extra_specs": {T: "required"}}, {"extra_specs": {T: None}}) for name in "ab"], True),
        (
            [
                a_flavor(
                    name,
                    {"extra_specs": {T: "required", "trait:U": None}},
                    {"extra_specs": {T: None, "trait:U": "required"}},
                )
                for name in "ab"
            ],
            False,
        ),
        ([a_flavor(name, {"extra_specs": {ALIAS: "x:1"}}, {"extra_specs": {ALIAS: "x:2"}}) for name in "ab"], False),
    ],
)
def test_changes_that_both_widen_and_narrow_run_alone(changes: list[CloudChange], at_once: bool) -> None:
    made, findings = ordered(changes, AccessState())
    assert [change.name for change in made] == ["a", "b"]
    assert [change.after for change in made] == [(), () if at_once else (made[0].key,)]
    assert findings == ()


def test_hosts_of_one_aggregate_follow_one_another() -> None:
    hosts = [HostChange.of("a", host, "", wanted=True) for host in HOSTS]
    made, _ = ordered([*hosts[:1], HostChange.of("b", "h1", "", wanted=True), *hosts[1:]], AccessState())
    keys = [change.key for change in made]
    assert [change.about["aggregate"] for change in made] == ["a", "a", "a", "b"]
    assert [change.after for change in made] == [(), (keys[0],), (keys[1],), tuple(keys[:3])]


def test_changes_keep_the_needs_that_they_have() -> None:
    image, trait = IMAGE, replace(IN_STEPS[2][0], needs=(IMAGE.key, "not in the plan"))
    made, _ = ordered([trait, image], AccessState())
    assert [(change.key, change.needs) for change in made] == [
        (image.key, ()),
        (trait.key, (image.key, "not in the plan")),
    ]
    with pytest.raises(ValueError, match=f"changes need one another: {trait.key}, {image.key}"):
        ordered([trait, replace(image, needs=(trait.key,))], AccessState())


@pytest.mark.parametrize(
    ("project", "limits", "absent", "wanted", "wider"),
    [
        ("p", {"p": 1}, 0, 2, True),
        ("p", {"p": 2}, 0, 1, False),
        ("p", {"p": 2}, 0, 2, False),
        ("p", {"p": 2}, 0, -1, True),
        ("p", {"p": -1}, 0, 2, False),
        ("p", {"": 1}, 0, 2, True),  # the default applied
        ("p", {"": 3}, 0, 2, False),
        ("p", {"": 3, "p": 1}, 0, None, True),  # the default will apply
        ("p", {"": 3, "p": 5}, 0, None, False),
        ("p", {}, 0, 2, True),
        ("p", {}, math.inf, 2, False),
        ("", {"": 1}, 0, 2, True),
        ("", {"": 1}, 0, 0, False),
    ],
)
def test_tighter_limits_come_early_and_looser_ones_late(
    project: str, limits: dict[str, int], absent: float, wanted: int | None, wider: bool
) -> None:
    state = AccessState(limits={("CUSTOM_A", owner): limit for owner, limit in limits.items()}, absent=absent)
    made, _ = ordered([IMAGE, a_limit("CUSTOM_A", project, limits.get(project), wanted)], state)
    assert [change.object_kind for change in made] == (["image", "limit"] if wider else ["limit", "image"])


def tagged(*changes: LimitChange) -> list[CloudChange]:
    return [replace(change, tag=f"limit:{number}") for number, change in enumerate(changes)]


def test_limits_of_a_renewed_default_run_one_after_another() -> None:
    limits = tagged(
        a_limit("CUSTOM_A", "p", 4, None),
        a_limit("CUSTOM_A", "", 1, 2),
        a_limit("CUSTOM_A", "q", None, 5),
        a_limit("CUSTOM_B", "p", 1, 0),
    )
    state = AccessState(limits={("CUSTOM_A", "p"): 4, ("CUSTOM_A", ""): 1, ("CUSTOM_B", "p"): 1})
    made, findings = ordered([*limits, IMAGE], state)
    assert [change.tag for change in made if change.tag] == ["limit:3", "limit:0", "limit:1", "limit:2"]
    needs = {change.tag: change.needs for change in made}
    assert (needs["limit:1"], needs["limit:2"]) == (("limit:0",), ("limit:1",))
    (found,) = findings
    assert (found.code, found.place) == (Code.LIMITS_RENEWED, "model of CUSTOM_A")
    assert (found.message.count("name of p"), "name of q" in found.message) == (1, False)


@pytest.mark.parametrize(
    "limits",
    [
        [a_limit("CUSTOM_A", "", None, 1), a_limit("CUSTOM_A", "p", None, 2)],  # both are new
        [a_limit("CUSTOM_A", "", 1, 2)],
        [a_limit("CUSTOM_A", "p", 4, None), a_limit("CUSTOM_A", "", 1, None)],  # both are removed
        [a_limit("CUSTOM_A", "p", 4, None)],
    ],
)
def test_only_a_default_that_changes_below_limits_is_reported(limits: list[LimitChange]) -> None:
    assert ordered(tagged(*limits), AccessState())[1] == ()


def test_a_step_that_breaks_the_rule_is_reported_with_its_project() -> None:
    """Two flavors of one project change places: each alone gives or takes what both states have."""
    present = {
        "a": FlavorRight(gpus=frozenset("x"), projects=frozenset("p")),
        "b": FlavorRight(gpus=frozenset("y"), projects=frozenset("p")),
    }
    swapped = [
        a_flavor("a", {"extra_specs": {ALIAS: "x:1"}}, {"extra_specs": {ALIAS: "y:1"}}),
        a_flavor("b", {"extra_specs": {ALIAS: "y:1"}}, {"extra_specs": {ALIAS: "x:1"}}),
    ]
    made, findings = ordered(swapped, AccessState(flavors=present))
    assert [(change.name, change.needs) for change in made] == [("a", ()), ("b", (swapped[0].key,))]
    assert [(found.code, found.place) for found in findings] == [(Code.ACCESS_INTERRUPTED, "a")]
    assert "p (x)" in findings[0].message
