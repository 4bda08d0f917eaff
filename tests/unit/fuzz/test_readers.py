"""Every input has a reader in ``support.fuzz_readers``; ``make fuzz`` runs them for long."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpustack.cli.app import Gpustack
from support.fuzz_readers import ELSEWHERE, MODULES, OPENSSH, OPTIONS, READERS, UNREAD, WRITES, WRITTEN
from support.fuzzing import Reader, run

ROOT = Path(__file__).parents[3]
OTHERS = [name for name in READERS if not name.startswith("API ")]
FEW = ["API compute.services", "API placement.listed", "API ImageCloud.images"]
SLOW = {"root", "database", "nova.conf", "vendor data", "snapshot as baseline"}


def files() -> set[str]:
    """The arguments of all commands that name a file or a directory, by their last option string or their name."""
    app, found = Gpustack(), set()
    for name, _ in app.commands:
        for action in app.parser_of(name)._actions:
            words = str(action.metavar or "").upper()
            if action.type is Path or "FILE" in words or "DIR" in words or "PATH" in words:
                found.add(action.option_strings[-1] if action.option_strings else action.dest)
    return found


def test_every_file_argument_has_a_reader() -> None:
    assert files() == OPTIONS.keys()
    assert {*OPTIONS.values()} - {WRITTEN, OPENSSH} <= READERS.keys()


def test_every_module_of_the_playbooks_has_a_reader() -> None:
    paths = (ROOT / "playbooks/library").glob("*.py")
    runs_on_hosts = {path.stem for path in paths if "import AnsibleModule" in path.read_text(encoding="utf-8")}
    assert runs_on_hosts == MODULES.keys()
    assert {*MODULES.values()} <= READERS.keys()


def test_every_reader_of_an_api_is_found() -> None:
    assert len([name for name in READERS if name.startswith("API ")]) > 30
    names = {name.removeprefix("API ").removeprefix("session.") for name in READERS}
    assert not names & (UNREAD | ELSEWHERE | WRITES)


def test_every_reader_of_an_api_accepts_an_honest_answer(tmp_path: Path) -> None:
    for name in READERS.keys() - OTHERS:
        READERS[name].read(READERS[name].honest[0], tmp_path)


@pytest.mark.parametrize("name", [*OTHERS, *FEW])
def test_a_planted_fault_is_found_and_otherwise_none(name: str) -> None:
    reader = READERS[name]
    assert run(reader, 1, 0) == ""
    for number in range(1, 2 if name in SLOW else 8):
        assert run(reader, 1, number) == ""
    assert any("planted" in run(reader, 1, number, planted=True) for number in range(100))


def _writes(value: object, directory: Path) -> None:
    (directory / "inside").write_text("x", encoding="utf-8")
    (directory.parent / "gpustack-outside").write_text("x", encoding="utf-8")


def _allocates(value: object, directory: Path) -> None:
    bytearray(2 << 30)


def _starts(value: object, directory: Path) -> None:
    subprocess.run(["true"], check=False)


@pytest.mark.parametrize(
    ("read", "fault"),
    [(_writes, "gpustack-outside"), (_allocates, "MemoryError"), (_starts, "subprocess.Popen")],
)
def test_a_case_is_confined(read: object, fault: str) -> None:
    assert fault in run(Reader(name="x", honest=({},), read=read), 1, 1)  # type: ignore[arg-type]
