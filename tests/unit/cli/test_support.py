"""``gpustack support bundle``: the list, the question, the file. No cloud answers; the files are real."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from gpustack.cli.app import main

SPEC = 'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {"gpu1": [k4200]}\n'
COMMAND = ("support", "bundle", "--config-file", "nova.conf", "--out", "b.tar.gz")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home without a cloud."""
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("gpustack.yaml").write_text(SPEC, encoding="utf-8")
    Path("nova.conf").write_text("[neutron]\npassword = Zq7secret\n[DEFAULT]\ndebug = true\n", encoding="utf-8")
    return tmp_path


def test_the_list_is_shown_and_the_archive_is_private(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = os.umask(0)
    try:
        assert main([*COMMAND, "--yes", "-f", "json"]) == 0
    finally:
        os.umask(before)
    output = capsys.readouterr()
    rows = {row["path"]: row for row in json.loads(output.out)}
    assert rows["configuration/1-nova.conf"]["masked"] == 1
    assert "auth_url" in rows["failures.json"]["omitted"]
    assert "b.tar.gz: read it before you send it" in output.err
    status = Path("b.tar.gz").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_nlink) == (0o600, 1)
    with tarfile.open("b.tar.gz") as packed:
        assert sorted(entry.name for entry in packed) == sorted(f"b/{n}" for n, of in rows.items() if not of["omitted"])
        assert {entry.mode for entry in packed} == {0o600}
        stream = packed.extractfile("b/configuration/1-nova.conf")
        assert stream is not None
        assert stream.read() == b"[neutron]\npassword = ***\n[DEFAULT]\ndebug = true\n"
    assert [path.name for path in directory.iterdir() if "tar" in path.name] == ["b.tar.gz"]


def test_a_file_that_no_source_can_read_costs_no_bundle(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "clouds.yaml": "clouds: {c: {auth: {password: Zq8secret}}}\n",
        "broken.conf": "[DEFAULT\nx = 1\n",
        "specs.conf": '[pci]\ndevice_spec = {"vendor_id":\n',
        "hosts.json": "{",
    }
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    given = [part for name in files if name != "hosts.json" for part in ("--config-file", name)]
    assert (
        main([*COMMAND, *given, "--config-file", "none.conf", "--snapshot", "hosts.json", "--yes", "-f", "json"]) == 0
    )
    omitted = {
        row["path"].partition("-")[2] or row["path"]: row["omitted"] for row in json.loads(capsys.readouterr().out)
    }
    assert (omitted["clouds.yaml"], omitted["specs.conf"], omitted["nova.conf"]) == (None, None, None)
    assert omitted["broken.conf"] == "not understood"
    assert omitted["none.conf"] == "there is no such file"
    assert "hosts.json: the file ends too early" in omitted["facts"]
    assert b"secret" not in gzip.decompress(Path("b.tar.gz").read_bytes())


def test_check_and_a_missing_terminal_write_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--check"]) == 0
    assert main([*COMMAND]) == 2
    assert "no terminal for confirmation" in capsys.readouterr().err
    assert not Path("b.tar.gz").exists()


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_an_existing_file_is_never_replaced(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = Path("b.tar.gz")
    if kind == "file":
        target.write_text("mine", encoding="utf-8")
    else:
        Path("theirs").write_text("theirs", encoding="utf-8")
        target.symlink_to("theirs" if kind == "link" else "nowhere")
    assert main([*COMMAND, "--yes"]) == 2
    assert "the file exists" in capsys.readouterr().err
    assert target.is_symlink() == (kind != "file")
    assert kind == "dangling" or target.read_text(encoding="utf-8") == ("mine" if kind == "file" else "theirs")
    assert not Path("nowhere").exists()


def test_a_full_disk_leaves_no_part_of_a_bundle(directory: Path) -> None:
    """The limit of the size of files stands for a full disk: the system refuses the write in its middle."""
    script = 'ulimit -f 1; exec "$@"'
    words = [sys.executable, "-B", "-m", "gpustack", *COMMAND, "--yes"]  # Python would leave truncated byte code
    run = subprocess.run(["/bin/bash", "-c", script, "-", *words], capture_output=True, text=True, check=False)
    assert run.returncode == 14, run.stderr
    assert "b.tar.gz: the bundle can't be written: File too large; nothing was written" in run.stderr
    assert not [path.name for path in directory.iterdir() if "tar" in path.name]
