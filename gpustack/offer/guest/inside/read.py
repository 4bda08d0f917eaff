"""The facts of the guest on which this runs, or of a directory as its root."""

import gzip
import json
import re
import zlib
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from gpustack.hosts.facts.collector.addresses import PCI
from gpustack.hosts.facts.collector.aliases import Aliases, modules_release, read_aliases
from gpustack.hosts.facts.collector.functions import FunctionFiles, identity
from gpustack.hosts.facts.collector.kernel import NVIDIA_RELEASE, running_release
from gpustack.hosts.facts.collector.kernel_log import RECORD, records
from gpustack.hosts.facts.collector.limits import ADDRESS, TEXT_LIMIT, VALUE_LIMIT
from gpustack.hosts.facts.collector.reader import HostRoot
from gpustack.hosts.facts.collector.resources import bars
from gpustack.hosts.facts.collector.signs import SignTable
from gpustack.hosts.facts.collector.text import lines

from . import messages

_FLAVOR = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
_INSTANCE_DATA = ("/run/cloud-init/instance-data-sensitive.json", "/run/cloud-init/instance-data.json")


def facts(root: str, consoles: Sequence[Sequence[Optional[str]]], table: SignTable) -> Dict[str, Any]:
    """The facts of a guest.

    :param root: the directory to read as ``/``.
    :param consoles: vendor and product of virtual displays.
    :param table: the signs of the kernel's messages.
    :raises NotADirectoryError: if ``root`` is not a directory.
    """
    host = HostRoot(root)
    log, complete = kernel_messages(host)
    release = running_release(host)
    return {
        "source": "guest",
        "gpus": _gpus(host, consoles),
        "events": None if log is None else messages.of_signs(table.events(log)),
        "complete": complete,
        "kernel": release,
        "drm": has_drm(host, release),
        "flavor": flavor(host),
        "driver_version": host.word("/sys/module/nvidia/version", NVIDIA_RELEASE),
        "problem": None,
    }


def kernel_messages(host: HostRoot) -> Tuple[Optional[List[str]], bool]:
    """The kernel's messages, and whether the first one since the boot is among them; ``None`` if unreadable."""
    try:
        matches = [match for match in map(RECORD.match, records(host)) if match]
    except OSError:
        return None, False  # it takes root
    complete = any(int(match.group(1)) == 0 for match in matches)
    return lines("\n".join(match.group(3).replace("\\x0a", "\n") for match in matches)), complete


def gpus(functions: Iterable[Dict[str, Any]], consoles: Sequence[Sequence[Optional[str]]]) -> List[Dict[str, Any]]:
    """The first GPU function of each slot, without virtual displays, of any class: QEMU's bochs-display is 0380.

    :param consoles: vendor and product of virtual displays and management controllers; ``None`` is any product.
    """
    # All display controllers and processing accelerators: 0300, 0302 and 0380 are GPUs of one vendor or another.
    chosen: Dict[str, Dict[str, Any]] = {}
    for function in sorted(functions, key=lambda function: str(function["address"])):
        ids = ((function["vendor"], function["product"]), (function["vendor"], None))
        if function["class"].startswith(("03", "1200")) and not any(tuple(console) in ids for console in consoles):
            chosen.setdefault(function["address"].rpartition(".")[0], function)
    return list(chosen.values())


def _gpus(host: HostRoot, consoles: Sequence[Sequence[Optional[str]]]) -> Optional[List[Dict[str, Any]]]:
    """The GPUs; ``None`` without sysfs, as on other systems than Linux and in some containers."""
    if not host.exists(PCI):
        return None
    functions = []
    for address in filter(ADDRESS.fullmatch, host.names(PCI)):
        ids = identity(FunctionFiles(host, address))
        if None not in ids.values():
            functions.append({"address": address, **ids})
    chosen = gpus(functions, consoles)
    release = modules_release(host) if chosen and host.names("/lib/modules") else None
    names = [FunctionFiles(host, function["address"]).value("modalias") or "" for function in chosen]
    known = read_aliases(host, release, names)[0] if release is not None else None
    return [{**function, **_bound(FunctionFiles(host, function["address"]), known)} for function in chosen]


def _bound(files: FunctionFiles, known: Optional[Aliases]) -> Dict[str, Any]:
    """The driver of a function, the modules that match, and the BARs without an address.

    :param known: ``None`` without a directory of modules: a container lacks it, and NixOS has it elsewhere.
    """
    modalias = files.value("modalias")
    registers = bars(files.host.text(files.path("resource"), VALUE_LIMIT) or "") if "resource" in files.present else []
    return {
        "driver": files.link("driver") or "",
        "modules": known.candidates(modalias) if known and modalias else None,
        "unplaced": [bar["index"] for bar in registers if bar["start"] == 0 and not bar["io"]],
    }


def has_drm(host: HostRoot, release: Optional[str]) -> Optional[bool]:
    """Whether the running kernel has DRM, by its configuration, else by its modules; ``None`` if unknown."""
    if release is None:
        return None
    text = host.text("/boot/config-" + release, 4 * TEXT_LIMIT)
    if text is None:
        try:
            text = gzip.decompress(host.data("/proc/config.gz", 4 * TEXT_LIMIT) or b"").decode("ascii", "replace")
        except (OSError, EOFError, zlib.error):
            text = ""
    if "CONFIG_" in text:
        return re.search(r"^CONFIG_DRM=[ym]$", text, re.MULTILINE) is not None
    directory = "/lib/modules/" + release
    if not host.names(directory + "/kernel"):
        return None
    return bool(host.names(directory + "/kernel/drivers/gpu/drm")) or "/gpu/drm/drm.ko" in (
        host.text(directory + "/modules.builtin") or ""
    )


def flavor(host: HostRoot) -> Optional[str]:
    """The name of the instance's flavor, from cloud-init's copy of Nova's EC2 metadata; ``None`` if unknown."""
    for path in _INSTANCE_DATA:
        try:
            document = json.loads(host.text(path, 16 * TEXT_LIMIT) or "")
            name = document["ds"]["ec2_metadata"]["instance-type"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(name, str) and _FLAVOR.fullmatch(name):
            return name
    return None
