"""The script that creates virtual functions at boot, run by a real shell on a directory that stands in for sysfs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpustack.base.codes import Code
from gpustack.hosts.facts.collector.vgpus import RECORD
from gpustack.hosts.readiness.assessment import skipped_at_boot
from gpustack.prepare.host.decide.virtual_functions import findings, left
from gpustack.prepare.host.own_files import VFS_AT_BOOT, VFS_NETWORK_UNIT, VFS_SCRIPT
from gpustack.prepare.host.render import render_virtual_functions
from gpustack.spec.assignment import shared_functions
from gpustack.spec.load import parse_spec
from support.host_samples import function, host
from support.mediated_hosts import mediated_host, parted

CARD = ("0000:01:00.0", "10de", "11b4", "4")


def device(root: Path, driver: str | None = "nvme", address: str = CARD[0], **files: str) -> Path:
    """A device in the stand-in for sysfs. A kernel creates functions on a write; here only the number changes."""
    path = root / "sys/bus/pci/devices" / address
    path.mkdir(parents=True)
    (root / "sys/bus/pci/drivers").mkdir(exist_ok=True)
    if driver is not None:
        (root / "sys/bus/pci/drivers" / driver).mkdir()
        (path / "driver").symlink_to(f"../../drivers/{driver}")
    content = {"vendor": "0x10de", "device": "0x11b4", "sriov_numvfs": "0", "sriov_drivers_autoprobe": "1"}
    for name, text in (content | files).items():
        (path / name).write_text(f"{text}\n", encoding="ascii")
    return path


def run(root: Path, vgpu_type: str = "-") -> tuple[int, str]:
    """The script's exit status and its record."""
    return start(root, [(*CARD, vgpu_type)], PATIENCE="0")


def start(root: Path, cards: Sequence[Sequence[str]], **environment: str) -> tuple[int, str]:
    """The same for several cards."""
    script = root / "script"
    script.write_text(render_virtual_functions(cards)[VFS_SCRIPT].content, encoding="utf-8")
    defaults = {"SYSFS": "sys", "RUN": "run", "SRIOV_MANAGE": str(root / "sriov-manage"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", str(script)], cwd=root, env=defaults | environment, check=False, stdout=subprocess.PIPE
    )
    return done.returncode, (root / "run/virtual-functions").read_text(encoding="utf-8")


def test_functions_are_created_without_a_host_driver(tmp_path: Path) -> None:
    path = device(tmp_path)
    assert run(tmp_path) == (0, "0000:01:00.0 has 4 virtual functions\n")
    assert (path / "sriov_drivers_autoprobe").read_text() == "0\n"
    assert (path / "sriov_numvfs").read_text() == "4\n"
    assert run(tmp_path) == (0, "0000:01:00.0 has 4 virtual functions\n" * 2), "a second start changes nothing"


def test_functions_of_others_are_not_recorded_as_own(tmp_path: Path) -> None:
    """Otherwise a later plan, or an undo, would report them as virtual functions that the next boot removes."""
    path = device(tmp_path, sriov_numvfs="4")
    text = "0000:01:00.0 had 4 virtual functions already, by others\n"
    assert run(tmp_path) == (0, text)
    assert run(tmp_path) == (0, text * 2)
    facts = host(function(CARD[0], sriov_numvfs=4), files={RECORD: {"text": text, "mode": "0644"}})
    assert (left(facts), skipped_at_boot(facts)) == ((), {})
    assert (path / "sriov_drivers_autoprobe").read_text() == "1\n"


def test_record_retains_functions_that_a_later_start_skips(tmp_path: Path) -> None:
    """The spec wants another number now; the next boot, or an undo, must still know whose virtual functions exist."""
    path = device(tmp_path)
    run(tmp_path)
    (path / "sriov_numvfs").write_text("2\n", encoding="ascii")
    assert run(tmp_path)[0] == 1
    text = (tmp_path / "run/virtual-functions").read_text(encoding="utf-8")
    facts = host(function(CARD[0], sriov_numvfs=2), files={RECORD: {"text": text, "mode": "0644"}})
    assert [card.address for card in left(facts)] == [CARD[0]]
    assert skipped_at_boot(facts) == {CARD[0]: "it has 2 virtual functions, and not 4"}


def test_cards_without_a_driver_wait_together(tmp_path: Path) -> None:
    """Sixteen of them would exceed the time of the unit, if each waited the full time."""
    for number in range(3):
        device(tmp_path, None, address=f"0000:0{number}:00.0")
    cards = [(f"0000:0{number}:00.0", *CARD[1:], "-") for number in range(3)]
    sleep = tmp_path / "bin/sleep"
    sleep.parent.mkdir()
    sleep.write_text(f"#!/bin/sh\necho >>{tmp_path}/seconds\n", encoding="utf-8")
    sleep.chmod(0o755)
    code, text = start(tmp_path, cards, PATIENCE="5", PATH=f"{sleep.parent}:/usr/bin:/bin")
    assert (code, text.count("is skipped: it has no driver")) == (1, 3)
    assert len((tmp_path / "seconds").read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("driver", "files", "reason"),
    [
        ("nvme", {"device": "0x11ff"}, "its device is 0x11ff, and not 0x11b4"),
        ("nvme", {"sriov_numvfs": "2"}, "it has 2 virtual functions, and not 4"),
        ("vfio-pci", {}, "it is on vfio-pci, and instances can't use virtual functions of such a device"),
        (None, {}, "it has no driver"),
    ],
)
def test_device_in_another_state_is_skipped(
    tmp_path: Path, driver: str | None, files: dict[str, str], reason: str
) -> None:
    path = device(tmp_path, driver, **files)
    assert run(tmp_path) == (1, f"0000:01:00.0 is skipped: {reason}\n")
    assert (path / "sriov_numvfs").read_text() == files.get("sriov_numvfs", "0") + "\n"


def test_missing_device_is_skipped(tmp_path: Path) -> None:
    assert run(tmp_path) == (1, "0000:01:00.0 is skipped: nothing is there\n")


def test_nvidia_functions_get_their_type(tmp_path: Path) -> None:
    """A stand-in for NVIDIA's sriov-manage, which creates all 16 virtual functions; four get the type."""
    path = device(tmp_path, "nvidia")
    manage = tmp_path / "sriov-manage"
    manage.write_text(
        f'#!/bin/sh\n[ "$*" = "-e {CARD[0]}" ] || exit 1\ncd "sys/bus/pci/devices/{CARD[0]}" && echo 16 >sriov_numvfs\n'
        "for i in 0 1 2 3 4; do mkdir -p virtfn$i/nvidia && echo 0 >virtfn$i/nvidia/current_vgpu_type; done\n",
        encoding="utf-8",
    )
    manage.chmod(0o755)
    assert run(tmp_path, "527") == (0, "0000:01:00.0 has 4 virtual functions\n")
    types = [(path / f"virtfn{number}/nvidia/current_vgpu_type").read_text() for number in range(5)]
    assert types == ["527\n"] * 4 + ["0\n"]
    assert (path / "sriov_drivers_autoprobe").read_text() == "1\n", "NVIDIA's driver binds them itself"


def network_card(root: Path, flags: str) -> Path:
    path = device(root, "ice")
    (path / "net/ens1").mkdir(parents=True)
    (path / "net/ens1/flags").write_text(f"{flags}\n", encoding="ascii")
    return path


def test_interface_of_a_virtio_card_is_found(tmp_path: Path) -> None:
    path = device(tmp_path, "virtio-pci")
    (path / "virtio3/net/ens1").mkdir(parents=True)
    (path / "virtio3/net/ens1/flags").write_text("0x1003\n", encoding="ascii")
    assert share_network_card(tmp_path, "network") == 1
    assert (path / "sriov_numvfs").read_text() == "0\n"


def share_network_card(root: Path, *arguments: str) -> int:
    """The exit status of the script for a network card."""
    script = root / "script"
    files = render_virtual_functions([], [(*CARD, "-")])
    script.write_text(files[VFS_SCRIPT].content, encoding="utf-8")
    environment = {"SYSFS": "sys", "RUN": "run", "PATIENCE": "0", "PATH": "/usr/bin:/bin"}
    return subprocess.run(["sh", str(script), *arguments], cwd=root, env=environment, check=False).returncode


def test_network_card_gets_functions_in_its_own_run_only(tmp_path: Path) -> None:
    path = network_card(tmp_path, "0x1002")
    assert share_network_card(tmp_path) == 0
    assert (path / "sriov_numvfs").read_text() == "0\n"
    assert share_network_card(tmp_path, "network") == 0
    assert (path / "sriov_numvfs").read_text() == "4\n"


def test_network_card_with_an_interface_that_is_up_is_skipped(tmp_path: Path) -> None:
    path = network_card(tmp_path, "0x1003")
    assert share_network_card(tmp_path, "network") == 1
    assert (path / "sriov_numvfs").read_text() == "0\n"
    record = (tmp_path / "run/virtual-functions").read_text(encoding="utf-8")
    assert record.endswith("is skipped: its interface ens1 is up already, and some drivers would reset it\n")


def test_network_card_with_functions_is_left_while_its_interface_is_up(tmp_path: Path) -> None:
    path = network_card(tmp_path, "0x1003")
    (path / "sriov_numvfs").write_text("4\n", encoding="ascii")
    assert share_network_card(tmp_path, "network") == 0


def test_network_cards_are_shared_before_the_network_starts() -> None:
    files = render_virtual_functions([], [(*CARD, "-")])
    assert set(files) == {VFS_SCRIPT, VFS_NETWORK_UNIT, VFS_AT_BOOT}
    unit = files[VFS_NETWORK_UNIT].content.splitlines()
    order = "Before=cloud-init-local.service network-pre.target"
    assert {"DefaultDependencies=no", "Wants=network-pre.target", order} <= {*unit}
    assert "Wants=gpustack-network-functions.service" in files[VFS_AT_BOOT].content.splitlines()


def test_one_drop_in_starts_both_units() -> None:
    files = render_virtual_functions([(*CARD, "-")], [("0000:02:00.0", "8086", "1521", "2", "-")])
    wants = "Wants=gpustack-network-functions.service gpustack-virtual-functions.service"
    assert wants in files[VFS_AT_BOOT].content.splitlines()


@pytest.mark.parametrize(
    ("number", "current", "listed", "found"),
    [
        (711, None, True, ""),
        (712, None, True, "the driver has no type 712 for the card, but 710, 711"),
        (712, "710", True, ""),  # the driver lists no other type beside one that exists
        (712, None, False, ""),
    ],
)
def test_a_number_that_the_driver_lacks_is_found_before_the_boot(
    number: int, current: str | None, listed: bool, found: str
) -> None:
    spec = parse_spec(
        'version: 1\nmodels: {a: {match: {vendor: "10de", product: "25b6"}, '
        f"vfs: {{count: 2, vgpu_type: {number}}}}}}}\nhosts: {{gpu01: [a]}}\n",
        "spec",
    )
    more = {} if listed else {"vgpu_types": []}
    facts = mediated_host(*({**part, **more} for part in parted("0000:41:00.0", 2, current=current)))
    texts = [f.message for f in findings(facts, shared_functions(spec, facts)) if f.code is Code.VGPU_TYPE_MISSING]
    assert [text.partition(":")[0] for text in texts] == ([found] if found else [])
