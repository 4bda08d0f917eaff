"""Repairs and their undo, as changes of the one life cycle: shown, asked for, recorded and listed as all others."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from gpustack.base.validation import first_problem
from gpustack.changes.change import Begin, ChangeOutcome, ChangeResult, Ended, GuardedChange, Value
from gpustack.repair import journal, undo
from gpustack.repair.apply import carry_out_repair
from gpustack.repair.classes import label
from gpustack.repair.outcome import Repairing
from gpustack.repair.show import next_step
from gpustack.repair.verdict import PlannedVerdict, Repair

_LONGEST = 4000  # a record takes 4096 characters
_AFTER: dict[str, str] = {
    **dict.fromkeys((Repair.FAIL_MIGRATION, Repair.FREE, Repair.UNBLOCK, Repair.CLEAR_OWNER), "available"),
    **dict.fromkeys((Repair.RETIRE, Repair.CLEAR_DELETED), "available, soft-deleted"),
    Repair.RESTART: "as nova-compute writes it",
    Repair.BLOCK_PARENT: "unavailable",
}
"""The state of a device after each repair of rows."""


@dataclass(frozen=True, kw_only=True)
class RepairChange(GuardedChange):
    """A repair of clean-up.

    :ivar seen: the state of each device, for people: the repair itself compares rows and their circumstances.
    :ivar verdict: the planned verdict; None for a repair of a journal.
    """

    kind: ClassVar[str] = "repair"
    object_kind: ClassVar[str] = "repair"
    undone: ClassVar[str] = "restores the rows or the allocation if nothing has used them since"
    value: ClassVar[Any] = dict[str, str]
    verdict: PlannedVerdict | None = None
    payload: Mapping[str, Any] | None = None

    def describe(self) -> str:
        return f"{self.name}: {self.why}"

    def attempt(self, api: Repairing, begin: Begin) -> Ended:
        if self.verdict is None:
            raise ValueError("a repair of a journal is undone only")
        return carry_out_repair(self.verdict, api, begin)

    def permitted(self) -> str:
        try:
            journal.entry(self.payload or {})
        except (TypeError, ValueError) as error:  # pydantic's errors are ValueErrors
            return f"a line does not belong to a journal of repairs: {first_problem(error)}"
        return ""

    def reverse(self) -> Self:
        values = {"name": self.name, "seen": self.wanted, "wanted": self.seen, "tag": self.key}
        # A repair of another class, as far as the run is concerned.
        return RepairUndo(why="undo", payload=self.payload, recorded=self.recorded, **values)  # type: ignore[return-value]

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        return replace(super().from_record(record), payload=record["payload"])


@dataclass(frozen=True, kw_only=True)
class RepairUndo(GuardedChange):
    """The undo of a repair. Nothing reverts it: ``cleanup apply`` judges the rows again, and repairs them again."""

    kind: ClassVar[str] = "undo_repair"
    object_kind: ClassVar[str] = "repair_undo"
    undone: ClassVar[str] = "none: `gpustack cleanup apply` plans the repair again"
    value: ClassVar[Any] = dict[str, str]
    reversible: ClassVar[bool] = False
    payload: Mapping[str, Any] | None = None

    def describe(self) -> str:
        return f"undo the repair of {self.name}"

    def permitted(self) -> str:
        return ""

    def attempt(self, api: Repairing, begin: Begin) -> Ended:
        return undo.undo_repair(journal.entry(self.payload or {}), api, begin)

    def preview(self, api: Repairing) -> Ended:
        return undo.undo_repair(journal.entry(self.payload or {}), api, None)


def former(line: Mapping[str, Any]) -> RepairChange:
    """The repair of a line of a journal of 0.1.0.

    :raises LookupError: if the line is damaged.
    :raises TypeError: if it is.
    """
    return replace(_planned(0, line["verdict"]), payload=line)


def planned(verdicts: Iterable[PlannedVerdict]) -> tuple[RepairChange, ...]:
    """Return the changes of planned verdicts, in the order of carrying out: allocations in Placement last."""
    ordered = sorted(verdicts, key=lambda verdict: verdict["repair"] == Repair.UNSET_ALLOCATION)
    return tuple(_planned(number, verdict) for number, verdict in enumerate(ordered, 1))


def _planned(number: int, verdict: PlannedVerdict) -> RepairChange:
    seen, wanted = _values(verdict)
    values = {"name": _name(verdict), "seen": seen, "wanted": wanted, "tag": f"repair:{number}"}
    return RepairChange(why=next_step(verdict)[:_LONGEST], verdict=verdict, **values)


def failed_migrations(outcomes: Iterable[ChangeOutcome]) -> list[PlannedVerdict]:
    """Return the repairs that set a migration to failed, so that Nova frees its devices."""
    done = [outcome.change for outcome in outcomes if outcome.result is ChangeResult.DONE]
    verdicts = [change.verdict for change in done if isinstance(change, RepairChange) and change.verdict]
    return [verdict for verdict in verdicts if verdict["repair"] == Repair.FAIL_MIGRATION]


def _values(verdict: PlannedVerdict) -> tuple[Value, Value]:
    """Return the states of the devices and migrations before and after a repair, for people."""
    if allocation := verdict["allocation"]:
        return {f"allocation of {allocation['name']}": allocation["consumer"]}, {}
    owner = f", instance {verdict['instance']}" if verdict["instance"] else ""
    devices, moves = verdict["devices"], [f"migration {number}" for number in verdict["migrations"]]
    after = {device["address"]: _AFTER.get(verdict["repair"] or "", "") for device in devices}
    before = {device["address"]: f"{device['status']}{owner}" for device in devices}
    return {**before, **dict.fromkeys(moves, "unfinished")}, {**after, **dict.fromkeys(moves, "failed")}


def _name(verdict: PlannedVerdict) -> str:
    place = verdict["host"] or f"cell {verdict['cell']}"
    devices = " ".join(device["address"] for device in verdict["devices"])
    return " ".join(filter(None, (f"class {label(verdict['class'])} on {place}", devices)))[:_LONGEST]
