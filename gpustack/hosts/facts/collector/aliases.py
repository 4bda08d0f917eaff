"""The modules that match a function, by ``modules.alias`` of each kernel that can boot."""

import fnmatch
import re
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from .kernel import running_release
from .limits import RELEASE
from .reader import HostRoot, version_key


class Aliases:
    """The module aliases of one kernel, indexed by the vendor and device at the start of each pattern."""

    def __init__(self, pairs: Iterable[Tuple[str, str]]) -> None:
        self._buckets: Dict[str, List[Tuple[str, str]]] = {}
        self._matches: Dict[str, List[str]] = {}
        for pattern, module in pairs:
            self._buckets.setdefault(self._key(pattern), []).append((pattern, module))

    @staticmethod
    def _key(pattern: str) -> str:
        """The fixed prefix of ``pattern``: vendor and device, vendor only, or nothing."""
        match = _PCI_ALIAS.match(pattern)
        return match.group(0) if match else ""

    def candidates(self, modalias: str) -> List[str]:
        """The modules with a matching alias, sorted."""
        matching = self._matches.get(modalias)
        if matching is None:
            modules = set()
            for key in ("", modalias[:_VENDOR_END], modalias[:_DEVICE_END]):
                for pattern, module in self._buckets.get(key, ()):
                    if alias_matches(pattern, modalias):
                        modules.add(module)
            matching = self._matches[modalias] = sorted(modules)
        return matching


_PCI_ALIAS = re.compile(r"pci:v[0-9A-F]{8}(?:d[0-9A-F]{8}|(?=d))")
_VENDOR_END = len("pci:v00000000")
_DEVICE_END = len("pci:v00000000d00000000")


def alias_matches(pattern: str, name: str) -> bool:
    """``fnmatch(3)`` with a fast path for patterns whose only wildcard is ``*``."""
    if "[" in pattern or "?" in pattern:
        return fnmatch.fnmatchcase(name, pattern)
    first, star, rest = pattern.partition("*")
    if not star:
        return pattern == name
    *middle, last = rest.split("*")
    position, end = len(first), len(name) - len(last)
    if position > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in middle:
        position = name.find(part, position, end)
        if position < 0:
            return False
        position += len(part)
    return True


def modules_release(host: HostRoot) -> Optional[str]:
    """The release of the running kernel; in a root without one, that of the newest module directory."""
    releases = [name for name in host.names("/lib/modules") if RELEASE.fullmatch(name)]
    return running_release(host) or max(releases, key=version_key, default=None)


def add_modules(host: HostRoot, functions: List[Dict[str, Any]], kernels: List[Dict[str, Any]]) -> None:
    """Add to each function the modules that match it, and to each bootable kernel its ``vfio_aliases``.

    ``modules`` are those of the running kernel, ``other_modules`` those that only other bootable kernels have.
    """
    running = modules_release(host)
    names = {entry["modalias"] for entry in functions if entry["modalias"]}
    releases = sorted({release for release in (running, *(kernel["release"] for kernel in kernels)) if release})
    tables = {release: read_aliases(host, release, names) for release in releases}
    for kernel in kernels:
        kernel["vfio_aliases"] = tables[kernel["release"]][1]
    for entry in functions:
        name = entry["modalias"]
        matching = {release: table.candidates(name) if name else [] for release, (table, _) in tables.items()}
        entry["modules"] = matching.get(running or "", [])
        others = {module for modules in matching.values() for module in modules}
        entry["other_modules"] = sorted(others.difference(entry["modules"]))


def read_aliases(host: HostRoot, release: str, names: Iterable[str]) -> Tuple[Aliases, List[Dict[str, str]]]:
    """The PCI aliases of a kernel that can match one of the functions ``names``, and those of its VFIO variant drivers.

    They are those of ``modules.alias`` and, for built-in modules, of ``modules.builtin.modinfo``. The aliases of
    variants start with ``vfio_pci:`` instead of ``pci:``; that of vfio-pci itself, which matches every device, is left
    out.
    """
    vendors = {name[:_VENDOR_END].encode() for name in names}
    directory = "/lib/modules/" + release
    pairs = _ALIAS_LINE.findall(host.data(directory + "/modules.alias") or b"")
    built_in = _BUILTIN_ALIAS.findall(host.data(directory + "/modules.builtin.modinfo") or b"")
    pairs += [(pattern, module) for module, pattern in built_in]
    variants: Set[Tuple[str, str]] = set()
    matching = []
    for pattern, module in pairs:
        if pattern.startswith(b"vfio"):
            variants.add((pattern.decode("ascii"), normalised(module.decode("ascii"))))
        elif pattern[:_VENDOR_END] in vendors or not _VENDOR.match(pattern):
            matching.append((pattern.decode("ascii"), normalised(module.decode("ascii"))))
    listed = [pair for pair in sorted(variants) if len(pair[0]) <= _LONGEST_VARIANT and pair[1] != "vfio_pci"]
    return Aliases(matching), [{"pattern": pattern, "module": module} for pattern, module in listed]


_LONGEST_VARIANT = len("vfio_pci:") + 256
_VENDOR = re.compile(rb"pci:v[0-9A-F]{8}")
_ALIAS_LINE = re.compile(rb"^alias ((?:vfio_)?pci:[!-~]+) ([A-Za-z0-9_.+-]{1,64})$", re.MULTILINE)
_BUILTIN_ALIAS = re.compile(rb"(?:\A|(?<=\0))([A-Za-z0-9_.+-]{1,64})\.alias=((?:vfio_)?pci:[!-~]+)(?=\0|\Z)")


def normalised(module: str) -> str:
    """A module name in the notation of ``/proc/modules`` (``_`` instead of ``-``)."""
    return module.replace("-", "_")
