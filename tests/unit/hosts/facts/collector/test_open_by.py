"""What uses a card right now: processes, consoles, sound, disks, interfaces, virtual functions, USB devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpustack.hosts.facts.bundle import program
from gpustack.hosts.facts.collector import collect
from support.sysroot import SysRoot, nvswitch_host, talk_host

CARD, AUDIO = "0000:88:00.0", "0000:88:00.1"


def holders(root: SysRoot) -> dict[str, list[str] | None]:
    return {entry["address"]: entry["holders"] for entry in collect(str(root.path))["pci"]}


def process(root: SysRoot, number: int, name: str, *nodes: str, maps: str = "") -> SysRoot:
    root.write(f"/proc/{number}/comm", f"{name}\n").write(f"/proc/{number}/maps", maps)
    root.directory(f"/proc/{number}/fd")
    for descriptor, node in enumerate(nodes, 3):
        root.link(f"/proc/{number}/fd/{descriptor}", node)
    return root


@pytest.fixture
def root(tmp_path: Path) -> SysRoot:
    return talk_host(tmp_path)


def test_a_card_that_nothing_uses_is_free_and_others_are_not_looked_at(root: SysRoot) -> None:
    process(root, 1, "systemd", "/dev/null", "socket:[17]", "/dev/sda")
    users = holders(root)
    assert users[CARD] == users[AUDIO] == []
    assert users["0000:01:00.0"] is None


def test_processes_with_a_node_open_or_mapped_are_named(root: SysRoot) -> None:
    process(root, 812, "Xorg", "/dev/tty1", "/dev/dri/card1")
    process(root, 99, "pipewire", "/dev/snd/controlC0")
    process(root, 77, "old", "/dev/null", maps="7f00-7f01 rw-s 00000000 00:05 300      /dev/dri/card2\n")
    process(root, 76, "library", "/dev/null", maps="7f00-7f01 r-xp 00000000 00:05 300      /usr/lib/libdrm.so\n")
    root.device(AUDIO, "sound/card1/controlC0", classes="/sys/class/sound")
    users = holders(root)
    assert users[CARD] == ["process Xorg (812) has /dev/dri/card1 open"]
    assert users[AUDIO] == ["process pipewire (99) has /dev/snd/controlC0 open"]
    assert users["0000:89:00.0"] == ["process old (77) has /dev/dri/card2 open"]


def test_nodes_of_the_nvidia_driver(tmp_path: Path) -> None:
    root = nvswitch_host(tmp_path)
    first, second = "0000:17:00.0", "0000:27:00.0"
    for number, address in enumerate((first, second)):
        root.write(f"/proc/driver/nvidia/gpus/{address}/information", f"Model: A100\nDevice Minor: \t {number}\n")
    process(root, 5, "python3", "/dev/nvidia1")
    users = holders(root)
    assert users[first] == []
    assert users[second] == ["process python3 (5) has /dev/nvidia1 open"]
    process(root, 6, "dcgm", "/dev/nvidiactl")
    users = holders(root)
    assert users[first] == ["process dcgm (6) has /dev/nvidiactl open"]
    assert users["0000:c0:00.0"] == ["process dcgm (6) has /dev/nvidiactl open"]


def test_kfd_belongs_to_every_card_of_amdgpu(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    root.function("0000:03:00.0", vendor="1002", product="740f", cls="038000", driver="amdgpu", group=1)
    process(root, 5, "rocm", "/dev/kfd")
    assert holders(root)["0000:03:00.0"] == ["process rocm (5) has /dev/kfd open"]


UUID = "5ae5d3a1-4c61-4f0e-9c4b-6a2f3b1d7c90"


def test_instances_of_virtual_functions_are_named(tmp_path: Path) -> None:
    """libvirt's instances have a private /dev, so the nodes can be deleted ones on the host."""
    root = SysRoot(tmp_path).host()
    root.function("0000:3b:00.0", vendor="10de", product="25b6", driver="nvidia", group=1, totalvfs=16, numvfs=4)
    parts = [f"0000:3b:00.{number}" for number in range(4, 8)]
    for number, (address, driver) in enumerate(zip(parts, ("nvidia", "nvidia", "vfio-pci", None), strict=True), 80):
        root.function(address, vendor="10de", product="25b6", driver=driver, group=number)
        root.link(f"{root._places[address]}/physfn", "../0000:3b:00.0")
    root.directory(f"{root._places[parts[2]]}/vfio-dev/vfio7")
    process(root, 60, "nvidia-vgpu-mgr", "/dev/nvidiactl")
    process(root, 70, "qemu-kvm", "/dev/vfio/vfio", "/dev/vfio/80 (deleted)")
    root.write("/proc/70/cmdline", f"qemu-kvm\0-name\0guest=instance-0000002a,debug-threads=on\0-uuid\0{UUID}\0")
    process(root, 71, "qemu-kvm", "/dev/vfio/devices/vfio7", "/dev/vfio/82")
    root.write("/proc/71/cmdline", f"qemu-kvm\0-uuid\0{UUID}\0")
    users = holders(root)
    assert [users[address] for address in parts] == [
        [f"instance {UUID} (instance-0000002a)"],
        [],
        [f"instance {UUID}"],
        None,
    ]
    process(root, 72, "dpdk", "/dev/vfio/81")
    assert holders(root)[parts[1]] == ["process dpdk (72) has /dev/vfio/81 open"]


@pytest.mark.parametrize(
    ("boot_vga", "arguments", "expected"),
    [
        (False, "quiet", []),
        (True, "quiet", ["the host's console is on fb1"]),
        (False, "quiet fbcon=map:1", ["the host's console is on fb1"]),
    ],
)
def test_the_console_is_on_the_primary_display_or_the_first(
    tmp_path: Path, boot_vga: bool, arguments: str, expected: list[str]
) -> None:
    root = SysRoot(tmp_path).host(command_line=arguments)
    root.function("0000:03:00.0", vendor="1002", product="740f", driver="amdgpu", group=1, boot_vga=boot_vga)
    root.directory("/sys/devices/platform/efi-framebuffer.0/graphics/fb0")
    root.link("/sys/class/graphics/fb0", "../../devices/platform/efi-framebuffer.0/graphics/fb0")
    root.device("0000:03:00.0", "graphics/fb1", classes="/sys/class/graphics")
    root.directory("/sys/class/graphics/fbcon")
    root.write("/sys/class/vtconsole/vtcon1/name", "(M) frame buffer device\n")
    root.write("/sys/class/vtconsole/vtcon1/bind", "1\n")
    assert holders(root)["0000:03:00.0"] == expected
    root.write("/sys/class/vtconsole/vtcon1/bind", "0\n")
    assert holders(root)["0000:03:00.0"] == []


def test_the_first_frame_buffer_has_the_console_where_no_display_is_primary(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    root.function("0000:03:00.0", vendor="1002", product="740f", driver="amdgpu", group=1)
    root.device("0000:03:00.0", "graphics/fb0", classes="/sys/class/graphics")
    root.write("/sys/class/vtconsole/vtcon1/name", "(M) frame buffer device\n")
    root.write("/sys/class/vtconsole/vtcon1/bind", "1\n")
    assert holders(root)["0000:03:00.0"] == ["the host's console is on fb0"]


def test_a_text_console_on_the_primary_display(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    root.function("0000:03:00.0", vendor="1002", product="740f", driver="radeon", group=1, boot_vga=True)
    root.write("/sys/class/vtconsole/vtcon0/name", "(S) VGA+\n").write("/sys/class/vtconsole/vtcon0/bind", "1\n")
    assert holders(root)["0000:03:00.0"] == ["the host's text console is on it"]


def test_sound_that_plays(root: SysRoot) -> None:
    [card] = {e["address"]: e for e in collect(str(root.path))["pci"]}[AUDIO]["uses"]["sound"]
    status = f"/proc/asound/{card}/pcm3p/sub0/status"
    root.write(status, "closed\n")
    assert holders(root)[AUDIO] == []
    root.write(status, "state: RUNNING\nowner_pid   : 77\n")
    assert holders(root)[AUDIO] == [f"sound {card} is playing or recording"]


def test_what_shares_the_group_counts_as_well(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    root.function("0000:03:00.0", vendor="1002", product="740f", driver="amdgpu", group=1, totalvfs=4, numvfs=2)
    root.function("0000:03:00.2", vendor="1002", product="7316", cls="0c0330", driver="xhci_hcd", group=1)
    root.function("0000:04:00.0", vendor="8086", product="1521", cls="020000", driver="igb", group=1)
    root.function("0000:05:00.0", vendor="144d", product="a80a", cls="010802", driver="nvme", group=1)
    root.usb("0000:03:00.2").net("0000:04:00.0", "eno1").disk("0000:05:00.0", "nvme0n1", below="nvme/nvme0")
    root.net("0000:04:00.0", "eno2", state="down")
    root.write("/sys/class/net/eno2/flags", "0x1003\n")
    root.write("/sys/class/block/nvme0n1/dev", "259:0\n").write("/sys/class/block/nvme0n11/dev", "259:1\n")
    root.write("/proc/1/mountinfo", "22 1 259:1 / /srv rw - ext4 /dev/nvme0n11 rw\n")
    root.write("/proc/swaps", "Filename Type\n/dev/nvme0n1 partition\n")
    root.directory("/sys/class/block/nvme0n1/holders/dm-0")
    users = holders(root)
    assert users["0000:03:00.0"] == ["virtual functions are enabled: 2"]
    assert users["0000:03:00.2"] == ["a Logitech USB Keyboard is plugged into it"]
    assert users["0000:04:00.0"] == ["the interface eno1 is up", "the interface eno2 is up"]
    assert users["0000:05:00.0"] == [
        "nvme0n1 is swapped to",
        "nvme0n1 is a part of dm-0",
        "nvme0n11 is mounted on /srv",
    ]


def test_cards_for_guests_are_not_asked_about(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    root.function("0000:03:00.0", vendor="1002", product="740f", driver="vfio-pci", group=1)
    root.function("0000:04:00.0", vendor="1002", product="740f", group=2)
    process(root, 5, "qemu", "/dev/vfio/1")
    assert set(holders(root).values()) == {None}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_invisible_is_unknown_and_visible_is_reported() -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        unprivileged(talk_host(Path(directory) / "host"))


def unprivileged(root: SysRoot) -> None:
    process(root, 5, "mine", "/dev/dri/card1")
    process(root, 6, "theirs", "/dev/dri/card2")
    root.at("/proc/6/fd").chmod(0o700)
    completed = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-", "--root", root.path],
        input=program(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    raw = json.loads(completed.stdout)
    by_address = {entry["address"]: entry["holders"] for entry in raw["pci"]}
    assert by_address[CARD] == ["process mine (5) has /dev/dri/card1 open"]
    assert by_address["0000:89:00.0"] is None
    assert not [entry for entry in raw["unread"] if "/fd" in entry["path"]]
