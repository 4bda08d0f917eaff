"""The facts of a guest from its console log: the kernel's messages, and the report of vendor data."""

from typing import Any, Dict, List, Optional, Sequence, Union

from gpustack.hosts.facts.collector.signs import Event as Sign
from gpustack.hosts.facts.collector.signs import SignTable
from gpustack.hosts.facts.collector.text import lines

from . import messages
from .compare import DISPLAY_ONLY
from .read import gpus
from .report import reported


def facts(log: Union[bytes, str], consoles: Sequence[Sequence[Optional[str]]], table: SignTable) -> Dict[str, Any]:
    """The facts of the last boot in a console log.

    :param consoles: vendor and product of virtual displays.
    :param table: the signs of the kernel's messages.
    """
    last = lines(log)
    signs = [sign for sign in table.events(last) if not sign.earlier]
    release = next((sign.values["release"] for sign in signs if sign.kind == messages.BOOT), None)
    events = messages.of_signs(signs)
    report = reported(last) or {}
    devices = report.get("gpus")
    if devices is None and release is not None:
        devices = _listed(signs, consoles)
    version = next((sign.values["version"] for sign in signs if sign.kind == messages.VERSION), None)
    drivers = _drivers(events)
    for device in devices or ():
        if device["driver"] is None:
            device["driver"] = drivers.get(device["address"])
    return {
        "source": "console",
        "gpus": devices,
        "events": events + [event for event in report.get("events") or [] if event not in events],
        "complete": release is not None or bool(report.get("complete")),
        "kernel": release or report.get("kernel"),
        "drm": report.get("drm"),
        "flavor": report.get("flavor"),
        "driver_version": report.get("driver_version") or version,
        "problem": report.get("problem"),
    }


def _listed(signs: List[Sign], consoles: Sequence[Sequence[Optional[str]]]) -> Optional[List[Dict[str, Any]]]:
    """The GPUs among the functions that the kernel found; ``None`` if it printed none, as with ``quiet``."""
    functions: List[Dict[str, Any]] = [
        {"address": sign.address, **sign.values, "driver": None, "modules": None, "unplaced": []}
        for sign in signs
        if sign.kind == messages.FUNCTION
    ]
    return gpus(functions, consoles) if functions else None


def _drivers(events: List[Dict[str, Any]]) -> Dict[Optional[str], str]:
    """The bound drivers by address, as far as the messages report them."""
    bound = {
        e["address"]: e["driver"].replace("nvidia-drm", "nvidia") for e in events if e["kind"] == messages.INITIALIZED
    }
    nouveau = {e["address"]: "nouveau" for e in events if e["kind"] == messages.NOUVEAU and e["address"]}
    failed = {
        e["address"]: "" for e in events if e["kind"] == messages.PROBE_FAILED and e["driver"] not in DISPLAY_ONLY
    }
    return {**failed, **nouveau, **bound}
