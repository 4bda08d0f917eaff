"""The facts of a guest, read from directories as its root."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpustack.hosts.health.kernel_log import table
from gpustack.offer.guest import check
from gpustack.offer.guest.inside import read
from support.guest_root import RELEASE, guest_root


def codes(root: Path, promised: check.Promise | None = None) -> list[str]:
    facts = read.facts(str(root), check.consoles(), table())
    return [f"{entry.code} {entry.place.removeprefix('vm ')}" for entry in check.findings(facts, promised, "vm")]


def test_a_guest_with_its_driver_has_no_findings(tmp_path: Path) -> None:
    root = guest_root(tmp_path, gpus=["10de:20b5", "10de:20b5"], driver="nvidia")
    facts = read.facts(str(root), check.consoles(), table())
    assert [gpu["driver"] for gpu in facts["gpus"]] == ["nvidia", "nvidia"]
    assert (facts["driver_version"], facts["flavor"], facts["complete"]) == ("580.95.05", "g1.a100.2", True)
    assert codes(root, check.Promise(count=2, ids=("10de:20b5",))) == []


@pytest.mark.parametrize(("name", "known"), [("x" * 255, True), ("x" * 256, False), ("", False), ("a\nb", False)])
def test_names_of_flavors_have_at_most_255_printable_characters(tmp_path: Path, name: str, known: bool) -> None:
    root = guest_root(tmp_path, gpus=["10de:20b5"])
    for path in (root / "run/cloud-init").glob("instance-data*.json"):
        path.write_text(json.dumps({"ds": {"ec2_metadata": {"instance-type": name}}}))
    assert read.facts(str(root), check.consoles(), table())["flavor"] == (name if known else None)


def test_unbound_gpus(tmp_path: Path) -> None:
    assert codes(guest_root(tmp_path, gpus=["10de:20b5"])) == ["GPU847 0000:00:05.0"]


def test_gpus_without_an_installed_driver(tmp_path: Path) -> None:
    root = guest_root(tmp_path, gpus=["10de:20b5"], modules=("nouveau",))
    assert codes(root) == ["GPU857 0000:00:05.0"]


def test_nouveau(tmp_path: Path) -> None:
    assert codes(guest_root(tmp_path, gpus=["10de:20b5"], driver="nouveau")) == ["GPU848 0000:00:05.0"]


def test_vfio_in_the_guest_is_reported(tmp_path: Path) -> None:
    assert codes(guest_root(tmp_path, gpus=["10de:20b5"], driver="vfio-pci")) == ["GPU858 0000:00:05.0"]


def test_a_bar_without_address(tmp_path: Path) -> None:
    root = guest_root(
        tmp_path, gpus=["10de:20b5"], unplaced=True, log="nvidia: probe of 0000:00:05.0 failed with error -1"
    )
    assert codes(root) == ["GPU849 0000:00:05.0"]


@pytest.mark.parametrize("where", ["boot", "modules"])
def test_a_cloud_kernel_has_no_drm(tmp_path: Path, where: str) -> None:
    root = guest_root(tmp_path, gpus=["1002:740f"], modules=(), drm=where)
    assert codes(root) == ["GPU855 kernel"]


def test_a_standard_kernel_without_driver(tmp_path: Path) -> None:
    assert codes(guest_root(tmp_path, gpus=["1002:740f"], modules=())) == ["GPU857 0000:00:05.0"]


def test_wrapped_records_of_the_kernel_log(tmp_path: Path) -> None:
    """In /dev/kmsg, the lines of a message are one record, with escaped line ends."""
    message = (
        r"NVRM: The NVIDIA GPU 0000:00:05.0 (PCI ID: 10de:20b5)\x0aNVRM: installed in this system is not supported by"
        r" open\x0aNVRM: nvidia.ko because it does not include the required GPU\x0aNVRM: System Processor (GSP)."
    )
    assert codes(guest_root(tmp_path, gpus=["10de:20b5"], log=message)) == ["GPU851 0000:00:05.0"]


@pytest.mark.parametrize(
    "message",
    [
        "nvidia: probe of 0000:00:05.0 failed with error -1",
        r"NVRM: The NVIDIA V100 installed in this system supported through\x0aNVRM: the NVIDIA 580.xx Legacy drivers.",
    ],
)
def test_a_driver_that_is_bound_now_outdates_earlier_failures(tmp_path: Path, message: str) -> None:
    assert codes(guest_root(tmp_path / "a", gpus=["10de:20b5"], driver="nvidia", log=message)) == []
    assert codes(guest_root(tmp_path / "b", gpus=["10de:20b5"], log=message)) != []


def test_a_bound_driver_that_cannot_start_the_gpu_is_reported(tmp_path: Path) -> None:
    message = "NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x62:0x65:2468)"
    root = guest_root(tmp_path, gpus=["10de:20b5"], driver="nvidia", log=message)
    assert codes(root) == ["GPU860 0000:00:05.0"]


def test_a_display_driver_that_failed_is_no_cause(tmp_path: Path) -> None:
    log = "nouveau 0000:00:05.0: NVIDIA AD107 (197000a1)\\x0anouveau: probe of 0000:00:05.0 failed with error -2"
    assert codes(guest_root(tmp_path, gpus=["10de:2882"], modules=("nouveau",), log=log)) == ["GPU857 0000:00:05.0"]


def test_a_gpu_that_its_driver_refused_is_reported_once(tmp_path: Path) -> None:
    log = "amdgpu 0000:00:05.0: amdgpu: Fatal error during GPU init"
    assert codes(guest_root(tmp_path, gpus=["1002:740f"], modules=("amdgpu",), log=log)) == ["GPU860 0000:00:05.0"]


def test_a_kernel_log_that_lost_its_start_is_unknown(tmp_path: Path) -> None:
    root = guest_root(tmp_path, gpus=["10de:20b5"], driver="nvidia")
    (root / "dev/kmsg").write_text("6,812,1,-;usb 1-1: new device\n")
    assert codes(root) == ["GPU859 guest"]
    (root / "dev/kmsg").unlink()
    assert codes(root) == ["GPU859 guest"]
    facts = read.facts(str(root), check.consoles(), table())
    assert (facts["events"], facts["complete"]) == (None, False)


def test_modules_that_a_container_lacks_are_unknown(tmp_path: Path) -> None:
    root = guest_root(tmp_path, gpus=["10de:20b5"])
    shutil.rmtree(root / "lib")
    assert codes(root) == ["GPU906 0000:00:05.0"]


def test_gpus_are_unknown_without_sysfs(tmp_path: Path) -> None:
    assert codes(tmp_path, check.Promise(count=1)) == ["GPU859 guest"]


def test_a_guest_without_gpus(tmp_path: Path) -> None:
    root = guest_root(tmp_path, gpus=[])
    assert codes(root) == []
    assert codes(root, check.Promise(count=1)) == ["GPU845 PCI"]


def facts_of(root: Path) -> dict[str, Any]:
    return read.facts(str(root), check.consoles(), table())


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize(
    ("config", "packed", "expected"),
    [
        ("CONFIG_64BIT=y\nCONFIG_DRM=y\n", None, True),
        ("CONFIG_DRM=m\n", None, True),
        ("# CONFIG_DRM is not set\n", None, False),
        ("CONFIG_DRM_I915=m\n", None, False),
        (None, gzip.compress(b"CONFIG_DRM=m\n", mtime=0), True),
        (None, gzip.compress(b"# CONFIG_DRM is not set\n", mtime=0), False),
        ("CONFIG_DRM=m\n", gzip.compress(b"# CONFIG_DRM is not set\n", mtime=0), True),
        (None, b"damaged", None),
        (None, gzip.compress(b"CONFIG_DRM=m\n", mtime=0)[:-9], None),
        ("nothing", None, None),
    ],
)
def test_drm_by_the_configuration_of_the_kernel(
    tmp_path: Path, config: str | None, packed: bytes | None, expected: bool | None
) -> None:
    root = guest_root(tmp_path, gpus=["1002:740f"])
    shutil.rmtree(root / "lib")
    (root / f"boot/config-{RELEASE}").unlink()
    if config is not None:
        write(root / f"boot/config-{RELEASE}", config)
    if packed is not None:
        write(root / "proc/config.gz", packed)
    assert facts_of(root)["drm"] is expected


@pytest.mark.parametrize(
    ("directory", "builtin", "expected"),
    [
        ("kernel/drivers/gpu/drm", None, True),
        ("kernel/drivers/gpu/host1x", None, False),
        ("kernel/drivers/gpu/host1x", "kernel/drivers/gpu/drm/drm.ko\n", True),
        ("kernel/drivers/gpu/host1x", "kernel/fs/ext4.ko\n", False),
        ("other", None, None),  # no kernel's modules
    ],
)
def test_drm_by_the_modules_of_the_kernel(
    tmp_path: Path, directory: str, builtin: str | None, expected: bool | None
) -> None:
    root = guest_root(tmp_path, gpus=["1002:740f"], drm="modules")
    shutil.rmtree(root / "lib")
    modules = root / "lib/modules" / RELEASE
    write(modules / directory / "some.ko", "")
    if builtin is not None:
        write(modules / "modules.builtin", builtin)
    assert facts_of(root)["drm"] is expected


def test_drm_of_an_unknown_kernel_is_unknown(tmp_path: Path) -> None:
    root = guest_root(tmp_path, gpus=["1002:740f"])
    (root / "proc/sys/kernel/osrelease").unlink()
    assert (facts_of(root)["kernel"], facts_of(root)["drm"]) == (None, None)


@pytest.mark.parametrize(
    ("sensitive", "plain", "expected"),
    [
        ('{"ds": {"ec2_metadata": {"instance-type": "a"}}}', '{"ds": {"ec2_metadata": {"instance-type": "b"}}}', "a"),
        (None, '{"ds": {"ec2_metadata": {"instance-type": "b"}}}', "b"),
        ("{", '{"ds": {"ec2_metadata": {"instance-type": "b"}}}', "b"),
        ('{"ds": {"ec2_metadata": {"instance-type": 5}}}', '{"ds": {"ec2_metadata": {"instance-type": "b"}}}', "b"),
        ('{"ds": []}', '{"ds": {}}', None),
        ('"text"', None, None),
        ("[" * 100_000, None, None),
    ],
)
def test_the_flavor_is_in_one_of_cloud_inits_files(
    tmp_path: Path, sensitive: str | None, plain: str | None, expected: str | None
) -> None:
    root = guest_root(tmp_path, gpus=["10de:20b5"])
    for path in (root / "run/cloud-init").iterdir():
        path.unlink()
    for name, text in (("instance-data-sensitive.json", sensitive), ("instance-data.json", plain)):
        if text is not None:
            write(root / "run/cloud-init" / name, text)
    assert facts_of(root)["flavor"] == expected


@pytest.mark.parametrize(
    ("resource", "unplaced"),
    [
        ("0x0000000000000000 0x0000001fffffffff 0x000000000014220c\n", [0]),
        ("0x0000380000000000 0x00003800ffffffff 0x000000000014220c\n", []),
        ("0x0000000000000000 0x000000000000007f 0x0000000000040101\n", []),  # I/O ports
        ("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", []),  # none
        (None, []),
    ],
)
def test_bars_of_memory_without_an_address(tmp_path: Path, resource: str | None, unplaced: list[int]) -> None:
    root = guest_root(tmp_path, gpus=["10de:20b5"], driver="nvidia")
    path = root / "sys/bus/pci/devices/0000:00:05.0/resource"
    path.unlink()
    if resource is not None:
        path.write_text(resource)
    assert [gpu["unplaced"] for gpu in facts_of(root)["gpus"]] == [unplaced]


@pytest.mark.parametrize(("first", "complete"), [(0, True), (1, False)])
def test_the_messages_are_complete_with_the_first_record(tmp_path: Path, first: int, complete: bool) -> None:
    root = guest_root(tmp_path, gpus=["10de:20b5"], driver="nvidia")
    (root / "dev/kmsg").write_text(f"no record\n5,{first},0,-;Linux version 6.12\n6,{first + 7},0,-;other\n")
    assert (facts_of(root)["complete"], facts_of(root)["events"]) == (complete, [])


def test_functions_without_ids_are_left_out(tmp_path: Path) -> None:
    root = guest_root(tmp_path, gpus=["10de:20b5", "10de:20b5"], driver="nvidia")
    (root / "sys/bus/pci/devices/0000:00:05.0/device").unlink()
    (root / "sys/bus/pci/devices/strange").mkdir()
    assert [gpu["address"] for gpu in facts_of(root)["gpus"]] == ["0000:00:06.0"]


CONSOLES = [["1234", "1111"], ["1af4", None]]


def function(address: str, ids: str = "10de:20b5", pci_class: str = "030200") -> dict[str, Any]:
    vendor, product = ids.split(":")
    return {"address": address, "vendor": vendor, "product": product, "class": pci_class}


@pytest.mark.parametrize(
    ("functions", "chosen"),
    [
        ([function("0000:01:00.0")], ["0000:01:00.0"]),
        ([function("0000:02:00.0"), function("0000:01:00.0")], ["0000:01:00.0", "0000:02:00.0"]),
        ([function("0000:01:00.0"), function("0000:01:00.1")], ["0000:01:00.0"]),
        ([function("0000:01:00.0", pci_class="040300"), function("0000:01:00.1")], ["0000:01:00.1"]),
        ([function("0000:01:00.0", pci_class="120000")], ["0000:01:00.0"]),
        ([function("0000:01:00.0", pci_class="038000")], ["0000:01:00.0"]),
        ([function("0000:01:00.0", pci_class="020000")], []),
        ([function("0000:01:00.0", "1234:1111")], []),
        ([function("0000:01:00.0", "1234:2222")], ["0000:01:00.0"]),
        ([function("0000:01:00.0", "1af4:1050")], []),
        ([function("0000:01:00.0", "1111:1234")], ["0000:01:00.0"]),
        ([], []),
    ],
)
def test_the_first_gpu_of_each_slot_counts(functions: list[dict[str, Any]], chosen: list[str]) -> None:
    assert [gpu["address"] for gpu in read.gpus(functions, CONSOLES)] == chosen
