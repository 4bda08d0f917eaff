"""What the kernel's messages report about GPUs and their drivers, as plain data for the facts of a guest.

The messages are read by :mod:`gpustack.hosts.facts.collector.signs`, by which ``gpustack health`` reads those of hosts.
"""

from typing import Any, Dict, Iterable, List

from gpustack.hosts.facts.collector.signs import Event as Sign

Event = Dict[str, Any]
"""``kind``, ``address`` (``None`` if the message has none), and values for the text of a finding."""

SIGN = "sign"
LEGACY = "legacy"
NO_GSP = "no-gsp"
OPEN_REQUIRED = "open-required"
UNSUPPORTED = "unsupported"
PROBE_FAILED = "probe-failed"
BAR_UNPLACED = "bar-unplaced"
NOUVEAU = "nouveau"
UNSIGNED = "unsigned"
INIT_FAILED = "init-failed"
MISMATCH = "mismatch"
FIRMWARE = "firmware"
FORCE_PROBE = "force-probe"
INITIALIZED = "initialized"
# Kinds of the table that are facts, and no part of a report.
BOOT = "boot"
FUNCTION = "function"
BRIDGE = "bridge"
VERSION = "version"

MOST_EVENTS = 256
DRIVERS = ("nvidia", "nouveau", "nova_core", "NovaCore", "amdgpu", "radeon", "i915", "xe", "habanalabs")
VALUES = {
    **dict.fromkeys((NO_GSP, OPEN_REQUIRED, NOUVEAU), frozenset()),
    **dict.fromkeys((UNSIGNED, INIT_FAILED), frozenset(("text",))),
    SIGN: frozenset(("sign", "code", "severity", "text", "buses", "count")),
    LEGACY: frozenset(("card", "branch", "driver")),
    UNSUPPORTED: frozenset(("driver",)),
    PROBE_FAILED: frozenset(("driver", "error")),
    BAR_UNPLACED: frozenset(("bar",)),
    MISMATCH: frozenset(("client", "module")),
    FIRMWARE: frozenset(("driver", "file")),
    FORCE_PROBE: frozenset(("driver", "product")),
    INITIALIZED: frozenset(("driver",)),
}
"""The names of the values of each kind of event."""
_TEXT = 200


def of_signs(signs: Iterable[Sign]) -> List[Event]:
    """The signs of a log as events, since the last start of a kernel, each once."""
    current = [sign for sign in signs if not sign.earlier]
    buses = {sign.address: sign.values["bus"] for sign in current if sign.kind == BRIDGE}
    counted = [sign for sign in current if sign.code is not None or sign.kind == INITIALIZED]
    return [_event(sign, buses.get(sign.address, "")) for sign in counted][:MOST_EVENTS]


def _event(sign: Sign, buses: str) -> Event:
    kind = sign.kind if sign.kind in VALUES else SIGN
    values = {name: sign.values.get(name, "") for name in VALUES[kind]}
    if "text" in values:
        values["text"] = sign.message[:_TEXT]
    if kind == SIGN:
        values.update(sign=sign.sign, code=sign.code or "", severity=sign.severity or "")
        values.update(buses=buses, count=str(sign.count))
    if kind in (LEGACY, UNSUPPORTED):
        values["driver"] = values["driver"] or "(version unknown)"
    if "product" in values:
        values["product"] = values["product"].lower()
    return {"kind": kind, "address": sign.address, **values}
