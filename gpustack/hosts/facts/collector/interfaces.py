"""The use of network interfaces by the host: what is stacked on them, and which routes lead through them."""

import re
from typing import Any, Dict, List

from .limits import TABLE_LIMIT
from .reader import HostRoot

NET = "/sys/class/net"
_NAMESPACES = ("/proc/1/net", "/proc/self/net")  # that of the host first: the collector may run in another one
_IPV4 = re.compile(
    r"^(?P<name>\S+)\t(?P<network>[0-9A-F]{8})\t[0-9A-F]{8}\t(?P<flags>[0-9A-F]{4})"
    r"\t[0-9]+\t[0-9]+\t[0-9]+\t(?P<mask>[0-9A-F]{8})\t",
    re.MULTILINE,
)
_IPV6 = re.compile(
    r"^(?P<network>[0-9a-f]{32}) (?P<mask>[0-9a-f]{2}) [0-9a-f ]+ (?P<flags>[0-9a-f]{8}) +(?P<name>\S+)$", re.MULTILINE
)
_LOCAL = ("fe80000000000000", "ff00000000000000")  # link-local and multicast, which every interface that is up has
_REJECT = 0x200  # RTF_REJECT of linux/route.h


def interface(host: HostRoot, name: str, routed: Dict[str, str]) -> Dict[str, Any]:
    """One network interface; the routes of the interfaces above it count as its own."""
    above = uppers(host, name)
    through = {routed.get(each, "none") for each in [name, *above]}
    kinds = [kind for kind in ("default", "networks", "none") if kind in through]
    return {
        "name": name,
        "state": host.value(f"{NET}/{name}/operstate"),
        "uppers": above,
        "routes": kinds[0] if routed else None,
    }


def uppers(host: HostRoot, name: str) -> List[str]:
    """The interfaces above an interface, directly or not (links ``upper_NAME`` in sysfs), sorted."""
    above: List[str] = []
    ahead = [name]
    while ahead:
        for link in host.names(f"{NET}/{ahead.pop()}"):
            upper = link[len("upper_") :]
            if link.startswith("upper_") and upper not in above:
                above.append(upper)
                ahead.append(upper)
    return sorted(above)


def routes(host: HostRoot) -> Dict[str, str]:
    """The kind of routes of each interface, ``default`` or ``networks``; empty if they could not be read.

    The formats are those of ``fib_route_seq_show`` (net/ipv4/fib_trie.c) and ``rt6_info_route`` (net/ipv6/route.c).
    """
    for base in _NAMESPACES:
        tables = [host.text(f"{base}/{name}", TABLE_LIMIT) for name in ("route", "ipv6_route")]
        if tables[0] is not None:
            break
    else:
        return {}
    by_name = {"lo": "networks"}  # the result is empty only if the tables are unreadable
    for table, pattern in zip(tables, (_IPV4, _IPV6)):  # noqa: B905 - strict came with Python 3.10
        for match in pattern.finditer(table or ""):
            if int(match.group("flags"), 16) & _REJECT or match.group("network").startswith(_LOCAL):
                continue
            if int(match.group("network"), 16) == int(match.group("mask"), 16) == 0:
                by_name[match.group("name")] = "default"
            else:
                by_name.setdefault(match.group("name"), "networks")
    return by_name
