"""An operation is one change to a host: small, frozen, and shown before it is made.

What a file operation replaces is in ``before``. No operation has a reverse: a host is rolled back by a plan of its own
(:mod:`gpustack.host.undo`), made from the facts of that moment.

Operations are computed by the plans and carried out by the Ansible roles: nothing here touches a disk. ``to_dict`` is
what the roles and ``-f json`` read, ``describe`` is the line a person reads.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What every operation says: its kind, and why it is wanted."""

    kind: ClassVar[str]
    why: str

    def describe(self) -> str:
        """The operation in one line."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, object]:
        """The operation as plain data."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class WriteFile(Operation):
    """Write a file that gpustack owns.

    :param path: absolute path on the host.
    :param content: the whole new content.
    :param before: the content that is there now, or None when there is no such file.
    :param mode: permission bits as Ansible takes them, for example ``"0644"``.
    """

    kind: ClassVar[str] = "write_file"
    path: str
    content: str
    before: str | None
    mode: str = "0644"

    def describe(self) -> str:
        verb = "create" if self.before is None else "change"
        return f"{verb} {self.path}"

    def diff(self) -> str:
        """A unified diff from what is there to what will be."""
        return "".join(
            difflib.unified_diff(
                (self.before or "").splitlines(keepends=True),
                self.content.splitlines(keepends=True),
                fromfile=self.path if self.before is not None else "/dev/null",
                tofile=self.path,
            )
        )


@dataclass(frozen=True, kw_only=True)
class RemoveFile(Operation):
    """Remove a file that gpustack owns and no longer wants.

    :param before: the content that is lost, so that the removal can be shown and undone.
    """

    kind: ClassVar[str] = "remove_file"
    path: str
    before: str

    def describe(self) -> str:
        return f"remove {self.path}"

    def diff(self) -> str:
        """A unified diff from what is there to nothing."""
        return "".join(
            difflib.unified_diff(self.before.splitlines(keepends=True), [], fromfile=self.path, tofile="/dev/null")
        )


@dataclass(frozen=True, kw_only=True)
class RunCommand(Operation):
    """Run a command of the host's distribution, as a list of arguments and never through a shell."""

    kind: ClassVar[str] = "run_command"
    argv: tuple[str, ...]

    def describe(self) -> str:
        return f"run {shlex.join(self.argv)}"


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A function that changes its driver, and what it must be for that.

    :param before: the driver that has it now; None when none has.
    """

    address: str
    before: str | None
    vendor: str
    product: str
    pci_class: str


@dataclass(frozen=True, kw_only=True)
class BindLive(Operation):
    """Bind the functions of one card to a driver on the running host, in this order.

    :param card: the address of the GPU itself.
    """

    kind: ClassVar[str] = "bind_live"
    card: str
    driver: str
    functions: tuple[Moved, ...]

    def describe(self) -> str:
        addresses = ", ".join(function.address for function in self.functions)
        return f"bind {addresses} to {self.driver} on the running host"


@dataclass(frozen=True, kw_only=True)
class Reboot(Operation):
    """Reboot the host. It is carried out only when the operator asks for it."""

    kind: ClassVar[str] = "reboot"

    def describe(self) -> str:
        return "reboot"


@dataclass(frozen=True, kw_only=True)
class TrialReboot(Reboot):
    """Reboot into new kernel arguments once: they are made permanent only when the host is right with them.

    :param seconds: how long the host has for that, from the start of its system.
    """

    kind: ClassVar[str] = "trial_reboot"
    seconds: int

    def describe(self) -> str:
        return (
            f"reboot with the new kernel arguments, once: they become permanent when the host is verified within "
            f"{self.seconds} s, and otherwise the next boot is the old one"
        )


_KINDS: dict[str, tuple[type[Operation], ...]] = {
    "file": (WriteFile, RemoveFile),
    "command": (RunCommand,),
    "card": (BindLive,),
    "reboot": (Reboot,),
}


def count(operations: Iterable[Operation]) -> dict[str, int]:
    """How many operations of each kind there are, without the kinds of which there is none."""
    listed = tuple(operations)
    counts = {kind: sum(isinstance(o, types) for o in listed) for kind, types in _KINDS.items()}
    return {kind: number for kind, number in counts.items() if number}


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def show_counts(counts: Mapping[str, int], reboot: str = "needs a reboot") -> list[str]:
    """Counts as a plan, its dry run and the summary of a run show them: ``4 files, 3 commands, needs a reboot``."""
    phrases = [counted(counts[kind], kind) for kind in _KINDS if kind != "reboot" and counts.get(kind)]
    return [*phrases, reboot] if counts.get("reboot") else phrases
