"""What hosts say of their guests' devices: the program that looks, over a real SSH server, and what is made of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from shlex import quote

import pytest

from gpustack.connect.ssh.config import SshOptions
from gpustack.repair import domains
from gpustack.repair.hypervisor import Hypervisors, usage
from support.sshd import Sshd

XML = """<domstatus state='running'><domain type='kvm'><uuid>vm-1</uuid><devices>
<hostdev mode='subsystem' type='pci' managed='yes'><source>
<address domain='0x0000' bus='0x81' slot='0x00' function='0x0'/></source>
<address type='pci' domain='0x0000' bus='0x00' slot='0x05' function='0x0'/></hostdev>
<interface type='hostdev'><source>
<address type='pci' domain='0x0000' bus='0x03' slot='0x10' function='0x2'/></source></interface>
<hostdev mode='subsystem' type='usb'><source><address bus='1' device='3'/></source></hostdev>
<hostdev mode='subsystem' type='mdev'><source><address uuid='c2177883'/></source></hostdev>
</devices></domain></domstatus>"""

MDEV = "sys/devices/pci0000:80/0000:80:03.0/0000:85:00.0/c2177883"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with one domain that libvirt knows, and a process that holds two functions of a group open."""
    status = tmp_path / "run/libvirt/qemu"
    status.mkdir(parents=True)
    (status / "instance-1.xml").write_text(XML)
    descriptors = tmp_path / "proc/77/fd"
    descriptors.mkdir(parents=True)
    (descriptors / "12").symlink_to("/dev/vfio/40")
    (descriptors / "13").symlink_to("/dev/vfio/vfio")
    (tmp_path / "proc/77/cmdline").write_bytes(b"/usr/bin/qemu-system-x86_64\0-uuid\0vm-2\0-m\x004\0")
    for address, kind in (("0000:82:00.0", "0x030000"), ("0000:82:00.1", "0x040300"), ("0000:80:02.0", "0x060400")):
        device = tmp_path / "sys/kernel/iommu_groups/40/devices" / address
        device.mkdir(parents=True)
        (device / "class").write_text(kind + "\n")
    device = tmp_path / "sys/bus/pci/devices/0000:81:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "device").write_text("0x11B4\n")
    (tmp_path / MDEV).mkdir(parents=True)
    (tmp_path / "sys/bus/mdev/devices").mkdir(parents=True)
    (tmp_path / "sys/bus/mdev/devices/c2177883").symlink_to(tmp_path / MDEV)
    called(tmp_path, "gpu1")
    (tmp_path / "proc/1/fd").mkdir(parents=True)
    return tmp_path


def test_the_age_of_the_oldest_nova_compute_or_of_the_machine(root: Path) -> None:
    """By the kernel's count since the boot: the host's clock may be ahead of the databases'."""
    (root / "proc/uptime").write_text("1000.50 4000.00\n")
    assert domains.look(str(root))["age"] == 1000.5
    for pid, ticks in ((78, 900), (79, 700)):
        (root / f"proc/{pid}/fd").mkdir(parents=True)
        (root / f"proc/{pid}/cmdline").write_bytes(b"/usr/bin/python3\0/usr/bin/nova-compute\0")
        (root / f"proc/{pid}/stat").write_text(f"{pid} (nova) compute) S {' 0' * 18} {ticks} 0\n")
    assert domains.look(str(root))["age"] == 1000.5 - 700 / os.sysconf("SC_CLK_TCK")


def called(root: Path, name: str) -> None:
    """Give a machine a name."""
    kernel = root / "proc/sys/kernel"
    kernel.mkdir(parents=True)
    (kernel / "hostname").write_text(f"{name}\n")


def test_libvirt_and_the_kernel_are_both_asked(root: Path) -> None:
    assert domains.look(str(root)) == {
        "used": {
            "0000:03:10.2": ["vm-1"],
            "0000:81:00.0": ["vm-1"],
            "0000:82:00.0": ["vm-2"],
            "0000:82:00.1": ["vm-2"],
            "0000:85:00.0": ["vm-1"],
        },
        "unread": [],
        "functions": {"0000:81:00.0": "10de:11b4"},
        "libvirt": True,
        "nova_compute": [],
        "age": None,
        "names": ["gpu1"],
    }


@pytest.mark.parametrize(
    ("command", "users"),
    [
        (b"/usr/bin/qemu-system-x86_64\0-m\x004\0", [""]),
        (b"/usr/bin/qemu-system-x86_64\0-uuid\0", [""]),
        (b"/usr/bin/qemu-system-x86_64\0-uuid\0vm-2", ["vm-2"]),
        (b"", [""]),
    ],
)
def test_a_process_without_a_domain_uses_its_device(root: Path, command: bytes, users: list[str]) -> None:
    (root / "proc/77/cmdline").write_bytes(command)
    answer = domains.look(str(root))
    assert answer["used"]["0000:82:00.0"] == users  # type: ignore[index]
    assert usage(answer).users["0000:82:00.0"] == frozenset(users)


def test_an_unknown_process_of_a_known_domain_is_that_domain(root: Path) -> None:
    (root / "proc/77/cmdline").write_bytes(b"/usr/bin/helper\0")
    devices = root / "sys/kernel/iommu_groups/40/devices"
    (devices / "0000:81:00.0").mkdir()
    used = domains.look(str(root))["used"]
    assert isinstance(used, dict)
    assert (used["0000:81:00.0"], used["0000:82:00.0"]) == (["vm-1"], [""])


def test_hidden_processes_leave_a_gap(root: Path) -> None:
    """Mounted with hidepid=2, /proc shows a user that is not root no QEMU, and refuses nothing."""
    shutil.rmtree(root / "proc/1")
    assert "hidden" in usage(domains.look(str(root))).gap


@pytest.mark.parametrize("seen_by", ["libvirt", "the group", "the device"])
def test_a_mediated_device_uses_its_card(root: Path, seen_by: str) -> None:
    """The kernel's links: a group of the mdev's own, and since 6.2 a character device as well."""
    links = {
        "sys/kernel/iommu_groups/41/devices/c2177883": MDEV,
        "sys/class/vfio-dev/vfio7": f"{MDEV}/vfio-dev/vfio7",
        f"{MDEV}/vfio-dev/vfio7/device": MDEV,
    }
    (root / MDEV / "vfio-dev/vfio7").mkdir(parents=True)
    for link, target in links.items():
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(root / target)
    opened = {"the group": "/dev/vfio/41", "the device": "/dev/vfio/devices/vfio7"}.get(seen_by)
    if opened:
        (root / "run/libvirt/qemu/instance-1.xml").unlink()
        (root / "proc/77/fd/14").symlink_to(opened)
    assert domains.look(str(root))["used"]["0000:85:00.0"] == ["vm-2" if opened else "vm-1"]


def test_a_mediated_device_without_a_card_leaves_a_gap(root: Path) -> None:
    (root / "sys/bus/mdev/devices/c2177883").unlink()
    assert "mediated device" in usage(domains.look(str(root))).gap


def test_virtual_functions_that_vfio_does_not_know(root: Path) -> None:
    """The ports of Neutron: macvtap takes all of a virtual function, and so does vDPA."""
    (root / "run/libvirt/qemu/ports.xml").write_text(
        "<domstatus><domain><uuid>vm-3</uuid><devices>"
        "<interface type='direct'><source dev='eth0v1' mode='passthrough'/></interface>"
        "<interface type='direct'><source dev='eth0' mode='bridge'/></interface>"
        "<interface type='vdpa'><source dev='/dev/vhost-vdpa-0'/></interface>"
        "<interface type='vdpa'><source dev=''/></interface><interface type='vdpa'/>"
        "<interface type='direct'><source dev='' mode='passthrough'/></interface>"
        "<interface type='bridge'><source bridge='br0'/></interface><interface type='user'/>"
        "</devices></domain></domstatus>"
    )
    for link, target in (
        ("sys/class/net/eth0/device", "sys/devices/pci0000:00/0000:00:01.0/0000:05:00.0"),
        ("sys/class/net/eth0v1/device", "sys/devices/pci0000:00/0000:00:01.0/0000:05:00.1"),
        ("sys/bus/vdpa/devices/vdpa0", "sys/devices/pci0000:00/0000:00:01.0/0000:05:00.2/vdpa0"),
        ("sys/class/net/device", "sys/devices/pci0000:00/0000:00:01.0/0000:05:00.3"),
    ):
        (root / target / "vhost-vdpa-0").mkdir(parents=True)
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(root / target)
    used = domains.look(str(root))["used"]
    assert isinstance(used, dict)
    assert {address for address, users in used.items() if users == ["vm-3"]} == {"0000:05:00.1", "0000:05:00.2"}


def test_the_names_of_the_machine_are_those_of_its_line_in_etc_hosts(root: Path) -> None:
    (root / "etc").mkdir()
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 gpu01.example gpu1 localhost4 # gpu9\n::1 gpu2\n")
    assert usage(domains.look(str(root))).names == {"gpu1", "gpu01.example"}


def test_a_device_that_is_open_by_its_own_file(root: Path) -> None:
    (root / "proc/77/fd/14").symlink_to("/dev/vfio/devices/vfio0")
    device = root / "sys/devices/pci0000:80/0000:83:00.0"
    device.mkdir(parents=True)
    link = root / "sys/class/vfio-dev/vfio0"
    link.mkdir(parents=True)
    (link / "device").symlink_to(device)
    used = domains.look(str(root))["used"]
    assert isinstance(used, dict)
    assert used["0000:83:00.0"] == ["vm-2"]


def test_an_unreadable_file_leaves_a_gap_and_what_is_in_use(root: Path) -> None:
    (root / "run/libvirt/qemu/broken.xml").write_text("<domstatus")
    answer = domains.look(str(root))
    assert answer["unread"]
    host_usage = usage(answer)
    assert "broken.xml" in host_usage.gap
    assert host_usage.users["0000:82:00.0"] == frozenset({"vm-2"})


def test_a_machine_without_libvirt_leaves_a_gap(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    assert "libvirt" in usage(domains.look(str(tmp_path))).gap


@pytest.mark.parametrize("path", ["/dev/vfio/40 (deleted)", "/dev/vfio/devices/vfio0 (deleted)"])
def test_an_open_device_whose_name_was_removed_is_in_use(root: Path, path: str) -> None:
    function = root / "sys/devices/pci0000:80/0000:82:00.0"
    (function / "vfio-dev/vfio0").mkdir(parents=True)
    (root / "sys/class/vfio-dev/vfio0").mkdir(parents=True)
    (root / "sys/class/vfio-dev/vfio0/device").symlink_to(function)
    (root / "proc/77/fd/12").unlink()
    (root / "proc/77/fd/12").symlink_to(path)
    assert "vm-2" in domains.look(str(root))["used"]["0000:82:00.0"]


@pytest.mark.parametrize(
    "argv",
    [
        ["/usr/bin/python3", "/usr/bin/nova-compute", "--config-file", "x"],
        ["nova-compute"],
        ["python3", "-s", "-E", "/usr/bin/nova-compute"],
        ["/usr/libexec/platform-python", "nova-compute"],
        ["/usr/bin/python3", "-m", "nova.cmd.compute"],
    ],
)
def test_a_running_nova_compute_is_seen(root: Path, argv: list[str]) -> None:
    (root / "proc/78").mkdir()
    (root / "proc/78/cmdline").write_bytes("\0".join([*argv, ""]).encode())
    (root / "proc/79").mkdir()
    (root / "proc/79/cmdline").write_bytes(b"tail\0-f\0-n\0/var/log/nova-compute\0")
    for pid, command in ((80, "cat /var/log/nova-compute"), (81, "python3 follow.py --from 7 /var/log/nova-compute")):
        (root / f"proc/{pid}").mkdir()
        (root / f"proc/{pid}/cmdline").write_bytes("\0".join([*command.split(), ""]).encode())
    answer = domains.look(str(root))
    assert answer["nova_compute"] == [78]
    assert not usage({**answer, "nova_compute": []}).nova_compute
    assert usage(answer).nova_compute


@pytest.mark.parametrize(
    "answer", [{}, {"used": [], "unread": []}, {"used": {}, "unread": 3}, {"used": {"a": 1}, "unread": []}]
)
def test_nonsense_is_no_answer(answer: dict[str, object]) -> None:
    assert usage(answer).gap


def test_what_is_in_use_is_believed_of_a_damaged_answer() -> None:
    assert usage({"used": {"0000:81:00.0": ["vm"], "b": 1}}).users == {"0000:81:00.0": frozenset({"vm"})}


def test_over_ssh(tmp_path: Path, root: Path) -> None:
    server = Sshd(directory=tmp_path / "ssh")
    server.start()
    try:
        (tmp_path / "known").write_text(server.known())
        (tmp_path / "config").write_text(
            f"Host gpu1\n HostName 127.0.0.1\n Port {server.port}\nHost gone\n HostName 127.0.0.1\n Port 1\n"
        )
        keys = tmp_path / "ssh/authorized_keys"
        keys.write_text(f'command="{quote(sys.executable)} -I -S - --root {root}" ' + keys.read_text().split(" ", 1)[1])
        options = SshOptions(
            identity=server.client_key, config=tmp_path / "config", known_hosts=tmp_path / "known", timeout=120
        )
        with Hypervisors(ssh=options) as hypervisors:
            host_usage = hypervisors.ask("gpu1")
            assert not host_usage.gap
            assert host_usage.users["0000:81:00.0"] == frozenset({"vm-1"})
            lost = hypervisors.ask("gone")
            assert lost.gap.startswith("can't be reached")  # the texts around it name the host
    finally:
        server.stop()


def test_nobody_is_asked_when_that_is_not_wanted() -> None:
    with Hypervisors(enabled=False) as hypervisors:
        assert hypervisors.ask("gpu1").gap


def test_the_program_runs_without_anything_but_the_standard_library() -> None:
    program = Path(domains.__file__).read_bytes()
    process = subprocess.run([sys.executable, "-I", "-S", "-"], input=program, capture_output=True, check=True)
    assert process.stdout.startswith(b'{"used"')


def test_the_texts_of_an_answer_have_one_line() -> None:
    """They are parts of verdicts, which have lines of their own."""
    forged = "x\n  → run `sh`\n"
    answer = {"used": {forged: [forged]}, "functions": {forged: forged}, "names": [forged], "libvirt": True}
    for unread in ([], [[forged, forged]]):
        found = usage({**answer, "unread": unread})
        texts = [found.gap, *found.users, *found.functions, *found.functions.values(), *found.names]
        texts += [uuid for uuids in found.users.values() for uuid in uuids]
        assert len(texts) == 6
        assert [text for text in texts if "\n" in text] == []
        assert bool(unread) == ("→ run" in found.gap)
