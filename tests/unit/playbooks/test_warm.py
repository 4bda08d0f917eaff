"""The warm interpreters of tests behave as those that they replace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpustack.connect.playbooks.inventory import interpreter
from support import warm

SEEKABLE = (
    "import sys; sys.stderr.reconfigure(errors='replace'); print([s.seekable() for s in (sys.stdout, sys.stderr)])"
)
STATE = (
    "import json, os, sys; mask = os.umask(0); print(sys.stdin.read(), file=sys.stderr);"
    "print(json.dumps([sys.executable, sys.argv, os.getcwd(), dict(os.environ), mask]));"
    "sys.exit(int(sys.argv[1]))"
)
PYTHONS = [(warm.python, sys.executable), (warm.outside, interpreter())]


@pytest.mark.parametrize(("start", "real"), PYTHONS)
def test_a_program_has_all_that_its_caller_gives(start: Callable[[], str], real: str, tmp_path: Path) -> None:
    (tmp_path / "program").write_text(STATE, encoding="utf-8")
    for arguments in (["-c", STATE, "3", "a b\n"], ["program", "0"]):
        answers = []
        for python in (start(), real):
            ran = subprocess.run(
                [python, *arguments],
                input="text é",
                capture_output=True,
                text=True,
                check=False,
                cwd=tmp_path,
                env={"LC_ALL": "C.UTF-8", "NAME": "a=b\nc"},
                umask=0o027,
            )
            answers.append((ran.returncode, json.loads(ran.stdout), ran.stderr))
        assert answers[0] == answers[1]


@pytest.mark.parametrize(("start", "real"), PYTHONS)
@pytest.mark.parametrize(
    "text", ["raise SystemExit('why')", "1 / 0", "print(__name__)", "import os; os._exit(9)", SEEKABLE, "("]
)
def test_a_program_from_standard_input_ends_as_it_does(start: Callable[[], str], real: str, text: str) -> None:
    def ended(python: str) -> tuple[int | None, ...]:
        ran = subprocess.run([python], input=text, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout, ran.stderr.splitlines()[-1:]

    code, *texts = ended(start())
    real_code, *real_texts = ended(real)
    assert texts == real_texts
    assert code == (70 if "_exit" in text else real_code)  # nothing is left that could answer with the code


def test_a_program_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    text = f"import os, time; open({str(mark)!r}, 'w').write(f'{{os.getpid()}} '); time.sleep(600)"
    process = subprocess.Popen([warm.python(), "-c", text])
    deadline = time.monotonic() + 60
    while not mark.exists() or not mark.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    number = int(mark.read_text(encoding="utf-8"))
    while Path(f"/proc/{number}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert os.getpid() != number
