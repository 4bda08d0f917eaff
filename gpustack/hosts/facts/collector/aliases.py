"""The modules that match a function, by ``modules.alias`` of the running kernel."""

import fnmatch
import re
from typing import Dict, Iterable, List, Optional, Tuple

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


def modules_directory(host: HostRoot) -> Optional[str]:
    """The module directory of the running kernel; in a root without one, that of the newest kernel."""
    release = running_release(host)
    if release is None:
        releases = [name for name in host.names("/lib/modules") if RELEASE.fullmatch(name)]
        if not releases:
            return None
        release = max(releases, key=version_key)
    return "/lib/modules/" + release


def aliases(host: HostRoot) -> Aliases:
    """The PCI aliases of ``modules.alias`` and, for built-in modules, of ``modules.builtin.modinfo``."""
    directory = modules_directory(host)
    if directory is None:
        return Aliases(())
    loadable = _ALIAS_LINE.findall(host.data(directory + "/modules.alias") or b"")
    built_in = _BUILTIN_ALIAS.findall(host.data(directory + "/modules.builtin.modinfo") or b"")
    pairs = loadable + [(pattern, module) for module, pattern in built_in]
    return Aliases((pattern.decode("ascii"), normalised(module.decode("ascii"))) for pattern, module in pairs)


_ALIAS_LINE = re.compile(rb"^alias (pci:[!-~]+) ([A-Za-z0-9_.+-]{1,64})$", re.MULTILINE)
_BUILTIN_ALIAS = re.compile(rb"(?:\A|(?<=\0))([A-Za-z0-9_.+-]{1,64})\.alias=(pci:[!-~]+)(?=\0|\Z)")


def normalised(module: str) -> str:
    """A module name in the notation of ``/proc/modules`` (``_`` instead of ``-``)."""
    return module.replace("-", "_")
