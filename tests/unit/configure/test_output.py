"""Rendered files in a directory: what a write changes, and what an earlier rendering left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpustack.base.errors import NovaConfigError, UsageError
from gpustack.base.operations import RemoveFile, WriteFile
from gpustack.configure.output import carry_out, changes, stale
from gpustack.configure.rendered import RenderedFile
from gpustack.nova_options.markers import BEGIN, END, MARK

NAME = "etc/nova/nova.conf.d/gpustack.conf"
OURS = f"{BEGIN}\n[pci]\nalias = x\n{END}\n"
TEXT = f"{MARK}\n[pci]\n"


def rendered(target: str = "gpu01", text: str = TEXT, **options: bool) -> RenderedFile:
    return RenderedFile(target=target, path=f"/{NAME}", text=text, services=("compute",), **options)


def test_only_files_with_another_content_are_written(tmp_path: Path) -> None:
    files = [rendered(), rendered("gpu02")]
    (first, second) = changes(files, tmp_path)
    carry_out(first)
    path = tmp_path / "gpu01" / NAME
    assert (path.read_text(), path.stat().st_mode & 0o777) == (TEXT, 0o644)
    assert changes(files, tmp_path) == [second]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_changed_file_keeps_its_owner_and_its_link(tmp_path: Path) -> None:
    """Nova or kolla-ansible could not read it otherwise: their files are often 0640 and of their group."""
    path, real = tmp_path / "gpu01" / NAME, tmp_path / "real.conf"
    real.write_text(TEXT)
    os.chown(real, 4321, 1234)
    real.chmod(0o640)
    path.parent.mkdir(parents=True)
    path.symlink_to(real)
    (change,) = changes([rendered(text=f"{TEXT}alias = y\n")], tmp_path)
    carry_out(change)
    status = real.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (4321, 1234, 0o640)
    assert path.is_symlink()
    assert path.read_text() == f"{TEXT}alias = y\n"


def test_a_changed_file_keeps_its_mode(tmp_path: Path) -> None:
    (change,) = changes([rendered()], tmp_path)
    carry_out(change)
    path = Path(change.path)
    path.chmod(0o600)
    (change,) = changes([rendered(text=f"{TEXT}alias = y\n")], tmp_path)
    carry_out(change)
    assert (path.read_text(), path.stat().st_mode & 0o777) == (f"{TEXT}alias = y\n", 0o600)


def test_a_file_of_others_with_the_same_name_is_not_replaced(tmp_path: Path) -> None:
    """RHOSO's resources are often in a file of this name."""
    path = tmp_path / "rhoso/controlplane.yaml"
    path.parent.mkdir()
    path.write_text("kind: OpenStackControlPlane\n")
    file = RenderedFile(target="", path="rhoso/controlplane.yaml", text=TEXT, services=("api",))
    with pytest.raises(NovaConfigError, match="did not write this file"):
        changes([file], tmp_path)
    path.write_text("\n")
    assert len(changes([file], tmp_path)) == 1


def test_the_only_target_of_this_machine_has_no_directory() -> None:
    (change,) = changes([rendered()], Path("/"))
    assert change.path == f"/{NAME}"


def test_several_targets_are_not_this_machine() -> None:
    with pytest.raises(UsageError, match="of several hosts"):
        changes([rendered(), rendered("gpu02")], Path("/"))


def test_stale_files_are_removed_and_foreign_parts_kept(tmp_path: Path) -> None:
    texts = {"a": OURS, "b": f"[DEFAULT]\ndebug = true\n\n{OURS}", "c": "[DEFAULT]\n", "d": "", "gpu01": OURS}
    for host, text in texts.items():
        (tmp_path / host / NAME).parent.mkdir(parents=True)
        (tmp_path / host / NAME).write_text(text)
    operations = list(stale([rendered()], tmp_path, [f"*/{NAME}"]))
    assert [(type(one), Path(one.path).relative_to(tmp_path).parts[0]) for one in operations] == [
        (RemoveFile, "a"),
        (WriteFile, "b"),
    ]
    for one in operations:
        carry_out(one)
    left = {host: (tmp_path / host / NAME).read_text() for host in "bcd"}
    assert left == {"b": "[DEFAULT]\ndebug = true\n", "c": "[DEFAULT]\n", "d": ""}
    assert not (tmp_path / "a" / NAME).exists()


def test_files_that_are_not_text_stop_the_run(tmp_path: Path) -> None:
    (tmp_path / "gpu01" / NAME).parent.mkdir(parents=True)
    (tmp_path / "gpu01" / NAME).write_bytes(b"\xff")
    with pytest.raises(NovaConfigError, match="is not UTF-8"):
        changes([rendered()], tmp_path)


def test_foreign_files_beside_the_rendered_ones_need_not_be_text(tmp_path: Path) -> None:
    """kolla-ansible's directory of overrides may hold any file."""
    (tmp_path / "latin.conf").write_bytes("# größe\n[DEFAULT]\n".encode("latin-1"))
    (tmp_path / "drop-ins.conf").mkdir()
    assert not list(stale([rendered()], tmp_path, ["*.conf"]))
    (tmp_path / "ours.conf").write_bytes(OURS.encode() + b"\xff\n")
    with pytest.raises(NovaConfigError, match="is not UTF-8"):
        list(stale([rendered()], tmp_path, ["*.conf"]))


def test_a_file_with_crlf_keeps_its_line_ends(tmp_path: Path) -> None:
    path, before = tmp_path / NAME, "[DEFAULT]\r\ndebug = true\r\n"
    path.parent.mkdir(parents=True)
    path.write_bytes(before.encode())
    file = rendered("", OURS, shared=True)
    (change,) = changes([file], tmp_path)
    assert change.content == f"{before}\r\n" + OURS.replace("\n", "\r\n")
    carry_out(change)
    assert changes([file], tmp_path) == []
    (removal,) = stale([], tmp_path, ["etc/**/*.conf"])
    assert isinstance(removal, WriteFile)
    assert removal.content == before
