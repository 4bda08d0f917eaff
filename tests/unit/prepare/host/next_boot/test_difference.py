"""The difference of the next boot: words of others block a plan and an undo, each with its place."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpustack.base.operations import RemoveFile, WriteFile
from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.collector.menu import differences
from gpustack.hosts.facts.collector.reader import HostRoot
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import parse_host
from gpustack.prepare.host.next_boot.difference import findings, menus
from gpustack.prepare.host.own_files import ADOPTED, JOURNAL
from gpustack.prepare.host.plan import HostPlan, plan_host
from gpustack.prepare.host.prove.verify import verify_host
from gpustack.prepare.host.show import show_plan
from gpustack.prepare.host.undo import plan_undo
from gpustack.spec.load import parse_spec
from gpustack_demo.examples.boot import boot
from gpustack_demo.examples.grub import update_grub, write_environment
from gpustack_demo.examples.host import write_host
from gpustack_demo.examples.hosts import rhel9_host, systemd_boot_host, talk_host
from gpustack_demo.examples.machine import Machine

SPEC = 'version: 1\nmodels: {{k4200: {{match: {{vendor: "10de", product: "11b4"}}}}}}\nhosts: {{talk: [k4200]}}\n{}'
OWN = {"+intel_iommu=on": "gpustack", "+iommu=pt": "gpustack"}
DEFAULTS = "etc/default/grub"
MENU = "boot/grub/grub.cfg"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host of Debian with GRUB, as installed."""
    return write_host(tmp_path / "talk", talk_host("talk"))


def read(root: Path, **boot: Any) -> Host:
    facts = collect(str(root))
    facts["boot"].update(boot)
    return parse_host(facts, "test")


def plan(root: Path, accepted: str = "", **boot: Any) -> HostPlan:
    more = f"options: {{boot_changes: [{accepted}]}}\n" if accepted else ""
    return plan_host(parse_spec(SPEC.format(more), "test"), read(root, **boot))


def sources(plan: HostPlan) -> dict[str, str]:
    assert plan.next_boot is not None
    return {f"{change.sign}{change.word.text}": change.source for change in plan.next_boot.changes}


def write(root: Path, plan: HostPlan, but: tuple[str, ...] = ()) -> None:
    """Carry out the operations on files."""
    for operation in plan.operations:
        path = root / getattr(operation, "path", "/").lstrip("/")
        if isinstance(operation, WriteFile):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(operation.content)
        elif isinstance(operation, RemoveFile) and operation.path not in but:
            path.unlink()


def codes(plan: HostPlan) -> list[str]:
    return [f.code for f in plan.findings if f.severity == "error"]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_host_as_installed_is_planned(root: Path) -> None:
    planned = plan(root)
    assert codes(planned) == []
    assert planned.next_boot is not None
    assert {change.source for change in planned.next_boot.changes} == {"gpustack"}
    assert '  Next boot: GRUB, "' in show_plan(planned)


INITRDLESS = (
    '\\tif [ "${initrdfail}" = 1 ]; then\n\\g<linux>\\g<initrd>'
    "\\telse\n\\t  echo 'GRUB_FORCE_PARTUUID set, attempting initrdless boot.'\n\\g<linux>\\tfi\n\\tinitrdfail\n"
)
"""Entries of Ubuntu's 10_linux in its cloud images; the second command linux has panic=-1, too."""


@pytest.mark.parametrize(
    ("booted_with", "expected"),
    [(" panic=-1", ["GPU249"]), ("", []), (" panic=-1 console=ttyS0", ["GPU249", "GPU233"])],
)
def test_a_host_that_boots_without_its_initramfs_blocks(root: Path, booted_with: str, expected: list[str]) -> None:
    (root / "etc/default/grub.d").mkdir(exist_ok=True)
    (root / "etc/default/grub.d/40-force-partuuid.cfg").write_text("GRUB_FORCE_PARTUUID=26f22d2b-892e\n")
    for path in (root / MENU, root / "proc/cmdline"):
        path.write_text(re.sub("root=UUID=[-0-9a-f]+", "root=PARTUUID=26f22d2b-892e", path.read_text()))
    entry = r"(?P<linux>\t+linux[^\n]*\n)[^\n]*\n(?P<initrd>\t+initrd[^\n]*\n)"
    menu = re.sub(entry, INITRDLESS, (root / MENU).read_text())
    (root / MENU).write_text(re.sub(r"(initrdless boot.'\n[^\n]*)", r"\1 panic=-1", menu))
    edit(root / "proc/cmdline", " quiet", f" quiet{booted_with}")
    assert (root / MENU).read_text().count("panic=-1") == menu.count("\tinitrdfail\n") > 1
    assert sorted(codes(plan(root))) == sorted(expected)
    (root / "etc/default/grub.d/99-initramfs.cfg").write_text("GRUB_FORCE_PARTUUID=\n")
    assert "GPU249" not in codes(plan(root))


def test_unknown_defaults_show_no_lost_arguments(root: Path) -> None:
    """The menu's arguments are in the same file; only a command in it is not run."""
    edit(root / DEFAULTS, 'GRUB_CMDLINE_LINUX=""', ". /etc/default/grub.local")
    planned = plan(root)
    assert codes(planned) == ["GPU127", "GPU235"]
    assert "only in" not in show_plan(planned)


def test_conflicting_arguments_of_others_show_their_file(root: Path) -> None:
    edit(root / DEFAULTS, 'GRUB_CMDLINE_LINUX=""', 'GRUB_CMDLINE_LINUX="intel_iommu=off"')
    planned = plan(root)
    assert planned.next_boot is not None
    sources = {change.word.text: change.source for change in planned.next_boot.changes}
    assert sources["intel_iommu=off"].startswith("/etc/default/grub:")
    assert sources["intel_iommu=on"] == "gpustack"


def test_conflicting_arguments_of_entries_show_their_file(tmp_path: Path) -> None:
    root = write_host(tmp_path / "talk", systemd_boot_host("talk"))
    line = read(root).boot.entries[0].arguments.partition(" systemd.machine_id=")[0]
    (root / "etc/kernel").mkdir(exist_ok=True)
    (root / "etc/kernel/cmdline").write_text(f"{line} intel_iommu=off\n")
    planned = plan(root)
    assert "GPU120" in codes(planned)
    assert sources(planned) == {"+intel_iommu=off": "/etc/kernel/cmdline, never applied"} | OWN


def test_arguments_that_wait_for_a_reboot_are_gpustacks(tmp_path: Path) -> None:
    root = write_host(tmp_path / "talk", systemd_boot_host("talk"))
    write(root, plan(root))
    for entry in (root / "boot/efi/loader/entries").iterdir():
        edit(entry, " quiet", " quiet intel_iommu=on iommu=pt")
    assert sources(plan(root)) == OWN


def test_adopted_arguments_block_neither_the_plan_nor_the_undo(root: Path) -> None:
    edit(root / DEFAULTS, 'GRUB_CMDLINE_LINUX=""', 'GRUB_CMDLINE_LINUX="intel_iommu=off modprobe.blacklist=nouveau"')
    update_grub(root)
    boot(root)
    spec, by_hand = parse_spec(SPEC.format(""), "test"), ("intel_iommu=off", "modprobe.blacklist=nouveau")
    for _ in ("the first run", "a second run, because the first ended before update-grub"):
        planned = plan_host(spec, read(root), adopt=True)
        assert codes(planned) == []
        assert sources(planned) == dict.fromkeys([f"-{text}" for text in by_hand], "gpustack") | OWN
        write(root, planned)
    update_grub(root)
    boot(root)
    for _ in ("the first run", "a second run, because the first ended before update-grub"):
        undo = plan_undo(read(root))
        assert codes(undo) == []
        assert {f"+{text}": "gpustack" for text in by_hand}.items() <= sources(undo).items()
        write(root, undo, but=(ADOPTED, JOURNAL))


def test_an_argument_only_in_the_menu_blocks(root: Path) -> None:
    edit(root / MENU, " quiet", " quiet net.ifnames=0")
    boot(root)
    planned = plan(root)
    assert codes(planned) == ["GPU233"]
    assert "- net.ifnames=0" in show_plan(planned)
    assert "only in /boot/grub/grub.cfg" in show_plan(planned)
    assert 'boot_changes: ["-net.ifnames=0"]' in planned.findings[0].remedy
    assert codes(plan(root, '"-net.ifnames=0"')) == []
    assert codes(plan(root, '"-net.ifnames=1", "+net.ifnames=0"')) == ["GPU233"]


def test_a_pending_edit_blocks_with_its_line(root: Path) -> None:
    edit(root / DEFAULTS, "quiet", "quiet mitigations=off")
    planned = plan(root)
    assert codes(planned) == ["GPU234"]
    (word,) = [f for f in planned.findings if f.code == "GPU234"]
    line = (root / DEFAULTS).read_text().split("mitigations")[0].count("\n") + 1
    assert word.place == f"talk /etc/default/grub:{line}"
    assert "never applied" in word.message
    assert codes(plan(root, '"+mitigations=off"')) == []
    update_grub(root)
    assert "not booted yet" in plan(root).findings[0].message
    boot(root)
    assert codes(plan(root)) == []


@pytest.mark.parametrize("loader", ["menu", "entries", "systemd-boot"])
def test_the_remedy_of_a_lost_argument_fits_the_boot_loader(tmp_path: Path, loader: str) -> None:
    machines = {"menu": talk_host, "entries": rhel9_host, "systemd-boot": systemd_boot_host}
    root = write_host(tmp_path / "talk", machines[loader]("talk"))
    edit(root / "proc/cmdline", " quiet", " quiet mitigations=off")
    (lost,) = [f for f in plan(root).findings if f.code == "GPU233"]
    # What the remedy's tools do.
    if loader == "menu":
        assert "GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub, and plan again" in lost.remedy
        edit(root / DEFAULTS, "quiet", "quiet mitigations=off")
        update_grub(root)
    else:
        command = "`grubby --update-kernel=ALL --args=mitigations=off`"
        assert ("`kernel-install add" if loader == "systemd-boot" else command) in lost.remedy
        for path in root.rglob("loader/entries/*.conf"):
            path.write_text(re.sub("(options .* quiet)", r"\1 mitigations=off", path.read_text()))
    assert codes(plan(root)) == []


def test_an_argument_typed_at_the_menu_blocks(root: Path) -> None:
    edit(root / "proc/cmdline", " quiet", " quiet console=ttyS0")
    assert "only on the running kernel's command line" in plan(root).findings[0].message


@pytest.mark.parametrize(("variable", "handoff"), [("$vt_handoff", "vt.handoff=7"), ("${vt_handoff}", "vt.handoff=1")])
def test_the_handoff_of_ubuntus_menu_is_no_argument(root: Path, variable: str, handoff: str) -> None:
    """GRUB sets the variable at boot: to 1 on Ubuntu 18.04 and in 10_linux_zfs, else to 7."""
    planned = plan(root)
    expected = menus(read(root), planned.operations)["before"]
    edit(root / MENU, " quiet", f" quiet {variable}")
    edit(root / "proc/cmdline", " quiet", f" quiet {handoff}")
    assert codes(plan(root)) == []
    assert differences(HostRoot(str(root)), f"/{MENU}", dict(expected)) == []


def test_the_order_of_consoles_counts(root: Path) -> None:
    edit(root / DEFAULTS, "quiet", "console=tty0 console=ttyS0")
    update_grub(root)
    boot(root)
    assert codes(plan(root)) == []
    edit(root / DEFAULTS, "console=tty0 console=ttyS0", "console=ttyS0 console=tty0")
    assert set(codes(plan(root))) == {"GPU233", "GPU234"}


def test_a_pinned_entry_of_10_linux_is_planned(root: Path) -> None:
    machine = Machine.load(root)
    oldest = min(kernel.release for kernel in machine.kernels)
    identity = machine.root_uuid
    edit(
        root / DEFAULTS,
        "GRUB_DEFAULT=0",
        f'GRUB_DEFAULT="gnulinux-advanced-{identity}>gnulinux-{oldest}-advanced-{identity}"',
    )
    update_grub(root)
    boot(root)
    planned = plan(root)
    assert codes(planned) == []
    assert planned.next_boot is not None
    assert planned.next_boot.after.kernel == oldest


def test_a_pinned_entry_by_hand_blocks_with_the_remedy_of_systemd_boot(tmp_path: Path) -> None:
    root = write_host(tmp_path / "talk", systemd_boot_host("talk"))
    lines = ["title mine", "linux /mine/linux", f"options root=UUID={Machine.load(root).root_uuid} ro quiet", ""]
    (root / "boot/efi/loader/entries/mine.conf").write_text("\n".join(lines))
    (root / "boot/efi/loader/loader.conf").write_text("default mine.conf\n")
    (pinned,) = [found for found in plan(root).findings if found.code == "GPU236"]
    assert "(`bootctl set-default ENTRY`), and plan again" in pinned.remedy


def test_a_pinned_entry_of_another_script_blocks(root: Path) -> None:
    script = root / "etc/grub.d/40_custom"
    release = Machine.load(root).kernels[0].release
    script.write_text(
        "#!/bin/sh\ncat <<'EOF'\nmenuentry 'mine' --id mine {\n\tlinux\t/boot/vmlinuz-"
        f"{release} root=UUID={Machine.load(root).root_uuid} ro quiet\n}}\nEOF\n"
    )
    script.chmod(0o755)
    edit(root / DEFAULTS, "GRUB_DEFAULT=0", "GRUB_DEFAULT=mine")
    update_grub(root)
    (pinned,) = [found for found in plan(root).findings if found.code == "GPU236"]
    assert "(GRUB_DEFAULT in /etc/default/grub, then `update-grub`), and plan again" in pinned.remedy
    edit(root / DEFAULTS, "GRUB_DEFAULT=mine", "GRUB_DEFAULT=nothing")
    assert codes(plan(root)) == ["GPU235"]


def test_a_saved_entry_is_followed(root: Path) -> None:
    edit(root / DEFAULTS, "GRUB_DEFAULT=0", "GRUB_DEFAULT=saved")
    update_grub(root)
    assert codes(plan(root)) == []
    write_environment(root, {"saved_entry": "gone"})
    assert codes(plan(root)) == ["GPU235"]


def test_a_menu_by_hand_or_cut_off_is_unknown(root: Path) -> None:
    text = (root / MENU).read_text()
    (root / MENU).write_text(text[: text.index("submenu") + 60])
    assert "GPU235" in codes(plan(root))
    (root / MENU).write_text("menuentry 'a' {\n linux /boot/vmlinuz-6.1.0-37-amd64 root=/dev/sda1 ro quiet\n}\n")
    assert "GPU235" in codes(plan(root))


def test_hostile_words_are_printed_escaped(root: Path) -> None:
    edit(root / MENU, " quiet", " quiet a=\x1b[2J")
    assert "\x1b" not in show_plan(plan(root))
    edit(root / MENU, "\x1b", "\u202e")
    planned = plan(root)
    assert "GPU233" in codes(planned)
    assert "\u202e" not in show_plan(planned)


def test_a_newer_kernel_is_named_and_must_have_the_cards_driver(root: Path) -> None:
    host = read(root)
    kernels = sorted(host.boot.kernels, key=lambda kernel: kernel.release)
    older = kernels[0].release
    (root / "proc/sys/kernel/osrelease").write_text(f"{older}\n")
    planned = plan(root)
    assert "GPU240" in [f.code for f in planned.findings]
    assert codes(planned) == []


def test_an_undo_is_blocked_by_words_of_others(root: Path) -> None:
    (root / "etc/default/grub.d").mkdir(exist_ok=True)
    planned = plan(root)
    contents = {op.path: op.content for op in planned.operations if isinstance(op, WriteFile)}
    for path, content in contents.items():
        (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / path.lstrip("/")).write_text(content)
    update_grub(root)
    boot(root)
    assert codes(plan_undo(read(root))) == []
    edit(root / MENU, " quiet", " quiet net.ifnames=0")
    undo = plan_undo(read(root))
    assert codes(undo) == ["GPU233"]
    assert "options.boot_changes" not in str(undo.findings), "an undo reads no spec"
    assert 'options.boot_changes: ["+net.ifnames=0"]' in str(plan(root).findings)


@pytest.mark.parametrize(
    ("mount", "code"),
    [
        ({"filesystem": "tmpfs", "point": "/"}, "GPU237"),
        ({"filesystem": "overlay", "point": "/"}, "GPU237"),
        ({"filesystem": "nfs4", "point": "/", "source": "server:/root"}, "GPU239"),
        ({"filesystem": "ext4", "point": "/", "options": ["ro", "relatime"]}, "GPU237"),
        ({"filesystem": "ext4", "point": "/", "options": ["rw", "errors=remount-ro"]}, None),
        ({"filesystem": "btrfs", "point": "/", "options": ["rw", "subvol=/@"]}, None),
    ],
)
def test_roots_that_do_not_reach_the_next_boot(root: Path, mount: dict[str, Any], code: str | None) -> None:
    assert codes(plan(root, mounts=[{"path": "/", **mount}])) == ([] if code is None else [code])


def test_a_read_only_or_unmounted_boot_partition_blocks(root: Path) -> None:
    disk = {"path": "/", "point": "/", "filesystem": "ext4", "options": ["rw"]}
    boot_partition = {"path": "/boot", "point": "/boot", "filesystem": "ext4", "options": ["ro"]}
    assert codes(plan(root, mounts=[disk, boot_partition])) == ["GPU237"]
    (root / "etc/fstab").write_text("UUID=1 / ext4 defaults 0 1\n# UUID=3 /boot ext4 defaults 0 2\n")
    assert codes(plan(root, mounts=[disk])) == []
    (root / "etc/fstab").write_text("UUID=1 / ext4 defaults 0 1\nUUID=2 /boot ext4 noauto 0 2\n")
    assert codes(plan(root, mounts=[disk])) == ["GPU237"]


@pytest.mark.parametrize(
    ("facts", "codes_expected"),
    [
        ({"kexec_loaded": True}, ["GPU238"]),
        ({"kexec_loaded": False}, []),
        ({"kexec_configured": True}, ["GPU238"]),
        ({"next_root": True}, ["GPU238"]),
        ({"efi": {"stub": "systemd-stub 255"}, "unified": ["/efi/EFI/Linux/a.efi"]}, ["GPU192"]),
        ({"efi": {"loader": "GRUB 2.12"}}, []),
    ],
)
def test_boots_that_skip_the_menu(root: Path, facts: dict[str, Any], codes_expected: list[str]) -> None:
    assert codes(plan(root, **facts)) == codes_expected


def test_an_arm_host_needs_no_argument(root: Path) -> None:
    facts = collect(str(root))
    facts["architecture"] = "aarch64"
    facts["iommu"].update(acpi_tables=["IORT"], units=["smmu3.0x1"])
    planned = plan_host(parse_spec(SPEC.format(""), "test"), parse_host(facts, "test"))
    assert codes(planned) == []
    assert planned.next_boot is not None
    assert planned.next_boot.changes == ()
    assert any(op.describe().startswith("run update-initramfs") for op in planned.operations)


def test_verify_reports_a_boot_that_is_not_the_menus(root: Path) -> None:
    def seen() -> list[str]:
        checks = verify_host(parse_spec(SPEC.format(""), "test"), read(root), None).checks
        return [check.seen for check in checks if "default entry" in check.what]

    assert seen() == ["GRUB_DEFAULT=0"]
    edit(root / "proc/cmdline", " quiet", " quiet console=ttyS0")
    assert seen() == ["- console=ttyS0"]
    verified = verify_host(parse_spec(SPEC.format(""), "test"), read(root), None)
    assert "GPU248" in [f.code for f in verified.findings]


def test_a_second_root_of_the_defaults_is_not_10_linuxs(root: Path) -> None:
    """Proxmox has ``root=ZFS=… boot=zfs`` in GRUB_CMDLINE_LINUX; the root before it is 10_linux's."""
    edit(root / DEFAULTS, 'GRUB_CMDLINE_LINUX=""', 'GRUB_CMDLINE_LINUX="root=ZFS=rpool/ROOT/pve-1 boot=zfs"')
    update_grub(root)
    boot(root)
    planned = plan(root)
    assert codes(planned) == []
    words = menus(read(root), planned.operations)["after"]["words"]
    assert [word for word in words if word.startswith("root=ZFS")] == ["root=ZFS=rpool/ROOT/pve-1"]


def test_kexec_tools_that_load_a_kernel_at_shutdown_block(root: Path) -> None:
    (root / "etc/default/kexec").write_text("# LOAD_KEXEC=true\nLOAD_KEXEC=false\n")
    (root / "sbin").mkdir(exist_ok=True)
    (root / "sbin/kexec").write_text("")
    assert codes(plan(root)) == []
    (root / "etc/default/kexec").write_text("LOAD_KEXEC=true\n")
    assert codes(plan(root)) == ["GPU238"]
    (root / "sbin/kexec").unlink()  # the package is removed, and its configuration left
    assert codes(plan(root)) == []


@pytest.mark.parametrize(("length", "expected"), [(1500, []), (2048, ["GPU242"])])
def test_an_entry_longer_than_the_kernel_reads_blocks(root: Path, length: int, expected: list[str]) -> None:
    """A file of an entry has no menu that would cut it, so its line is checked by itself."""
    after: Any = SimpleNamespace(unknown=(), line="x" * length, words=(), place="loader/entries/a.conf", kernel=None)
    difference: Any = SimpleNamespace(changes=(), now=after, after=after)
    desired: Any = SimpleNamespace(arguments=(), entries=(), binding=SimpleNamespace(early_modules=()))
    assert [f.code for f in findings(read(root), difference, desired)] == expected
