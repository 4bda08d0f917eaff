"""The commands that the documentation prints, by page and heading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_FENCE = re.compile(r"( *)```(\S*)")


class PageError(Exception):
    """A page lacks a heading, a command, or a text that is to be replaced."""


@dataclass(frozen=True)
class Printed:
    """The commands below a heading of a page.

    :param only: regular expressions for the beginnings of the commands that run; each matches one (default: all).
    :param put: texts of the commands and their replacements, for names and files of this machine; each occurs.
    :param codes: the exit codes of commands that begin so, where not 0.
    :param shows: regular expressions, each of which matches the output.
    :param docs: the directory of the pages.
    """

    page: str
    heading: str
    only: tuple[str, ...] = ()
    put: tuple[tuple[str, str], ...] = ()
    codes: dict[str, int] = field(default_factory=dict)
    shows: tuple[str, ...] = ()
    docs: Path = DOCS

    def commands(self) -> list[tuple[str, int]]:
        """Each command as a user types it, and its exit code."""
        printed = [
            command for block in blocks(self.docs / self.page, self.heading, "console") for command in typed(block)
        ]
        chosen = [
            command for command in printed if not self.only or any(re.match(start, command) for start in self.only)
        ]
        missing = [
            start for start in (*self.only, *self.codes) if not any(re.match(start, command) for command in chosen)
        ]
        missing += [before for before, _ in self.put if not any(before in command for command in chosen)]
        if missing or not chosen:
            raise PageError(f"{self.page}, {self.heading}: no command has {missing or 'a prompt'}")
        return [(self._put(command), self._code(command)) for command in chosen]

    def _put(self, command: str) -> str:
        for before, after in self.put:
            command = command.replace(before, after)
        return command

    def _code(self, command: str) -> int:
        return next((code for start, code in self.codes.items() if re.match(start, command)), 0)


def blocks(page: Path, heading: str, language: str) -> list[str]:
    """The code blocks of a language below a heading, without those of the headings that follow.

    :raises PageError: when the page has no such heading.
    """
    found: list[str] = []
    present, seen = "", False
    lines = iter(page.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if fence := _FENCE.match(line):
            block = "".join(f"{text.removeprefix(fence[1])}\n" for text in _until(lines, f"{fence[1]}```"))
            if present == heading and fence[2] == language:
                found.append(block)
        elif title := re.match(r"#+ (.+)$", line):
            present = title[1]
            seen = seen or present == heading
    if not seen:
        raise PageError(f"{page}: no heading {heading}")
    return found


def typed(block: str) -> list[str]:
    """The commands of a console block, without prompts and output."""
    return re.findall(r"^[$#] ((?:.*\\\n)*.*)$", block, re.MULTILINE)


def _until(lines: Iterator[str], end: str) -> Iterator[str]:
    for line in lines:
        if line == end:
            return
        yield line
