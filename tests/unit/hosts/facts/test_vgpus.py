"""Framework and types of a card by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.model import Unread
from gpustack.hosts.facts.store import parse_host
from gpustack.hosts.facts.vgpu_model import VgpuType
from gpustack.hosts.facts.vgpus import framework, missing, owners, type_named, unused
from support.vgpu_hosts import CARDS, INSTANCE, TYPES, UUIDS, VgpuHost, define


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (VgpuHost(), "vfio"),
        (VgpuHost(framework="mdev"), "mdev"),
        (VgpuHost(framework="sriov-mdev"), "mdev"),
        (VgpuHost(virtual=0), None),
        (VgpuHost(absent=("creatable_vgpu_types",)), "vfio"),
    ],
)
def test_facts_decide_the_framework(tmp_path: Path, given: VgpuHost, expected: str | None) -> None:
    host = given.read(tmp_path)
    assert {framework(host, host.functions[card]) for card in CARDS} == {expected}


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        (VgpuHost(), "A16-8Q", "711"),
        (VgpuHost(types={800: "NVIDIA A16-8Q"}), "A16-8Q", "800"),
        (VgpuHost(framework="mdev"), "A16-8Q", "nvidia-711"),
        (VgpuHost(framework="mdev"), "nvidia-711", "nvidia-711"),
        (VgpuHost(framework="sriov-mdev"), "A16-8Q", "nvidia-711"),
        (VgpuHost(framework="mdev", absent=("/name",)), "nvidia-711", "nvidia-711"),
        (VgpuHost(types=TYPES | {900: "GRID A16-8Q"}), "A16-8Q", "several numbers: 711, 900"),
        (VgpuHost(), "A16-1Q", "does not support the type A16-1Q"),
        (VgpuHost(current=(711,) * 4), "A16-8Q", "no room"),
        (VgpuHost(absent=("creatable_vgpu_types",)), "A16-8Q", "does not support"),
        (VgpuHost(virtual=0), "A16-8Q", "do not exist yet"),
        (VgpuHost(virtual=0, modules=("nvidia",)), "A16-8Q", "is not the vGPU driver"),
        (VgpuHost(virtual=0, driver=None), "A16-8Q", "the card has no driver"),
        (VgpuHost(virtual=0, driver="nouveau"), "A16-8Q", "the driver nouveau creates no vGPUs"),
        (VgpuHost(virtual=0, driver="vfio-pci"), "A16-8Q", "do not exist yet"),
        (VgpuHost(), "711", "does not support the type 711"),
    ],
)
def test_type_has_one_number_or_a_reason(tmp_path: Path, given: VgpuHost, name: str, expected: str) -> None:
    host = given.read(tmp_path)
    kind = type_named(host, host.functions[CARDS[0]], name)
    assert kind.number == expected if isinstance(kind, VgpuType) else expected in kind


def test_full_card_has_the_number_that_the_unit_found(tmp_path: Path) -> None:
    lines = f"{CARDS[0]} has the vGPU type A16-8Q as number 711\n{CARDS[0]} has the vGPU type A16-8Q as number $(x)\n"
    record = {"/run/gpustack/virtual-functions": lines}
    host = VgpuHost(current=(711,) * 4).read(tmp_path, record)
    assert type_named(host, host.functions[CARDS[0]], "A16-8Q") == VgpuType(number="711", name="A16-8Q")
    assert isinstance(type_named(host, host.functions[CARDS[1]], "A16-8Q"), str)


def test_devices_of_stopped_instances_are_not_unused(tmp_path: Path) -> None:
    given, gone = VgpuHost(framework="mdev", devices=dict.fromkeys(UUIDS, 711)), "0000:99:00.4"
    define(given.make(tmp_path), UUIDS[0], gone)
    host = parse_host({**collect(str(tmp_path)), "privileged": True}, "gpu01")
    assert (owners(host)[UUIDS[0]], [*missing(host)]) == (INSTANCE, [(INSTANCE, (gone,))])
    card = host.functions[CARDS[0]]
    assert unused(host, card) == (UUIDS[1],)
    assert unused(host.model_copy(update={"domains": None}), card) == ()
    unread = (Unread(path="/etc/libvirt/qemu/large.xml", error="larger"),)
    assert unused(host.model_copy(update={"unread": unread}), card) == ()
    assert unused(host.model_copy(update={"unread": (unread[0].model_copy(update={"path": "/boot"}),)}), card)
    assert unused(host.model_copy(update={"privileged": False}), card) == ()
