"""The sources of a question about a flavor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import UsageError
from gpustack.cloud.flavors import Flavor, Sizes
from gpustack.operate.capacity.assess import State
from gpustack.operate.why import read
from gpustack.operate.why.read import FlavorQuestion, WhySources, answer
from support.fleet_cloud import StandIn

SPEC = 'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {gpu1: [k4200]}\n'
FLAVOR = Flavor(
    id="id-1",
    name="g1",
    sizes=Sizes(vcpus=1, ram=512, disk=1),
    extra_specs={"pci_passthrough:alias": "k4200:1"},
)


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(read, "state", lambda *_arguments, **_options: State(hosts=(), flavors={"g1": FLAVOR}))
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


def test_a_flavor_is_found_by_name_or_id(spec: Path) -> None:
    for name in ("g1", "id-1"):
        found = answer(StandIn().connection, FlavorQuestion(name=name), WhySources(spec=spec))
        assert (found.capacity.demand.flavor, found.capacity.least, found.steps) == ("g1", 0, None)


def test_images_of_one_name_need_an_id(spec: Path) -> None:
    cloud = StandIn()
    images: list[dict[str, Any]] = [
        {"id": f"i{number}", "name": "ubuntu", "status": "active", "visibility": "public"} for number in (1, 2)
    ]
    cloud.answers["image /images"] = (200, {"images": images})
    with pytest.raises(UsageError, match="2 images are named 'ubuntu'"):
        answer(cloud.connection, FlavorQuestion(name="g1", image="ubuntu"), WhySources(spec=spec))
    assert answer(cloud.connection, FlavorQuestion(name="g1", image="i2"), WhySources(spec=spec)).capacity.most == 0
