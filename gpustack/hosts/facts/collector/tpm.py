"""Encrypted volumes whose key the TPM or a server releases: the tokens in LUKS2 headers.

Formats: LUKS2 On-Disk Format Specification, 3 (binary header, JSON area); systemd, ``src/shared/tpm2-util.c``
(``tpm2-pcrs``); clevis, ``src/luks`` and ``src/pins`` (a JWE whose protected header names the pin).
"""

import base64
import json
import struct
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .limits import MODULE_NAME
from .reader import HostRoot

_BINARY = 4096
_LARGEST = 4 * 1024 * 1024
_DEPTH = 4
_MOST = 64


def tpm(host: HostRoot) -> Dict[str, Any]:
    """Whether the host has a TPM, and the volumes that it may unlock."""
    return {"present": bool(host.names("/sys/class/tpm")), "volumes": volumes(host)[:_MOST]}


def volumes(host: HostRoot) -> List[Dict[str, Any]]:
    """The open LUKS2 volumes, each with its tokens, or the reason why its header is unknown."""
    found = []
    for base in ("/sys/block/" + name for name in host.names("/sys/block") if name.startswith("dm-")):
        is_volume = (host.value(base + "/dm/uuid") or "").startswith("CRYPT-LUKS2-")
        for below in host.names(base + "/slaves") if is_volume else []:
            tokens, unknown = _tokens(host, "/dev/" + below)
            name = host.value(base + "/dm/name") or below
            found.append({"device": "/dev/" + below, "name": name, "tokens": tokens, "unknown": unknown})
    return found


def _tokens(host: HostRoot, device: str) -> Tuple[List[Dict[str, Any]], Optional[str]]:
    head = host.device(device, 0, _BINARY)
    if head is None:
        return [], "its header can't be read"
    size = struct.unpack_from(">Q", head, 8)[0] if len(head) == _BINARY else 0
    if head[:8] != b"LUKS\xba\xbe\0\2" or not _BINARY < size <= _LARGEST:
        return [], "it has no LUKS2 header"
    area = host.device(device, _BINARY, size - _BINARY) or b""
    try:
        tokens = list(json.loads(area.split(b"\0", 1)[0].decode("utf-8"))["tokens"].values())
        return [{"type": kind, "pcrs": pcrs} for token in tokens[:_MOST] for kind, pcrs in _read(token)], None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [], "its header has invalid metadata"


def _read(token: Dict[str, Any]) -> Iterator[Tuple[str, List[int]]]:
    """The types of a token, with the PCRs of each."""
    kind = str(token["type"])
    if not MODULE_NAME.fullmatch(kind):
        raise ValueError(kind)
    if kind == "clevis":
        yield from _pins(token["jwe"]["protected"], _DEPTH)
    else:
        yield kind, _registers(token.get("tpm2-pcrs", []))


def _pins(protected: str, depth: int) -> Iterator[Tuple[str, List[int]]]:
    """The pins of clevis in the protected header of a JWE (base64url without padding)."""
    clevis = json.loads(base64.urlsafe_b64decode(protected + "=" * (-len(protected) % 4)).decode("utf-8"))["clevis"]
    if clevis["pin"] == "sss" and depth:
        for part in clevis["sss"]["jwe"][:_MOST]:
            yield from _pins(part.split(".", 1)[0], depth - 1)
    elif clevis["pin"] == "tpm2":
        listed = clevis["tpm2"].get("pcr_ids", "")
        yield "clevis-tpm2", _registers(listed if isinstance(listed, list) else [n for n in listed.split(",") if n])
    else:
        yield "clevis-tang" if clevis["pin"] == "tang" else "clevis-other", []


def _registers(values: List[Any]) -> List[int]:
    numbers = sorted({int(value) for value in values})
    if any(not 0 <= number < 24 for number in numbers):
        raise ValueError("no PCR")
    return numbers
