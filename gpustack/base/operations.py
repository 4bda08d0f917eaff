"""Operations: the single changes of a plan for a host, shown before they are made.

``before`` holds the content that a file operation replaces. Operations have no inverse: a host is restored by a new
plan (:mod:`gpustack.prepare.host.undo`), computed from the facts at that time.

Plans compute operations and the Ansible roles carry them out; this module does not access the disk. The roles and
``-f json`` read ``to_dict``; ``describe`` is the line in the text output.
"""

import difflib
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

from gpustack.base.text import counted


@dataclass(frozen=True, kw_only=True)
class Operation:
    """The base of all operations: the kind, and the reason.

    :cvar reversible: whether something leads back.
    """

    kind: ClassVar[str]
    reversible: ClassVar[bool] = True
    why: str

    @property
    def verb(self) -> str:
        """``create``, ``change``, ``delete``, …"""
        return self.kind.partition("_")[0]

    def describe(self) -> str:
        """The operation in one line."""
        raise NotImplementedError

    @property
    def line(self) -> str:
        """The operation in one line of a plan, which marks one that cannot be undone."""
        return self.describe() + ("" if self.reversible else " (cannot be undone)")

    def details(self) -> list[str]:
        """The changes of the operation, one for each line."""
        return []

    def to_dict(self) -> dict[str, object]:
        """The operation as plain data for JSON."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class WriteFile(Operation):
    """Write a file that gpustack owns.

    :param path: absolute path on the host.
    :param content: the complete new content.
    :param before: the current content, or None when the file does not exist.
    :param mode: permission bits in Ansible's notation, for example ``"0644"``.
    """

    kind: ClassVar[str] = "write_file"
    path: str
    content: str
    before: str | None
    mode: str = "0644"

    def describe(self) -> str:
        return f"{'create' if self.before is None else 'change'} {self.path}"

    def diff(self) -> str:
        """A unified diff of the current and the new content."""
        return _diff(self.path, self.before, self.content)


@dataclass(frozen=True, kw_only=True)
class RemoveFile(Operation):
    """Remove a file that gpustack owns and no longer needs.

    :param before: the current content, for the diff.
    """

    kind: ClassVar[str] = "remove_file"
    path: str
    before: str

    def describe(self) -> str:
        return f"remove {self.path}"

    def diff(self) -> str:
        """A unified diff that removes all lines."""
        return _diff(self.path, self.before, None)


def _diff(path: str, before: str | None, after: str | None) -> str:
    old, new = ((text or "").splitlines(keepends=True) for text in (before, after))
    source, target = ("/dev/null" if text is None else path for text in (before, after))
    return "".join(difflib.unified_diff(old, new, source, target))


@dataclass(frozen=True, kw_only=True)
class RunCommand(Operation):
    """Run a command of the host's distribution from a list of arguments, never through a shell."""

    kind: ClassVar[str] = "run_command"
    argv: tuple[str, ...]

    def describe(self) -> str:
        return f"run {shlex.join(self.argv)}"


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A function to bind to another driver, with the identity that it must have.

    :param before: the current driver; None for none.
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
    """Reboot the host. The role does so only if the operator permits it."""

    kind: ClassVar[str] = "reboot"

    def describe(self) -> str:
        return "reboot"


@dataclass(frozen=True, kw_only=True)
class TrialReboot(Reboot):
    """Reboot once with new kernel arguments; they become permanent only if the host is verified with them.

    :param seconds: the time limit for the verification, counted from the boot.
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
    """The number of operations by kind, without kinds that do not occur."""
    listed = tuple(operations)
    counts = {kind: sum(isinstance(o, types) for o in listed) for kind, types in _KINDS.items()}
    return {kind: number for kind, number in counts.items() if number}


def show_counts(counts: Mapping[str, int]) -> list[str]:
    """Counts as shown by a plan, its dry run and the summary of a run: ``4 files, 3 commands, needs a reboot``."""
    phrases = [counted(counts[kind], kind) for kind in _KINDS if kind != "reboot" and counts.get(kind)]
    return [*phrases, "needs a reboot"] if counts.get("reboot") else phrases
