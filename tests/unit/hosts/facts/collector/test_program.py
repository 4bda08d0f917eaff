"""The collector as a program on a host's own Python."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpustack.hosts.facts import collector
from gpustack.hosts.facts.bundle import program
from gpustack.hosts.facts.model import Host as HostFacts
from gpustack.linux import initramfs
from support.sysroot import talk_host

MODULES = sorted(Path(collector.__file__).parent.glob("*.py"))
READER = sorted(Path(initramfs.__file__).parent.glob("*.py"))


@pytest.fixture
def collect_py(tmp_path: Path) -> Path:
    """The collector as somebody would carry it to a host."""
    path = tmp_path / "collect.py"
    path.write_text(program())
    return path


@pytest.mark.parametrize("path", [*MODULES, *READER], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_it_needs_nothing_but_python_3_6_and_its_standard_library(path: Path) -> None:
    source = path.read_bytes().decode("ascii")  # Python 3.6 reads standard input as the locale says
    tree = ast.parse(source, feature_version=(3, 6))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1
            assert f"{node.module}.py" in {module.name for module in path.parent.glob("*.py")}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).partition(".")[0])
    assert imported <= sys.stdlib_module_names
    assert "__future__" not in imported  # postponed annotations came with 3.7


def test_the_program_is_one_file_of_ascii() -> None:
    assert program().isascii()
    ast.parse(program(), feature_version=(3, 6))


def run(*arguments: str, python: str = sys.executable, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    command = [python, "-I", "-S", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180, **options)


def test_from_a_file_with_another_root(collect_py: Path, tmp_path: Path) -> None:
    root = talk_host(tmp_path / "caf\u00e9").write("/etc/modprobe.d/caf\u00e9.conf", "# caf\u00e9\n")
    process = run(str(collect_py), "--root", str(root.path))
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.isascii()
    assert process.stdout.count("\n") == 1
    document = json.loads(process.stdout)
    assert list(document) == sorted(document)
    assert document["hostname"] == "gpu01"
    assert document["root"].endswith("caf\u00e9")
    assert document["files"]["/etc/modprobe.d/caf\u00e9.conf"]["text"] == "# caf\u00e9\n"


def test_this_machine_from_standard_input() -> None:
    process = run("-", input=program())
    assert (process.returncode, process.stderr) == (0, "")
    document = json.loads(process.stdout)
    assert HostFacts.model_validate(document).hostname == os.uname().nodename
    assert document["kernel"]["release"] == os.uname().release
    assert document["architecture"] == os.uname().machine
    assert document["cpu"]["logical"] == os.cpu_count()
    listed = Path("/sys/bus/pci/devices")
    addresses = {entry.name for entry in listed.iterdir()} if listed.is_dir() else set()
    assert {entry["address"] for entry in document["pci"]} == addresses


# The virtual environment may be where only root can look.
SYSTEM_PYTHON = Path("/usr/bin/python3")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="the system has no Python of its own")
def test_this_machine_without_privilege() -> None:
    process = run("-", python=str(SYSTEM_PYTHON), input=program(), user=65534, group=65534, extra_groups=[], cwd="/")
    assert process.returncode == 0, process.stderr
    document = json.loads(process.stdout)
    assert document["privileged"] is False
    assert ("/proc/iomem" in {entry["path"] for entry in document["unread"]}) == bool(document["pci"])
    HostFacts.model_validate(document)


def test_a_wrong_root_is_reported_and_nothing_is_printed(collect_py: Path) -> None:
    process = run(str(collect_py), "--root", "/nonexistent/root")
    assert (process.returncode, process.stdout) == (2, "")
    assert "/nonexistent/root: Not a directory" in process.stderr
    assert run(str(collect_py), "--rot").returncode == 2
