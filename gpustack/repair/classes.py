"""The classes of stale rows by letter and name, both from the name of the rule's module: ``b_migration_pinned``."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpustack.repair.rules import ALL


@dataclass(frozen=True, kw_only=True)
class CleanupClass:
    """A class of stale rows.

    :ivar letter: ``B``; used in plans, journals and metrics.
    :ivar name: ``migration-pinned``.
    :ivar title: a description in words.
    """

    letter: str
    name: str
    title: str

    def __str__(self) -> str:
        return f"{self.letter} ({self.name})"


def _read() -> Mapping[str, CleanupClass]:
    found = {}
    for rule in sorted(ALL, key=lambda rule: rule.CLASS):
        name = rule.__name__.rpartition(".")[2].partition("_")[2].replace("_", "-")
        found[rule.CLASS] = CleanupClass(letter=rule.CLASS, name=name, title=rule.TITLE)
    return found


CLASSES = _read()
"""All classes by letter."""
COMPARED = {"O": "--snapshot FILE", "Q": "--os-cloud CLOUD", "S": "--os-cloud CLOUD", "T": "--ask-hosts"}
"""The option that names what the rows are compared with; without it, the class is not judged."""


def lookup(text: str) -> CleanupClass | None:
    """Return the class with this letter or name, ignoring case; None if there is none."""
    return next((c for c in CLASSES.values() if text.lower() in (c.letter.lower(), c.name)), None)


def label(letter: str) -> str:
    """Return the class for display: ``B (migration-pinned)``. The letter of an unknown class is returned unchanged."""
    return str(CLASSES.get(letter, letter))
