"""Secrets of ``-e`` are in no command line and no log, whichever form they have."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import GpustackError
from gpustack.connect.playbooks import inventory, run
from support.attacks import attacked
from support.fuzz_inputs import SPEC
from support.fuzz_readers import command

SECRET = "s3cr3t-of-the-operator"
FORMS = (f"password={SECRET}", f'{{"password": "{SECRET}"}}', f"password: {SECRET}", f"a=1  b='{SECRET} x'")
COMMANDS = ("host apply {spec} --yes", "host verify {spec}", "host undo --yes")


def secrets_on_command_lines(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory._ansible()  # its import starts programs of its own
    lines: list[str] = []

    def start(argv: list[str], **_options: Any) -> None:
        lines.append(" ".join(map(str, argv)))
        raise GpustackError("the test starts nothing")

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    (directory / "gpustack.yaml").write_text(SPEC, encoding="utf-8")
    for words in COMMANDS:
        for form in FORMS:
            argv = words.format(spec=directory / "gpustack.yaml").split()
            command(*argv, "-i", "gpu01,", "-e", form)
    assert len(lines) == len(COMMANDS) * len(FORMS)
    assert SECRET not in "".join(lines)
    assert not [path for path in directory.rglob("*.log") if SECRET in path.read_text(encoding="utf-8")]


def readable_files(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    for form in FORMS:
        (argument,) = run.as_files([form], directory)
        path = Path(argument.partition("@")[2])
        assert SECRET in path.read_text(encoding="utf-8")
        assert path.stat().st_mode & 0o777 == 0o600


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {"command line": secrets_on_command_lines, "files": readable_files},
    {"gpustack.connect.playbooks.run": {"gpustack.connect.playbooks.run:_as_file": lambda value, _path: value}},
)
