"""The table of older versions' files in the page about upgrades. ``tests/unit/test_released.py`` tests each row."""

from pathlib import Path

RELEASED = Path(__file__).parents[2] / "tests/released"
ROWS = {
    "spec": ("gpustack.yaml", "valid if it has `version: 1`; another version is an error, with exit code 10"),
    "snapshot": (
        "snapshot.json",
        "readable. Facts that only the new version reads are unknown, so scan the hosts again",
    ),
    "prepared host": ("prepared.json", "`host plan` shows the differences, `host verify` passes, `host undo` restores"),
    "plan of clean-up": ("plan.json", "applied to rows that the new version judges alike; a damaged one: exit code 15"),
    "journal of clean-up": ("cleanup.jsonl", "`gpustack undo FILE` reverts its repairs"),
    "journal of idle instances": ("reclaim.jsonl", "`gpustack undo FILE` unshelves its instances"),
    "journal of images": ("image.jsonl", "`gpustack undo FILE` restores its image properties"),
    "record of a change": ("changes.jsonl", "`gpustack history` lists it; `gpustack undo ID` reverts it"),
}
"""The name of each kind's file in the directory of a release, and what the new version does with it."""


def versions(row: str) -> list[str]:
    """The releases of which a file of this kind is kept."""
    return sorted(path.parent.name for path in RELEASED.glob(f"*/{ROWS[row][0]}"))


def table() -> str:
    """The rows of all kinds that a release has written."""
    rows = [f"| {row} | {', '.join(versions(row))} | {text} |" for row, (_, text) in ROWS.items() if versions(row)]
    return "\n".join(["| File | Tested with files of | After an upgrade |", "|---|---|---|", *rows, ""])
