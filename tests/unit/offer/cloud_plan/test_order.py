"""Random specs on random clouds: after each operation, nobody has access that neither the old nor the new state allows.

The old state is that of another spec, with flavors that somebody made by hand. Operations run one at a time, in each
order that their needs permit; some are refused. Undo restores the state before, by the same rule.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from gpustack.base.findings import Code
from gpustack.changes.change import SUCCESSFUL, ChangeOutcome, CloudChange, reversed_order
from gpustack.changes.run import run
from gpustack.cloud.compute import Hypervisor
from gpustack.cloud.flavors import Sizes
from gpustack.cloud.identity import Project
from gpustack.cloud.image import Image
from gpustack.offer.cloud_plan.access import AccessState, decisive, flavor_rights
from gpustack.offer.cloud_plan.order import ordered
from gpustack.offer.flavor.apply import answers, resulting
from gpustack.offer.flavor.changes import changes as flavor_changes
from gpustack.offer.flavor.changes import with_projects
from gpustack.offer.flavor.compare import FlavorChoices, questions
from gpustack.offer.flavor.compare import compare as compare_flavors
from gpustack.offer.flavor.flavors import PresentFlavor, WantedFlavor
from gpustack.offer.image.changes import changes as image_changes
from gpustack.offer.image.model import FlavorNeeds
from gpustack.offer.image.needs import pairs
from gpustack.offer.quota.changes import LimitChange
from gpustack.offer.quota.compare import compare as compare_limits
from gpustack.offer.quota.desired import WantedLimits
from gpustack.offer.tenancy.compare import compare as compare_tenancy
from gpustack.offer.tenancy.model import Present, Wanted, WantedAggregate
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
    flavors = compare_flavors(spec.flavors, present, choices, answers(cloud.nova, asked, jobs=1))
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


def test_random_changes_are_of_each_kind_that_a_spec_leads_to(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Counter[str] = Counter()
    for seed in range(10):
        dice = random.Random(seed)  # noqa: S311 - no secret
        made.update(change.object_kind for change in _planned(_cloud(monkeypatch, dice), _random_spec(dice))[0])
    spec = set(CloudModel(hosts=(), projects=(), classes={}).apis())
    assert made.keys() == spec, made
