"""The collector as a program on a host's own Python."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sysroot import talk_host

from gpustack.facts import collect, initramfs
from gpustack.facts.model import Host as HostFacts

PROGRAM = Path(collect.__file__)


@pytest.mark.parametrize("module", [collect, initramfs])
def test_it_needs_nothing_but_python_3_6_and_its_standard_library(module: object) -> None:
    source = Path(module.__file__).read_bytes().decode("ascii")  # Python 3.6 reads standard input as the locale says
    tree = ast.parse(source, feature_version=(3, 6))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).partition(".")[0])
    assert imported <= sys.stdlib_module_names
    assert "__future__" not in imported  # postponed annotations came with 3.7


def run(*arguments: str, python: str = sys.executable, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    command = [python, "-I", "-S", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, **options)


def test_from_a_file_with_another_root(tmp_path: Path) -> None:
    root = talk_host(tmp_path / "caf\u00e9").write("/etc/modprobe.d/caf\u00e9.conf", "# caf\u00e9\n")
    done = run(str(PROGRAM), "--root", str(root.path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert done.stdout.count("\n") == 1
    found = json.loads(done.stdout)
    assert list(found) == sorted(found)
    assert found["hostname"] == "gpu01"
    assert found["root"].endswith("caf\u00e9")
    assert found["files"]["/etc/modprobe.d/caf\u00e9.conf"]["text"] == "# caf\u00e9\n"


def test_this_machine_from_standard_input() -> None:
    with PROGRAM.open() as source:
        done = run("-", stdin=source)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert HostFacts.model_validate(found).hostname == os.uname().nodename
    assert found["kernel"]["release"] == os.uname().release
    assert found["architecture"] == os.uname().machine
    assert found["cpu"]["logical"] == os.cpu_count()
    listed = Path("/sys/bus/pci/devices")
    addresses = {entry.name for entry in listed.iterdir()} if listed.is_dir() else set()
    assert {entry["address"] for entry in found["pci"]} == addresses


# The virtual environment may be where only root can look.
SYSTEM_PYTHON = Path("/usr/bin/python3")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="the system has no Python of its own")
def test_this_machine_without_privilege() -> None:
    done = run(
        "-", python=str(SYSTEM_PYTHON), input=PROGRAM.read_text(), user=65534, group=65534, extra_groups=[], cwd="/"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["privileged"] is False
    assert ("/proc/iomem" in {entry["path"] for entry in found["unread"]}) == bool(found["pci"])
    HostFacts.model_validate(found)


def test_a_wrong_root_is_told_and_nothing_is_printed() -> None:
    done = run(str(PROGRAM), "--root", "/nonexistent/root")
    assert (done.returncode, done.stdout) == (2, "")
    assert "/nonexistent/root: Not a directory" in done.stderr
    assert run(str(PROGRAM), "--rot").returncode == 2
