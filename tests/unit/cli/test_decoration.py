"""Colour and links: on a terminal, or as ``--color`` says; the text is the same without them."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpustack.base.text import SafeStream
from gpustack.cli.decoration import paged, write

ERROR = "ERROR GPU112 gpu01 0000:65:00.0: two drivers"
RED = "\x1b[1;31mERROR\x1b[0m"
DOCS = "https://docs.example/gpustack"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "GPUSTACK_DOCS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def written(text: str, *, stream: io.StringIO | None = None, color: str = "auto", changes: bool = False) -> str:
    stream = Terminal() if stream is None else stream
    write(SafeStream(stream), text, color, changes=changes)
    return stream.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;;[^\x1b]*\x1b\\", "", text)


def test_severities_are_coloured_on_a_terminal() -> None:
    assert written(ERROR) == f"{RED} GPU112 gpu01 0000:65:00.0: two drivers\n"
    assert written(f"  {ERROR}").startswith(f"  {RED} ")


def test_a_pipe_gets_the_bare_text() -> None:
    assert written(ERROR, stream=io.StringIO()) == f"{ERROR}\n"
    assert RED in written(ERROR, stream=io.StringIO(), color="always")


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", "")])
def test_terminals_without_colour(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("GPUSTACK_DOCS_URL", DOCS)
    assert written(ERROR) == f"{ERROR}\n"


def test_the_option_wins_over_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert RED in written(ERROR, color="always")
    monkeypatch.delenv("NO_COLOR")
    assert written(ERROR, color="never") == f"{ERROR}\n"


def test_codes_are_links_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSTACK_DOCS_URL", f"{DOCS}/")
    link = f"\x1b]8;;{DOCS}/reference/findings/gpu112.html\x1b\\GPU112\x1b]8;;\x1b\\"
    assert link in written(ERROR)
    assert "\x1b]8" not in written(ERROR, stream=io.StringIO(), color="always")
    assert "\x1b]8" not in written(ERROR, color="never")
    monkeypatch.setenv("TERM", "linux")
    assert "\x1b]8" not in written(ERROR)


def test_differences_are_coloured_where_there_are_some() -> None:
    plan = "       --- /etc/modules\n       @@ -1 +1 @@\n       -nouveau\n       +vfio-pci\n    1. write /etc/modules"
    output = written(plan, changes=True)
    assert "\x1b[31m-nouveau\x1b[0m" in output
    assert "\x1b[32m+vfio-pci\x1b[0m" in output
    assert plain(output) == f"{plan}\n"
    assert written("  - a reason") == "  - a reason\n"


def test_escape_sequences_of_others_stay_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSTACK_DOCS_URL", "https://docs.example/\x1b]0;owned\x07")
    output = written("ERROR GPU112 \x1b[2J: \x07", color="always", changes=True)
    assert "\\x1b[2J: \\x07" in output
    assert not set(plain(output)) & set("\x1b\x07")
    assert "%1B" in output


LONG = "\n".join(map(str, range(60)))


@pytest.mark.parametrize(
    ("pagers", "terminal", "text", "shown"),
    [
        ({"PAGER": "sed s/^/p/"}, "xterm", LONG, LONG.replace("\n", "\np").replace("0", "p0", 1)),
        ({"PAGER": "sed s/^/p/", "GPUSTACK_PAGER": ""}, "xterm", LONG, LONG),
        ({"PAGER": "false", "GPUSTACK_PAGER": "head -n 1"}, "xterm", LONG, "0"),
        ({"PAGER": "no-such-program"}, "xterm", LONG, LONG),
        ({"PAGER": "sed s/^/p/"}, "dumb", LONG, LONG),
        ({"PAGER": "sed s/^/p/"}, "xterm", "short", "short"),
        ({"PAGER": "wc -l"}, "xterm", "x" * 81 * 24, "1"),  # wide lines count
        ({}, "xterm", LONG, LONG),
    ],
)
def test_a_pager_shows_what_is_longer_than_the_terminal(
    pagers: dict[str, str], terminal: str, text: str, shown: str, tmp_path: Path
) -> None:
    program = (
        "from gpustack.base.text import SafeStream; from gpustack.cli.decoration import paged, write; import sys\n"
    )
    program += "stream = SafeStream(sys.stdout)\nwith paged(stream): write(stream, sys.argv[1])\nstream.flush()"
    controller, end = os.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("PAGER", "GPUSTACK_PAGER")}
    subprocess.run(
        [sys.executable, "-c", program, text],
        stdout=end,
        check=True,
        env={**environment, **pagers, "TERM": terminal, "COLUMNS": "80", "LINES": "24"},
    )
    os.close(end)
    with open(controller, "rb", closefd=True) as reader:
        printed = reader.read1(8192).decode().replace("\r\n", "\n")
    assert printed.strip() == shown


def test_a_pipe_has_no_pager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "false")
    stream = SafeStream(io.StringIO())
    with paged(stream):
        write(stream, LONG)
    assert stream.raw.getvalue() == f"{LONG}\n"
