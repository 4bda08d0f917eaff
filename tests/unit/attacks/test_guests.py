"""Vendor data goes to every instance: it names no flavor of a single project, however the spec states the access."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.offer.guest import check
from support.attacks import attacked, run, variants

ACCESS = ("[team-a]", "[team-a, team-b]", "[0123456789abcdef0123456789abcdef]")
FLAVORS = '"secret-{count}": {model: k4200, count: [1, 2], vcpus: 2, ram: 4GiB, disk: 40GiB'
SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu01: [k4200]}
nova: {release: "2025.2"}
flavors:
  open: {model: k4200, count: 1, vcpus: 2, ram: 4GiB, disk: 40GiB}
"""
PROMISES = check.promises


def hidden(access: str, directory: Path) -> None:
    path = directory / "gpustack.yaml"
    path.write_text(f"{SPEC}  {FLAVORS}, access: {access}}}\n", encoding="utf-8")
    code, text = run("guest vendordata", "spec", path, directory)
    assert code == 0, text
    assert "open" in text
    assert "secret" not in text
    assert "2 flavors of single projects omitted" in text


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    variants(hidden, {access: access for access in ACCESS}),
    {"gpustack.offer.guest.check:promises": {"gpustack.offer.guest.check:promises": lambda spec, **_: PROMISES(spec)}},
)


def test_attacks_need_a_spec(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        hidden("5", tmp_path)
