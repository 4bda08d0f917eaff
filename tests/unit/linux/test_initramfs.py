"""The reader of initramfs images: real layouts, every compression, damage, hostility."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.linux.initramfs import InitramfsError, MissingToolError, read_initramfs, stream
from gpustack.linux.initramfs import archive as archives
from gpustack.linux.initramfs.compression import FORMATS

REGULAR, DIRECTORY, SYMLINK = 0o100644, 0o040755, 0o120777


def header(
    name: bytes, *, mode: int = REGULAR, size: int = 0, inode: int = 1, links: int = 1, name_size: int | None = None
) -> bytes:
    """A newc header with its name."""
    length = len(name) + 1 if name_size is None else name_size
    fields = (inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, length, 0)
    text = b"070701" + b"".join(b"%08X" % field for field in fields) + name + b"\0"
    return text + bytes(-len(text) % 4)


def entry(name: str, content: bytes = b"", *, mode: int = REGULAR, inode: int = 1, links: int = 1) -> bytes:
    """A whole entry."""
    head = header(name.encode(), mode=mode, size=len(content), inode=inode, links=links)
    return head + content + bytes(-len(content) % 4)


TRAILER = header(b"TRAILER!!!")


def archive(entries: Iterable[bytes]) -> bytes:
    """A whole archive, filled up to a block as cpio(1) does."""
    data = b"".join(entries) + TRAILER
    return data + bytes(-len(data) % 512)


MICROCODE = archive([entry("kernel", mode=DIRECTORY), entry("kernel/x86/microcode/GenuineIntel.bin", b"\1" * 5000)])
BASE = "usr/lib/modules/6.1.0-37-amd64"
MAIN = archive(
    [
        entry(".", mode=DIRECTORY),
        entry("lib", b"usr/lib", mode=SYMLINK),
        entry(f"{BASE}/kernel/drivers/vfio/pci/vfio-pci.ko", b"\x7fELF" * 10),
        entry(f"{BASE}/kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz", b"x"),
        entry(f"{BASE}/modules.dep", b"kernel/drivers/vfio/pci/vfio-pci.ko:\n"),
        entry(f"{BASE}/kernel/not.ko", mode=DIRECTORY),
        entry("./etc/modprobe.d/gpustack.conf", b"options vfio-pci ids=10de:11b4\n"),
        entry("etc/modprobe.d/masked.conf", b"/dev/null", mode=SYMLINK),
        entry("conf/modules", b"vfio-pci\n"),
        entry("etc/modules-load.d/vfio.conf", b"vfio\n"),
        entry("scripts/init-top/ORDER", b'/scripts/init-top/gpustack-bind "$@"\n'),
        entry("scripts/init-top/gpustack-bind", b"#!/bin/sh\n", mode=0o100755),
        entry("usr/lib/dracut/hooks/pre-udev/00-gpustack.sh", b"#!/bin/sh\n"),
        entry("etc/cmdline.d/gpustack.conf", b"rd.driver.pre=vfio-pci\n"),
        entry("etc/passwd", b"root:x:0:0::/root:/bin/sh\n"),
    ]
)
WHAT_MAIN_HOLDS = {
    "releases": ["6.1.0-37-amd64"],
    "modules": ["nouveau", "vfio_pci"],
    "links": {"/etc/modprobe.d/masked.conf": "/dev/null"},
    "files": {
        "/etc/modprobe.d/gpustack.conf": {"text": "options vfio-pci ids=10de:11b4\n", "mode": "0644", "size": 31},
        "/conf/modules": {"text": "vfio-pci\n", "mode": "0644", "size": 9},
        "/etc/modules-load.d/vfio.conf": {"text": "vfio\n", "mode": "0644", "size": 5},
        "/scripts/init-top/ORDER": {"text": '/scripts/init-top/gpustack-bind "$@"\n', "mode": "0644", "size": 37},
        "/scripts/init-top/gpustack-bind": {"text": "#!/bin/sh\n", "mode": "0755", "size": 10},
        "/usr/lib/dracut/hooks/pre-udev/00-gpustack.sh": {"text": "#!/bin/sh\n", "mode": "0644", "size": 10},
        "/etc/cmdline.d/gpustack.conf": {"text": "rd.driver.pre=vfio-pci\n", "mode": "0644", "size": 23},
    },
}


def by(*command: str) -> Callable[[bytes], bytes]:
    """A compressor of the host."""

    def compress(data: bytes) -> bytes:
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not installed")
        return subprocess.run(command, input=data, capture_output=True, check=True).stdout

    return compress


COMPRESSIONS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("none", bytes),
    ("gzip", gzip.compress),
    ("bzip2", bz2.compress),
    ("xz", lambda data: lzma.compress(data, check=lzma.CHECK_CRC32)),
    ("lzma", lambda data: lzma.compress(data, format=lzma.FORMAT_ALONE)),
    ("zstd", by("zstd", "-cq")),
    ("lz4", by("lz4", "-lcq")),
    ("lz4", by("lz4", "-cq")),
    ("lzo", by("lzop", "-cq")),
]
TOOLS = {"zstd", "lz4", "lzo"}


def read(path: Path, image: bytes) -> dict[str, object]:
    place = path / "image"
    place.write_bytes(image)
    return read_initramfs(str(place))


@pytest.mark.parametrize(("name", "compress"), COMPRESSIONS)
def test_microcode_then_a_compressed_archive(tmp_path: Path, name: str, compress: Callable[[bytes], bytes]) -> None:
    contents = read(tmp_path, MICROCODE + compress(MAIN))
    assert contents.pop("archives") == [
        {"compression": "none", "entries": 2},
        {"compression": name, "entries": 15},
    ]
    assert contents == WHAT_MAIN_HOLDS


@pytest.mark.parametrize(("name", "compress"), COMPRESSIONS)
def test_two_archives_in_one_compressed_part(tmp_path: Path, name: str, compress: Callable[[bytes], bytes]) -> None:
    second = archive([entry("etc/modprobe.d/gpustack.conf", b"blacklist nouveau\n")])
    contents = read(tmp_path, compress(MAIN + second))
    assert contents["files"]["/etc/modprobe.d/gpustack.conf"]["text"] == "blacklist nouveau\n"
    assert sum(part["entries"] for part in contents["archives"]) == 16


@pytest.mark.parametrize(("name", "compress"), [entry for entry in COMPRESSIONS if entry[0] not in TOOLS])
def test_parts_may_follow_a_compressed_one(tmp_path: Path, name: str, compress: Callable[[bytes], bytes]) -> None:
    image = compress(MAIN) + bytes(7) + MICROCODE + gzip.compress(archive([entry("conf/modules", b"last\n")]))
    contents = read(tmp_path, image)
    assert [part["entries"] for part in contents["archives"]] == [15, 2, 1]
    assert contents["files"]["/conf/modules"]["text"] == "last\n"


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, by("zstd", "-cq")])
def test_an_archive_that_a_parallel_compressor_cut_in_pieces(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    pieces = b"".join(compress(MAIN[start : start + 700]) for start in range(0, len(MAIN), 700))
    contents = read(tmp_path, MICROCODE + pieces)
    assert contents["files"] == WHAT_MAIN_HOLDS["files"]


@pytest.mark.skipif(shutil.which("cpio") is None, reason="cpio is not installed")
def test_what_cpio_itself_writes(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "etc/modprobe.d").mkdir(parents=True)
    (tree / "etc/modprobe.d/a.conf").write_text("blacklist nouveau\n")
    (tree / "etc/modprobe.d/b.conf").hardlink_to(tree / "etc/modprobe.d/a.conf")
    (tree / "etc/modprobe.d/empty.conf").write_text("")
    (tree / "lib/modules/5.4.0/updates/dkms").mkdir(parents=True)
    (tree / "lib/modules/5.4.0/updates/dkms/nvidia-drm.ko.zst").write_bytes(b"module")
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*"))).encode()
    for kind in ("newc", "crc"):
        command = ["cpio", "--quiet", "-o", "-H", kind, "-D", str(tree)]
        contents = read(tmp_path, subprocess.run(command, input=names, capture_output=True, check=True).stdout)
        assert (contents["modules"], contents["releases"]) == (["nvidia_drm"], ["5.4.0"])
        assert {path: entry["text"] for path, entry in contents["files"].items()} == {
            "/etc/modprobe.d/a.conf": "blacklist nouveau\n",
            "/etc/modprobe.d/b.conf": "blacklist nouveau\n",
            "/etc/modprobe.d/empty.conf": "",
        }


def test_other_contents_on_demand(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(MAIN)
    contents = read_initramfs(str(tmp_path / "image"), wanted=["etc/pass*"])
    assert list(contents["files"]) == ["/etc/passwd"]
    assert read_initramfs(str(tmp_path / "image"), wanted=[])["files"] == {}


def test_long_contents_are_cut_and_their_size_is_shown(tmp_path: Path) -> None:
    contents = read(tmp_path, archive([entry("conf/modules", b"x" * 100_000), entry("etc/modules", b"after")]))
    assert len(contents["files"]["/conf/modules"]["text"]) == 64 * 1024
    assert contents["files"]["/conf/modules"]["size"] == 100_000
    assert contents["files"]["/etc/modules"]["text"] == "after"


# --- damage ---

SIZES = b"FFFFFFFF"


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"", "it is empty"),
        (bytes(5000), "it is empty"),
        (b"MZ" + bytes(500), "neither a cpio archive nor a known compression at byte 0"),
        (MICROCODE + b"junk", "neither a cpio archive nor a known compression at byte 5632"),
        (MAIN[:500], "the image is truncated"),
        (MAIN[: -len(TRAILER) - 512], "the image is truncated"),
        (entry("a"), "the image is truncated"),
        (b"070701" + b"zz" * 52, "no cpio header 0 bytes into an archive"),
        (b"070701" + b"+1_0 0x1" * 13, "no cpio header 0 bytes into an archive"),
        (entry("a") + b"x" * 200, "no cpio header 112 bytes into an archive"),
        (header(b"a", name_size=5000) + bytes(9000), "a name of 5000 bytes, more than 4096"),
        (header(b"a", name_size=0) + bytes(9000), "a name of 0 bytes"),
        (header(b"conf/modules", size=0xFFFFFFFF), "the image is truncated"),
        (gzip.compress(b"no archive" * 20, mtime=0), "its gzip data holds something else than cpio archives"),
        (gzip.compress(b"", mtime=0), "its gzip data is empty"),
        (gzip.compress(MAIN + b"junk", mtime=0), "its gzip data holds something else than cpio archives"),
        (gzip.compress(MAIN, mtime=0)[:-9], "the image is truncated: its gzip data ends early"),
        (lzma.compress(MAIN)[:200], "the image is truncated: its xz data ends early"),
        (lzma.compress(MAIN)[:200] + bytes(400), "its xz data is damaged"),
        (bz2.compress(MAIN)[:100] + b"x" * 800, "its bzip2 data is damaged"),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 200, "its gzip data is damaged"),
    ],
)
def test_damage_is_named(tmp_path: Path, image: bytes, message: str) -> None:
    with pytest.raises(InitramfsError, match=f"^{message}"):
        read(tmp_path, image)


@pytest.mark.parametrize("name", ["zstd", "lz4"])
def test_a_tool_that_fails_is_named(tmp_path: Path, name: str) -> None:
    blob = random.Random(1).randbytes(3 << 20)  # noqa: S311
    compressed = by(name, "-cq")(archive([entry("lib/firmware/blob", blob)]))
    # lz4 1.10 writes from a thread of its own, and may fail before the first block is written.
    damage = f"the image is truncated|its {name} data is empty"
    pattern = rf"^{name} can't decompress it \(exit status \d+\); ({damage})"
    if name == "zstd" and sys.version_info >= (3, 14):  # Python reads it without the tool
        pattern = "^the image is truncated: its zstd data ends early"
    with pytest.raises(InitramfsError, match=pattern):
        read(tmp_path, MICROCODE + compressed[: len(compressed) // 2])


def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="compressed with lz4, and the program lz4 is not installed"):
        read(tmp_path, MICROCODE + b"\x02\x21\x4c\x18" + bytes(100))


@pytest.mark.parametrize(("name", "compress"), COMPRESSIONS[:5])
def test_every_cut_of_an_image_is_an_error(tmp_path: Path, name: str, compress: Callable[[bytes], bytes]) -> None:
    image = compress(MAIN.rstrip(b"\0") + b"\0\0")
    complete = len(image) if name != "none" else len(MAIN.rstrip(b"\0"))
    for cut in range(0, complete - 8, max(1, complete // 150)):
        with pytest.raises(InitramfsError):
            read(tmp_path, image[:cut])


@given(st.binary(max_size=600), st.sampled_from([b"", b"070701", MAIN[:700], *(f.magic for f in FORMATS[:4])]))
def test_any_bytes_are_read_or_refused(tail: bytes, head: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(head + tail)
        file.flush()
        with contextlib.suppress(InitramfsError):
            assert read_initramfs(file.name)["archives"]


NAME = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=1, max_size=40)


@given(
    st.lists(
        st.tuples(NAME.map("etc/modprobe.d/{}".format), st.binary(max_size=300)), max_size=6, unique_by=lambda e: e[0]
    ),
    st.sampled_from(COMPRESSIONS[:5]),
)
def test_what_is_written_is_read(
    contents: list[tuple[str, bytes]], compression: tuple[str, Callable[[bytes], bytes]]
) -> None:
    image = compression[1](archive(entry(name, content) for name, content in contents))
    with tempfile.NamedTemporaryFile() as file:
        file.write(image)
        file.flush()
        parsed = read_initramfs(file.name)
    assert {path: entry["text"] for path, entry in parsed["files"].items()} == {
        f"/{name}": content.decode("utf-8", "replace") for name, content in contents
    }


# --- hostility ---


def test_a_large_entry_is_streamed(tmp_path: Path) -> None:
    size = 96 << 20
    image = gzip.compress(header(b"lib/firmware/blob", size=size) + bytes(size) + TRAILER, compresslevel=1)
    (tmp_path / "image").write_bytes(image)
    del image
    tracemalloc.start()
    try:
        assert read_initramfs(str(tmp_path / "image"))["archives"][0]["entries"] == 1
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("limit", "value", "entries", "message"),
    [
        ("TOTAL_LIMIT", 10_000, [entry("a", bytes(20_000))], "unpacks to more than 10000 bytes"),
        ("ENTRY_LIMIT", 5, [entry(f"n{n}") for n in range(6)], "more than 5 entries"),
        (
            "KEPT_LIMIT",
            1000,
            [entry(f"etc/modprobe.d/{n}", b"x" * 300) for n in range(4)],
            "1000 bytes of configuration",
        ),
        ("MODULE_LIMIT", 3, [entry(f"lib/modules/1/{n}.ko") for n in range(4)], "more than 3 kernel modules"),
    ],
)
def test_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, entries: list[bytes], message: str
) -> None:
    monkeypatch.setattr(stream if limit == "TOTAL_LIMIT" else archives, limit, value)
    for image in (archive(entries), gzip.compress(archive(entries))):
        with pytest.raises(InitramfsError, match=message):
            read(tmp_path, image)


def test_a_dictionary_that_takes_too_much_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 256 << 20, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3, "depth": 1}]
    image = lzma.compress(b"070701", filters=filters)
    with pytest.raises(InitramfsError, match="its xz data is damaged: Memory usage limit"):
        read(tmp_path, image)


def test_names_with_tricks_stay_names(tmp_path: Path) -> None:
    image = archive(
        [
            entry("../../etc/modprobe.d/up.conf", b"x"),
            entry("/etc/modprobe.d/root.conf", b"x"),
            entry("etc/modprobe.d/line\nbreak.conf", b"x"),
            entry("lib/modules/;reboot;/a.ko"),
            entry("lib/modules/6.1/$(reboot).ko"),
            entry("lib/modules/" * 300 + "6.1/x.ko"),
        ]
    )
    contents = read(tmp_path, image)
    assert (list(contents["files"]), contents["modules"], contents["releases"]) == (
        ["/etc/modprobe.d/root.conf"],
        ["x"],
        ["6.1", "lib"],
    )


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InitramfsError, match="not a regular file"):
        read_initramfs(str(tmp_path / "pipe"))
    with pytest.raises(FileNotFoundError):
        read_initramfs(str(tmp_path / "missing"))
