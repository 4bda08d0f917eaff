"""The stand-in boot: what a configuration makes of the talk's host. Each case is one that real hosts taught."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gpustack.base.files import share_dir
from gpustack.hosts.facts.collector import collect
from gpustack_demo.examples import boot as standin
from gpustack_demo.examples import hosts
from gpustack_demo.examples.errors import StandInError
from gpustack_demo.examples.grub import default_entry, update_grub
from gpustack_demo.examples.host import write_host
from gpustack_demo.examples.images import read_image
from gpustack_demo.examples.initramfs import update_initramfs
from gpustack_demo.examples.machine import Machine

CARDS = ("0000:84:00.0", "0000:84:00.1", "0000:88:00.0", "0000:88:00.1")
IDS = "options vfio-pci ids=10de:11b4,10de:0e0a\n"
SOFTDEPS = "softdep nouveau pre: vfio-pci\nsoftdep snd_hda_intel pre: vfio-pci\n"
HOOK = """#!/bin/sh
case "$1" in prereqs) exit 0 ;; esac
. /usr/share/initramfs-tools/hook-functions
force_load vfio-pci
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_host(tmp_path / "gpu01", hosts.talk_host())


NOW = 1_800_000_000


def boot(root: Path) -> None:
    """Boot without waiting for the clock."""
    standin.boot(root, at=NOW)


def write(root: Path, path: str, text: str, mode: int = 0o644) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    target.chmod(mode)


def drivers(root: Path) -> list[str | None]:
    by_address = {f["address"]: f["driver"] for f in collect(str(root))["pci"]}
    return [by_address[address] for address in CARDS]


def rebuild_and_boot(root: Path) -> list[str | None]:
    update_initramfs(root, ["-u", "-k", "all"])
    update_grub(root)
    boot(root)
    return drivers(root)


HOST_DRIVERS = ["nouveau", "snd_hda_intel"] * 2
VFIO = ["vfio-pci"] * 4


def test_host_drivers_take_the_cards_of_an_unprepared_host(root: Path) -> None:
    assert drivers(root) == HOST_DRIVERS


def test_ids_without_softdeps_lose_to_the_host_drivers(root: Path) -> None:
    write(root, "etc/modprobe.d/vfio.conf", IDS)
    assert rebuild_and_boot(root) == HOST_DRIVERS


def test_ids_with_softdeps_win_in_the_initramfs(root: Path) -> None:
    write(root, "etc/modprobe.d/vfio.conf", IDS + SOFTDEPS)
    assert rebuild_and_boot(root) == VFIO


def test_modprobe_d_is_not_enough_while_the_initramfs_is_old(root: Path) -> None:
    write(root, "etc/modprobe.d/vfio.conf", IDS + SOFTDEPS)
    boot(root)
    # nouveau comes with the old image; the sound driver only from the disk, where the file counts.
    assert drivers(root) == ["nouveau", "vfio-pci"] * 2


def test_a_blacklist_alone_leaves_the_cards_without_a_driver(root: Path) -> None:
    write(root, "etc/modprobe.d/blacklist.conf", "blacklist nouveau\nblacklist snd-hda-intel\n")
    assert rebuild_and_boot(root) == [None] * 4


def test_a_hook_that_is_not_executable_is_not_run(root: Path) -> None:
    write(root, "etc/modprobe.d/vfio.conf", IDS + "blacklist nouveau\nblacklist snd_hda_intel\n")
    write(root, "etc/initramfs-tools/hooks/vfio", HOOK, 0o644)
    assert rebuild_and_boot(root) == [None] * 4
    write(root, "etc/initramfs-tools/hooks/vfio", HOOK, 0o755)
    assert rebuild_and_boot(root) == VFIO


def test_a_hook_that_fails_leaves_the_old_image(root: Path) -> None:
    image = root / "boot/initrd.img-6.1.0-40-amd64"
    before = image.read_bytes()
    write(root, "etc/initramfs-tools/hooks/broken", "#!/bin/sh\nexit 3\n", 0o755)
    with pytest.raises(StandInError, match="broken failed with 3"):
        update_initramfs(root, ["-u"])
    assert image.read_bytes() == before


@pytest.mark.parametrize("argument", ["intel_iommu=off", "iommu=off", "intel_iommu=on,off"])
def test_vfio_pci_takes_nothing_without_an_iommu(root: Path, argument: str) -> None:
    write(root, "etc/modprobe.d/vfio.conf", IDS + SOFTDEPS)
    write(root, "etc/default/grub.d/10.cfg", f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {argument}"\n')
    assert rebuild_and_boot(root) == HOST_DRIVERS
    assert collect(str(root))["iommu"] == {
        "acpi_tables": ["DMAR"],
        "tables_listed": True,
        "units": [],
        "group_count": 0,
        "interrupt_remapping": True,
        "unsafe_interrupts": None,
        "no_iommu_mode": None,
        "groups": [],
    }


def test_ids_on_the_command_line(root: Path) -> None:
    write(root, "etc/modprobe.d/vfio.conf", SOFTDEPS)
    write(root, "etc/default/grub.d/10.cfg", 'GRUB_CMDLINE_LINUX="vfio-pci.ids=10de:11b4,10de:0e0a"\n')
    assert rebuild_and_boot(root) == VFIO


def test_ids_can_be_narrowed_to_a_board_and_a_class(root: Path) -> None:
    write(
        root,
        "etc/modprobe.d/vfio.conf",
        "options vfio-pci ids=10de:11b4:10de:1096:030000:ffff00,10de:0e0a:10de:9999\n" + SOFTDEPS,
    )
    assert rebuild_and_boot(root) == ["vfio-pci", "snd_hda_intel"] * 2


def test_modules_can_be_blacklisted_on_the_command_line(root: Path) -> None:
    write(root, "etc/default/grub.d/10.cfg", 'GRUB_CMDLINE_LINUX="modprobe.blacklist=nouveau,snd-hda-intel"\n')
    assert rebuild_and_boot(root) == [None] * 4


def test_a_file_of_etc_hides_the_distributions_of_the_same_name(root: Path) -> None:
    write(root, "usr/lib/modprobe.d/cards.conf", "blacklist nouveau\n")
    assert rebuild_and_boot(root) == [None, "snd_hda_intel"] * 2
    write(root, "etc/modprobe.d/cards.conf", "# nothing\n")
    assert rebuild_and_boot(root) == HOST_DRIVERS


def test_a_module_of_modules_load_d_comes_too_late(root: Path) -> None:
    write(root, "etc/modprobe.d/vfio.conf", IDS)
    write(root, "etc/modules-load.d/vfio.conf", "vfio-pci\n")
    assert rebuild_and_boot(root) == HOST_DRIVERS


def test_parameters_are_seen_when_the_module_is_loaded(root: Path) -> None:
    write(root, "etc/modprobe.d/vfio.conf", "options vfio_iommu_type1 allow_unsafe_interrupts=1\n")
    write(root, "etc/modules", "vfio_iommu_type1\n")
    rebuild_and_boot(root)
    assert collect(str(root))["iommu"]["unsafe_interrupts"] is True


def test_grub_defaults_are_evaluated_by_a_shell(root: Path) -> None:
    write(
        root,
        "etc/default/grub.d/50-a.cfg",
        'for i in 1 2; do GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT n=$i"; done\n',
    )
    write(root, "etc/default/grub.d/99-ignored.txt", 'GRUB_CMDLINE_LINUX_DEFAULT="nothing"\n')
    update_grub(root)
    assert default_entry(root).arguments.split()[3:] == ["quiet", "splash", "n=1", "n=2"]


def test_grub_defaults_that_fail_leave_the_old_menu(root: Path) -> None:
    menu = root / "boot/grub/grub.cfg"
    before = menu.read_text(encoding="utf-8")
    write(root, "etc/default/grub.d/50-a.cfg", 'GRUB_CMDLINE_LINUX="unfinished\n')
    with pytest.raises(StandInError, match="can't be evaluated"):
        update_grub(root)
    assert menu.read_text(encoding="utf-8") == before


def test_recovery_entries_get_only_what_every_entry_gets(root: Path) -> None:
    write(root, "etc/default/grub.d/10.cfg", 'GRUB_CMDLINE_LINUX="always"\n')
    update_grub(root)
    entries = {e["title"]: e for e in collect(str(root))["boot"]["entries"]}
    recovery = entries["Debian GNU/Linux, with Linux 6.1.0-37-amd64 (recovery mode)"]
    assert recovery["recovery"]
    assert recovery["arguments"].split()[2:] == ["single", "always"]
    assert entries["Debian GNU/Linux"]["arguments"].split()[2:] == ["always", "quiet", "splash"]


def test_only_the_newest_kernels_image_is_rebuilt_unless_told_otherwise(root: Path) -> None:
    old, new = (root / f"boot/initrd.img-6.1.0-{n}-amd64" for n in (37, 40))
    before = old.read_bytes(), new.read_bytes()
    write(root, "etc/modprobe.d/vfio.conf", IDS)
    update_initramfs(root, ["-u"])
    assert old.read_bytes() == before[0]
    assert new.read_bytes() != before[1]
    update_initramfs(root, ["-u", "-k", "6.1.0-37-amd64"])
    assert old.read_bytes() != before[0]


def test_a_boot_is_later_than_everything_written_before_it(root: Path) -> None:
    before = collect(str(root))["kernel"]["booted_at"]
    write(root, "etc/modprobe.d/vfio.conf", IDS)
    standin.boot(root)
    after = collect(str(root))["kernel"]["booted_at"]
    assert after > before
    assert after * 10**9 > (root / "etc/modprobe.d/vfio.conf").stat().st_mtime_ns


def test_a_host_without_its_initramfs_does_not_boot(root: Path) -> None:
    (root / "boot/initrd.img-6.1.0-40-amd64").unlink()
    with pytest.raises(StandInError, match="Kernel panic"):
        boot(root)


def test_the_vendors_driver_takes_gpus_and_switches(tmp_path: Path) -> None:
    root = write_host(tmp_path / "gpu02", hosts.nvswitch_host())
    bound = [(f["product"], f["driver"]) for f in collect(str(root))["pci"] if f["vendor"] == "10de"]
    assert sorted(bound) == [("22a3", "nvidia-nvswitch")] * 4 + [("2330", "nvidia")] * 8


def test_an_amd_host_has_its_iommu_on_with_nothing_said(tmp_path: Path) -> None:
    root = write_host(tmp_path / "gpu04", hosts.epyc_host())
    facts = collect(str(root))
    assert "iommu" not in facts["kernel"]["command_line"]
    assert facts["iommu"]["units"] == ["ivhd0", "ivhd1"]
    write(root, "etc/default/grub.d/10.cfg", 'GRUB_CMDLINE_LINUX="amd_iommu=off"\n')
    update_grub(root)
    boot(root)
    assert collect(str(root))["iommu"]["units"] == []


@pytest.mark.parametrize("make", [hosts.talk_host, hosts.nvswitch_host, hosts.shared_group_host, hosts.epyc_host])
def test_the_collector_reads_everything_of_an_example(tmp_path: Path, make: type[Machine]) -> None:
    machine = make()
    facts = collect(str(write_host(tmp_path / "host", machine)))
    assert facts["unread"] == []
    assert facts["hostname"] == machine.name
    assert facts["initramfs_tool"] == "initramfs-tools"
    assert [f["address"] for f in facts["pci"]] == sorted(d.address for d in machine.devices)
    assert {f["iommu_group"] for f in facts["pci"]} == {d.group for d in machine.devices}


def keep(address: str, ids: str, pci_class: str, driver: str = "vfio-pci") -> str:
    return f"keep {address} {driver} {ids} 10de 1096 {pci_class}\n"


FIRST = keep(CARDS[0], "10de 11b4", "030000") + keep(CARDS[1], "10de 0e0a", "040300")
TOP = "etc/initramfs-tools/scripts/init-top"
TEMPLATES = share_dir("templates") / "host"


def script(root: Path, lines: str, name: str = "gpustack") -> None:
    """gpustack's boot script, with lines of a test."""
    shared = (TEMPLATES / "keep.sh.j2").read_text(encoding="utf-8")
    shared = re.sub(r"\{%- for .*\{%- endfor %\}", lambda _: f"\n{lines}", shared, flags=re.S)
    around = (TEMPLATES / "initramfs-script.sh.j2").read_text(encoding="utf-8")
    text = around.replace("{% include 'keep.sh.j2' %}\n", shared)
    assert lines in text
    write(root, f"{TOP}/{name}", text, 0o755)
    write(root, "etc/initramfs-tools/hooks/vfio", HOOK, 0o755)


def record(root: Path) -> list[str]:
    return (root / "run/gpustack/devices").read_text(encoding="utf-8").splitlines()


def test_of_two_identical_cards_one_is_taken_by_its_address(root: Path) -> None:
    script(root, FIRST)
    write(root, "etc/modprobe.d/vfio.conf", SOFTDEPS)
    assert rebuild_and_boot(root) == ["vfio-pci", "vfio-pci", "nouveau", "snd_hda_intel"]
    assert record(root) == [f"{address} is kept for vfio-pci" for address in CARDS[:2]]
    facts = collect(str(root))
    assert facts["files"]["/run/gpustack/devices"]["text"].splitlines() == record(root)
    assert [f["driver_override"] for f in facts["pci"] if f["address"] in CARDS] == ["vfio-pci"] * 2 + [None] * 2


def test_pci_stub_takes_by_address_too(root: Path) -> None:
    script(root, FIRST.replace("vfio-pci", "pci-stub"))
    write(root, "etc/initramfs-tools/modules", "pci_stub\n")
    assert rebuild_and_boot(root) == ["pci-stub", "pci-stub", "nouveau", "snd_hda_intel"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (keep(CARDS[0], "1002 11b4", "030000"), "its vendor is 0x10de, and not 0x1002"),
        (keep(CARDS[0], "10de 20b2", "030000"), "its device is 0x11b4, and not 0x20b2"),
        (keep(CARDS[0], "10de 11b4", "030200"), "its class is 0x030000, and not 0x030200"),
        (keep(CARDS[0], "10de 11b4", "030000").replace("1096", "1097"), "its subsystem_device is 0x1096"),
        (keep("0000:99:00.0", "10de 11b4", "030000"), "nothing is there"),
    ],
)
def test_a_device_that_is_not_the_expected_one_is_left_to_the_host(root: Path, line: str, reason: str) -> None:
    script(root, line)
    assert rebuild_and_boot(root) == HOST_DRIVERS
    (entry,) = record(root)
    assert entry.startswith(f"{line.split()[1]} is left alone: ")
    assert reason in entry


def test_what_is_not_known_of_a_device_is_not_asked(root: Path) -> None:
    script(root, f"keep {CARDS[0]} vfio-pci 10de 11b4 - - 030000\n")
    assert rebuild_and_boot(root)[0] == "vfio-pci"


def test_a_script_that_runs_after_udev_is_too_late_and_takes_nothing(root: Path) -> None:
    script(root, FIRST, name="zz-gpustack")
    order = initramfs_order(root)
    assert order.index("udev") < order.index("zz-gpustack")
    # The sound driver is not in the initramfs: only the display was gone when the script came.
    assert rebuild_and_boot(root) == ["nouveau", "vfio-pci", "nouveau", "snd_hda_intel"]
    assert record(root)[0] == f"{CARDS[0]} is left alone: a host driver has it already"


def test_a_driver_that_was_there_first_loses_a_device_that_is_to_be_taken(root: Path) -> None:
    """As xhci_pci does where it is built into the kernel; here the script runs after udev has loaded nouveau."""
    script(root, FIRST.replace(" 030000\n", " 030000 take\n"), name="zz-gpustack")
    assert rebuild_and_boot(root) == ["vfio-pci", "vfio-pci", "nouveau", "snd_hda_intel"]
    assert record(root) == [f"{address} is kept for vfio-pci" for address in CARDS[:2]]


def test_a_stranger_keeps_its_driver_where_one_is_to_be_taken(root: Path) -> None:
    script(root, keep(CARDS[0], "10de 20b2", "030000").replace("\n", " take\n"), name="zz-gpustack")
    assert rebuild_and_boot(root) == HOST_DRIVERS


@pytest.mark.parametrize("take", [False, True])
def test_a_driver_that_was_still_starting_is_noticed(tmp_path: Path, take: bool) -> None:
    """Drivers start devices asynchronously. modprobe is a stand-in here: the sound driver gets the device meanwhile."""
    address = CARDS[1]
    script(tmp_path, keep(address, "10de 0e0a", "040300").replace("\n", " take\n" if take else "\n"))
    device, bus = tmp_path / f"sys/bus/pci/devices/{address}", tmp_path / "sys/bus/pci"
    facts = {
        "vendor": "10de",
        "device": "0e0a",
        "subsystem_vendor": "10de",
        "subsystem_device": "1096",
        "class": "040300",
    }
    for name, value in facts.items():
        write(tmp_path, f"sys/bus/pci/devices/{address}/{name}", f"0x{value}\n")
    for driver in ("snd_hda_intel", "vfio-pci"):
        (bus / "drivers" / driver).mkdir(parents=True)
    write(tmp_path, "modprobe", f"#!/bin/sh\nln -s {bus}/drivers/snd_hda_intel {device}/driver\n", 0o755)
    text = (tmp_path / TOP / "gpustack").read_text(encoding="utf-8")
    for path in ("/sys/", "/run/", "/dev/kmsg"):
        text = text.replace(path, f"{tmp_path}{path}")
    (tmp_path / "dev").mkdir()
    text = text.replace("/sbin/modprobe", f"{tmp_path}/modprobe")
    subprocess.run(["sh", "-s"], input=text, text=True, check=True)
    unbound = bus / "drivers/snd_hda_intel/unbind"
    if take:
        assert unbound.read_text(encoding="utf-8") == f"{address}\n"
        assert record(tmp_path) == [f"{address} is kept for vfio-pci"]
    else:
        assert not unbound.exists()
        assert (device / "driver_override").read_text(encoding="utf-8") == "\n"
        assert record(tmp_path) == [f"{address} is left alone: a host driver has it already"]


def test_the_script_comes_before_udev_by_its_name(root: Path) -> None:
    script(root, FIRST)
    assert initramfs_order(root) == ["all_generic_ide", "blacklist", "gpustack", "keymap", "udev"]


def test_without_the_module_in_the_initramfs_the_override_holds_until_it_comes(root: Path) -> None:
    script(root, FIRST)
    (root / "etc/initramfs-tools/hooks/vfio").unlink()
    assert rebuild_and_boot(root)[:2] == [None, None]
    write(root, "etc/modules-load.d/vfio.conf", "vfio-pci\n")
    assert rebuild_and_boot(root)[:2] == ["vfio-pci", "vfio-pci"]


def initramfs_order(root: Path) -> list[str]:
    update_initramfs(root, ["-u"])
    image = read_image((root / "boot/initrd.img-6.1.0-40-amd64").read_bytes())
    lines = image["scripts/init-top/ORDER"][1].decode().splitlines()
    return [line.split()[0].rpartition("/")[2] for line in lines]
