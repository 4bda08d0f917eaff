"""What hosts say of their guests' devices: the program that looks, over a real SSH server, and what is made of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sshd import Sshd

from gpustack.cleanup import domains
from gpustack.cleanup.apply import in_use
from gpustack.cleanup.facts import HostState, PciRow
from gpustack.cleanup.hypervisor import Hypervisors, usage
from gpustack.cleanup.verdict import Repair, Status, Verdict
from gpustack.facts.ssh_config import SshOptions

XML = """<domstatus state='running'><domain type='kvm'><uuid>vm-1</uuid><devices>
<hostdev mode='subsystem' type='pci' managed='yes'><source>
<address domain='0x0000' bus='0x81' slot='0x00' function='0x0'/></source>
<address type='pci' domain='0x0000' bus='0x00' slot='0x05' function='0x0'/></hostdev>
<interface type='hostdev'><source>
<address type='pci' domain='0x0000' bus='0x03' slot='0x10' function='0x2'/></source></interface>
<hostdev mode='subsystem' type='usb'><source><address bus='1' device='3'/></source></hostdev>
<hostdev mode='subsystem' type='mdev'><source><address uuid='c2177883'/></source></hostdev>
</devices></domain></domstatus>"""


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
    return tmp_path


def test_libvirt_and_the_kernel_are_both_asked(root: Path) -> None:
    assert domains.look(str(root)) == {
        "used": {
            "0000:03:10.2": ["vm-1"],
            "0000:81:00.0": ["vm-1"],
            "0000:82:00.0": ["vm-2"],
            "0000:82:00.1": ["vm-2"],
        },
        "unread": [],
    }


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


def test_a_file_that_can_not_be_understood_makes_the_answer_worth_nothing(root: Path) -> None:
    (root / "run/libvirt/qemu/broken.xml").write_text("<domstatus")
    answer = domains.look(str(root))
    assert answer["unread"]
    found = usage(answer)
    assert found.users is None
    assert "broken.xml" in found.reason


@pytest.mark.parametrize(
    "answer", [{}, {"used": [], "unread": []}, {"used": {}, "unread": 3}, {"used": {"a": 1}, "unread": []}]
)
def test_nonsense_is_no_answer(answer: dict[str, object]) -> None:
    assert usage(answer).users is None


def test_over_ssh(tmp_path: Path, root: Path) -> None:
    server = Sshd(directory=tmp_path / "ssh")
    server.start()
    try:
        (tmp_path / "known").write_text(server.known())
        (tmp_path / "config").write_text(
            f"Host gpu1\n HostName 127.0.0.1\n Port {server.port}\nHost gone\n HostName 127.0.0.1\n Port 1\n"
        )
        keys = tmp_path / "ssh/authorized_keys"
        keys.write_text(f'command="{sys.executable} -I -S - {root}" ' + keys.read_text().split(" ", 1)[1])
        options = SshOptions(
            identity=server.client_key, config=tmp_path / "config", known_hosts=tmp_path / "known", timeout=20
        )
        with Hypervisors(ssh=options) as hypervisors:
            found = hypervisors.ask("gpu1")
            assert found.users is not None
            assert found.users["0000:81:00.0"] == frozenset({"vm-1"})
            lost = hypervisors.ask("gone")
            assert lost.users is None
            assert "gone" in lost.reason
    finally:
        server.stop()


def test_nobody_is_asked_when_that_is_not_wanted() -> None:
    with Hypervisors(enabled=False) as hypervisors:
        assert hypervisors.ask("gpu1").users is None


def test_the_program_runs_without_anything_but_the_standard_library() -> None:
    program = Path(domains.__file__).read_bytes()
    done = subprocess.run([sys.executable, "-I", "-S", "-"], input=program, capture_output=True, check=True)
    assert done.stdout.startswith(b'{"used"')


@pytest.mark.parametrize(
    ("repair", "users", "taken"),
    [
        (Repair.FREE, {"0000:81:00.0": {"vm"}}, True),
        (Repair.FREE, {"0000:81:00.0": {"another"}}, True),
        (Repair.FREE, {"0000:81:00.0": {""}}, True),
        (Repair.FREE, {"0000:82:00.0": {"vm"}}, False),
        (Repair.RETIRE, {"0000:81:00.0": {"another"}}, False),
        (Repair.RETIRE, {"0000:81:00.0": {"vm"}}, True),
        (Repair.CLEAR_DELETED, {"0000:81:00.0": {"another", ""}}, True),
    ],
)
def test_what_counts_as_in_use(repair: Repair, users: dict[str, set[str]], taken: bool) -> None:
    row = PciRow(
        id=1,
        compute_node_id=1,
        address="0000:81:00.0",
        vendor_id="10de",
        product_id="11b4",
        dev_type="type-PCI",
        status="allocated",
        instance_uuid="vm",
        request_id=None,
        parent_addr=None,
        deleted=0,
        updated_at=None,
        created_at=None,
    )
    verdict = Verdict(
        klass="A",
        title="",
        status=Status.STALE,
        cell="cell1",
        host="gpu1",
        node="gpu1",
        host_state=HostState.DOWN,
        rows=(row,),
        owner="vm",
        evidence=(),
        because="",
        repair=repair,
    )
    assert bool(in_use(verdict, {address: frozenset(who) for address, who in users.items()})) is taken
