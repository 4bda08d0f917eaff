"""The threat model names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_guarantee_has_a_test() -> None:
    page = (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and " attempts to |" not in line]
    assert rows
    for row in rows:
        paths = re.findall(r"`(tests/[\w/.-]+)`", row.split("|")[-2])
        assert paths, row
        assert [path for path in paths if not (ROOT / path).is_file()] == []
