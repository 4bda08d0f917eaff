"""The collector as a whole: identity, kernel, IOMMU, configuration files; and that it never leaves its root."""

from __future__ import annotations

import errno
import fnmatch
import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustack.facts.collector import collect
from gpustack.facts.collector.aliases import Aliases, alias_matches
from gpustack.facts.collector.kernel import interrupt_remapping
from gpustack.facts.collector.machine import count_range
from gpustack.facts.collector.reader import HostRoot, version_key
from gpustack.facts.collector.resources import bars
from gpustack.facts.model import Host as HostFacts
from support.sysroot import SysRoot, nvswitch_host, talk_host

# --- identity, processor, memory ---


def test_who_the_host_is(tmp_path: Path) -> None:
    found = collect(str(talk_host(tmp_path).path))
    assert found["version"] == 1
    assert found["hostname"] == "gpu01"
    assert found["root"] == os.path.realpath(tmp_path)
    assert found["architecture"] == "x86_64"
    assert found["machine"] == {"vendor": "Dell Inc.", "product": "C4130"}
    assert found["os_release"] == {
        "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)",
        "ID": "debian",
        "VERSION_ID": "12",
        "NAME": "Debian",
    }
    assert found["container"] is None
    assert found["cpu"] == {
        "vendor": "GenuineIntel",
        "model_name": "Example CPU @ 2.60GHz",
        "physical_address_bits": 46,
        "virtual_address_bits": 48,
        "logical": 4,
        "flags": ["vmx", "ept"],
    }
    assert found["memory_mib"] == 515072
    assert found["numa_nodes"] == [{"node": 0, "cpus": "0-3", "memory_mib": 515072}]
    assert found["kernel"] == {
        "release": "6.1.0-37-amd64",
        "command_line": "BOOT_IMAGE=/boot/vmlinuz-6.1.0-37-amd64 root=UUID=0a1b ro quiet",
        "booted_at": 1763688000,
        "lockdown": None,
        "secure_boot": False,
        "loaded_modules": ["nouveau", "vfio_pci"],
    }


@pytest.mark.parametrize("make", [talk_host, nvswitch_host])
def test_the_model_takes_what_the_collector_prints(tmp_path: Path, make: object) -> None:
    root = make(tmp_path)
    HostFacts.model_validate(json.loads(json.dumps(collect(str(root.path)))))


def test_an_empty_root_is_no_failure(tmp_path: Path) -> None:
    found = collect(str(tmp_path))
    assert found["unread"] == []
    assert found["pci"] == []
    assert found["hostname"] is None
    assert found["kernel"]["secure_boot"] is None
    assert found["boot"]["firmware"] is None
    assert found["iommu"] == {
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


@pytest.mark.parametrize(
    ("content", "name"), [("# comment\n\nGPU-7.example.org\n", "GPU-7.example.org"), ("bad name;\n", "gpu01")]
)
def test_the_name_of_another_root(tmp_path: Path, content: str, name: str) -> None:
    root = SysRoot(tmp_path).host("gpu01").write("/etc/hostname", content)
    assert collect(str(root.path))["hostname"] == name


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("/run/systemd/container", "systemd-nspawn\n", "systemd-nspawn"),
        ("/.dockerenv", "", "docker"),
        ("/run/.containerenv", "", "podman"),
        ("/proc/1/environ", "HOME=/\0container=lxc\0", "lxc"),
        ("/proc/1/cgroup", "4:memory:/kubepods/besteffort/pod1\n", "kubernetes"),
        ("/proc/1/environ", "HOME=/\0containerd=1\0", None),
    ],
)
def test_containers_leave_marks(tmp_path: Path, path: str, content: str, kind: str | None) -> None:
    assert collect(str(SysRoot(tmp_path).host().write(path, content).path))["container"] == kind


def test_the_architecture_of_a_root_that_runs_nothing(tmp_path: Path) -> None:
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + b"\xb7\x00"
    assert collect(str(SysRoot(tmp_path).write("/usr/bin/env", header).path))["architecture"] == "aarch64"


# --- firmware, lockdown, IOMMU ---


@pytest.mark.parametrize(
    ("content", "state"),
    [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\0", False), (b"\x06\0\0\0\x07", None), (b"", None)],
)
def test_secure_boot(tmp_path: Path, content: bytes, state: bool | None) -> None:
    root = SysRoot(tmp_path).host()
    path = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    found = collect(str(root.write(path, content).path))
    assert found["kernel"]["secure_boot"] is state
    assert [entry["path"] for entry in found["unread"]] == ([path] if state is None else [])


def test_secure_boot_without_its_variable(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().directory("/sys/firmware/efi/efivars")
    assert collect(str(root.path))["kernel"]["secure_boot"] is None  # efivars is not mounted
    root.write("/sys/firmware/efi/efivars/BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\0")
    assert collect(str(root.path))["kernel"]["secure_boot"] is False


def test_lockdown_is_the_bracketed_word(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    assert collect(str(root.path))["kernel"]["lockdown"] == "integrity"


def test_reserved_regions_of_a_gpus_group(tmp_path: Path) -> None:
    regions = "0x000000007b800000 0x000000007b8fffff direct\n0x00000000fee00000 0x00000000feefffff msi\nnonsense\n"
    root = talk_host(tmp_path).write("/sys/kernel/iommu_groups/7/reserved_regions", regions)
    (group,) = (g for g in collect(str(root.path))["iommu"]["groups"] if g["number"] == 7)
    assert group["reserved"] == [
        {"start": 0x7B800000, "end": 0x7B8FFFFF, "type": "direct"},
        {"start": 0xFEE00000, "end": 0xFEEFFFFF, "type": "msi"},
    ]


def test_groups_that_vfio_made_up_are_none(tmp_path: Path) -> None:
    root = talk_host(tmp_path).write("/sys/kernel/iommu_groups/7/name", "vfio-noiommu\n")
    root.write("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n")
    found = collect(str(root.path))
    assert {e["iommu_group"] for e in found["pci"] if e["address"].startswith("0000:88:00")} == {None}
    assert found["iommu"]["group_count"] == 7
    assert found["iommu"]["no_iommu_mode"] is True


def test_an_intel_and_an_amd_iommu(tmp_path: Path) -> None:
    intel = talk_host(tmp_path / "a").write("/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "N\n")
    found = collect(str(intel.path))["iommu"]
    assert {group["number"]: group["devices"] for group in found.pop("groups")}[7] == ["0000:88:00.0", "0000:88:00.1"]
    assert found == {
        "acpi_tables": ["DMAR"],
        "tables_listed": True,
        "units": ["dmar0"],
        "group_count": 8,
        "interrupt_remapping": True,
        "unsafe_interrupts": False,
        "no_iommu_mode": None,
    }
    amd = collect(str(nvswitch_host(tmp_path / "b").path))["iommu"]
    assert (amd["acpi_tables"], amd["units"], amd["group_count"]) == (["IVRS"], ["ivhd0"], 22)


@pytest.mark.parametrize(
    ("interrupts", "state"),
    [
        ("   9:   0   0  IR-IO-APIC    9-fasteoi   acpi\n  26:  0  0  IR-PCI-MSI 524288-edge  PCIe PME\n", True),
        ("  31:   0  222 IR-PCI-MSIX-0000:00:01.0   3-edge      virtio0-stats\n", True),
        ("   9:   0   0  IO-APIC    9-fasteoi   acpi\n 120:  0  0  DMAR-MSI    0-edge  dmar0\n", False),
        ("  31:   0  222 PCI-MSIX-0000:00:01.0   3-edge      virtio0-stats\n", False),
        (" 120:  0  0  DMAR-MSI    0-edge  dmar0\nNMI:   0   0   Non-maskable interrupts\n", None),
        (" 12:  1  0  GICv3  27 Level  arch_timer\n", None),
        ("", None),
    ],
)
def test_interrupt_remapping_by_the_names_of_the_chips(interrupts: str, state: bool | None) -> None:
    assert interrupt_remapping(interrupts) is state


# --- configuration files ---


def test_the_files_that_matter_with_text_mode_and_time(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    wanted = {
        "/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n',
        "/etc/default/grub.d/50-gpustack.cfg": "x\n",
        "/etc/modprobe.d/anything.conf": "options snd x=1\n",
        "/usr/lib/modprobe.d/nvidia.conf": "blacklist nouveau\n",
        "/run/modprobe.d/vfio.conf": "options vfio-pci ids=10de:11b4\n",
        "/usr/lib/modules-load.d/vfio.conf": "vfio-pci\n",
        "/etc/initramfs-tools/modules": "",
        "/etc/initramfs-tools/hooks/gpustack-vfio": "#!/bin/sh\n",
        "/etc/initramfs-tools/scripts/init-top/gpustack-bind": "#!/bin/sh\n",
        "/etc/dracut.conf.d/gpustack.conf": 'force_drivers+=" vfio-pci "\n',
        "/etc/driverctl.d/pci-0000:88:00.0": "vfio-pci\n",
        "/etc/udev/rules.d/70-gpustack.rules": "\n",
    }
    other = {
        "/etc/default/grub.d/notes.txt": "x\n",
        "/etc/modprobe.d/anything.bak": "x\n",
        "/usr/lib/modprobe.d/systemd.conf": "options bonding max_bonds=0\n",
        "/etc/initramfs-tools/hooks/zz-other": "#!/bin/sh\n",
        "/etc/udev/rules.d/60-other.rules": "\n",
        "/etc/shadow": "root:*:1:0:99999:7:::\n",
    }
    for path, text in {**wanted, **other}.items():
        root.write(path, text)
    root.at("/etc/initramfs-tools/hooks/gpustack-vfio").chmod(0o755)
    found = collect(str(root.path))["files"]
    assert {path: entry["text"] for path, entry in found.items()} == wanted
    assert found["/etc/initramfs-tools/hooks/gpustack-vfio"]["mode"] == "0755"
    assert found["/etc/default/grub"]["mtime_ns"] == root.at("/etc/default/grub").stat().st_mtime_ns


def test_a_vendors_directory_with_two_names_is_read_once(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().write("/usr/lib/modprobe.d/a.conf", "blacklist nouveau\n").link("/lib", "usr/lib")
    assert list(collect(str(root.path))["files"]) == ["/usr/lib/modprobe.d/a.conf"]


def test_of_scripts_only_those_that_bind_devices_are_read(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    binding = "w /sys/bus/pci/drivers/vfio-pci/new_id - - - - 10de 11b4\n"
    root.write("/etc/tmpfiles.d/gpu.conf", binding).write("/usr/lib/tmpfiles.d/gpu.conf", binding)
    root.write("/usr/lib/tmpfiles.d/tmp.conf", "q /tmp 1777 root root 10d\n")
    rule = 'SUBSYSTEM=="pci", ATTR{vendor}=="0x10de", ATTR{remove}="1"\n'
    root.write("/usr/lib/udev/rules.d/80-gpu.rules", rule).write("/usr/lib/udev/rules.d/81-gpu.rules", rule)
    root.link("/etc/udev/rules.d/81-gpu.rules", "/dev/null")
    root.write("/usr/lib/udev/rules.d/50-udev-default.rules", 'KERNEL=="vfio/vfio", OPTIONS+="static_node=vfio/vfio"\n')
    root.write("/etc/systemd/system/gpu.service", "[Service]\nExecStart=/opt/gpu/bind 65:00.0\n")
    root.write("/etc/systemd/system/other.service", "[Service]\nExecStart=/opt/gpu/all\nExecStop=/opt/gpu/none\n")
    root.write("/etc/systemd/system/rebind@.service", "[Service]\nExecStart=/opt/gpu/none %i\n")
    wants = "/etc/systemd/system/multi-user.target.wants"
    for instance in ("0000:65:00.0", "other"):
        root.link(f"{wants}/rebind@{instance}.service", "/etc/systemd/system/rebind@.service")
    root.write("/var/spool/cron/crontabs/root", "@reboot /usr/local/sbin/bind >/dev/null\n@daily /opt/gpu/binary\n")
    for name, text in (("bind", "#!/bin/sh\necho hi\n"), ("all", "#!/bin/sh\nlspci -d 10de: | driver_override\n")):
        root.write(f"/opt/gpu/{name}", text)
    root.write("/opt/gpu/binary", "\x7fELF vfio").write("/usr/local/sbin/bind", "#!/bin/sh\nmodprobe vfio-pci\n")
    assert sorted(collect(str(root.path))["files"]) == [
        "/etc/systemd/system/gpu.service",
        "/etc/systemd/system/multi-user.target.wants/rebind@0000:65:00.0.service",
        "/etc/tmpfiles.d/gpu.conf",
        "/opt/gpu/all",
        "/usr/lib/udev/rules.d/80-gpu.rules",
        "/usr/local/sbin/bind",
    ]


def test_a_masked_file_is_an_empty_one(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().write("/usr/lib/modprobe.d/nvidia.conf", "blacklist nouveau\n")
    found = collect(str(root.link("/etc/modprobe.d/nvidia.conf", "/dev/null").path))
    assert found["files"]["/etc/modprobe.d/nvidia.conf"]["text"] == ""
    assert found["unread"] == []


def test_text_that_is_not_utf8_and_text_that_does_not_end(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().write("/etc/modprobe.d/latin.conf", b"# caf\xe9\nblacklist \x00nouveau\n")
    root.write("/etc/default/grub", b"#" * 300_000)
    found = collect(str(root.path))
    assert found["files"]["/etc/modprobe.d/latin.conf"]["text"] == "# caf\ufffd\nblacklist \0nouveau\n"
    assert len(found["files"]["/etc/default/grub"]["text"]) == 256 * 1024
    assert found["unread"] == [
        {"path": "/etc/default/grub", "error": "larger than 262144 bytes; the rest was not read"}
    ]
    json.dumps(found).encode("ascii")


def test_names_that_are_not_text_are_noted(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().write("/etc/modprobe.d/good.conf", "x\n")
    for name in (b"bad\xff.conf", b"line\nbreak.conf"):
        (root.path / "etc/modprobe.d" / os.fsdecode(name)).write_text("x\n")
    found = collect(str(root.path))
    assert list(found["files"]) == ["/etc/modprobe.d/good.conf"]
    assert found["unread"] == [{"path": "/etc/modprobe.d", "error": "holds a name that is not plain text"}]


# --- what can't be read ---


def test_special_files_are_never_opened(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().directory("/etc/modprobe.d").directory("/etc/default/grub")
    os.mkfifo(root.at("/etc/modprobe.d/pipe.conf"))
    os.mkfifo(root.at("/etc/rc.local"))
    root.at("/proc/cmdline").unlink()
    os.mknod(root.at("/proc/cmdline"), 0o600 | 0o010000)
    found = collect(str(root.path))
    assert found["kernel"]["command_line"] is None
    assert {entry["path"]: entry["error"] for entry in found["unread"]} == {
        "/proc/cmdline": "not a regular file",
        "/etc/modprobe.d/pipe.conf": "not a regular file",
        "/etc/rc.local": "not a regular file",
    }


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EIO, errno.ENODEV, errno.ENXIO])
def test_every_other_failure_than_absence_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    root = talk_host(tmp_path).write("/etc/default/grub", "x\n")
    denied = (b"/etc/default/grub", b"/proc/modules", b"/proc/interrupts", b"osrelease")
    real_open = os.open

    def failing(path: bytes, flags: int, *rest: int) -> int:
        if path.endswith(denied):
            raise OSError(code, os.strerror(code))
        return real_open(path, flags, *rest)

    monkeypatch.setattr(os, "open", failing)
    found = collect(str(root.path))
    assert found["kernel"]["release"] is None
    assert found["iommu"]["interrupt_remapping"] is None
    assert {entry["path"] for entry in found["unread"]} == {
        "/etc/default/grub",
        "/proc/modules",
        "/proc/interrupts",
        "/proc/sys/kernel/osrelease",
    }
    assert {entry["error"] for entry in found["unread"]} == {os.strerror(code)}


def test_directories_that_can_not_be_listed_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = talk_host(tmp_path)
    real_listdir = os.listdir

    def failing(path: bytes) -> list[bytes]:
        if path.endswith((b"/sys/kernel/iommu_groups", b"/sys/class/net")):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real_listdir(path)

    monkeypatch.setattr(os, "listdir", failing)
    found = collect(str(root.path))
    assert found["iommu"]["group_count"] == 0
    assert found["unread"] == [
        {"path": "/sys/class/net", "error": "Permission denied"},
        {"path": "/sys/kernel/iommu_groups", "error": "Permission denied"},
    ]


# --- a foreign root is never left ---


@pytest.mark.parametrize(
    "target",
    ["{secret}", "../../../../../../../../../../..{secret}", "../up{secret}", "/a/../..{secret}", "abs{secret}"],
)
def test_links_never_lead_out_of_the_root(tmp_path: Path, target: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("blacklist SECRET\n")
    root = SysRoot(tmp_path / "root").host().directory("/etc/modprobe.d")
    root.link("/etc/up", "../../../../../../../../../..").link("/etc/modprobe.d/abs", "/")
    root.link("/etc/modprobe.d/evil.conf", target.format(secret=secret))
    root.link("/etc/dracut.conf.d", str(tmp_path)).link("/proc/self", "/proc/self")
    found = collect(str(root.path))
    assert "SECRET" not in json.dumps(found)
    assert found["files"] == {}


def test_links_inside_the_root_are_followed_as_the_host_would(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    root.write("/usr/share/conf/real.conf", "blacklist nouveau\n").link("/opt", "usr/share")
    root.link("/etc/modprobe.d", "/opt/conf").link(
        "/usr/share/conf/second.conf", "../../../../../../opt/conf/real.conf"
    )
    found = collect(str(root.path))["files"]
    assert sorted(found) == ["/etc/modprobe.d/real.conf", "/etc/modprobe.d/second.conf"]
    assert {entry["text"] for entry in found.values()} == {"blacklist nouveau\n"}


def test_loops_of_links_end(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().link("/etc/default/grub", "grub").link("/etc/modprobe.d", "/etc/b/x")
    root.link("/etc/b", "/etc/modprobe.d/../b").link("/boot", ".").link("/etc/rc.local", "a/" * 1500)
    found = collect(str(root.path))
    assert {"path": "/etc/default/grub", "error": "Too many levels of symbolic links"} in found["unread"]
    assert {"path": "/etc/modprobe.d", "error": "Too many levels of symbolic links"} in found["unread"]


def test_a_link_put_in_place_of_a_file_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    root = SysRoot(tmp_path / "root").host().write("/etc/default/grub", "x\n")
    real_open = os.open

    def racing(path: bytes, flags: int, *rest: int) -> int:
        if path.endswith(b"/etc/default/grub"):
            root.at("/etc/default/grub").unlink()
            root.at("/etc/default/grub").symlink_to(secret)
        return real_open(path, flags, *rest)

    monkeypatch.setattr(os, "open", racing)
    found = collect(str(root.path))
    assert "SECRET" not in json.dumps(found)
    assert [entry["path"] for entry in found["unread"]] == ["/etc/default/grub"]


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
            what = data.draw(st.sampled_from(GARBAGE) | st.binary(max_size=80) | st.sampled_from(["directory", "loop"]))
            if what == "directory":
                path.mkdir()
            elif what == "loop":
                path.symlink_to(path.name)
            else:
                path.write_bytes(what)
        found = json.loads(json.dumps(collect(directory)))
        HostFacts.model_validate({**found, "hostname": found["hostname"] or "unknown"})


# --- small parsers ---

HEX = st.sampled_from("0123456789ABCDEF")
ID = st.text(st.sampled_from("01AF"), min_size=8, max_size=8) | st.sampled_from(["000010DE", "00008086"])


@st.composite
def modaliases(draw: st.DrawFn) -> str:
    cls = draw(st.sampled_from(["bc03sc00i00", "bc03sc02i00", "bc04sc03i00", "bc0Csc03i30"]))
    return f"pci:v{draw(ID)}d{draw(ID)}sv{draw(ID)}sd{draw(ID)}{cls}"


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """Patterns made from a name, so that they often match, and patterns that only look like some."""
    name = draw(modaliases())
    if draw(st.booleans()):
        fields = [draw(st.sampled_from([field, "*"])) for field in (name[5:13], name[14:22], name[24:32], name[34:42])]
        cls = draw(st.sampled_from([name[42:], "bc03sc*i*", "bc*sc*i*", "bc03sc*i00*"]))
        return "pci:v{}d{}sv{}sd{}".format(*fields) + cls
    return draw(st.text(st.sampled_from("pci:v0d1AF*?[]-!sbE8"), max_size=24).map(lambda t: "pci:" + t))


@given(st.lists(patterns(), max_size=12), modaliases() | st.text(st.sampled_from("pci:v0d1AF*[]sb"), max_size=30))
def test_the_index_of_aliases_finds_what_fnmatch_finds(pattern_list: list[str], name: str) -> None:
    pairs = [(pattern, f"module{number}") for number, pattern in enumerate(pattern_list)]
    naive = sorted(module for pattern, module in pairs if fnmatch.fnmatchcase(name, pattern))
    assert Aliases(pairs).candidates(name) == naive


@given(st.text(st.sampled_from("ab*"), max_size=8), st.text(st.sampled_from("ab"), max_size=10))
def test_one_pattern_matches_as_fnmatch_does(pattern: str, name: str) -> None:
    assert alias_matches(pattern, name) == fnmatch.fnmatchcase(name, pattern)


def test_aliases_of_modules_and_of_the_kernel_itself(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().kernel(aliases=[("pci:v00001234d00001111sv*sd*bc*sc*i*", "bochs-drm")])
    root.write(
        "/lib/modules/6.1.0-37-amd64/modules.builtin.modinfo",
        b"xhci_pci.license=GPL\0xhci_pci.alias=pci:v*d*sv*sd*bc0Csc03i30*\0snd.alias=char-major-116-*\0",
    )
    root.kernel("6.9.9-newer", aliases=[("pci:v*d*sv*sd*bc*sc*i*", "wrong")])
    root.function("0000:01:00.0", vendor="1234", product="1111")
    root.function("0000:02:00.0", vendor="1b21", product="2142", cls="0c0330")
    assert [entry["modules"] for entry in collect(str(root.path))["pci"]] == [["bochs_drm"], ["xhci_pci"]]
    root.at("/proc/sys/kernel/osrelease").unlink()  # nothing runs: the newest kernel's aliases
    assert [entry["modules"] for entry in collect(str(root.path))["pci"]] == [["wrong"], ["wrong"]]


@pytest.mark.parametrize(
    ("text", "count"), [("0", 1), ("0-31,64-95", 64), ("", None), ("0-", None), ("a", None), ("0,2,4", 3)]
)
def test_ranges_of_the_kernel_are_counted(text: str, count: int | None) -> None:
    assert count_range(text) == count


def test_releases_sort_as_people_do() -> None:
    releases = ["6.1.0-37-amd64", "5.10.0-8-amd64", "6.1.0-9-amd64", "6.12.9+bpo-amd64", "6.1.0-rc1"]
    assert sorted(releases, key=version_key) == [
        "5.10.0-8-amd64",
        "6.1.0-rc1",
        "6.1.0-9-amd64",
        "6.1.0-37-amd64",
        "6.12.9+bpo-amd64",
    ]


FIELD = st.integers(min_value=0, max_value=2**64 - 1)


@given(st.lists(st.tuples(FIELD, FIELD, FIELD), max_size=8))
def test_bars_have_a_size_and_the_index_of_their_line(lines: list[tuple[int, int, int]]) -> None:
    found = bars("".join("0x{:016x} 0x{:016x} 0x{:016x}\n".format(*line) for line in lines))
    for bar in found:
        start, end, flags = lines[bar["index"]]
        assert bar["size"] == end - start + 1 > 0
        assert flags & 0x300
    assert len({bar["index"] for bar in found}) == len(found)
    assert all(bar["index"] < 6 for bar in found)


@given(st.text(max_size=200))
def test_any_text_in_place_of_bars(text: str) -> None:
    assert isinstance(bars(text), list)


def test_paths_that_no_system_has_are_absent(tmp_path: Path) -> None:
    host = HostRoot(str(tmp_path))
    assert host.text("/a\0b") is None
    assert host.names("/" + "x" * 300) == []
    assert [entry["error"] for entry in host.unread] == ["File name too long"]
