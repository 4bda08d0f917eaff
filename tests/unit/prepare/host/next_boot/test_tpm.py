"""Volumes that the TPM unlocks only for the measured boot; tokens as systemd and clevis write them."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from gpustack.hosts.facts.collector.reader import HostRoot
from gpustack.hosts.facts.collector.tpm import volumes
from gpustack.hosts.facts.store import parse_host
from gpustack.prepare.host.plan import plan_host
from gpustack.prepare.host.undo import plan_undo
from gpustack.spec.load import parse_spec
from support.host_cases import CASES, SPEC, load
from support.host_samples import snapshot

MODELS = 'models: {k4200: {match: {vendor: "10de", product: "11b4"}}}'
ACCEPTED = f"version: 1\n{MODELS}\nhosts: {{gpu01: [k4200]}}\noptions: {{accept_tpm: true}}\n"


def jwe(header: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")


TPM2 = {"type": "systemd-tpm2", "keyslots": ["1"], "tpm2-pcrs": [7, 9], "tpm2-pcr-bank": "sha256"}
CLEVIS = {"clevis": {"pin": "tpm2", "tpm2": {"pcr_bank": "sha256", "pcr_ids": "8,9"}}}
TANG = {"clevis": {"pin": "tang", "tang": {"url": "http://tang"}}}


def header(*tokens: dict[str, Any]) -> bytes:
    """A LUKS2 header: binary part, then JSON."""
    text = json.dumps({"tokens": {str(n): token for n, token in enumerate(tokens)}, "keyslots": {}}).encode()
    return (b"LUKS\xba\xbe" + struct.pack(">HQ", 2, 16384)).ljust(4096, b"\0") + text.ljust(12288, b"\0")


def clevis(protected: dict[str, Any]) -> dict[str, Any]:
    return {"type": "clevis", "keyslots": ["2"], "jwe": {"protected": jwe(protected), "ciphertext": "x"}}


@pytest.mark.parametrize(
    ("content", "tokens", "unknown"),
    [
        (header(TPM2), [("systemd-tpm2", [7, 9])], None),
        (header(clevis(CLEVIS)), [("clevis-tpm2", [8, 9])], None),
        (header(clevis(TANG)), [("clevis-tang", [])], None),
        (
            header(
                clevis({"clevis": {"pin": "sss", "sss": {"t": 1, "jwe": [f"{jwe(TANG)}.a.b", f"{jwe(CLEVIS)}.a"]}}})
            ),
            [("clevis-tang", []), ("clevis-tpm2", [8, 9])],
            None,
        ),
        (header({"type": "systemd-recovery", "keyslots": ["3"]}), [("systemd-recovery", [])], None),
        (header(), [], None),
        (header({"type": "x\x1b[2J"}), [], "its header has invalid metadata"),
        (header({"type": "systemd-tpm2", "tpm2-pcrs": [99]}), [], "its header has invalid metadata"),
        (b"LUKS\xba\xbe\0\1" + bytes(8192), [], "it has no LUKS2 header"),
        (header(TPM2)[:4096] + b"{" * 12288, [], "its header has invalid metadata"),
        (None, [], "its header can't be read"),
    ],
)
def test_tokens_of_a_header(
    content: bytes | None, tokens: list[tuple[str, list[int]]], unknown: str | None, tmp_path: Path
) -> None:
    for name, text in (("dm/uuid", "CRYPT-LUKS2-0a1b-root"), ("dm/name", "cryptroot"), ("slaves/sda3/size", "1")):
        path = tmp_path / "sys/block/dm-0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    if content is not None:
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev/sda3").write_bytes(content)
    (volume,) = volumes(HostRoot(str(tmp_path)))
    assert [(token["type"], token["pcrs"]) for token in volume["tokens"]] == tokens
    assert (volume["device"], volume["name"], volume["unknown"]) == ("/dev/sda3", "cryptroot", unknown)


def codes(*tokens: dict[str, Any], present: bool = True, spec: str | None = None, **more: Any) -> list[str]:
    raw = snapshot("k4200")
    raw["tpm"] = {"present": present, "volumes": [{"device": "/dev/sda3", "name": "root", "tokens": tokens, **more}]}
    plan = plan_host(SPEC if spec is None else parse_spec(spec, "test"), parse_host(raw, "test"))
    return [f.code for f in plan.findings if f.severity == "error"]


def test_a_bound_register_that_changes_blocks() -> None:
    assert codes({"type": "systemd-tpm2", "pcrs": [7, 9]}) == ["GPU246"]
    assert codes({"type": "clevis-tpm2", "pcrs": [8]}) == ["GPU246"]
    assert codes({"type": "systemd-tpm2", "pcrs": [9]}, spec=ACCEPTED) == []


def test_harmless_bindings_are_accepted() -> None:
    assert codes({"type": "systemd-tpm2", "pcrs": [7]}) == []
    assert codes({"type": "clevis-tang", "pcrs": []}) == []
    assert codes({"type": "systemd-tpm2", "pcrs": [12]}) == []  # of systemd's loader
    assert codes({"type": "systemd-tpm2", "pcrs": [9]}, present=False) == []


def test_an_unreadable_header_blocks_only_with_a_tpm() -> None:
    assert codes(unknown="its header can't be read") == ["GPU247"]
    assert codes(unknown="its header can't be read", present=False) == []
    assert codes(unknown="its header can't be read", spec=ACCEPTED) == []


def test_an_undo_changes_the_registers_too() -> None:
    _, _, machine = load(CASES[0].with_name("prepared.yaml"))
    volume = {"device": "/dev/sda3", "name": "root", "tokens": [{"type": "systemd-tpm2", "pcrs": [9]}]}
    machine.raw["tpm"] = {"present": True, "volumes": [volume]}
    host = machine.host
    assert "GPU246" in [f.code for f in plan_undo(host).findings]
    assert "GPU246" not in [f.code for f in plan_undo(host, force=True).findings]
