"""The documentation is ordered by job, and its commands need an installed package only."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
JOBS = ["Prepare hosts", "Configure Nova", "Offer GPUs", "Operate GPUs", "Recover lost GPUs"]
TREES = dict(
    re.findall(
        r"^```\{toctree\}\n:caption: (.+)\n:maxdepth: 1\n:hidden:\n\n((?:\S+\n)+)```$",
        (DOCS / "index.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
)
CHECKOUT = re.compile(
    r"\bmake [a-z]|\bgit (clone|pull)\b|\.venv/|\bpip install( -\S+)* \.|\b(tools|tests|bench|playbooks)/\w"
)
"""A part of a command that needs a checkout."""
EXCEPTIONS = {
    "howto/container.md": "builds the image from the sources, while no registry has one",
    "tutorial/complete-path.md": "a test recorded its commands, in a checkout",
}
LIMITS = tomllib.loads((DOCS.parent / "bench" / "limits.toml").read_text(encoding="utf-8"))


def commands(page: Path) -> list[str]:
    """The commands of a page: in its blocks, and in sentences that begin with "Run"."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```console\n(.+?)^ *```", text, re.MULTILINE | re.DOTALL)
    printed = [line for block in blocks for line in re.findall(r"^ *\$ (.+)", block, re.MULTILINE)]
    return [*printed, *re.findall(r"\b[Rr]un `([^`]+)`", text)]


def of_checkout(page: Path) -> list[str]:
    return [command for command in commands(page) if CHECKOUT.search(command)]


PAGES = {
    str(path.relative_to(DOCS)): path
    for path in sorted(DOCS.rglob("*.md"))
    if not {"generated", "findings", "_build"} & set(path.relative_to(DOCS).parts)
}


def test_the_front_page_lists_the_jobs_in_their_order() -> None:
    assert list(TREES) == ["Learn", *JOBS, "Reference", "Explanation"]
    cards = re.findall(r"^\*\*\[(.+?)\]\(\S+\)\*\*$", PAGES["index.md"].read_text(encoding="utf-8"), re.MULTILINE)
    assert cards == JOBS


def test_each_how_to_is_in_one_job() -> None:
    listed = Counter(page for pages in TREES.values() for page in pages.split())
    assert {name for name, number in listed.items() if number > 1} == set()
    howtos = {name.removesuffix(".md") for name in PAGES if name.startswith("howto/")}
    assert howtos == {name for name in listed if name.startswith("howto/")}


@pytest.mark.parametrize("page", [page for page in PAGES if page not in EXCEPTIONS])
def test_commands_need_no_checkout(page: str) -> None:
    assert of_checkout(PAGES[page]) == []


@pytest.mark.parametrize("page", EXCEPTIONS)
def test_exceptions_are_needed(page: str) -> None:
    assert of_checkout(PAGES[page])


FIGURE = re.compile(
    r"\b\d[\d.,]* (ms|milliseconds)\b|\b[\w.,]+ times (as long|as fast|faster|slower)|\b(twice|half) as (long|fast)"
)
BENCH = re.compile(r"`bench/(\w+)\.py`|`make bench ONLY=(\w+)`")


@pytest.mark.parametrize("page", PAGES)
def test_figures_of_speed_name_their_bench(page: str) -> None:
    """The table of limits is a generated page; a figure elsewhere is of a run, and its section names the bench."""
    for section in re.split(r"^#+ ", PAGES[page].read_text(encoding="utf-8"), flags=re.MULTILINE):
        if FIGURE.search(section):
            named = {name for match in BENCH.findall(section) for name in match if name}
            assert named, section[:200]
            assert named <= LIMITS.keys(), named - LIMITS.keys()
