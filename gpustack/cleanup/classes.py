"""The classes of clean-up by letter and by name. Both come from the module of the rule: ``b_migration_pinned``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpustack.cleanup.rules import RULES, WITNESSED


@dataclass(frozen=True, kw_only=True)
class CleanupClass:
    """A class of wrong rows.

    :ivar letter: ``B``, in plans, journals and metrics.
    :ivar name: ``migration-pinned``.
    :ivar title: the name in words.
    """

    letter: str
    name: str
    title: str

    def __str__(self) -> str:
        return f"{self.letter} ({self.name})"


def _read() -> Mapping[str, CleanupClass]:
    found = {}
    for rule in sorted((*RULES, *WITNESSED), key=lambda rule: rule.CLASS):
        name = rule.__name__.rpartition(".")[2].partition("_")[2].replace("_", "-")
        found[rule.CLASS] = CleanupClass(letter=rule.CLASS, name=name, title=rule.TITLE)
    return found


CLASSES = _read()
"""All classes by letter."""


def lookup(text: str) -> CleanupClass | None:
    """The class with this letter or name, in upper or lower case."""
    return next((c for c in CLASSES.values() if text.lower() in (c.letter.lower(), c.name)), None)


def label(letter: str) -> str:
    """A class as people read it: ``B (migration-pinned)``. A letter of another version stays a letter."""
    return str(CLASSES.get(letter, letter))
