"""Running the benches: a limit that is exceeded and a bench that cannot run are different results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

BENCH = Path(__file__).parents[3] / "bench"
FAST = """\
import limits

limits.end(limits.check("fast.time", 0.4))
"""


def run(directory: Path, *options: str) -> tuple[int, str]:
    for name in ("run.py", "limits.py"):
        (directory / name).write_text((BENCH / name).read_text(encoding="utf-8"), encoding="utf-8")
    (directory / "limits.toml").write_text('[fast.time]\nwork = "a run"\npeer = "a walk"\nmost = 0.5\n')
    command = [sys.executable, directory / "run.py", *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    return process.returncode, process.stdout


def test_all_benches_run_although_one_fails(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise ImportError('no peer')\n")
    (tmp_path / "fast.py").write_text(FAST)
    code, output = run(tmp_path, "--json", str(tmp_path / "figures.json"))
    assert code == 2
    assert "broken: not run: ended with 1" in output
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [(result["name"], result["kept"]) for result in figures["results"]] == [("fast.time", True)]


def test_a_halved_limit_is_exceeded(tmp_path: Path) -> None:
    (tmp_path / "fast.py").write_text(FAST)
    assert run(tmp_path)[0] == 0
    code, output = run(tmp_path, "--factor", "0.5")
    assert (code, "a run: 0.4 of a walk (at most 0.25): above the limit" in output) == (1, True)


def test_a_missing_figure_is_not_a_success(tmp_path: Path) -> None:
    (tmp_path / "fast.py").write_text("")
    code, output = run(tmp_path)
    assert (code, "fast: not run: no figure for fast.time" in output) == (2, True)


def test_each_limit_has_its_bench() -> None:
    sys.path.insert(0, str(BENCH))
    try:
        import limits
    finally:
        sys.path.remove(str(BENCH))
    for bench in limits._table():
        text = (BENCH / f"{bench}.py").read_text(encoding="utf-8")
        assert "limits.check(" in text


def test_each_bench_finds_what_it_imports() -> None:
    """CI runs none of them, and a module that was moved would be noticed at night only."""
    names = sorted(path.stem for path in BENCH.glob("*.py"))
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]",
            *names,
        ],
        cwd=BENCH,
        env={**os.environ, "PYTHONPATH": str(BENCH)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_each_bench_has_limits() -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in BENCH.glob("*.py")}
    limits = tomllib.loads((BENCH / "limits.toml").read_text(encoding="utf-8"))
    assert limits.keys() == texts.keys() - {"run", "limits"}
