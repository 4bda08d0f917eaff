"""The files of a bundle within its limit, and the manifest."""

import hashlib
import json
import stat
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from gpustack.base.errors import ApplyError
from gpustack.nova_options.masking import Masking
from gpustack.operate.support import bundle
from gpustack.operate.support.bundle import COLUMNS, BundlePart, files


def test_what_exceeds_the_size_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MOST", bundle._MANIFEST + 8000)
    made = files(
        [BundlePart(path="a", data="x"), BundlePart(path="b", data="y" * 9000), BundlePart(path="c", data="z")],
        Masking(),
    )
    assert [(file.path, file.omitted != "") for file in made[:3]] == [("a", False), ("b", True), ("c", False)]
    assert "larger than the rest" in made[1].omitted
    assert made[-1].path == "manifest.json"
    rows = json.loads(made[-1].content)["files"]
    assert rows[0]["sha256"] == hashlib.sha256(b"x").hexdigest()
    assert [row["size"] for row in rows] == [1, None, 1]
    assert [row["omitted"] for row in rows] == [None, made[1].omitted, None]
    assert json.loads(made[-1].content)["gpustack_support_bundle"] == 1


def test_a_secret_of_one_file_is_masked_in_all() -> None:
    parts = [
        BundlePart(path="a", data="geheimnis", omitted="no geheimnis"),
        BundlePart(path="b", data={"admin_pass": "geheimnis"}),
    ]
    made = files([replace(parts[0], omitted=""), *parts], Masking())
    assert [(part.content, part.omitted) for part in made[:2]] == [(b"***", ""), (b"", "no ***")]


def test_an_archive_has_the_files_that_are_not_left_out(tmp_path: Path) -> None:
    path = tmp_path / "support.tar.gz"
    parts = [
        BundlePart(path="a/b.txt", data="x"),
        BundlePart(path="c.json", data={"y": [1]}),
        BundlePart(path="d", omitted="gone"),
    ]
    made = files(parts, Masking())
    bundle.write(path, made)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        members = {entry.name: (entry.mode, archive.extractfile(entry).read()) for entry in archive}  # type: ignore[union-attr]
    assert list(members) == ["support/a/b.txt", "support/c.json", "support/manifest.json"]
    assert {mode for mode, _content in members.values()} == {0o600}
    assert (members["support/a/b.txt"][1], json.loads(members["support/c.json"][1])) == (b"x", {"y": [1]})
    with pytest.raises(ApplyError, match=r"the bundle can't be written.*nothing was written"):
        bundle.write(path, made)  # never over an existing file
    second = tmp_path / "again.tar.gz"
    bundle.write(second, made)
    assert second.read_bytes()[4:8] == bytes(4)  # no time
    assert {column.title: column.cell(made[2]) for column in COLUMNS} == {
        "Path": "d",
        "Size": "-",
        "Masked": 0,
        "Left out": "gone",
    }
    assert [column.cell(made[0]) for column in COLUMNS] == ["a/b.txt", 1, 0, " "]


@pytest.mark.parametrize(("size", "fits"), [(6000, True), (6001, False)])
def test_a_file_may_fill_the_rest(monkeypatch: pytest.MonkeyPatch, size: int, fits: bool) -> None:
    """A file takes a frame beside its content."""
    monkeypatch.setattr(bundle, "MOST", bundle._MANIFEST + 6000 + bundle._FRAME)
    first, *_manifest = files([BundlePart(path="a", data="x" * size)], Masking())
    assert (len(first.content), first.omitted == "") == ((size, True) if fits else (0, False))
    gone, *_manifest = files([BundlePart(path="a", data="x" * size, omitted="gone")], Masking())
    assert (gone.content, gone.omitted) == (b"", "gone")


def test_masked_values_are_counted_by_file() -> None:
    secrets = {"admin_pass": "geheim", "b": {"password": "verborgen"}}
    parts = [BundlePart(path="a", data=secrets, masked=2), BundlePart(path="b", data="nothing")]
    first, second, _manifest = files(parts, Masking())
    assert (first.masked, second.masked) == (4, 0)
    assert json.loads(first.content) == {"admin_pass": "***", "b": {"password": "***"}}
    kept, manifest = files(parts[:1], Masking(keep_names=True))
    assert kept.path == "a"
    assert json.loads(manifest.content)["names"] == "kept"
