"""Ports that can isolate a GPU and don't, and the configuration that is the cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpustack.hosts.facts.collector.reader import HostRoot
from gpustack.hosts.facts.collector.resources import access_control
from gpustack.hosts.facts.model import Host
from gpustack.hosts.health.check import check as check_health
from gpustack.hosts.readiness.assessment import assess
from gpustack.hosts.readiness.host import host_reasons
from gpustack.hosts.topology.build import topology
from gpustack.hosts.topology.check import check as check_topology
from gpustack.prepare.host.plan import plan_host
from gpustack.spec.load import parse_spec
from support.host_samples import first_gpu, function, host

PORT = "0000:80:02.0"
GPU = "0000:81:00.0"
FULL = 0x1D


def below(control: int, *, capability: int = FULL, group: int = 7, **more: Any) -> Host:
    acs = {"capability": capability, "control": control}
    port = function(PORT, ids="8086:2f04", pci_class="060400", driver="pcieport", iommu_group=group, acs=acs)
    return host(port, function(GPU, iommu_group=9, parent=PORT), **more)


def codes(host: Host) -> set[str]:
    return {f.code for f in assess(host, first_gpu(host)).reasons}


def test_a_port_that_was_switched_off_blocks_everywhere() -> None:
    machine = below(0)
    assert codes(machine) == {"GPU243"}
    assert "GPU243" in {f.code for card in check_health(machine).gpus for f in card.findings}
    assert "GPU243" in {f.code for f in check_topology(topology(machine))}
    spec = parse_spec(
        'version: 1\nmodels: {p: {match: {vendor: "10de", product: "15f8"}}}\nhosts: {gpu01: [p]}', "test"
    )
    plan = plan_host(spec, machine)
    assert plan.refused
    assert "GPU243" in {f.code for f in plan.findings}


@pytest.mark.parametrize(
    "machine",
    [
        below(FULL),
        below(0x5F, capability=0x5F),
        below(0x1D, capability=0x5F),  # translation blocking and egress control are not required
        below(0, capability=0),  # without the capability, the kernel's quirks decide
        below(0x04 | 0x08, capability=0x0C),
        below(0, group=9),  # the kernel knew it at boot
    ],
)
def test_other_ports_are_accepted(machine: Host) -> None:
    assert codes(machine) == set()


def test_the_cause_is_named_with_its_line() -> None:
    text = "#!/bin/sh\n# setpci -s 80:02.0 ECAP_ACS+6.w=0\nsetpci -s 80:02.0 ECAP_ACS+0x6.w=0000\n"
    machine = below(0, files={"/etc/rc.local": {"text": text}})
    (reason,) = assess(machine, first_gpu(machine)).reasons
    assert "/etc/rc.local:3: setpci" in reason.message
    argument = below(FULL, kernel={"command_line": "quiet pci=realloc,disable_acs_redir=0000:80:02.0"})
    assert [f.place for f in host_reasons(argument) if f.code == "GPU245"] == ["gpu01 /proc/cmdline"]
    harmless = below(FULL, files={"/etc/rc.local": {"text": "setpci -s 80:02.0 CAP_EXP+8.w\npci=noaer\n"}})
    assert not [f for f in host_reasons(harmless) if f.code == "GPU245"]


def config(*capabilities: tuple[int, int, bytes]) -> bytes:
    """An extended configuration space with capabilities: offset, number, registers."""
    space = bytearray(4096)
    for n, (offset, number, registers) in enumerate(capabilities):
        following = capabilities[n + 1][0] if n + 1 < len(capabilities) else 0
        space[offset : offset + 4] = (number | 1 << 16 | following << 20).to_bytes(4, "little")
        space[offset + 4 : offset + 4 + len(registers)] = registers
    return bytes(space)


SERIAL = (0x100, 3, bytes(range(8)))
LOOP = bytearray(config(SERIAL))
LOOP[0x100:0x104] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("space", "capability", "control", "reason"),
    [
        (config(SERIAL, (0x140, 0x0D, b"\x1d\x00\x04\x00")), 0x1D, 0x04, None),
        (config(SERIAL), 0, 0, None),
        (bytes(256), 0, 0, None),
        (b"\xff" * 4096, None, None, "all ones"),
        (bytes(LOOP), None, None, "loop"),
        (config(SERIAL, (0x140, 0x0D, b"\xff\xff\xff\xff")), None, None, "registers"),
    ],
)
def test_registers_are_known_absent_or_unknown(
    space: bytes, capability: int | None, control: int | None, reason: str | None, tmp_path: Path
) -> None:
    (tmp_path / "config").write_bytes(space)
    registers = access_control(HostRoot(str(tmp_path)), "/config", "8086", "2f04")
    assert (registers["capability"], registers["control"]) == (capability, control)
    assert (registers["unknown"] is None) if reason is None else reason in registers["unknown"]


def test_sunrise_point_has_wide_registers(tmp_path: Path) -> None:
    registers = (0x1D).to_bytes(4, "little") + (0x1D).to_bytes(4, "little")
    (tmp_path / "config").write_bytes(config((0x100, 0x0D, registers)))
    root = HostRoot(str(tmp_path))
    assert access_control(root, "/config", "8086", "a110")["control"] == 0x1D
    assert access_control(root, "/config", "8086", "2f04")["control"] == 0


def test_unreadable_ports_are_one_line_for_each_host() -> None:
    acs = {"capability": None, "control": None, "unknown": "its configuration space reads as all ones"}
    ports = [function(f"0000:8{n}:02.0", pci_class="060400", iommu_group=n, acs=acs) for n in range(3)]
    cards = [function(f"0000:9{n}:00.0", iommu_group=10 + n, parent=f"0000:8{n}:02.0") for n in range(3)]
    machine = host(*ports, *cards)
    assert [f.code for f in host_reasons(machine) if f.code == "GPU244"] == ["GPU244"]
    assert codes(machine) == set()
