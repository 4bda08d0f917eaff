"""What the kernel's messages report about GPUs and their drivers.

NVIDIA's kernel modules print a message as several lines, each with ``NVRM:``. Other programs write to the same console,
so these lines are joined without the lines and words between them. The texts are those of nv.c and nv-pci.c of
open-gpu-kernel-modules, drivers/pci/setup-res.c, drivers/base/dd.c and kernel/module of Linux.
"""

import re
from typing import Any, Dict, Iterable, Iterator, List, Match, Optional, Tuple

Event = Dict[str, Any]
"""``kind``, ``address`` (``None`` if the message has none), and values for the text of a finding."""

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

MOST_EVENTS = 256
DRIVERS = ("nvidia", "nouveau", "nova_core", "amdgpu", "radeon", "i915", "xe", "habanalabs")
# The names of a GPU's modules, as programs that load them write them.
_MODULES = r"(?:nvidia|nvidia[-_](?:drm|modeset|uvm|peermem)|nouveau|amdgpu|radeon|i915|xe|habanalabs)"
_ADDRESS = r"(?:PCI:)?((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}(?:\.[0-7])?)"


def full_address(text: Optional[str]) -> Optional[str]:
    """``0000:00:05.0`` for ``00:05.0`` or ``0000:00:05``."""
    if text is None:
        return None
    head, _, function = text.lower().partition(".")
    parts = head.split(":")
    domain, bus, device = parts if len(parts) == 3 else ["0", *parts]
    return "{:04x}:{:02x}:{:02x}.{}".format(int(domain, 16), int(bus, 16), int(device, 16), function or "0")


Pattern = Tuple[str, Any]


def _pattern(kind: str, *parts: str) -> Pattern:
    """A pattern of a kind; ADDRESS and NEXT in its parts are replaced."""
    return kind, re.compile("".join(parts).replace("ADDRESS", _ADDRESS).replace("NEXT", _NEXT))


# --- NVIDIA ---------------------------------------------------------------------------------------------------------

# Text of a message about one GPU, up to the next such message.
_NEXT = r"(?:(?!The NVIDIA ).){0,240}?"
_OF_GPU = r"The NVIDIA GPU (?:ADDRESS)?NEXT"
_NVRM = re.compile(r"NVRM:(.*)")
_OF_NVIDIA = (
    _pattern(
        LEGACY,
        r"The NVIDIA (?P<card>NEXT)(?: GPU)? installed in this system\W+(?:is )?supported through the ",
        r"NVIDIA (?P<branch>[0-9]{2,4})\.xx Legacy drivers",
        r"NEXT(?:The (?P<driver>[0-9.]{3,20}) NVIDIA driver|$|(?=The NVIDIA ))",
    ),
    _pattern(
        NO_GSP,
        _OF_GPU,
        r"not supported by (?:open nvidia\.ko because it does not include|the NVIDIA open kernel modules)",
    ),
    _pattern(OPEN_REQUIRED, _OF_GPU, r"requires? (?:the )?use of the NVIDIA open kernel modules"),
    _pattern(UNSUPPORTED, _OF_GPU, r"is not supported by the (?:NVIDIA )?(?P<driver>[0-9][0-9.]{2,20})"),
    _pattern(
        MISMATCH,
        r"API mismatch: the client has (?:the )?version (?P<client>[0-9.]{3,20}), but ",
        r"this kernel module has (?:the )?version (?P<module>[0-9.]{3,20}[0-9])",
    ),
    _pattern(NOUVEAU, r"This can occur when a driver such as: nouveau"),
    _pattern(BAR_UNPLACED, r"BAR(?P<bar>[0-5]) is 0M @ 0x0 \(ADDRESS\)"),
    _pattern(INIT_FAILED, _OF_GPU, r"(?P<text>fallen off the bus and is not responding to commands)"),
)

# --- single lines ---------------------------------------------------------------------------------------------------

# Xids after which the GPU works again only after a reset: memory errors (48, 64, 95, 140), off the bus (79), no answer
# of the GPU System Processor (119, 120). Other Xids are also caused by programs.
_FATAL_XIDS = "48|64|79|95|119|120|140"
_PLACED = re.compile(r"\bpci " + _ADDRESS + r": BAR ([0-5])(?: \[(?:mem|io) [^\]]{1,80}\])?: assigned")
_OF_LINE = (
    _pattern(INIT_FAILED, r"NVRM: (?:GPU ADDRESS: )?(?P<text>RmInitAdapter failed! \([0-9a-fx:]{1,40}\))"),
    _pattern(INIT_FAILED, r"NVRM: Xid \(ADDRESS\): (?P<text>(?:", _FATAL_XIDS, r")\b[^\n]{0,80})"),
    _pattern(INIT_FAILED, r"\bamdgpu ADDRESS: (?:amdgpu: )?(?P<text>Fatal error during GPU init)"),
    _pattern(INIT_FAILED, r"Xe has declared device ADDRESS as (?P<text>wedged)"),
    _pattern(INIT_FAILED, r"\bi915 ADDRESS: .{0,40}(?P<text>Failed to initialize GPU, declaring it wedged)"),
    _pattern(
        FORCE_PROBE,
        r"\b(?P<driver>i915|xe) ADDRESS: .{0,8}Your graphics device (?P<product>[0-9a-f]{4}) is not ",
        r"(?:properly|officially) supported by",
    ),
    _pattern(
        BAR_UNPLACED,
        r"\bpci ADDRESS: BAR (?P<bar>[0-5]) \[mem size [^\]]{1,60}\]: (?:can't assign; no space|failed to assign)",
    ),
    _pattern(
        BAR_UNPLACED,
        r"\bpci ADDRESS: BAR (?P<bar>[0-5]): (?:no space for|failed to assign|can't assign) \[mem size",
    ),
    _pattern(
        PROBE_FAILED,
        r"\b(?P<driver>[A-Za-z][A-Za-z0-9_-]{1,30}): probe of ADDRESS failed with error (?P<error>-[0-9]{1,4})",
    ),
    _pattern(
        PROBE_FAILED,
        r"\bADDRESS: probe with driver (?P<driver>[A-Za-z0-9_-]{1,30}) failed with error (?P<error>-[0-9]{1,4})",
    ),
    _pattern(
        INITIALIZED,
        r"\[drm\] Initialized (?P<driver>[a-z0-9_-]{2,20}) [0-9.]+ (?:[0-9]{1,8} )?for ADDRESS on minor",
    ),
    _pattern(NOUVEAU, r"\bnouveau ADDRESS: (?:NVIDIA [A-Z]{2}[0-9A-Z]{2,4}|unknown chipset) \([0-9a-f]{8}\)"),
    _pattern(
        UNSIGNED,
        r"(?P<text>could not insert '?" + _MODULES + r"'?: ",
        r"(?:Key was rejected by service|Required key not available|Operation not permitted))",
    ),
    _pattern(UNSIGNED, r"(?P<text>Lockdown: [^:]{1,40}: unsigned module loading is restricted)"),
    _pattern(
        UNSIGNED,
        r"(?P<text>[Ll]oading of (?:unsigned module|module with (?:unavailable|unsupported|invalid) ",
        r"(?:key|crypto|signature)) is rejected)",
    ),
    _pattern(
        FIRMWARE,
        r"\b(?P<driver>amdgpu|i915|xe|radeon|nouveau|nvidia) ADDRESS: .{0,40}Direct firmware load for ",
        r"(?P<file>[A-Za-z0-9_./-]{1,100}) failed with error -2",
    ),
    _pattern(  # Debian's kernels up to 12
        FIRMWARE,
        r"\b(?P<driver>amdgpu|i915|xe|radeon|nouveau|nvidia) ADDRESS: firmware: failed to load ",
        r"(?P<file>[A-Za-z0-9_./-]{1,100}) \(-2\)",
    ),
)

VALUES = {kind: frozenset(pattern.groupindex) for kind, pattern in (*_OF_LINE, *_OF_NVIDIA)}
"""The names of the values of each kind of event."""


def events(lines: Iterable[str]) -> List[Event]:
    """The events of kernel messages, each once."""
    of_lines: List[Event] = []
    fragments: List[str] = []
    for line in lines:
        nvrm = _NVRM.search(line)
        if nvrm:
            fragments.append(nvrm.group(1).strip())
        of_lines.extend(_in_line(line))
        placed = _PLACED.search(line)
        if placed:  # the kernel tries several times; the last result counts
            place = (full_address(placed.group(1)), placed.group(2))
            of_lines = [e for e in of_lines if e["kind"] != BAR_UNPLACED or (e["address"], e["bar"]) != place]
    joined = " ".join(fragments)
    of_nvidia = [_event(kind, match) for kind, pattern in _OF_NVIDIA for match in pattern.finditer(joined)]
    unique = {_key(event): event for event in [*of_nvidia, *of_lines]}
    return list(unique.values())[:MOST_EVENTS]


def _in_line(line: str) -> Iterator[Event]:
    """The events of one line."""
    for kind, pattern in _OF_LINE:
        match = pattern.search(line)
        if match:
            yield _event(kind, match)


def _event(kind: str, match: Match[str]) -> Event:
    values = {name: (text or "").strip() for name, text in match.groupdict().items()}
    unnamed = [text for number, text in enumerate(match.groups(), 1) if number not in match.re.groupindex.values()]
    if kind == INIT_FAILED and values["text"][0].isdigit():
        values["text"] = "Xid " + values["text"]
    if kind == LEGACY:
        values["driver"] = values["driver"] or "(version unknown)"
    return {"kind": kind, "address": full_address(unnamed[0]) if unnamed else None, **values}


def _key(event: Event) -> Tuple[Any, ...]:
    """One event of a kind for each GPU, BAR and file; the values of the last message count."""
    return event["kind"], event["address"], event.get("bar"), event.get("file"), event.get("card")
