"""What the collector reads about the host's use of network interfaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.hosts.facts.collector.interfaces import interface, routes
from gpustack.hosts.facts.collector.reader import HostRoot
from support.sysroot import SysRoot

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
DEFAULT = "{}\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
NETWORK = "{}\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
ANY, NONE = "0" * 32, f"{'0' * 32} 00 {'0' * 32}"
IPV6 = "{} {} " + NONE + " 00000400 00000001 00000000 {} {:>8}\n"


def read(root: SysRoot, name: str = "ens1") -> dict[str, object]:
    host = HostRoot(str(root.path))
    return interface(host, name, routes(host))


def stacked(path: Path, *pairs: tuple[str, str]) -> SysRoot:
    root = SysRoot(path).write("/sys/class/net/ens1/operstate", "up\n")
    for lower, upper in pairs:
        root.write(f"/sys/class/net/{upper}/operstate", "up\n")
        root.link(f"/sys/class/net/{lower}/upper_{upper}", f"../{upper}")
    return root


def test_interfaces_above_are_followed(tmp_path: Path) -> None:
    root = stacked(tmp_path, ("ens1", "bond0"), ("bond0", "bond0.100"), ("bond0", "br-ex"), ("bond0.100", "br-ex"))
    root.write("/proc/1/net/route", HEAD + DEFAULT.format("br-ex") + NETWORK.format("ens2"))
    assert read(root) == {
        "name": "ens1",
        "state": "up",
        "uppers": ["bond0", "bond0.100", "br-ex"],
        "routes": "default",
    }


@pytest.mark.parametrize(
    ("ipv4", "ipv6", "expected"),
    [
        ("", "", "none"),
        (NETWORK.format("ens1"), "", "networks"),
        (DEFAULT.format("ens2"), "", "none"),
        (DEFAULT.format("ens1").replace("0003", "0203"), "", "none"),  # it rejects packets
        ("", IPV6.format(ANY, "00", "00000003", "ens1"), "default"),
        ("", IPV6.format("fd" + "0" * 30, "40", "00000001", "ens1"), "networks"),
        ("", IPV6.format("fe80" + "0" * 28, "40", "00000001", "ens1"), "none"),
        ("", IPV6.format("ff" + "0" * 30, "08", "00000001", "ens1"), "none"),
        ("ens1\tnonsense\n", "nonsense\n", "none"),
    ],
)
def test_routes_of_both_families_count(tmp_path: Path, ipv4: str, ipv6: str, expected: str) -> None:
    root = stacked(tmp_path).write("/proc/1/net/route", HEAD + ipv4).write("/proc/1/net/ipv6_route", ipv6)
    assert read(root)["routes"] == expected


def test_unreadable_routes_are_unknown(tmp_path: Path) -> None:
    assert read(stacked(tmp_path)) == {"name": "ens1", "state": "up", "uppers": [], "routes": None}
