"""The collector as a whole: what it prints fits the model, whatever the root holds."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.model import Host as HostFacts
from support.sysroot import nvswitch_host, talk_host


@pytest.mark.parametrize("make", [talk_host, nvswitch_host])
def test_the_model_takes_what_the_collector_prints(tmp_path: Path, make: object) -> None:
    root = make(tmp_path)
    HostFacts.model_validate(json.loads(json.dumps(collect(str(root.path)))))


def test_an_empty_root_is_no_failure(tmp_path: Path) -> None:
    document = collect(str(tmp_path))
    assert document["unread"] == []
    assert document["pci"] == []
    assert document["hostname"] is None
    assert document["kernel"]["secure_boot"] is None
    assert document["boot"]["firmware"] is None
    assert document["iommu"] == {
        "acpi_tables": [],
        "units": [],
        "tables_listed": False,
        "group_count": 0,
        "interrupt_remapping": None,
        "unsafe_interrupts": None,
        "no_iommu_mode": None,
        "groups": [],
    }


@pytest.mark.parametrize("path", ["missing", "file"])
def test_a_root_that_is_no_directory_is_an_error(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        collect(str(tmp_path / path))


GARBAGE = (
    b"",
    b"\0" * 64,
    b"\xff\xfe\x80binary\n\x1b[31m",
    b"9" * 5000 + b"\n",
    b"a b=c {\n'\"\\\n" * 50,
    b"-1\n",
    b"0x\n",
)


@settings(max_examples=15)
@given(st.data())
def test_garbage_anywhere_gives_a_result_that_the_model_takes(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = nvswitch_host(Path(directory)) if data.draw(st.booleans()) else talk_host(Path(directory))
        root.write("/etc/default/grub", "x\n").write("/boot/grub/grub.cfg", "menuentry 'a' { linux /vmlinuz quiet\n}\n")
        files = sorted(path for path in root.path.rglob("*") if not path.is_dir() or path.is_symlink())
        for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=40, unique=True)):
            path.unlink()
            content = data.draw(
                st.sampled_from(GARBAGE) | st.binary(max_size=80) | st.sampled_from(["directory", "loop"])
            )
            if content == "directory":
                path.mkdir()
            elif content == "loop":
                path.symlink_to(path.name)
            else:
                path.write_bytes(content)
        document = json.loads(json.dumps(collect(directory)))
        HostFacts.model_validate({**document, "hostname": document["hostname"] or "unknown"})
