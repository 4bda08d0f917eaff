"""Run a program on the Python of an installed Nova, and each way in which that fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpustack.configure.installed import launch, program, start
from gpustack.configure.sources import read_sources

ANSWER = 'print(\'gpustack-nova: {"version": "32.2.1", "answers": []}\')\n'


def test_a_virtual_environment_and_a_program_name_their_interpreter(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    script = tmp_path / "bin" / "nova-compute"
    script.write_text(f"#!{tmp_path}/bin/python\nimport nova\n")
    assert launch.command_of(str(tmp_path))[0] == f"{tmp_path}/bin/python"
    assert launch.command_of(str(script))[0] == f"{tmp_path}/bin/python"
    assert launch.run(str(script), ANSWER, 60) == {"version": "32.2.1", "answers": []}


def test_containers_run_the_program_inside():
    assert launch.command_of("podman:nova_compute")[:5] == ["podman", "exec", "-i", "nova_compute", "python3"]


@pytest.mark.parametrize(
    ("text", "timeout", "message"),
    [
        ("raise SystemExit('nothing here')", 60, "nothing here"),
        ("print('no verdict')", 60, "exit code 0"),
        ("import time; time.sleep(60)", 1, "no answer within 1 s"),
        ('print(\'gpustack-nova: {"import_error": "No module named nova", "python": "3.9"}\')', 60, "No module named"),
    ],
)
def test_a_program_without_a_verdict_is_an_error(text, timeout, message):
    with pytest.raises(launch.LaunchError, match=message):
        launch.run(sys.executable, text, timeout)


def test_no_such_program_is_an_error(tmp_path):
    shell = tmp_path / "nova-compute"
    shell.write_text("#!/bin/sh\nexit 0\n")
    for nova, message in ((str(tmp_path / "missing"), "no such program"), (str(shell), "names no Python")):
        with pytest.raises(launch.LaunchError, match=message):
            launch.command_of(nova)


def test_modules_of_the_current_directory_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('owned')")
    monkeypatch.chdir(tmp_path)
    assert launch.run(sys.executable, f"import json\n{ANSWER}", 60) == {"version": "32.2.1", "answers": []}


def test_each_cell_of_devstack_is_a_job(tmp_path: Path) -> None:
    for name in ("nova.conf", "nova-cpu.conf", "nova_cell1.conf", "nova_cell2.conf"):
        (tmp_path / name).write_text("[DEFAULT]\n")
    jobs = launch.jobs_here([{"label": str(tmp_path), "services": (), "paths": [str(tmp_path)]}])
    found = {tuple(entry["files"]): entry["readers"] for entry in jobs}
    assert found == {s.configuration.files: [*s.readers] for s in read_sources([str(tmp_path)])}
    cells = [str(tmp_path / f"nova_cell{number}.conf") for number in (1, 2)]
    assert [files for files, readers in found.items() if readers == ["conductor"]] == [(cell,) for cell in cells]


@pytest.mark.parametrize("module", [launch, program, start])
def test_the_programs_are_python_3_6(module):
    """They run on the Python of old distributions."""
    candidates = [*sorted(Path.home().glob(".pyenv/versions/3.6.*/bin/python3.6")), shutil.which("python3.6")]
    python = next((candidate for candidate in candidates if candidate), None)
    if python is None:
        pytest.skip("Python 3.6 is not installed")
    code = f"compile(open({module.__file__!r}).read(), 'module', 'exec')"
    subprocess.run([python, "-c", code], check=True)


def test_the_super_conductor_of_a_host_has_a_job_of_its_own(tmp_path: Path) -> None:
    """It reads the options of nova-conductor from other files, and is named where the services are compared."""
    for name in ("nova", "nova-super-conductor"):
        (tmp_path / f"{name}.conf").write_text("[DEFAULT]\n")
    jobs = launch.jobs_here([{"label": "x", "services": [], "paths": [str(tmp_path)]}])
    assert [(job["services"], job["readers"], len(job["files"])) for job in jobs] == [
        (["api", "compute", "conductor", "scheduler"], ["api", "compute", "scheduler", "conductor"], 1),
        (["conductor"], ["super-conductor"], 2),
    ]


def test_devstack_starts_services_of_a_host_with_files_of_their_own(tmp_path: Path) -> None:
    """As `nova lint` reads the same directory on this machine."""
    for name in ("nova", "nova-cpu", "nova_cell1"):
        (tmp_path / f"{name}.conf").write_text("[DEFAULT]\n")
    jobs = launch.jobs_here([{"label": "x", "services": [], "paths": [str(tmp_path)]}])
    read = {reader: [Path(file).name for file in job["files"]] for job in jobs for reader in job["readers"]}
    here = {
        reader: [Path(file).name for file in source.configuration.files]
        for source in read_sources([str(tmp_path)])
        for reader in source.readers
    }
    assert read == here
    assert (read["compute"], read["conductor"]) == (["nova-cpu.conf"], ["nova_cell1.conf"])
