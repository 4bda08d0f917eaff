"""``gpustack image``: output and exit codes. The cloud is a stand-in; tests/nova/embedded has a real Glance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpustack.cli.cloud import OpenStackCommand
from support.fleet_cloud import StandIn

SPEC = """
version: 1
models: {p100: {match: {vendor: "10de", product: "15f8"}}}
hosts: {gpu1: [p100]}
nova: {release: "2025.2"}
flavors: {f: {model: p100, vcpus: 4, ram: 8GiB, disk: 40, images: ["d*", gone]}}
"""
GOOD = {
    "id": "1",
    "name": "debian",
    "status": "active",
    "visibility": "public",
    "hw_machine_type": "q35",
    "hw_firmware_type": "bios",
}
HOSTILE = {**GOOD, "id": "2", "name": "d\x1b[2J\n\u202e", "os_type": "\x1b[2J", "hw_machine_type": "pc\x1b[2J"}
LISTING = "image /images?visibility=all&limit=1000"


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return str(path)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn({LISTING: (200, {"images": [GOOD, HOSTILE]})})
    monkeypatch.setattr(OpenStackCommand, "connection", lambda *arguments, **options: stand_in)
    return stand_in


def test_images_of_flavors_are_checked_in_one_request(cloud: StandIn, spec: str, gpustack: Any) -> None:
    ran = gpustack("image", "check", spec, "-f", "json", "--exit-code")
    rows = {row["id"]: [entry["code"] for entry in row["findings"]] for row in json.loads(ran.out)}
    assert (ran.code, rows) == (3, {"1": [], "2": ["GPU818"]})
    assert "WARNING GPU817 gone: no active image" in ran.err
    assert cloud.requests == [LISTING]
    for form in ("table", "csv", "yaml", "value"):
        ran = gpustack("image", "check", spec, "-f", form)
        assert (ran.code, "GPU818" in ran.out, "\x1b" in ran.out + ran.err) == (0, True, False)


def test_the_command_line_names_images(cloud: StandIn, spec: str, gpustack: Any) -> None:
    ran = gpustack("image", "check", spec, "debian", "--exit-code", "-f", "csv")
    assert (ran.code, ran.err) == (0, "")
    assert '"debian","1","f","-","q35","bios","ok"' in ran.out


@pytest.mark.parametrize(
    ("names", "properties", "is_next"),
    [
        (["debian"], {"hw_machine_type": None}, True),
        (["debian"], {"hw_machine_type": "pc"}, False),  # kept
        (["debian", "gone"], {"hw_machine_type": None}, False),  # `image set` refuses unknown names
    ],
)
def test_the_next_command_is_one_that_changes_images(
    names: list[str], properties: dict[str, str], is_next: bool, cloud: StandIn, spec: str, gpustack: Any
) -> None:
    cloud.answers[LISTING] = (200, {"images": [{**GOOD, **properties}]})
    ran = gpustack("image", "check", spec, *names)
    assert (ran.code, "Next: gpustack image set" in ran.err) == (0, is_next), ran.err


def test_a_cloud_without_glance_is_an_error(cloud: StandIn, spec: str, gpustack: Any) -> None:
    cloud.answers.clear()
    ran = gpustack("image", "check", spec)
    assert "can't list images: HTTP 404" in ran.err
    assert ran.code not in (0, 1)
