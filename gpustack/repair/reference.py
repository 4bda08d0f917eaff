"""Classes, statuses, repairs and outcomes of clean-up, from the code that decides them: for `explain` and the page."""

import enum
import itertools
from typing import Any

from gpustack.base.errors import ApplyError, DatabaseError
from gpustack.changes.change import SUCCESSFUL, ChangeResult
from gpustack.repair.classes import CLASSES
from gpustack.repair.rules import ALL
from gpustack.repair.verdict import Repair, Status

HOSTS = "the row's host"
BOTH = "both hosts of the migration"
REPAIRS: dict[Repair, tuple[str, str]] = {
    Repair.FAIL_MIGRATION: (BOTH, "`migrations`, with the rows that the migration held on both hosts"),
    Repair.RESTART: (f"{HOSTS}, about every device in use there", "nothing: no row is written"),
    Repair.FREE: (
        f"{HOSTS}; none if it is down and frees the row itself when it starts, and no instance there lacks a device",
        "`pci_devices`",
    ),
    Repair.RETIRE: (f"{HOSTS}, whose answer is needed only if the instance may be there or moves", "`pci_devices`"),
    Repair.CLEAR_DELETED: (f"{HOSTS}; none if it is down and no name of it is the instance's host", "`pci_devices`"),
    **dict.fromkeys((Repair.UNBLOCK, Repair.BLOCK_PARENT, Repair.CLEAR_OWNER), (HOSTS, "`pci_devices`")),
    Repair.UNSET_ALLOCATION: (HOSTS, "the consumer's generation in Placement, and the device's row"),
}
"""For each repair, the hosts that are asked, and what undo compares."""
CODES: dict[ChangeResult, int] = {
    **dict.fromkeys(ChangeResult, ApplyError.exit_code),
    **dict.fromkeys(SUCCESSFUL, 0),
    ChangeResult.UNKNOWN: DatabaseError.exit_code,
}
"""The exit code of a run with this outcome."""
_MODULES: dict[str, Any] = {rule.CLASS: rule for rule in ALL}


def meanings(kind: type[enum.StrEnum]) -> dict[str, str]:
    """Return the documentation of each member of an enumeration in this package, by its value."""
    import ast
    import inspect

    (definition,) = ast.parse(inspect.getsource(kind)).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    texts: dict[str, str] = {}
    for statement, after in itertools.pairwise(body):
        match statement, after:
            case ast.Assign(value=ast.Constant(value=str(value))), ast.Expr(value=ast.Constant(value=str(text))):
                texts[value] = " ".join(text.split())
    return texts


def evidence(letter: str) -> str:
    """Return what a class rests on: the documentation of its rule, without its first sentence."""
    import inspect

    text = inspect.getdoc(_MODULES[letter]) or ""
    return " ".join(text.partition("\n\n")[2].partition("\n\n")[0].split())


def repairs(letter: str) -> list[Repair]:
    """Return the repairs of a class, from the code of its rule."""
    import inspect

    source = inspect.getsource(_MODULES[letter])
    return [repair for repair in Repair if f"Repair.{repair.name}" in source]


def lines(subject: str) -> list[str]:
    """Return what is known of a class's letter, a status, a repair or an outcome; empty for another subject."""
    if subject in CLASSES:
        rows = [
            f"{repair}: asks {REPAIRS[repair][0]}; undo compares {REPAIRS[repair][1]}" for repair in repairs(subject)
        ]
        return [f"Evidence: {text}" for text in [evidence(subject)] if text] + (rows or ["No repair: report only"])
    code = f" Exit code {CODES[ChangeResult(subject)]}." if subject in set(ChangeResult) else ""
    known = [
        (f"Status {subject}", meanings(Status).get(subject), ""),
        (f"Repair {subject}", meanings(Repair).get(subject), ""),
        (f"Outcome {subject} of apply and undo", meanings(ChangeResult).get(subject), code),
    ]
    return [f"{title}: {text}{more}" for title, text, more in known if text is not None]
