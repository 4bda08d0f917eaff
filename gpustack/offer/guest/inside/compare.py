"""Compare the facts of a guest with what its flavor promises. Pure.

A problem is a kind, a place, values for the text of a finding, and the severity of its messages if it has some. The
cause is reported, not its consequences: a GPU that NVIDIA's driver ignores has no driver bound as well.
"""

import re
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from gpustack.hosts.facts.collector.signs import CAUSES, CONSEQUENCES, FAILURES, LOST, REFUSALS, effects, is_of_absent

from . import messages

Problem = Dict[str, Any]

NVIDIA = "10de"
_SEVERITIES = ("", "info", "warning", "error")
# Vendors whose drivers need the kernel's DRM.
_DRM_VENDORS = {"1002": "amdgpu", "8086": "i915 and xe"}
# They match NVIDIA's GPUs, and run no CUDA.
DISPLAY_ONLY = ("nouveau", "nvidiafb", "nova_core", "nova_drm")
_HELD = ("vfio-pci", "pci-stub")

# Messages of a probe that failed: if a driver is bound, a later probe succeeded.
_OF_PROBE = (*REFUSALS, messages.NOUVEAU, messages.PROBE_FAILED)
_REPORTED = (*REFUSALS, messages.OPEN_REQUIRED, messages.MISMATCH)

# How messages of GPUs' drivers begin; others can be about any device of the bus.
_OF_DRIVERS = ("Xid", "SXid", "NVRM", "[drm", *messages.DRIVERS)
# The number of GPUs in NVIDIA's message, which names none: "The NVIDIA probe routine failed for 1 device(s)."
_DEVICES = re.compile("failed for ([0-9]{1,3}) device")


def problems(facts: Dict[str, Any], expected: Optional[Dict[str, Any]] = None) -> List[Problem]:
    """The problems of a guest.

    :param expected: ``count``, the number of GPUs, and ``ids``, the accepted ``vendor:product`` (empty: any).
    """
    gpus = facts["gpus"] or []
    events = list(_relevant(facts["events"] or [], facts["gpus"]))
    named = [((event["address"], event.get("sign") or event["kind"]), event) for event in events]
    later = effects((*name, event.get("severity")) for name, event in named)
    events = [event for name, event in named if name not in later]
    explained = _explained(events, gpus)
    return [
        *_counted(facts, expected),
        *_unplaced(gpus, events),
        *(_of_event(event) for event in events if event["kind"] in _REPORTED),
        *_of_signs(events, explained),
        *_failed(events, explained),
        *_drivers(facts, gpus, events, explained),
        *_unknown(facts, explained | {event["address"] for event in events if _is_failure(event)}),
    ]


def _problem(kind: str, where: Optional[str], **values: object) -> Problem:
    return {"kind": kind, "place": where or "kernel", "values": values}


def _relevant(events: Iterable[Dict[str, Any]], gpus: Optional[List[Dict[str, Any]]]) -> Iterator[Dict[str, Any]]:
    """The events of GPUs, without those that a driver bound since then has outdated.

    A driver for displays that fails does not stop NVIDIA's driver.
    """
    addresses = {gpu["address"] for gpu in gpus or ()}
    bound = {gpu["address"] for gpu in gpus or () if gpu["driver"] not in (None, "", messages.NOUVEAU, *_HELD)}
    freed = {gpu["address"] for gpu in gpus or () if gpu["driver"] not in (None, messages.NOUVEAU)}
    nvidia = {gpu["address"] for gpu in gpus or () if gpu["vendor"] == NVIDIA}
    vendors = {gpu["vendor"] for gpu in gpus or ()}
    events = list(events)
    broken = {event["address"] for event in events if event["kind"] == messages.INIT_FAILED}
    for event in events:
        wanted = True
        if event["kind"] == messages.BAR_UNPLACED:  # other devices have BARs and drivers too
            wanted = gpus is None or event["address"] in addresses
        elif event["kind"] == messages.PROBE_FAILED:
            wanted = event["address"] in addresses or event["driver"] in messages.DRIVERS
            wanted = wanted and event["driver"] not in DISPLAY_ONLY
        elif event["kind"] == messages.SIGN:
            below = _below(event, gpus)
            of_driver = gpus is None and event["text"].startswith(_OF_DRIVERS)
            wanted = event["address"] is None or event["address"] in addresses or bool(below) or of_driver
            event = {**event, "address": below or event["address"]}
        elif (event["kind"], event.get("driver")) == (messages.FIRMWARE, "nvidia"):  # some GPUs start without it
            wanted = event["address"] in broken
        name = "module-unsigned" if event["kind"] == messages.UNSIGNED else event.get("sign", "")
        wanted = wanted and not (gpus is not None and is_of_absent(name, event.get("text", ""), vendors))
        concerned = {event["address"]} if event["address"] else nvidia
        outdated = {messages.NOUVEAU: freed, messages.FIRMWARE: bound - broken}.get(event["kind"], bound)
        if wanted and not (event["kind"] in _OF_PROBE and concerned and concerned <= outdated):
            yield event


def _below(event: Dict[str, Any], gpus: Optional[List[Dict[str, Any]]]) -> Optional[str]:
    """The GPU below the port of an event, by the buses that the kernel printed; ``None`` if there is none."""
    first, _, last = event["buses"].partition("-")
    domain = (event["address"] or "").partition(":")[0]
    for gpu in gpus or ():
        its_domain, bus, _ = gpu["address"].split(":")
        if first and domain == its_domain and int(first, 16) <= int(bus, 16) <= int(last or first, 16):
            address: str = gpu["address"]
            return address
    return None


def _of_signs(events: List[Dict[str, Any]], explained: Set[Optional[str]]) -> Iterator[Problem]:
    """One problem for each code and GPU, with the last message. Its address is in the guest, not on the host."""
    by_place: Dict[Tuple[str, Optional[str]], List[Dict[str, Any]]] = {}
    failed = any(event["kind"] not in (messages.SIGN, messages.INITIALIZED) or _is_failure(event) for event in events)
    for event in events:
        follows = event.get("sign") == "firmware-failed" and event["address"] in explained
        follows = follows or (event.get("sign") in CONSEQUENCES and failed)
        if event["kind"] == messages.SIGN and not follows:
            by_place.setdefault((event["code"], event["address"]), []).append(event)
    for (code, address), of_place in by_place.items():
        count = sum(int(event["count"]) for event in of_place if event["count"].isdecimal())
        text = of_place[-1]["text"]
        values = {"message": text, "text": text, "count": count, "client": "unknown", "module": "unknown"}
        problem = _problem(code, address, host="HOST", address="ADDRESS", **values)
        yield {**problem, "severity": max((event["severity"] for event in of_place), key=_SEVERITIES.index)}


def _explained(events: List[Dict[str, Any]], gpus: List[Dict[str, Any]]) -> Set[Optional[str]]:
    """The addresses of GPUs whose failure has a known cause; with any, ``None``: its failure can be without address."""
    lost = {event["address"] for event in events if _is_failure(event) and event.get("sign", "").startswith(LOST)}
    addresses = {event["address"] for event in events if event["kind"] in CAUSES} | (lost - {None})
    addresses |= {gpu["address"] for gpu in gpus if gpu["unplaced"]}
    if None in addresses:  # NVIDIA's message about old cards has no address
        addresses |= {gpu["address"] for gpu in gpus if gpu["vendor"] == NVIDIA}
    return addresses and addresses | {None}


def _counted(facts: Dict[str, Any], expected: Optional[Dict[str, Any]]) -> Iterator[Problem]:
    gpus = facts["gpus"]
    if expected is None or gpus is None:
        return
    if len(gpus) < expected["count"]:
        yield _problem("gpus-missing", "PCI", count=len(gpus), expected=expected["count"])
    elif len(gpus) > expected["count"] or (expected["ids"] and not set(map(_ids, gpus)) <= set(expected["ids"])):
        found = ", ".join("{} {}".format(gpu["address"], _ids(gpu)) for gpu in gpus)
        wanted = " of ".join(filter(None, (str(expected["count"]), " or ".join(expected["ids"]))))
        yield _problem("gpus-differ", "PCI", found=found, expected=wanted)


def _ids(gpu: Dict[str, Any]) -> str:
    return "{}:{}".format(gpu["vendor"], gpu["product"])


def _unplaced(gpus: List[Dict[str, Any]], events: List[Dict[str, Any]]) -> Iterator[Problem]:
    by_address = {gpu["address"]: set(map(str, gpu["unplaced"])) for gpu in gpus}
    for event in events:
        if event["kind"] == messages.BAR_UNPLACED:
            by_address.setdefault(event["address"], set()).add(event["bar"])
    for address, bars in sorted(by_address.items(), key=lambda item: str(item[0])):
        if bars:
            yield _problem(messages.BAR_UNPLACED, address, bars=", ".join(sorted(bars)))


def _of_event(event: Dict[str, Any]) -> Problem:
    return _problem(event["kind"], event["address"], **{k: v for k, v in event.items() if k not in ("kind", "address")})


def _is_failure(event: Dict[str, Any]) -> bool:
    of_gpu = event["kind"] == messages.SIGN and event.get("sign") not in CONSEQUENCES
    return event["kind"] in FAILURES or (of_gpu and event["severity"] == "error")


def _failed(events: List[Dict[str, Any]], explained: Set[Optional[str]]) -> Iterator[Problem]:
    failed: Set[Optional[str]] = set()
    known = (explained | {event["address"] for event in events if event["kind"] in FAILURES}) - {None}
    for kind in FAILURES:
        for event in events:
            devices = None if event["address"] else _DEVICES.search(event.get("text", ""))
            wanted = int(devices.group(1)) > len(known) if devices else event["address"] not in explained | failed
            if event["kind"] == kind and wanted:
                failed.add(event["address"])
                yield _of_event(event)


def _drivers(
    facts: Dict[str, Any], gpus: List[Dict[str, Any]], events: List[Dict[str, Any]], explained: Set[Optional[str]]
) -> Iterator[Problem]:
    """GPUs that no driver uses, and why."""
    nouveau = {e["address"] for e in events if e["kind"] == messages.NOUVEAU}
    nouveau |= {gpu["address"] for gpu in gpus if gpu["driver"] == "nouveau"}
    for address in sorted(nouveau, key=str):
        yield _problem(messages.NOUVEAU, address)
    unsigned = [event for event in events if event["kind"] == messages.UNSIGNED]
    failed = {event["address"] for event in events if _is_failure(event)}
    unbound = [gpu for gpu in gpus if gpu["driver"] == "" and gpu["address"] not in explained | failed]
    if unsigned and (unbound or any(gpu["driver"] is None for gpu in gpus) or not gpus):
        yield _problem(messages.UNSIGNED, None, text=unsigned[-1]["text"])
        unbound = []
    for gpu in gpus:
        if gpu["driver"] in _HELD:
            yield _problem("driver-other", gpu["address"], driver=gpu["driver"], ids=_ids(gpu))
    if facts["drm"] is False:
        named = [gpu for gpu in unbound if gpu["vendor"] in _DRM_VENDORS]
        for vendor in sorted({gpu["vendor"] for gpu in named}):
            yield _problem("no-drm", None, kernel=facts["kernel"] or "the kernel", drivers=_DRM_VENDORS[vendor])
        unbound = [gpu for gpu in unbound if gpu not in named]
    for gpu in unbound:
        modules = [name for name in gpu["modules"] or () if name not in DISPLAY_ONLY]
        kind = "driver-unknown" if gpu["modules"] is None else "driver-unbound" if modules else "driver-missing"
        value = {"module": modules[0]} if modules else {"kernel": facts["kernel"] or "the kernel"}
        yield _problem(kind, gpu["address"], ids=_ids(gpu), **value)


def _unknown(facts: Dict[str, Any], explained: Set[Optional[str]]) -> Iterator[Problem]:
    """What the facts lack, so that its absence proves nothing.

    :param explained: the addresses of GPUs whose drivers failed.
    """
    missing = []
    if facts["gpus"] is None:
        missing.append("the GPUs")
    elif any(gpu["driver"] is None and gpu["address"] not in explained for gpu in facts["gpus"]):
        missing.append("the bound drivers")
    if facts["events"] is None:
        missing.append("the kernel's messages")
    elif not facts["complete"]:
        missing.append("the kernel's messages from the start of the guest")
    if missing:
        report = facts.get("problem")
        yield _problem("unknown", facts["source"], missing=", ".join(missing), report=report or "none")
