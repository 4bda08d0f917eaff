"""The module that writes: atomic, below its root, truthful in check mode."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpustack.connect.playbooks.inventory import interpreter
from support import warm
from support.playbook_place import environment, tree


def files(home: Path, *flags: str, prefix: tuple[str, ...] = (), **arguments: Any) -> dict[str, Any]:
    """Call the module through ansible, after the words of ``prefix``; answers its result.

    What ``prefix`` mounts is there in its own processes only, so with it no Python is warm.
    """
    start, python = ([*prefix], interpreter()) if prefix else ([warm.python()], warm.outside())
    process = subprocess.run(
        [
            *start,
            str(Path(sys.executable).with_name("ansible")), "localhost", "-i", "localhost,", "-c", "local", "-o",
            "-e", f"ansible_python_interpreter={python}",
            "-m", "nova_gpustack.passthrough.gpustack_files", "-a", json.dumps(arguments), *flags,
        ],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    _, brace, body = process.stdout.partition("{")
    assert brace, process.stdout + process.stderr
    result: dict[str, Any] = json.JSONDecoder().raw_decode(brace + body)[0]
    return result | {"failed": process.returncode != 0}


def test_it_writes_removes_and_repeats_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "old").write_text("x", encoding="utf-8")
    options = {
        "root": str(root),
        "write": [
            {"path": "/etc/new.d/a", "content": "né\n", "mode": "0644"},
            {"path": "/hook", "content": "#!/bin/sh\n", "mode": "0755"},
        ],
        "remove": ["/old", "/never-there"],
    }
    before = tree(root)
    checked = files(tmp_path, "--check", **options)
    assert checked["changed"]
    assert tree(root) == before
    result = files(tmp_path, **options)
    assert result["paths"] == checked["paths"] == ["/etc/new.d/a", "/hook", "/old"]
    assert (root / "etc/new.d/a").read_text(encoding="utf-8") == "né\n"
    assert (root / "hook").stat().st_mode & 0o7777 == 0o755
    assert not (root / "old").exists()
    assert not files(tmp_path, **options)["changed"]


def test_the_umask_closes_no_directory(tmp_path: Path) -> None:
    """nova-compute runs as a user of its own, and ignores a drop-in that it can't read."""
    (tmp_path / "root/etc/nova").mkdir(parents=True)
    path = "/etc/nova/nova.conf.d/300-gpustack.conf"
    write = [{"path": path, "content": "x", "mode": "0644"}]
    files(tmp_path, prefix=("sh", "-c", 'umask 077; exec "$@"', "sh"), root=str(tmp_path / "root"), write=write)
    written = tmp_path / f"root{path}"
    assert (written.stat().st_mode & 0o7777, written.parent.stat().st_mode & 0o7777) == (0o644, 0o755)


def test_a_wrong_mode_is_a_change(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "hook").write_text("x", encoding="utf-8")
    (root / "hook").chmod(0o644)
    options = {"root": str(root), "write": [{"path": "/hook", "content": "x", "mode": "0755"}]}
    assert files(tmp_path, **options)["changed"]
    assert (root / "hook").stat().st_mode & 0o7777 == 0o755


def test_it_does_not_follow_links_out_of_its_root(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("kept", encoding="utf-8")
    (root / "etc").symlink_to(outside)
    before = tree(outside)
    for options in (
        {"write": [{"path": "/etc/a", "content": "x", "mode": "0644"}]},
        {"remove": ["/etc/kept"]},
        {"write": [{"path": "/../outside/a", "content": "x", "mode": "0644"}]},
    ):
        result = files(tmp_path, root=str(root), **options)
        assert result["failed"], result
    assert tree(outside) == before


def test_its_own_list_is_not_written_through_a_link(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "var/lib/gpustack").mkdir(parents=True)
    outside.write_text("kept", encoding="utf-8")
    (root / "var/lib/gpustack/directories").symlink_to(outside)
    result = files(tmp_path, root=str(root), write=[{"path": "/etc/new.d/a", "content": "x", "mode": "0644"}])
    assert result["failed"]
    assert outside.read_text(encoding="utf-8") == "kept"


def test_a_link_in_the_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    target = tmp_path / "target"
    target.write_text("mine", encoding="utf-8")
    (root / "file").symlink_to(target)
    files(tmp_path, root=str(root), write=[{"path": "/file", "content": "x", "mode": "0644"}])
    assert not (root / "file").is_symlink()
    assert target.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("flags", [("--check",), ()])
def test_nothing_is_written_if_one_file_system_is_read_only(tmp_path: Path, flags: tuple[str, ...]) -> None:
    usr = tmp_path / "root/usr"
    usr.mkdir(parents=True)
    (usr / "same").write_text("x", encoding="utf-8")
    (usr / "same").chmod(0o644)
    mount = f'mount --bind {usr} {usr} && mount -o remount,bind,ro {usr} && exec "$0" "$@"'
    prefix = ("unshare", "--mount", "--map-root-user", "sh", "-c", mount)
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    before = tree(tmp_path / "root")
    writable = [{"path": path, "content": "x", "mode": "0644"} for path in ("/etc/a", "/usr/same")]
    options = {"root": str(tmp_path / "root"), "write": [*writable, {**writable[0], "path": "/usr/lib/x/b"}]}
    result = files(tmp_path, *flags, prefix=prefix, **options)
    assert result["failed"]
    assert result["msg"].startswith(f"[Errno 30] Read-only file system: '{usr}'; mount that file system writable")
    assert not result["changed"]
    assert tree(tmp_path / "root") == before
    options = {"root": str(tmp_path / "root"), "write": writable}
    assert files(tmp_path, *flags, prefix=prefix, **options)["paths"] == ["/etc/a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [("ro", "Read-only file system"), ("size=4k,nr_inodes=2", "No space left on device")],
)
def test_a_full_disk_is_reported_with_a_remedy(tmp_path: Path, options: str, message: str) -> None:
    etc = tmp_path / "root/etc"
    etc.mkdir(parents=True)
    mount = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'
    prefix = ("unshare", "--mount", "--map-root-user", "sh", "-c", mount, "sh", options, str(etc))
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    entries = [{"path": f"/etc/{name}", "content": "x" * 5000, "mode": "0644"} for name in ("a", "b")]
    result = files(tmp_path, prefix=prefix, root=str(tmp_path / "root"), write=entries)
    assert result["failed"]
    assert message in result["msg"]
    assert "run the playbook again" in result["msg"]
    assert "The host boots as before" in result["msg"]
