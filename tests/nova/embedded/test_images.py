"""Images of a real Glance: what its list has, and what checks and changes make of it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpustack.cli.app import main
from gpustack.cloud.image import ImageCloud
from gpustack_demo.embedded.cloud import EmbeddedCloud

SPEC = """
version: 1
models:
  p100: {match: {vendor: "10de", product: "15f8"}}
  gtx: {match: {vendor: "10de", product: "1b80"}}
hosts: {gpu1: [p100, gtx]}
nova: {release: "2025.2"}
flavors:
  compute: {model: p100, vcpus: 4, ram: 8GiB, disk: 4, images: ["linux*"]}
  games: {model: gtx, vcpus: 4, ram: 8GiB, disk: 40, guest: windows, hide_hypervisor: false, images: [games]}
"""
GIB = 1 << 30
RELEASED = Path(__file__).parents[2] / "released/0.1.0"


@pytest.fixture(scope="module")
def cloud(release_name: str, report: Callable[[str], None]) -> Iterator[EmbeddedCloud]:
    with EmbeddedCloud(release_name, images=True, report=report) as running:
        yield running


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return str(path)


@pytest.fixture
def gpustack(
    cloud: EmbeddedCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command against the cloud: exit code, output, errors."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for key, value in cloud.variables().items():
        monkeypatch.setenv(key, value)

    def run(*argv: object) -> tuple[int, str, str]:
        code = main([str(word) for word in argv])
        return (code, *capsys.readouterr())

    return run


def upload(cloud: EmbeddedCloud, name: str, **fields: Any) -> str:
    """The id of a small raw image."""
    with cloud.connection() as connection:
        options = {"disk_format": "raw", "container_format": "bare", "visibility": "public", **fields}
        return str(connection.image.create_image(name=name, data=io.BytesIO(b"\0" * 512), wait=True, **options).id)


def test_properties_and_sizes_of_images_are_checked(
    cloud: EmbeddedCloud, spec: str, gpustack: Callable[..., tuple[int, str, str]]
) -> None:
    small = upload(cloud, "linux", hw_machine_type="pc", min_disk=5, os_secure_boot="required")
    games = upload(cloud, "games", hw_machine_type="q35", hw_firmware_type="uefi", os_type="Windows")
    code, out, err = gpustack("image", "check", spec, "-f", "json", "--exit-code")
    rows = {row["id"]: [entry["code"] for entry in row["findings"]] for row in json.loads(out)}
    assert code == 3, err
    assert rows == {small: ["GPU818", "GPU819", "GPU825", "GPU824", "GPU822"], games: ["GPU820", "GPU821"]}
    assert "GPU822 linux: needs 5 GiB of root disk; compute: 4 GiB" in err


def test_hidden_images_are_known_by_their_ids(
    cloud: EmbeddedCloud, spec: str, gpustack: Callable[..., tuple[int, str, str]]
) -> None:
    image = upload(cloud, "linux-old")
    body, kind = (
        [{"op": "replace", "path": "/os_hidden", "value": True}],
        "application/openstack-images-v2.1-json-patch",
    )
    with cloud.connection() as connection:
        assert connection.image.patch(f"/images/{image}", json=body, headers={"Content-Type": kind}).status_code == 200
    assert "GPU817 linux-old" in gpustack("image", "check", spec, "linux-old")[2]
    code, out, _ = gpustack("image", "check", spec, image, "-f", "json")
    assert (code, [(row["id"], row["flavors"]) for row in json.loads(out)]) == (0, [(image, ["compute"])])
    code, out, err = gpustack("image", "set", spec, image, "--yes")
    assert (code, "+ hw_machine_type = q35" in out, "1 done" in err) == (0, True, True), err


def test_all_pages_of_a_long_list_are_read(cloud: EmbeddedCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {upload(cloud, f"page-{number}", visibility="private") for number in range(5)}
    monkeypatch.setattr("gpustack.cloud.session.PAGE", 2)
    with cloud.connection() as connection:
        images = ImageCloud(connection).images()
    assert ids <= {image.id for image in images}
    assert len({image.id for image in images}) == len(images)


def test_properties_are_set_and_restored(
    cloud: EmbeddedCloud, spec: str, gpustack: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    image = upload(cloud, "games", os_type="Windows")

    def properties() -> dict[str, str]:
        with cloud.connection() as connection:
            (present,) = [entry for entry in ImageCloud(connection).images() if entry.id == image]
        return {key: value for key, value in present.properties.items() if key.startswith(("hw_", "img_", "os_t"))}

    journal = tmp_path / "journal.jsonl"
    code, out, err = gpustack("image", "set", spec, image)
    assert (code, properties()) == (2, {"os_type": "Windows"})  # no terminal
    assert "+ hw_machine_type = q35\n    ~ os_type = windows (was Windows)\n    + img_hide_hypervisor_id = true" in out
    code, out, err = gpustack("image", "set", spec, image, "--firmware", "uefi", "--yes", "--journal", journal)
    after = {
        "hw_machine_type": "q35",
        "hw_firmware_type": "uefi",
        "os_type": "windows",
        "img_hide_hypervisor_id": "true",
    }
    assert (code, properties()) == (0, after), err
    code, out, err = gpustack("image", "check", spec, image, "-f", "json")
    assert [row["findings"] for row in json.loads(out)] == [[]]
    assert "nothing to change" in gpustack("image", "set", spec, image, "--yes")[2]
    # Somebody changes one of the properties: the undo leaves the image alone.
    with cloud.connection() as connection:
        connection.image.update_image(image, hw_firmware_type="bios")
    code, out, err = gpustack("image", "undo", journal, "--yes")
    assert (code, properties()) == (14, {**after, "hw_firmware_type": "bios"}), err
    assert "games: skipped: changed since the plan: hw_firmware_type = bios (was uefi)" in err
    with cloud.connection() as connection:
        connection.image.update_image(image, hw_firmware_type="uefi")
    code, out, err = gpustack("undo", journal, "--yes")
    assert (code, properties()) == (0, {"os_type": "Windows"}), err
    # The undo of the undo, and its undo; then what 0.1.0 set.
    assert (gpustack("image", "undo", "--yes")[0], properties()) == (0, after)
    assert (gpustack("image", "undo", "--yes")[0], properties()) == (0, {"os_type": "Windows"})
    with cloud.connection() as connection:
        connection.image.update_image(image, os_type="windows", hw_machine_type="q35")
    text = (RELEASED / "image.jsonl").read_text().replace("11111111-0000-4000-8000-000000000000", image)
    (tmp_path / "released.jsonl").write_text(text)
    code, out, err = gpustack("image", "undo", tmp_path / "released.jsonl", "--yes")
    assert (code, properties()) == (0, {"os_type": "Windows"}), err
    assert "cannot be undone: change linux" in err
    assert "does not name its cloud" in err
