"""PCI functions as the collector reads them from fake roots."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.collector.resources import bars
from gpustack.hosts.facts.collector.start import needed_modules
from gpustack.hosts.facts.model import Host
from support.sysroot import IO, MEM, MEM64, PREFETCHABLE, SysRoot, nvswitch_host, talk_host


def functions(root: SysRoot) -> dict[str, dict[str, Any]]:
    return {entry["address"]: entry for entry in collect(str(root.path))["pci"]}


def test_the_two_cards_of_a_host_with_everything_about_them(tmp_path: Path) -> None:
    document = collect(str(talk_host(tmp_path).path))
    card = next(entry for entry in document["pci"] if entry["address"] == "0000:88:00.0")
    assert card == {
        "address": "0000:88:00.0",
        "vendor": "10de",
        "product": "11b4",
        "subsystem_vendor": "10de",
        "subsystem_product": "1096",
        "class": "030000",
        "revision": "a1",
        "driver": "nouveau",
        "driver_override": None,
        "modalias": "pci:v000010DEd000011B4sv000010DEsd00001096bc03sc00i00",
        "modules": ["nouveau", "nvidiafb"],
        "other_modules": [],
        "iommu_group": 7,
        "numa_node": 1,
        "boot_vga": False,
        "sriov_totalvfs": None,
        "sriov_numvfs": None,
        "physical_function": None,
        "virtual_functions": [],
        "vgpu_framework": None,
        "vgpu_types": [],
        "vgpu_type": None,
        "mediated_devices": [],
        "mig": None,
        "reset_methods": ["bus"],
        "bars": [
            {"index": 0, "start": 0xC8000000, "size": 16 << 20, "prefetchable": False, "bits": 32, "io": False},
            {"index": 1, "start": 0x40C60000000, "size": 256 << 20, "prefetchable": True, "bits": 64, "io": False},
            {"index": 3, "start": 0x40C70000000, "size": 32 << 20, "prefetchable": True, "bits": 64, "io": False},
            {"index": 5, "start": 0x8000, "size": 128, "prefetchable": False, "bits": 32, "io": True},
        ],
        "link": {"speed": "8.0 GT/s PCIe", "width": 16, "max_speed": "8.0 GT/s PCIe", "max_width": 16},
        "aer": None,
        "power_state": None,
        "slot": "3",
        "responds": True,
        "serial": "07-06-05-04-03-02-01-00",
        "acs": None,
        "driver_module": None,
        "parent": "0000:80:02.0",
        "root_bus": "0000:80",
        "root_parent": None,
        "uses": {"drm": ["card1"]},
        "claims": [],
        "holders": [],
    }
    assert document["unread"] == []
    assert [entry["address"] for entry in document["pci"]] == [
        "0000:00:14.0",
        "0000:00:1f.2",
        "0000:01:00.0",
        "0000:0b:00.0",
        "0000:80:02.0",
        "0000:80:03.0",
        "0000:88:00.0",
        "0000:88:00.1",
        "0000:89:00.0",
        "0000:89:00.1",
    ]


@pytest.mark.parametrize(
    ("config", "answers"),
    [
        (b"\xff" * 4096, False),
        (b"\xff" * 64, False),
        (b"\xff" * 4 + bytes(60), True),  # a virtual function
        (b"\xff" * 16, None),
    ],
)
def test_a_card_that_fell_off_the_bus_reads_all_ones(tmp_path: Path, config: bytes, answers: bool | None) -> None:
    root = talk_host(tmp_path)
    root.write("/sys/bus/pci/devices/0000:88:00.0/config", config)
    assert functions(root)["0000:88:00.0"]["responds"] is answers


def test_what_the_host_uses_belongs_to_the_innermost_function(tmp_path: Path) -> None:
    root = talk_host(tmp_path)
    root.function("0000:80:02.1", vendor="144d", product="a808", cls="010802", driver="nvme", group=50)
    root.disk("0000:80:02.1", "nvme0c0n1", below="nvme/nvme0")
    root.usb("0000:00:14.0", "1-3", maker="", product="")
    root.write("/sys/bus/usb/devices/1-3/idVendor", "0627\n").write("/sys/bus/usb/devices/1-3/idProduct", "0001\n")
    root.usb("0000:00:14.0", "1-4", maker="Genesys", product="USB Hub")
    root.write("/sys/bus/usb/devices/1-4/bDeviceClass", "09\n")
    root.usb("0000:00:14.0", "1-5", maker="SanDisk", product="SanDisk Ultra")
    root.disk("0000:00:14.0", "sdb", below="usb1/1-5/1-5:1.0/host6/target6:0:0/6:0:0:0/block")
    root.directory("/sys/devices/virtual/net/lo").link("/sys/class/net/lo", "../../devices/virtual/net/lo")
    by_address = functions(root)
    eno1 = {"name": "eno1", "state": "up", "uppers": [], "routes": None}
    assert by_address["0000:01:00.0"]["uses"] == {"net": [eno1]}
    assert by_address["0000:00:1f.2"]["uses"] == {"block": ["sda"]}
    assert by_address["0000:80:02.1"]["uses"] == {"block": ["nvme0n1"]}
    assert by_address["0000:00:14.0"]["uses"] == {
        "usb": ["Logitech USB Keyboard", "0627:0001", "SanDisk Ultra"],
        "input": ["event3"],
        "block": ["sdb"],
    }
    # The jack switches of the audio function are input devices to the kernel, but nobody types on them.
    assert by_address["0000:88:00.1"]["uses"] == {"sound": ["card1"]}
    assert by_address["0000:80:02.0"]["uses"] == {}


def test_drivers_between_a_function_and_its_interface_are_needed(tmp_path: Path) -> None:
    root = talk_host(tmp_path).net("0000:01:00.0", "ens1")
    for path, module in (("/sys/class/net/ens1", "virtio_net"), ("/sys/class/block/sda", "sd_mod")):
        root.link(f"{path}/device/driver/module", f"../../../../module/{module}")
    by_address = functions(root)
    assert by_address["0000:01:00.0"]["uses"]["drivers"] == ["virtio_net"]
    assert by_address["0000:00:1f.2"]["uses"]["drivers"] == ["sd_mod"]
    by_address["0000:01:00.0"]["uses"]["net"][0]["routes"] = "default"
    assert {"virtio_net", "sd_mod"} <= set(needed_modules(by_address.values()))


def test_eight_gpus_and_their_switches(tmp_path: Path) -> None:
    by_address = functions(nvswitch_host(tmp_path))
    gpus = [entry for entry in by_address.values() if entry["class"] == "030200"]
    switches = [entry for entry in by_address.values() if entry["class"] == "068000"]
    assert (len(gpus), len(switches)) == (8, 6)
    assert {entry["sriov_totalvfs"] for entry in gpus} == {16}
    assert {entry["sriov_numvfs"] for entry in gpus} == {0}
    assert {bar["size"] for entry in gpus for bar in entry["bars"]} == {16 << 20, 128 << 30}
    assert {entry["driver"] for entry in switches} == {"nvidia-nvswitch"}


def test_physical_and_virtual_functions_name_each_other(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    root.function("0000:3b:00.0", vendor="10de", product="20b5", cls="030200", totalvfs=20, numvfs=11)
    virtual = [f"0000:3b:{1 + number // 8:02x}.{number % 8}" for number in range(11)]
    for address in virtual:
        root.function(address, vendor="10de", product="20b5", cls="030200", subsystem=("10de", "0000"))
    by_address = functions(root.virtual_functions("0000:3b:00.0", *virtual))
    assert by_address["0000:3b:00.0"]["virtual_functions"] == virtual  # virtfn10 comes last, not after virtfn1
    assert {by_address[address]["physical_function"] for address in virtual} == {"0000:3b:00.0"}
    assert by_address["0000:3b:00.0"]["sriov_numvfs"] == 11


def test_domains_of_more_than_four_digits_sort_as_numbers(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    for address in ("10000:e1:00.0", "0000:02:00.0", "ffff:00:00.0", "0001:00:00.0"):
        root.function(address, vendor="8086", product="0a54", cls="010802")
    root.function("10000:e2:00.0", vendor="10de", product="2330", cls="030200", behind=["10000:e1:00.0"])
    root.write("/sys/bus/pci/slots/12/address", "10000:e2:00\n")
    by_address = functions(root)
    assert list(by_address) == ["0000:02:00.0", "0001:00:00.0", "ffff:00:00.0", "10000:e1:00.0", "10000:e2:00.0"]
    assert by_address["10000:e2:00.0"]["parent"] == "10000:e1:00.0"
    assert by_address["10000:e2:00.0"]["slot"] == "12"


def test_a_slot_may_stand_for_a_whole_bus(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    root.function("0000:05:00.0", vendor="10de", product="1eb8", cls="030200")
    root.function("0000:06:00.0", vendor="10de", product="1eb8", cls="030200", slot="7")
    root.write("/sys/bus/pci/slots/8191/address", "0000:05\n").write("/sys/bus/pci/slots/9/address", "garbage\n")
    document = collect(str(root.path))
    assert [entry["slot"] for entry in document["pci"]] == ["8191", "7"]
    assert document["unread"] == [{"path": "/sys/bus/pci/slots/9/address", "error": "unexpected content"}]


def test_unassigned_bars_keep_their_size_and_start_at_zero() -> None:
    text = (
        f"0x{0:016x} 0x{(64 << 30) - 1:016x} 0x{0x20000000 | MEM64 | PREFETCHABLE:016x}\n"
        f"0x{0:016x} 0x{0:016x} 0x{0:016x}\n"
        f"0x{0x3000:016x} 0x{0x307F:016x} 0x{IO:016x}\n"
        "not a resource\n"
        f"0x{0x1000:016x} 0x{0x0FFF:016x} 0x{MEM:016x}\n"
    )
    assert bars(text) == [
        {"index": 0, "start": 0, "size": 64 << 30, "prefetchable": True, "bits": 64, "io": False},
        {"index": 2, "start": 0x3000, "size": 128, "prefetchable": False, "bits": 32, "io": True},
    ]


def test_the_boot_framebuffer_on_a_card_is_read_from_iomem(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    root.function("0000:02:00.0", vendor="10de", product="1b38", bars=[(0xF0000000, 256 << 20, MEM | PREFETCHABLE)])
    root.function("0000:03:00.0", vendor="10de", product="1b38", bars=[(0xE0000000, 16 << 20, MEM)])
    root.function("0000:04:00.0", vendor="10de", product="1b38", bars=[(0, 16 << 20, MEM), (0x3000, 128, IO)])
    root.iomem(
        "00003000-0000301f : System RAM\n",
        "e0000000-e1ffffff : PCI Bus 0000:03\n",
        "    e0000000-e0ffffff : nvidia\n",
        "e8000000-ffffffff : PCI Bus 0000:00\n",
        "    f0000000-f02fffff : BOOTFB\n",
        "      f0000000-f02fffff : simple-framebuffer.0\n",
        "    f1000000-f1000fff : BOOTFB\n",
        "    ff000000-100000fff : astride the end\n",
    )
    by_address = functions(root)
    assert by_address["0000:02:00.0"]["claims"] == ["BOOTFB", "simple-framebuffer.0"]
    assert by_address["0000:03:00.0"]["claims"] == ["nvidia"]
    assert by_address["0000:04:00.0"]["claims"] == []


def test_hidden_addresses_in_iomem_are_noted(tmp_path: Path) -> None:
    root = talk_host(tmp_path)
    root.write("/proc/iomem", "00000000-00000000 : Reserved\n  00000000-00000000 : BOOTFB\n")
    document = collect(str(root.path))
    assert [entry["path"] for entry in document["unread"]] == ["/proc/iomem"]
    assert {tuple(entry["claims"]) for entry in document["pci"]} == {()}


@pytest.mark.parametrize(
    ("present", "methods"),
    [({"reset_method": "flr bus\n", "reset": ""}, ["flr", "bus"]), ({"reset": ""}, ["unspecified"]), ({}, [])],
)
def test_reset_methods_of_new_and_old_kernels(tmp_path: Path, present: dict[str, str], methods: list[str]) -> None:
    root = SysRoot(tmp_path).host().function("0000:05:00.0", vendor="1002", product="74a1", cls="120000", reset=None)
    for name, content in present.items():
        root.write(f"/sys/bus/pci/devices/0000:05:00.0/{name}", content)
    assert functions(root)["0000:05:00.0"]["reset_methods"] == methods


LINK = {"speed": "8.0 GT/s PCIe", "width": 16, "max_speed": "8.0 GT/s PCIe", "max_width": 16}


@pytest.mark.parametrize(
    ("name", "content", "key", "value"),
    [
        ("numa_node", "-1\n", "numa_node", None),
        ("driver_override", "vfio-pci\n", "driver_override", "vfio-pci"),
        ("boot_vga", "1\n", "boot_vga", True),
        ("current_link_speed", "Unknown\n", "link", LINK | {"speed": None}),
        ("max_link_width", "255\n", "link", LINK | {"max_width": None}),
    ],
)
def test_values_that_mean_none(tmp_path: Path, name: str, content: str, key: str, value: object) -> None:
    root = talk_host(tmp_path).write(f"/sys/bus/pci/devices/0000:88:00.0/{name}", content)
    assert functions(root)["0000:88:00.0"][key] == value


@pytest.mark.parametrize("content", [b"nonsense\n", b"\x00\xff\x01binary", b"0x12345678\n", b"x" * 5000])
def test_garbage_in_a_value_is_unknown_and_noted(tmp_path: Path, content: bytes) -> None:
    root = talk_host(tmp_path).write("/sys/bus/pci/devices/0000:88:00.0/revision", content)
    document = collect(str(root.path))
    assert next(entry for entry in document["pci"] if entry["address"] == "0000:88:00.0")["revision"] is None
    assert document["unread"] == [{"path": "/sys/bus/pci/devices/0000:88:00.0/revision", "error": "unexpected content"}]


def test_a_function_that_does_not_say_what_it_is_is_left_out_and_noted(tmp_path: Path) -> None:
    root = talk_host(tmp_path).write("/sys/bus/pci/devices/0000:89:00.1/class", "")
    document = collect(str(root.path))
    assert "0000:89:00.1" not in {entry["address"] for entry in document["pci"]}
    assert document["unread"] == [
        {
            "path": "/sys/bus/pci/devices/0000:89:00.1",
            "error": "left out: its vendor, device or class could not be read",
        }
    ]


def test_unreadable_attributes_are_noted_and_the_function_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = talk_host(tmp_path)
    broken = {"numa_node": errno.EACCES, "config": errno.EIO}
    real_open = os.open

    def failing(path: bytes, flags: int, *mode: int) -> int:
        name = path.rpartition(b"/")[2].decode()
        if b"0000:88:00.0" in path and name in broken:
            raise OSError(broken[name], os.strerror(broken[name]))
        return real_open(path, flags, *mode)

    monkeypatch.setattr(os, "open", failing)
    document = collect(str(root.path))
    card = next(entry for entry in document["pci"] if entry["address"] == "0000:88:00.0")
    assert (card["numa_node"], card["serial"], card["driver"]) == (None, None, "nouveau")
    base = "/sys/bus/pci/devices/0000:88:00.0"
    assert document["unread"] == [
        {"path": f"{base}/numa_node", "error": "Permission denied"},
        {"path": f"{base}/config", "error": "Input/output error"},
    ]


@pytest.mark.parametrize("after", ["vendor", "modalias", "current_link_width", "config"])
def test_a_device_that_vanishes_while_it_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    root = talk_host(tmp_path)
    real_open = os.open
    gone = False

    def vanishing(path: bytes, flags: int, *mode: int) -> int:
        nonlocal gone
        if b"0000:88:00.0/" in path:
            if gone:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
            if path.endswith(after.encode()):
                gone = True
                (root.path / "sys/bus/pci/devices/0000:88:00.0").unlink()
        return real_open(path, flags, *mode)

    monkeypatch.setattr(os, "open", vanishing)
    document = collect(str(root.path))
    assert gone
    assert "0000:88:00.0" not in {entry["address"] for entry in document["pci"]}
    assert len(document["pci"]) == 9
    assert document["unread"] == [
        {"path": "/sys/bus/pci/devices/0000:88:00.0", "error": "the device went away while it was read"}
    ]


def test_a_device_that_is_dead_but_still_listed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = talk_host(tmp_path)
    real_open = os.open

    def dead(path: bytes, flags: int, *mode: int) -> int:
        if b"0000:88:00.1/" in path:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return real_open(path, flags, *mode)

    monkeypatch.setattr(os, "open", dead)
    document = collect(str(root.path))
    assert [entry["error"] for entry in document["unread"]] == ["the device went away while it was read"]


def test_a_device_listed_but_gone_before_it_is_read(tmp_path: Path) -> None:
    root = talk_host(tmp_path)
    root.link("/sys/bus/pci/devices/0000:aa:00.0", "../../../devices/pci0000:aa/0000:aa:00.0")
    document = collect(str(root.path))
    assert document["unread"] == [
        {"path": "/sys/bus/pci/devices/0000:aa:00.0", "error": "the device went away while it was read"}
    ]


def test_names_that_are_no_addresses_are_noted(tmp_path: Path) -> None:
    root = talk_host(tmp_path).directory("/sys/bus/pci/devices/0000:zz:00.0")
    assert collect(str(root.path))["unread"] == [
        {"path": "/sys/bus/pci/devices/0000:zz:00.0", "error": "not a PCI address"}
    ]


def test_thousands_of_functions(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().kernel(aliases=[("pci:v000010DEd*sv*sd*bc03sc*i*", "nouveau")])
    for number in range(1000):
        address = f"{number >> 12:04x}:{number >> 5 & 0x7F:02x}:{number & 0x1F:02x}.0"
        root.function(address, vendor="10de", product=f"{number:04x}", cls="030200", express=False, group=number)
    document = collect(str(root.path))
    assert len(document["pci"]) == 1000
    assert all(entry["modules"] == ["nouveau"] for entry in document["pci"])
    assert {entry["iommu_group"] for entry in document["pci"]} == set(range(1000))
    assert document["unread"] == []


def test_a_hidden_root_bus_names_the_function_that_provides_it(tmp_path: Path) -> None:
    """Intel VMD, as Linux shows it in sysfs (``drivers/pci/controller/vmd.c``)."""
    root = SysRoot(tmp_path).host()
    above = ("0000:80:05.5", "pci10000:00")
    root.function("0000:80:05.5", vendor="8086", product="28c0", cls="010400")
    root.function("10000:00:02.0", vendor="8086", product="2030", cls="060400", behind=above)
    root.function("10000:01:00.0", vendor="10de", product="11b4", behind=(*above, "10000:00:02.0"))
    found = functions(root)
    assert {address: (f["parent"], f["root_bus"], f["root_parent"]) for address, f in found.items()} == {
        "0000:80:05.5": (None, "0000:80", None),
        "10000:00:02.0": (None, "10000:00", "0000:80:05.5"),
        "10000:01:00.0": ("10000:00:02.0", "10000:00", "0000:80:05.5"),
    }


def test_rdma_devices_are_listed_by_name(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().function("0000:82:00.0", vendor="15b3", product="1017", cls="020700")
    root.device("0000:82:00.0", "infiniband/mlx5_0", classes="/sys/class/infiniband")
    assert functions(root)["0000:82:00.0"]["uses"] == {"infiniband": ["mlx5_0"]}


def test_error_counters_of_cards_and_ports(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host()
    root.function("0000:80:02.0", vendor="8086", product="6f04", cls="060400", driver="pcieport")
    root.function("0000:88:00.0", vendor="10de", product="11b4", behind=["0000:80:02.0"])
    root.function("0000:89:00.0", vendor="8086", product="10fb", cls="020000")
    for address in ("0000:80:02.0", "0000:88:00.0", "0000:89:00.0"):
        base = f"/sys/bus/pci/devices/{address}"
        root.write(f"{base}/aer_dev_correctable", "RxErr 3\nBadTLP 1\nTOTAL_ERR_COR 4\n")
        root.write(f"{base}/aer_dev_nonfatal", "Undefined 0\nTOTAL_ERR_NONFATAL 0\n")
        root.write(f"{base}/aer_dev_fatal", "garbage\n" if address.endswith("88:00.0") else "TOTAL_ERR_FATAL 2\n")
        root.write(f"{base}/power_state", "D3hot\n")
    document = collect(str(root.path))
    assert [(entry["address"], entry["aer"]) for entry in document["pci"]] == [
        ("0000:80:02.0", {"correctable": 4, "nonfatal": 0, "fatal": 2}),
        ("0000:88:00.0", {"correctable": 4, "nonfatal": 0, "fatal": None}),
        ("0000:89:00.0", None),
    ]
    assert {entry["power_state"] for entry in document["pci"]} == {"D3hot"}
    assert Host.model_validate(document).functions["0000:80:02.0"].aer is not None
