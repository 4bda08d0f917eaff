"""The check as one file in a guest, with the guest's own Python."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpustack.offer.guest import inside
from gpustack.offer.guest.bundle import program
from gpustack.offer.guest.check import Promise
from support.guest_root import guest_root

MODULES = sorted(Path(inside.__file__).parent.glob("*.py"))


def run(tmp_path: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the program as a guest does: without gpustack, without site-packages."""
    path = tmp_path / "guest-check.py"
    path.write_text(program({"g1.a100.2": Promise(count=2, ids=("10de:20b5",))}))
    command = [sys.executable, "-I", "-S", str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=180)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_it_needs_nothing_but_python_3_6_and_the_collector(path: Path) -> None:
    tree = ast.parse(path.read_bytes().decode("ascii"), feature_version=(3, 6))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named = {node.module or "" for node in imports if not node.level}
    named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    others = {name for name in named if not name.startswith("gpustack.hosts.facts.collector.")}
    assert others <= sys.stdlib_module_names - {"__future__", "dataclasses"}


def test_the_program_is_one_file_of_ascii() -> None:
    assert program().isascii()
    ast.parse(program(), feature_version=(3, 6))


def test_each_rendering_is_the_same() -> None:
    command = [sys.executable, "-m", "gpustack.offer.guest.bundle"]
    seeds = ("1", "2")
    texts = {subprocess.check_output(command, env={"PYTHONHASHSEED": seed}, timeout=180) for seed in seeds}
    assert len(texts) == 1


def test_it_prints_the_problems_with_remedies(tmp_path: Path) -> None:
    root = guest_root(tmp_path / "root", gpus=["10de:20b5"])
    ran = run(tmp_path, "--root", str(root))
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout.startswith("1 of 2 GPUs, no driver bound; GPU845 GPU847\n")
    assert "GPU847 0000:00:05.0: no driver is bound to 10de:20b5; module nvidia is installed" in ran.stdout
    assert "-> run `modprobe nvidia`" in ran.stdout


def test_a_good_guest_has_no_problems(tmp_path: Path) -> None:
    root = guest_root(tmp_path / "root", gpus=["10de:20b5"] * 2, driver="nvidia")
    ran = run(tmp_path, "--root", str(root))
    assert (ran.returncode, ran.stdout) == (0, "2 GPUs, driver bound (nvidia 580.95.05)\n"), ran.stderr


def test_facts_are_json(tmp_path: Path) -> None:
    root = guest_root(tmp_path / "root", gpus=["10de:20b5"])
    facts = json.loads(run(tmp_path, "--root", str(root), "--facts").stdout)
    assert facts["gpus"][0]["modules"] == ["nvidia"]


def test_a_missing_root_is_an_error(tmp_path: Path) -> None:
    ran = run(tmp_path, "--root", str(tmp_path / "none"))
    assert ran.returncode == 2
    assert "none" in ran.stderr
