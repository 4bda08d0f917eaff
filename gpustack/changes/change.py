"""Changes: operations on objects of a cloud or a database, each with its reverse.

A change is plain data: an object, its value as the plan saw it, and the value that it gets. So a journal can hold it, a
run can check it directly before it writes, and its reverse is the same change with both values exchanged. Each kind of
object has a subclass beside the job that plans it.
"""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, NamedTuple, Self

from gpustack.base.errors import GpustackError
from gpustack.base.operations import Operation

Value = Any
"""JSON: None for an object that does not exist."""
_EQUAL = ("id", "name", "why", "seen", "wanted")


@dataclass(frozen=True, kw_only=True)
class CloudChange(Operation):
    """One change of one object.

    :ivar id: the object's id in its API; empty if the API assigns it at creation.
    :ivar name: the object in words, for people.
    :ivar seen: its value when the plan was made; None if it did not exist.
    :ivar wanted: the value that it gets; None to remove it.
    :ivar needs: the keys of the changes that must be done before this one.
    :ivar after: the keys of those that must have ended before, with any result.
    :ivar about: further data about the object, for texts and JSON.
    :ivar partial: whether the object may have parts of both values: after a change that was interrupted.
    :ivar recorded: whether a journal contains the change, as in an undo: its object must then be gpustack's.
    :ivar tag: the key in the run, if it is not that of the object; an undo keeps the keys of the run that it reverts.
    :cvar object_kind: the kind of object, stable in journals: ``flavor``, ``limit``.
    :cvar undone: what an undo does, for the documentation, whose table has the first line of the class beside it.
    :cvar written: the keys of a value that a change writes, as patterns; it compares the others only. A change of a
        number or of a truth value needs none.
    :cvar value: the type of a value, which a journal must have.
    :cvar described: the keys that ``about`` has.
    """

    object_kind: ClassVar[str]
    undone: ClassVar[str] = "restores the former value"
    written: ClassVar[tuple[str, ...]] = ()
    value: ClassVar[Any]
    described: ClassVar[tuple[str, ...]] = ()
    id: str = ""
    name: str
    seen: Value
    wanted: Value
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    partial: bool = False
    recorded: bool = False
    tag: str = ""

    @property
    def key(self) -> str:
        """The identity of the change within its run."""
        return self.tag or f"{self.object_kind}:{self.id or self.name}"

    @property
    def place(self) -> str:
        """The object, also for changes of its parts."""
        return f"{self.object_kind.partition('_')[0]}:{self.id or self.name}"

    def made_to(self, present: Mapping[str, Any]) -> dict[str, Any]:
        """The value of the object, or of a part of it, after this change."""
        return {key: self.wanted.get(key, value) for key, value in present.items()}

    @property
    def verb(self) -> str:
        return "create" if self.seen is None else "delete" if self.wanted is None else "change"

    @property
    def compared_by_api(self) -> bool:
        """Whether the API itself refuses the change if the object is not as seen, so that nothing has to be read."""
        return False

    @classmethod
    def client(cls, connection: Any) -> Any:  # noqa: ANN401 - each kind has its own client
        """The client that reads and changes objects of this kind: the connection itself, or one built on it."""
        return connection

    def obstacle(self, api: Any, made: Sequence["CloudChange"]) -> str:  # noqa: ANN401
        """Why the change may not be carried out now, such as an instance that uses the object; empty if it may.

        :param made: the earlier changes of a preview, which the cloud does not have.
        """
        return ""

    def foreign(self, api: Any) -> str:  # noqa: ANN401 - each kind has its own client
        """Why an object that exists is not gpustack's: others can edit a journal. Empty if it is, or if none can be."""
        return ""

    def remaining(self, cloud: Any) -> "CloudChange | None":  # noqa: ANN401 - a connection
        """The change without projects, hosts and images that do not exist any more; None if nothing remains.

        :raises gpustack.base.errors.CloudError: if the cloud cannot be read.
        """
        return self

    def read(self, api: Any) -> Value:  # noqa: ANN401 - each kind has its own client
        """Read the object's present value, in the form of ``seen`` and ``wanted``.

        :raises gpustack.cloud.session.Refused: if the API refuses.
        :raises gpustack.cloud.session.Unanswered: if the API does not answer.
        """
        raise NotImplementedError

    def carry_out(self, api: Any) -> str:  # noqa: ANN401 - each kind has its own client
        """Give the object its wanted value, and return its id.

        :raises gpustack.base.errors.CloudError: if the API refuses or does not answer.
        """
        raise NotImplementedError

    def describe(self) -> str:
        return f"{self.verb} {self.name}: {self.why}"

    def details(self) -> list[str]:
        """The parts of the value that change, one for each line; the first character is ``+``, ``-`` or ``~``.

        A number or a state is in :meth:`describe`.
        """
        value = self.seen if self.wanted is None else self.wanted
        return [] if isinstance(value, int) else difference(self.seen, self.wanted)

    def reverse(self) -> "CloudChange":
        """The change back; :func:`reversed_order` sets what it needs."""
        return replace(self, why="undo", seen=self.wanted, wanted=self.seen, needs=(), after=())

    def permitted(self) -> str:
        """Why a journal may not contain this change; empty if gpustack makes such changes.

        Others can edit a journal, so an undo writes only what a plan could have written.
        """
        before, after = (value if isinstance(value, Mapping) else {} for value in (self.seen, self.wanted))
        if before.keys() != after.keys() and None not in (self.seen, self.wanted):
            return "the values before and after have different keys"
        strange = [
            str(key)
            for key in {**before, **after}
            if before.get(key) != after.get(key) and not any(fnmatchcase(str(key), form) for form in self.written)
        ]
        return f"gpustack does not write {', '.join(sorted(strange))}" if strange else ""

    def to_dict(self) -> dict[str, object]:
        """The change as plain data for JSON."""
        return {**self.to_record(), "kind": self.kind}

    def to_record(self) -> dict[str, Any]:
        """The change as a journal holds it."""
        equal = {name: getattr(self, name) for name in _EQUAL}
        others = {name: list(getattr(self, name)) for name in ("needs", "after")}
        return {"key": self.key, "kind": self.object_kind, **equal, **others, "about": dict(self.about)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """The change of a journal's validated line."""
        equal = {name: record[name] for name in (*_EQUAL, "about")}
        return cls(**equal, needs=tuple(record["needs"]), after=tuple(record["after"]), tag=record["key"])


class ChangeResult(enum.StrEnum):
    """The result of one change."""

    DONE = "done"
    """Made."""
    UNCHANGED = "unchanged"
    """The object had the wanted value already."""
    SKIPPED = "skipped"
    """The object has changed since the plan, or the change is not permitted any more: nothing was written."""
    FAILED = "failed"
    """The change was refused, or the server was lost before it was made."""
    UNKNOWN = "unknown"
    """The request got no answer, and the object could not be read afterwards."""
    NOT_BEGUN = "not begun"
    """An earlier change did not succeed, or the run was stopped."""


SUCCESSFUL = frozenset({ChangeResult.DONE, ChangeResult.UNCHANGED})
"""The results after which a change that needs this one may begin."""


@dataclass(frozen=True, kw_only=True)
class ChangeOutcome:
    """The result of a change, with the reason if it was not done.

    :ivar id: the object's id after the change, which its creation may have assigned.
    :ivar lost: the error that ended the run, and its exit code; None if nothing was lost.
    """

    change: CloudChange
    result: ChangeResult
    detail: str = ""
    id: str = ""
    lost: GpustackError | None = None


class Ended(NamedTuple):
    """What became of a :class:`GuardedChange`: the fields of a :class:`ChangeOutcome`."""

    result: ChangeResult
    detail: str = ""
    lost: GpustackError | None = None


Begin = Callable[[Mapping[str, Any]], None]
"""Records that a change begins, with what its undo needs; raises :class:`~gpustack.base.errors.JournalError`."""


class GuardedChange(CloudChange):
    """A change that checks and writes in one transaction of its own, such as a repair of clean-up.

    :ivar payload: what its undo needs: plain data that it recorded when it began.
    """

    payload: Mapping[str, Any] | None

    def attempt(self, api: Any, begin: Begin) -> Ended:  # noqa: ANN401 - each kind has its own client
        """Check, call ``begin``, write, and return what became of it.

        :raises GpustackError: if a server or the journal is lost before anything is written. The run then ends.
        """
        raise NotImplementedError

    def preview(self, api: Any) -> Ended:  # noqa: ANN401 - each kind has its own client
        """Check only; :attr:`ChangeResult.DONE` if it would be made.

        :raises GpustackError: as :meth:`attempt`.
        """
        raise NotImplementedError


def difference(seen: Value, wanted: Value, *, both: bool = False) -> list[str]:
    """Two values, compared key by key for people.

    :param both: whether each line has both values, also one that is absent.
    """
    if not isinstance(seen, Mapping | None) or not isinstance(wanted, Mapping | None):
        return [f"~ {show(wanted)} (was {show(seen)})"]
    before, after = seen or {}, wanted or {}
    lines = []
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if isinstance(old, Mapping) or isinstance(new, Mapping):
            lines += difference(old, new, both=both)
        elif old is None and not both:
            lines.append(f"+ {key} = {show(new)}")
        elif new is None and not both:
            lines.append(f"- {key} (was {show(old)})")
        else:
            lines.append(f"~ {key} = {show(new)} (was {show(old)})")
    return lines


def is_between(present: Value, seen: Value, wanted: Value) -> bool:
    """Whether each part of a value is that of ``seen`` or of ``wanted``, as after an interrupted change."""
    if present in (seen, wanted):
        return True
    if isinstance(present, list):
        old, new = set(seen or ()), set(wanted or ())
        return old & new <= set(present) <= old | new
    if not isinstance(present, Mapping):
        return False
    before, after = (value if isinstance(value, Mapping) else {} for value in (seen, wanted))
    return all(is_between(present.get(key), before.get(key), after.get(key)) for key in {*present, *before, *after})


def show(value: Value) -> str:
    """A value in words."""
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def reversed_order(changes: Iterable[CloudChange]) -> tuple[CloudChange, ...]:
    """The reverses of changes, last change first; each needs, or comes after, the reverses of those that did so."""
    made = list(changes)
    needs, after = (_turned({change.key: getattr(change, name) for change in made}) for name in ("needs", "after"))
    return tuple(replace(c.reverse(), needs=tuple(needs[c.key]), after=tuple(after[c.key])) for c in reversed(made))


def _turned(links: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    turned: dict[str, list[str]] = {key: [] for key in links}
    for key, others in links.items():
        for other in others:
            turned.get(other, []).append(key)
    return turned
