"""A stand-in for an API with named values, and the changes of them: for the tests of the life cycle of changes."""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gpustack.changes.change import CloudChange
from gpustack.cloud.session import Refused, Unanswered


@dataclass
class Store:
    """Values by name.

    :ivar refuse: names whose change is refused.
    :ivar silent: names whose change gets no answer, each with whether it was carried out.
    :ivar log: the names in the order of their changes.
    """

    values: dict[str, Any] = field(default_factory=dict)
    refuse: set[str] = field(default_factory=set)
    silent: dict[str, bool] = field(default_factory=dict)
    mute: bool = False
    log: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, name: str) -> Any:
        if self.mute:
            raise Unanswered("can't read: no answer")
        return copy.deepcopy(self.values.get(name))

    def write(self, name: str, value: Any) -> None:
        with self.lock:
            self.log.append(name)
            if name in self.refuse:
                raise Refused("can't write: HTTP 400", status=400)
            if self.silent.get(name, True):
                if value is None:
                    self.values.pop(name, None)
                else:
                    self.values[name] = value
            if name in self.silent:
                raise Unanswered("can't write: no answer")


@dataclass(frozen=True, kw_only=True)
class SetValue(CloudChange):
    """Set a value of a :class:`Store`."""

    kind: ClassVar[str] = "set_value"
    object_kind: ClassVar[str] = "value"
    value: ClassVar[Any] = Any

    def describe(self) -> str:
        return f"set {self.name}"

    def read(self, api: Store) -> Any:
        return api.read(self.name)

    def carry_out(self, api: Store) -> str:
        api.write(self.name, self.wanted)
        return f"id-{self.name}"

    def permitted(self) -> str:
        return "gpustack never writes this value" if self.name == "forbidden" else ""


def change(name: str, seen: Any, wanted: Any, *needs: str) -> SetValue:
    """A change that needs the changes of the names ``needs``."""
    return SetValue(why="test", name=name, seen=seen, wanted=wanted, needs=tuple(f"value:{n}" for n in needs))
