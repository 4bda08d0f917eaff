"""Run the command line in this process, and hold what it prints against golden files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpustack.cli.app import main

GOLDEN = Path(__file__).parent / "golden"
DATA = Path(__file__).parent.parent / "data"


@dataclass(frozen=True)
class Ran:
    """What a command line left."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"{self.out}--- stderr ---\n{self.err}--- exit {self.code} ---\n"


@pytest.fixture
def gpustack(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run ``gpustack`` with these arguments."""

    def run(*argv: object) -> Ran:
        code = main([str(argument) for argument in argv])
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare text with a golden file; ``GPUSTACK_GOLDEN=write`` writes the files instead (look at the diff)."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("GPUSTACK_GOLDEN") == "write":
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def snapshots() -> Path:
    """The directory of the sample snapshots."""
    return DATA / "snapshots"
