"""The links and anchors of texts that Sphinx does not build, and of the findings; `make docs` runs `tools/links`."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from finding_pages import finding_pages, findings_page

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


def test_links_of_the_findings_pages_exist() -> None:
    commands = {entry.name.replace("_", "-") for entry in entry_points(group="gpustack.cli")}
    known = {"../generated/findings.md", "../playbooks.md", *(f"../findings/{name}" for name in finding_pages())}
    known |= {f"../generated/commands.md#gpustack-{command}" for command in commands}
    texts = (findings_page(), *finding_pages().values())
    assert {link for text in texts for link in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", text)} - known == set()


def test_built_pages_with_dead_links_are_found(tmp_path: Path) -> None:
    """`make docs` runs this program, which reads no network."""
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text(
        '<p id="top"><a href="a/b.html#x&amp;y">b</a> <a href="https://example.org">', "utf-8"
    )
    page = tmp_path / "a/b.html"
    page.write_text('<p id="x&amp;y"><a class="i" href="../index.html#top"> <a href="#x%26y">', encoding="utf-8")
    command = [sys.executable, TOP / "tools/links", tmp_path]
    assert subprocess.run(command, check=False).returncode == 0
    page.write_text('<p id="z"><a href="../index.html#end"> <a href="c.html"> <a href="#z">', encoding="utf-8")
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    links = [
        "a/b.html: the target of ../index.html#end",
        "a/b.html: the target of c.html",
        "index.html: the target of a/b.html#x&amp;y",
    ]
    assert (ran.returncode, ran.stderr.splitlines()) == (1, [f"{line} does not exist" for line in links])
