"""Order changes so that no project gets access that neither the old nor the new state allows, or loses common access.

Changes run in steps: hosts open, tighter limits, traits, aggregates, images, flavors, isolation, looser limits, access,
removals. A change of which the rule of access does not permit the effect yet waits until others are done. Changes of
one step that all widen, or all narrow, run at the same time: each state on the way is between the first and the last.
"""

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpustack.base.findings import Code, Finding, finding
from gpustack.changes.change import CloudChange
from gpustack.offer.cloud_plan.access import AccessState, breach
from gpustack.offer.flavor.changes import AccessChange, FlavorChange
from gpustack.offer.quota.changes import LimitChange
from gpustack.offer.tenancy.changes import AggregateChange, HostChange, MetadataChange, TraitChange
from gpustack.spec.extra_specs import ALIAS, TRAIT, required_traits


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

    def is_ready(self, done: set[str], known: set[str]) -> bool:
        """Whether the changes that it needs, of those of the plan, are done."""
        return all(key in done or key in self.keys or key not in known for one in self.changes for key in one.needs)


def ordered(changes: Sequence[CloudChange], state: AccessState) -> tuple[tuple[CloudChange, ...], tuple[Finding, ...]]:
    """Return the changes in their order, each with the keys of those that it needs, and findings about the order.

    :param state: the state before the changes.
    """
    units = sorted(_units(changes, state), key=lambda unit: unit.step)
    order = _Order(units, state)
    made = tuple(change for batch in order.batches() for change in batch)
    return made, (*_renewals(units), *order.findings)


class _Order:
    def __init__(self, units: Sequence[_Unit], state: AccessState) -> None:
        end = state.after(change for unit in units for change in unit.changes)
        self._waiting, self._state, self.findings = list(units), state, list[Finding]()
        moved = [change.wanted for unit in units for change in unit.changes if isinstance(change, AccessChange)]
        self._projects = state.projects().union(end.projects(), *moved)
        self._old, self._new = state.rights(self._projects), end.rights(self._projects)
        self._known = {key for unit in units for key in unit.keys}
        self._done: set[str] = set()

    def batches(self) -> Iterator[list[CloudChange]]:
        """Yield the changes that may run at the same time; each needs all of the batch before."""
        before: tuple[str, ...] = ()
        while self._waiting:
            batch = self._next()
            begun = {key for unit in batch for key in unit.keys}
            self._waiting = [unit for unit in self._waiting if unit.keys[0] not in begun]
            self._done |= begun
            barrier = before if batch[0].effect is not Effect.NONE else ()
            yield [change for unit in batch for change in _chained(unit, barrier)]
            if batch[0].effect is not Effect.NONE:
                before = tuple(key for unit in batch for key in unit.keys)

    def _next(self) -> list[_Unit]:
        ready = [unit for unit in self._waiting if unit.is_ready(self._done, self._known)]
        if not ready:
            raise ValueError(f"changes need one another: {', '.join(key for u in self._waiting for key in u.keys)}")
        first = ""
        for candidate in self._candidates(ready):
            state = self._state.after(change for unit in candidate for change in unit.changes)
            problem = breach(self._old, self._new, state.rights(self._projects))
            if not problem:
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


def _chained(unit: _Unit, barrier: Sequence[str]) -> Iterator[CloudChange]:
    previous = tuple(barrier)
    for change in unit.changes:
        yield replace(change, needs=tuple(dict.fromkeys((*change.needs, *previous))))
        previous = (change.key,)


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
    before, after = (required_traits(value.get("extra_specs", {})) for value in (change.seen, change.wanted))
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
