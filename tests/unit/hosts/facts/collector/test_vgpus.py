"""vGPUs as the collector reads them from stand-ins for the vendors' drivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.store import parse_host
from support.vgpu_hosts import CARDS, INSTANCE, TYPES, UUIDS, VgpuHost, define, used_by_instance

VF = "0000:41:00.4"


def functions(root: Path) -> dict[str, dict[str, Any]]:
    return {entry["address"]: entry for entry in collect(str(root))["pci"]}


def test_types_of_virtual_functions_are_those_of_their_card(tmp_path: Path) -> None:
    VgpuHost(current=(711, 711)).make(tmp_path)
    read = functions(tmp_path)
    card = read[CARDS[0]]
    assert [(kind["number"], kind["name"]) for kind in card["vgpu_types"]] == [(str(n), t) for n, t in TYPES.items()]
    assert (card["vgpu_framework"], card["vgpu_type"]) == (None, None)
    parts = [read[address] for address in card["virtual_functions"]]
    assert [part["vgpu_type"] for part in parts] == ["711", "711", None, None]
    assert {part["vgpu_framework"] for part in parts} == {"vfio"}


def test_card_without_room_lists_no_type(tmp_path: Path) -> None:
    VgpuHost(current=(711,) * 4).make(tmp_path)
    assert functions(tmp_path)[CARDS[0]]["vgpu_types"] == []


@pytest.mark.parametrize(
    ("framework", "address", "node"),
    [("mdev", CARDS[0], "91"), ("sriov-mdev", VF, "91"), ("mdev", CARDS[0], "devices/vfio3")],
)
def test_mediated_devices_have_type_and_user(tmp_path: Path, framework: str, address: str, node: str) -> None:
    root = VgpuHost(framework=framework, devices=dict.fromkeys(UUIDS, 711)).make(tmp_path)
    root.directory(f"/sys/bus/pci/devices/{address}/{UUIDS[1]}/vfio-dev/vfio3")
    used_by_instance(root, f"/dev/vfio/{node}")
    function = functions(tmp_path)[address]
    assert function["vgpu_framework"] == "mdev"
    assert function["vgpu_types"][2] == {
        "number": "nvidia-711",
        "name": "NVIDIA A16-8Q",
        "available": 0,
        "memory_mib": 8192,
        "of_card": 2,
    }
    assert function["mediated_devices"] == [
        {"uuid": UUIDS[0], "type": "nvidia-711", "user": None},
        {"uuid": UUIDS[1], "type": "nvidia-711", "user": f"instance {INSTANCE} (instance-0000002a)"},
    ]


def test_modes_and_profiles_are_from_the_last_start(tmp_path: Path) -> None:
    root = VgpuHost(instances=(3, 7)).make(tmp_path)
    record = (
        f"{CARDS[0]} MIG mode Disabled, pending Enabled\n{CARDS[0]} GPU instance 9 of 2g.10gb at 0:2\n"
        f"{CARDS[0]} MIG mode Enabled, pending Enabled\n{CARDS[0]} GPU instance 7 of 1g.24gb-me at 4:1\n"
    )
    root.write("/run/gpustack/virtual-functions", record)
    read = functions(tmp_path)
    assert read[CARDS[0]]["mig"] == {
        "current": True,
        "pending": True,
        "instances": [
            {"profile": None, "placement": None},
            {"profile": "1g.24gb-me", "placement": "4:1"},
        ],
    }
    assert (read[CARDS[1]]["mig"]["current"], len(read[CARDS[1]]["mig"]["instances"])) == (None, 2)


def test_card_on_another_driver_has_no_gpu_instances(tmp_path: Path) -> None:
    VgpuHost(driver="vfio-pci", instances=(3,)).make(tmp_path)
    assert functions(tmp_path)[CARDS[0]]["mig"] is None


def test_thousand_types_and_hostile_names_are_read(tmp_path: Path) -> None:
    types = {number: f"NVIDIA A16-{number}Q" for number in range(1, 1001)}
    root = VgpuHost(framework="mdev", types=types, cards=CARDS[:1]).make(tmp_path)
    base = f"/sys/bus/pci/devices/{CARDS[0]}/mdev_supported_types"
    for name in ("nvidia 1", "-x", "x" * 200, "$(reboot)"):
        root.write(f"{base}/{name}/name", "NVIDIA A16-1Q\n")
    root.write(f"{base}/nvidia-7/name", "evil\x1b[2J\n").write(f"{base}/nvidia-8/available_instances", "many\n")
    document = collect(str(tmp_path))
    (card,) = parse_host(document, "gpu01").pci
    kinds = {kind.number: kind for kind in card.vgpu_types}
    assert len(kinds) == 1000
    assert (kinds["nvidia-7"].name, kinds["nvidia-8"].available) == (None, None)
    assert sum(entry["path"].startswith(base) for entry in document["unread"]) == 6


def test_hostile_lists_of_virtual_functions_are_bounded(tmp_path: Path) -> None:
    """A line that the limit cuts has no name: it could be that of another type."""
    text = "ID    : vGPU Name\n711 : \x1b]0;x\x07\n9999999999 : NVIDIA A16-1Q\n-1 : x\n712 : NVIDIA A16-8Q\n"
    VgpuHost(texts={"creatable_vgpu_types": f"{text}713 : " + "y" * 5000, "current_vgpu_type": "0x2c7\n"}).make(
        tmp_path
    )
    document = collect(str(tmp_path))
    card = next(function for function in parse_host(document, "gpu01").pci if function.address == CARDS[0])
    assert [(kind.number, kind.name) for kind in card.vgpu_types] == [("712", "NVIDIA A16-8Q")]
    noted = {entry["path"].rpartition("/")[2] for entry in document["unread"]}
    assert noted >= {"creatable_vgpu_types", "current_vgpu_type"}


def test_domains_show_their_vgpus_and_nothing_else(tmp_path: Path) -> None:
    root = VgpuHost(framework="sriov-mdev").make(tmp_path)
    define(root, UUIDS[0], VF, CARDS[1], "0000:99:00.4")
    define(root, CARDS[1], uuid=UUIDS[1])
    root.write("/etc/libvirt/qemu/large.xml", "<uuid>" * 50_000)
    root.write("/etc/libvirt/qemu/networks/default.xml", f"<uuid>{UUIDS[1]}</uuid>")
    document = collect(str(tmp_path))
    gone = "0000:99:00.4"
    assert document["domains"] == [{"uuid": INSTANCE, "devices": [UUIDS[0], VF, gone]}], "a complete card is no vGPU"
    assert "secret" not in str(document)
    assert [entry["path"] for entry in document["unread"]] == ["/etc/libvirt/qemu/large.xml"]


def test_domains_of_kolla_are_in_its_volume(tmp_path: Path) -> None:
    root = VgpuHost().make(tmp_path)
    define(root, VF)
    volume = root.at("/var/lib/docker/volumes/nova_libvirt_qemu/_data")
    volume.parent.mkdir(parents=True)
    root.at("/etc/libvirt/qemu").rename(volume)
    assert collect(str(tmp_path))["domains"] == [{"uuid": INSTANCE, "devices": [VF]}]


@pytest.mark.parametrize(
    ("place", "target", "version"),
    [
        ("/usr/lib/x86_64-linux-gnu", "libvirt.so.0.9000.0", "9.0.0"),
        ("/usr/lib64", "libvirt.so.0.10010.3", "10.10.3"),
        ("/usr/lib64", "libvirt.so.0.7.0", None),
    ],
)
def test_version_of_libvirt_is_in_the_name_of_its_library(
    tmp_path: Path, place: str, target: str, version: str | None
) -> None:
    root = VgpuHost().make(tmp_path)
    root.write("/proc/sys/kernel/arch", "x86_64\n").link(f"{place}/libvirt.so.0", target)
    assert collect(str(tmp_path))["libvirt"] == version
