"""Order changes so that no project gets access that neither the old nor the new state allows, or loses common access.

Changes run in steps: hosts open, tighter limits, traits, aggregates, images, flavors, isolation, looser limits, access,
removals. A change of which the rule of access does not permit the effect yet waits until others are done. Changes of
one step that all widen, or all narrow, run at the same time: each state on the way is between the first and the last.

A change runs after all earlier ones that move access. It needs only those without which it would break the rule: if
another one is skipped or fails, the run goes on, and so does its undo.
"""

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, finding
from gpustack.changes.change import CloudChange, Value
from gpustack.offer.cloud_plan.access import ANYBODY, AccessState, breach
from gpustack.offer.flavor.changes import AccessChange, FlavorChange
from gpustack.offer.quota.changes import LimitChange
from gpustack.offer.tenancy.changes import AggregateChange, HostChange, MetadataChange, TraitChange
from gpustack.spec.extra_specs import ALIAS, TRAIT, required_traits

_Moved = tuple[Sequence[CloudChange], tuple[set[str], set[str]]]
"""Changes that are made together, with the projects, and the kinds of GPUs, whose access they move."""
_MOST_EFFORT = 2_000_000
"""How many rights and changes are compared to learn what needs what: seconds."""


class Step(enum.IntEnum):
    """The steps, in the order in which they are tried."""

    OPEN = 0
    TIGHTER = 1
    TRAITS = 2
    AGGREGATES = 3
    IMAGES = 4
    FLAVORS = 5
    ISOLATION = 6
    LOOSER = 7
    ACCESS = 8
    REMOVALS = 9


class Effect(enum.Enum):
    """How a change moves access."""

    NONE = enum.auto()
    """Access does not depend on it; such a change waits only for the changes that it needs itself."""
    WIDER = enum.auto()
    NARROWER = enum.auto()
    MIXED = enum.auto()


@dataclass(frozen=True)
class _Unit:
    """Changes that run one after another, without others between them."""

    changes: tuple[CloudChange, ...]
    step: Step
    effect: Effect

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(change.key for change in self.changes)

    @property
    def moves_access(self) -> bool:
        return self.effect is not Effect.NONE

    @property
    def parts(self) -> Sequence[Sequence[CloudChange]]:
        """What is made completely or not at all: a limit that is deleted for its default must be created again."""
        return [self.changes] if isinstance(self.changes[0], LimitChange) else [(change,) for change in self.changes]

    def is_ready(self, done: set[str], known: set[str]) -> bool:
        """Whether the changes that it needs, of those of the plan, are done."""
        return all(key in done or key in self.keys or key not in known for one in self.changes for key in one.needs)


def ordered(changes: Sequence[CloudChange], state: AccessState) -> tuple[tuple[CloudChange, ...], tuple[Finding, ...]]:
    """Return the changes in their order, each with the keys of those that it needs, and findings about the order.

    :param state: the state before the changes.
    """
    units = sorted(_units(tuple(_with_traits(changes)), state), key=lambda unit: unit.step)
    order = _Order(units, state)
    made = tuple(change for batch in order.batches() for change in batch)
    return made, (*_renewals(units), *order.findings)


class _Order:
    def __init__(self, units: Sequence[_Unit], state: AccessState) -> None:
        end = state.after(change for unit in units for change in unit.changes)
        self._waiting, self._state, self.findings = list(units), state, list[Finding]()
        self._begin, self._flavors = state, by_key([*state.flavors.items(), *end.flavors.items()])
        self._batches: list[tuple[Sequence[_Unit], set[int]]] = []
        moved = [change.wanted for unit in units for change in unit.changes if isinstance(change, AccessChange)]
        self._projects = state.projects().union(end.projects(), *moved)
        self._old, self._new = state.rights(self._projects), end.rights(self._projects)
        self._known = {key for unit in units for key in unit.keys}
        self._done: set[str] = set()
        self._effort = _MOST_EFFORT

    def batches(self) -> Iterator[list[CloudChange]]:
        """Yield the changes that may run at the same time; each runs after all of the batch before."""
        before: tuple[str, ...] = ()
        while self._waiting:
            batch = self._next()
            begun = {key for unit in batch for key in unit.keys}
            self._waiting = [unit for unit in self._waiting if unit.keys[0] not in begun]
            self._done |= begun
            needed = [(part, self._subjects(part)) for unit in self._needed(batch) for part in unit.parts]
            yield [change for unit in batch for change in self._chained(unit, needed, before)]
            if batch[0].moves_access:
                before = tuple(key for unit in batch for key in unit.keys)

    def _needed(self, batch: Sequence[_Unit]) -> list[_Unit]:
        """The earlier units without which a batch would break the rule, each alone or with others."""
        own = {key for unit in batch for change in unit.changes for key in change.needs}
        links = {n for n, (made, _) in enumerate(self._batches) if any(own.intersection(unit.keys) for unit in made)}
        needed, needless = set[int](), set[int]()
        for number in reversed(range(len(self._batches))) if batch[0].moves_access else ():
            absent = [set[int](), needless, *({other} for other in needless)]
            (needed if any(self._breaks(batch, {number, *others}) for others in absent) else needless).add(number)
        self._batches.append((batch, links | needed))
        return [unit for number in sorted(needed) for unit in self._batches[number][0]]

    def _breaks(self, batch: Sequence[_Unit], absent: set[int]) -> bool:
        """Whether a batch would break the rule if some batches, and those that need them, were not made.

        Of a plan that is so large that the answers would take minutes, it is true for the last batches.
        """
        self._effort -= len(self._projects) * len(self._flavors) + len(self._known)
        if self._effort < 0:
            return True
        state, absent = self._begin, set(absent)
        for number, (made, needs) in enumerate(self._batches):
            if number in absent or absent & needs:
                absent.add(number)
            else:
                state = state.after(change for unit in made for change in unit.changes)
        state = state.after(change for unit in batch for change in unit.changes)
        return bool(breach(self._old, self._new, state.rights(self._projects)))

    def _chained(self, unit: _Unit, needed: Sequence[_Moved], before: tuple[str, ...]) -> Iterator[CloudChange]:
        """The changes of a unit, with what they need and come after.

        Keystone changes a default only without limits of projects, and these need a default.
        """
        after, default = before if unit.moves_access else (), ""
        for part in unit.parts:
            own_subjects = self._subjects(part)
            pairs = ((other, zip(own_subjects, subjects, strict=True)) for other, subjects in needed)
            alike = [c.key for other, pair in pairs if all(a & b or ANYBODY in a | b for a, b in pair) for c in other]
            for number, change in enumerate(part):
                is_default = isinstance(change, LimitChange) and change.of_default
                own = unit.keys[:number] if is_default else filter(None, (default,))
                yield replace(change, needs=tuple(dict.fromkeys((*change.needs, *alike, *own))), after=after)
                after, default = (change.key,), change.key if is_default else default

    def _subjects(self, part: Sequence[CloudChange]) -> tuple[set[str], set[str]]:
        """The projects, and the kinds of GPUs, whose access a part moves; an empty name stands for all."""
        projects = [c.wanted if isinstance(c, AccessChange) else [c.about.get("project", ANYBODY)] for c in part]
        rights = (right for change in part for right in self._flavors.get(change.id, ()))
        gpus = {self._begin.classes.get(gpu, gpu) for right in rights for gpu in right.gpus}
        others = (change for change in part if not isinstance(change, AccessChange | FlavorChange))
        return set().union(*projects), gpus.union(change.about.get("resource_class", ANYBODY) for change in others)

    def _next(self) -> list[_Unit]:
        if not (ready := [unit for unit in self._waiting if unit.is_ready(self._done, self._known)]):
            raise ValueError(f"changes need one another: {', '.join(key for u in self._waiting for key in u.keys)}")
        first = ""
        for candidate in self._candidates(ready):
            state = self._state.after(change for unit in candidate for change in unit.changes)
            if not (problem := breach(self._old, self._new, state.rights(self._projects))):
                self._state = state
                return candidate
            first = first or problem
        self._state = self._state.after(ready[0].changes)
        self.findings.append(finding(Code.ACCESS_INTERRUPTED, place=ready[0].changes[0].name, project=first))
        return ready[:1]

    @staticmethod
    def _candidates(ready: Sequence[_Unit]) -> Iterator[list[_Unit]]:
        """Yield what may run next, as :class:`Step` orders it: changes of one direction, then each alone.

        Before these come the hosts of an aggregate, one after another. Each moves access to itself alone, so all
        states on the way are permitted if the first and the last are.
        """
        for step in dict.fromkeys(unit.step for unit in ready):
            of_step = [unit for unit in ready if unit.step is step]
            for effect in (Effect.NONE, Effect.NARROWER, Effect.WIDER):
                alike = [unit for unit in of_step if unit.effect is effect]
                if len(alike) > 1:
                    yield alike
            hosts = [change for unit in of_step for change in unit.changes if isinstance(change, HostChange)]
            for name in dict.fromkeys(change.about["aggregate"] for change in hosts):
                yield [_Unit(tuple(c for c in hosts if c.about["aggregate"] == name), step, Effect.MIXED)]
            yield from ([unit] for unit in of_step)


def _with_traits(changes: Sequence[CloudChange]) -> Iterator[CloudChange]:
    """The changes, so that flavors require a trait after hosts have it, and hosts keep it as long as flavors do."""
    needed: dict[tuple[str, bool], list[str]] = {}
    for change in changes:
        if isinstance(change, TraitChange) and change.wanted:
            needed.setdefault((change.about["trait"], True), []).append(change.key)
        for trait in _required(change.seen, change) - _required(change.wanted, change):
            needed.setdefault((trait, False), []).append(change.key)
    for change in changes:
        keys = {(trait, True) for trait in _required(change.wanted, change) - _required(change.seen, change)}
        keys |= {(change.about["trait"], False)} if isinstance(change, TraitChange) and not change.wanted else set()
        yield replace(change, needs=(*change.needs, *(other for key in sorted(keys) for other in needed.get(key, ()))))


def _required(value: Value, change: CloudChange) -> frozenset[str]:
    """The traits that a flavor requires with a value; none for another object."""
    return required_traits((value or {}).get("extra_specs", {})) if isinstance(change, FlavorChange) else frozenset()


def _units(changes: Sequence[CloudChange], state: AccessState) -> Iterator[_Unit]:
    """Each change alone, but those of limits with that of their default: Keystone wants these in an order."""
    renewed = {c.about["resource_class"] for c in changes if isinstance(c, LimitChange) and c.of_default}
    for name in sorted(renewed):
        limits = [c for c in changes if isinstance(c, LimitChange) and c.about["resource_class"] == name]
        alike = {_limit_effect(change, state) for change in limits if change.wanted is not None}
        effect = alike.pop() if len(alike) == 1 else Effect.MIXED
        yield _Unit(tuple(limits), Step.LOOSER if effect is Effect.WIDER else Step.TIGHTER, Effect.MIXED)
    for change in changes:
        if not isinstance(change, LimitChange):
            yield _Unit((change,), *_place(change))
        elif change.about["resource_class"] not in renewed:
            effect = _limit_effect(change, state)
            yield _Unit((change,), Step.LOOSER if effect is Effect.WIDER else Step.TIGHTER, effect)


def _limit_effect(change: LimitChange, state: AccessState) -> Effect:
    name, project = change.about["resource_class"], change.about["project"]
    default = state.limits.get((name, ""), state.absent)
    present = state.limits.get((name, project), default)
    wanted = default if change.wanted is None else change.wanted
    wider = (math.inf if wanted < 0 else wanted) > (math.inf if present < 0 else present)
    return Effect.WIDER if wider else Effect.NARROWER


def _place(change: CloudChange) -> tuple[Step, Effect]:
    """The step of a change, and how it moves access."""
    match change:
        case MetadataChange():
            traits = {key: value for key, value in change.wanted.items() if key.startswith(TRAIT)}
            effect = Effect.MIXED if len(traits) != len(change.wanted) or len({*traits.values()}) > 1 else None
            if None in traits.values():
                return Step.OPEN, effect or Effect.WIDER
            return (Step.ISOLATION, effect or Effect.NARROWER) if traits else (Step.AGGREGATES, Effect.MIXED)
        case TraitChange():
            return (Step.TRAITS, Effect.WIDER) if change.wanted else (Step.REMOVALS, Effect.NARROWER)
        case AggregateChange():
            return (Step.REMOVALS if change.wanted is None else Step.AGGREGATES), Effect.NONE
        case HostChange():
            return (Step.AGGREGATES if change.wanted else Step.REMOVALS), Effect.MIXED
        case AccessChange():
            wider = any(change.wanted.values())
            return (Step.ACCESS, Effect.WIDER) if wider else (Step.REMOVALS, Effect.NARROWER)
        case FlavorChange():
            return _place_of_flavor(change)
    return Step.IMAGES, Effect.NONE


def _place_of_flavor(change: FlavorChange) -> tuple[Step, Effect]:
    if change.wanted is None:
        return Step.REMOVALS, Effect.NARROWER
    if change.seen is None:
        has_access = change.wanted["public"] or change.wanted.get("access")
        return (Step.ACCESS, Effect.WIDER) if has_access else (Step.FLAVORS, Effect.NONE)
    before, after = _required(change.seen, change), _required(change.wanted, change)
    if ALIAS in change.wanted.get("extra_specs", {}) or (before - after and after - before):
        return Step.FLAVORS, Effect.MIXED
    effect = Effect.NARROWER if after - before else Effect.WIDER if before - after else Effect.NONE
    return Step.FLAVORS, effect


def _renewals(units: Sequence[_Unit]) -> Iterator[Finding]:
    """Defaults that change while projects have limits: until these are created again, the default applies."""
    for unit in units:
        limits = [change for change in unit.changes if isinstance(change, LimitChange)]
        default = next((change for change in limits if change.of_default and change.seen is not None), None)
        deleted = (change for change in limits if not change.of_default and change.wanted is None)
        gone = [change.about.get("project_name", "") for change in deleted]
        if default is not None and default.wanted is not None and gone:
            yield finding(
                Code.LIMITS_RENEWED, place=default.about["model"], projects=", ".join(sorted(gone)), name=default.name
            )
