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

_MAGIC = b"LUKS\xba\xbe"
_BINARY = 4096
_LARGEST = 4 * 1024 * 1024
_DEPTH = 4
_MOST = 64


def has_tpm(host: HostRoot) -> bool:
    """Whether the host has a TPM."""
    return bool(host.names("/sys/class/tpm"))


def volumes(host: HostRoot) -> List[Dict[str, Any]]:
    """The open LUKS2 volumes, each with its tokens, or the reason why its header is unknown."""
    found = []
    for name in host.names("/sys/block"):
        uuid = host.value(f"/sys/block/{name}/dm/uuid") if name.startswith("dm-") else None
        if uuid is None or not uuid.startswith("CRYPT-LUKS2-"):
            continue
        for below in host.names(f"/sys/block/{name}/slaves"):
            device = "/dev/" + below
            tokens, unknown = _tokens(host, device)
            mapping = host.value(f"/sys/block/{name}/dm/name") or name
            found.append({"device": device, "name": mapping, "tokens": tokens, "unknown": unknown})
    return found[:_MOST]


def _tokens(host: HostRoot, device: str) -> Tuple[List[Dict[str, Any]], Optional[str]]:
    head = host.device(device, 0, _BINARY)
    if head is None:
        return [], "its header can't be read"
    size = struct.unpack_from(">Q", head, 8)[0] if len(head) == _BINARY else 0
    if head[:6] != _MAGIC or head[6:8] != b"\0\2" or not _BINARY < size <= _LARGEST:
        return [], "it has no LUKS2 header"
    area = host.device(device, _BINARY, size - _BINARY) or b""
    try:
        tokens = json.loads(area.split(b"\0", 1)[0].decode("utf-8"))["tokens"]
        return [one for token in list(tokens.values())[:_MOST] for one in _read(token)], None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [], "its header has invalid metadata"


def _read(token: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    kind = str(token["type"])
    if not MODULE_NAME.fullmatch(kind):
        raise ValueError(kind)
    if kind == "systemd-tpm2":
        yield {"type": kind, "pcrs": _numbers(token.get("tpm2-pcrs", []))}
    elif kind == "clevis":
        protected = token["jwe"]["protected"]
        for pin, pcrs in _pins(_header(protected), _DEPTH):
            yield {"type": "clevis-" + pin, "pcrs": pcrs}
    else:
        yield {"type": kind, "pcrs": []}


def _pins(header: Dict[str, Any], depth: int) -> Iterator[Tuple[str, List[int]]]:
    clevis = header["clevis"]
    pin = str(clevis["pin"])
    if pin == "sss" and depth:
        for part in clevis["sss"]["jwe"][:_MOST]:
            yield from _pins(_header(part.split(".", 1)[0]), depth - 1)
    elif pin == "tpm2":
        ids = clevis["tpm2"].get("pcr_ids", "")
        yield pin, _numbers(ids if isinstance(ids, list) else [one for one in str(ids).split(",") if one.strip()])
    else:
        yield "tang" if pin == "tang" else "other", []


def _header(text: str) -> Dict[str, Any]:
    decoded: Dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8"))
    return decoded


def _numbers(values: List[Any]) -> List[int]:
    numbers = sorted({int(value) for value in values})
    if numbers and not 0 <= numbers[0] <= numbers[-1] < 24:
        raise ValueError("no PCR")
    return numbers


def tpm(host: HostRoot) -> Dict[str, Any]:
    """The TPM, and the volumes that it may unlock."""
    return {"present": has_tpm(host), "volumes": volumes(host)}
