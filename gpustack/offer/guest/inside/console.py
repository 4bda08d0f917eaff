"""The facts of a guest from its console log: the kernel's messages, and the report of vendor data."""

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import messages
from .compare import DISPLAY_ONLY
from .devices import gpus
from .report import reported
from .text import lines

# The kernel's first line, behind a time or the name of a log. Without both, the kernel's command line must follow:
# programs print /proc/version too.
_BOOT = re.compile(
    r"(?P<kernel>\] |\bkernel: |[0-9]{2}:[0-9]{2}[0-9:.,+-]{0,20} )?"
    r"\bLinux version (?P<release>[0-9][A-Za-z0-9._+~-]{0,127}) \("
)
_COMMAND_LINE = re.compile(r"\b[Cc]ommand line: ")
_FUNCTION = re.compile(
    r"\bpci ([0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]): "
    r"\[([0-9a-f]{4}):([0-9a-f]{4})\] type 0[01] class 0x([0-9a-f]{6})\b"
)
_NVIDIA = re.compile(
    r"NVRM: loading NVIDIA UNIX (?:Open )?.{0,40}?Kernel Module\b.{0,40}?\s([0-9]{2,4}(?:\.[0-9]{1,4}){1,2})\b"
)
# Modules that are named by the driver's part for displays.
_NAMES = {"nvidia-drm": "nvidia"}


def facts(log: Union[bytes, str], consoles: Sequence[Sequence[Optional[str]]]) -> Dict[str, Any]:
    """The facts of the last boot in a console log.

    :param consoles: vendor and product of virtual displays.
    """
    last, release = _last_boot(lines(log))
    events = messages.events(last)
    report = reported(last) or {}
    devices = report.get("gpus")
    if devices is None and release is not None:
        devices = _listed(last, consoles)
    version = next((match.group(1) for match in map(_NVIDIA.search, last) if match), None)
    drivers = _drivers(events)
    for device in devices or ():
        if device["driver"] is None:
            device["driver"] = drivers.get(device["address"])
    return {
        "source": "console",
        "gpus": devices,
        "events": _merged(events, report.get("events") or []),
        "complete": release is not None or bool(report.get("complete")),
        "kernel": release or report.get("kernel"),
        "drm": report.get("drm"),
        "flavor": report.get("flavor"),
        "driver_version": report.get("driver_version") or version,
        "problem": report.get("problem"),
    }


def _last_boot(log: List[str]) -> Tuple[List[str], Optional[str]]:
    """The lines since the last start of a kernel, and its release; all lines and ``None`` without one."""
    for number in range(len(log) - 1, -1, -1):
        match = _BOOT.search(log[number])
        if match and (match.group("kernel") or any(map(_COMMAND_LINE.search, log[number : number + 20]))):
            return log[number:], match.group("release")
    return log, None


def _listed(log: List[str], consoles: Sequence[Sequence[Optional[str]]]) -> Optional[List[Dict[str, Any]]]:
    """The GPUs among the functions that the kernel found; ``None`` if it printed none, as with ``quiet``."""
    functions: Dict[str, Dict[str, Any]] = {}
    for match in filter(None, map(_FUNCTION.search, log)):
        address, vendor, product, pci_class = match.groups()
        functions[address] = {
            "address": address,
            "vendor": vendor,
            "product": product,
            "class": pci_class,
            "driver": None,
            "modules": None,
            "unplaced": [],
        }
    return gpus(functions.values(), consoles) if functions else None


def _drivers(events: List[Dict[str, Any]]) -> Dict[Optional[str], str]:
    """The bound drivers by address, as far as the messages report them."""
    bound = {
        event["address"]: _NAMES.get(event["driver"], event["driver"])
        for event in events
        if event["kind"] == messages.INITIALIZED
    }
    nouveau = {e["address"]: "nouveau" for e in events if e["kind"] == messages.NOUVEAU and e["address"]}
    failed = {
        e["address"]: "" for e in events if e["kind"] == messages.PROBE_FAILED and e["driver"] not in DISPLAY_ONLY
    }
    return {**failed, **nouveau, **bound}


def _merged(events: List[Dict[str, Any]], others: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    return events + [event for event in others if event not in events]
