"""The links and anchors of the texts that Sphinx does not build; `make docs` fails on a dead one below docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "demo/README.md", "weigher/README.md", "tests/lab/README.md")


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead(page: Path) -> list[str]:
    """The links of a page whose file or anchor does not exist."""
    found = []
    for link in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_links_and_anchors_exist(page: str) -> None:
    assert dead(TOP / page) == []


def test_a_dead_link_and_a_dead_anchor_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading\n[a](#a-heading) [b](#b) [c](c.md) [d](https://example.org)\n", encoding="utf-8")
    assert dead(page) == ["#b", "c.md"]
