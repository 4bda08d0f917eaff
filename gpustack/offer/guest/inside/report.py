"""The report of a guest on its console: one line for people, with the facts as JSON at its end.

The guest writes it, so its content is checked like any other input.
"""

import json
import re
from typing import Any, Dict, List, Optional, Sequence

from . import messages

START = "gpustack guest check: "
MOST_EVENTS = 24
MOST_GPUS = 64

_LINE = re.compile(re.escape(START) + r"(?P<summary>[^{]{0,400})(?P<facts>\{.*)?")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_ID = re.compile(r"[0-9a-f]{4}")
_VALUES = {"code": "GPU[0-9]{3}", "buses": "([0-9a-f]{2}(-[0-9a-f]{2})?)?", "count": "[0-9]{1,9}", "bar": "[0-9]"}
_VALUES["severity"] = "(info|warning|error)?"
_WORD = re.compile(r"[A-Za-z0-9._+~:-]{0,128}")
_TEXTS = {"address": _ADDRESS, "vendor": _ID, "product": _ID, "class": _WORD}
"""The forms of texts that each GPU has."""


def summary(facts: Dict[str, Any], expected: Optional[int] = None, codes: Sequence[str] = ()) -> str:
    """``2 GPUs, driver bound (nvidia 580.95.05)``."""
    devices = facts["gpus"]
    if devices is None:
        return facts.get("problem") or "number of GPUs unknown"
    count = len(devices)
    of_all = " of {}".format(expected) if expected and expected > count else ""
    text = "{}{} GPU{}".format(count, of_all, "" if (expected if of_all else count) == 1 else "s")
    if devices:
        text += ", " + _bound(devices, facts.get("driver_version"))
    return text + ("; " + " ".join(codes) if codes else "")


def _bound(devices: List[Dict[str, Any]], version: Optional[str]) -> str:
    drivers = [device["driver"] for device in devices]
    if None in drivers:
        return "driver unknown"
    names = sorted(set(filter(None, drivers)))
    if not names:
        return "no driver bound"
    named = ", ".join("{} {}".format(name, version) if name == "nvidia" and version else name for name in names)
    bound = len([name for name in drivers if name])
    some = " to {} of {}".format(bound, len(drivers)) if bound < len(drivers) else ""
    return "driver bound{} ({})".format(some, named)


def line(facts: Dict[str, Any], text: str) -> str:
    """The line for the console.

    :param text: the summary.
    """
    kept = {key: facts[key] for key in ("gpus", "complete", "kernel", "drm", "flavor", "driver_version")}
    for most in (MOST_EVENTS, 4, 0):  # a serial line is slow
        kept["events"] = (facts["events"] or [])[:most]
        content = json.dumps(kept, sort_keys=True, separators=(",", ":"))
        if len(content) < 6000:
            break
    return START + text + " " + content


def reported(lines: List[str]) -> Optional[Dict[str, Any]]:
    """The facts of the last readable report; if its JSON is broken, the summary as ``problem``."""
    broken: Optional[Dict[str, Any]] = None
    for match in filter(None, map(_LINE.search, reversed(lines))):
        facts = _parsed(match.group("facts"))
        if facts is not None:
            return facts
        broken = broken or {"gpus": None, "problem": match.group("summary").strip()}
    return broken


def _parsed(text: Optional[str]) -> Optional[Dict[str, Any]]:
    """The facts of a report; ``None`` if they are not as :func:`line` writes them."""
    try:
        # Other programs can write behind the object.
        document, _ = json.JSONDecoder().raw_decode(text or "")
    except (ValueError, RecursionError):
        return None
    return checked(document)


def checked(document: Any) -> Optional[Dict[str, Any]]:
    """The facts in a document of a guest; ``None`` if it has another form."""
    gpus = document.get("gpus") if isinstance(document, dict) else None
    if not isinstance(gpus, list) or len(gpus) > MOST_GPUS:
        return None
    events = document.get("events")
    if events is not None and not (isinstance(events, list) and len(events) <= messages.MOST_EVENTS):
        return None
    if not all(map(_is_gpu, gpus)) or not all(map(_is_event, events or ())):
        return None
    named = {key: document.get(key) for key in ("kernel", "flavor", "driver_version")}
    if not all(value is None or (isinstance(value, str) and len(value) < 256) for value in named.values()):
        return None
    flags = {key: document.get(key) for key in ("complete", "drm")}
    if not all(value is None or isinstance(value, bool) for value in flags.values()):
        return None
    return {"gpus": gpus, "events": events, **named, **flags}


def _is_gpu(entry: Any) -> bool:
    if not isinstance(entry, dict) or set(entry) != {*_TEXTS, "driver", "modules", "unplaced"}:
        return False
    modules, unplaced = entry["modules"], entry["unplaced"]
    return (
        all(_matches(form, entry[name]) for name, form in _TEXTS.items())
        and (entry["driver"] is None or _matches(_WORD, entry["driver"]))
        and (modules is None or (isinstance(modules, list) and all(_matches(_WORD, name) for name in modules)))
        and isinstance(unplaced, list)
        and all(type(number) is int for number in unplaced)
    )


def _is_event(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and frozenset(entry) - {"kind", "address"} == messages.VALUES.get(str(entry.get("kind")))
        and (entry.get("address") is None or _matches(_ADDRESS, entry["address"]))
        and all(value is None or (isinstance(value, str) and len(value) < 300) for value in entry.values())
        and all(re.fullmatch(pattern, str(entry[name])) for name, pattern in _VALUES.items() if name in entry)
    )


def _matches(pattern: Any, value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
