"""Images that the examples write are read alike by gpustack's own reader, the stand-in's, and cpio itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.linux.initramfs import read_initramfs
from gpustack_demo.examples import images

NAMES = st.from_regex(r"\A[a-z]{1,9}(/[a-z.]{1,12}x){0,3}\Z")
FILES = st.dictionaries(NAMES, st.tuples(st.sampled_from((0o644, 0o755, 0o600)), st.binary(max_size=600)), max_size=6)


def _fits(files: dict[str, tuple[int, bytes]]) -> bool:
    """No path is both a file and a directory."""
    return not any(path.startswith(f"{name}/") for name in files for path in files)


@given(FILES.filter(_fits), st.booleans())
def test_what_is_written_is_read(files: dict[str, tuple[int, bytes]], early: bool) -> None:
    first = images.archive([("kernel", 0o040755, b"")]) if early else b""
    assert images.read_image(images.write_image(files, early=first)) == files


def test_the_projects_reader_agrees(tmp_path: Path) -> None:
    image = tmp_path / "initrd.img"
    files = {
        "etc/modprobe.d/a.conf": (0o644, b"options a b=1\n"),
        "usr/lib/modules/6.1/kernel/drivers/vfio/pci/vfio-pci.ko": (0o644, b"x"),
    }
    image.write_bytes(images.write_image(files, early=images.archive([("kernel", 0o040755, b"")])))
    contents = read_initramfs(str(image))
    assert [a["compression"] for a in contents["archives"]] == ["none", "gzip"]
    assert contents["modules"] == ["vfio_pci"]
    assert contents["files"]["/etc/modprobe.d/a.conf"]["text"] == "options a b=1\n"


@pytest.mark.skipif(shutil.which("cpio") is None, reason="needs cpio")
def test_cpio_agrees() -> None:
    archive = images.archive([("a", 0o040755, b""), ("a/b", 0o100644, b"text")])
    process = subprocess.run(["cpio", "-t", "--quiet"], input=archive, capture_output=True, check=True)
    assert process.stdout.decode().split() == ["a", "a/b"]
