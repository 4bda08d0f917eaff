"""The health of GPUs with their use: rows and findings find their GPUs, whichever name a host has."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.base.findings import Code, Severity
from gpustack.cloud.servers import Server
from gpustack.fleet.cards import models_of
from gpustack.fleet.health import with_use
from gpustack.fleet.index import Answers
from gpustack.fleet.placement import Consumer
from gpustack.fleet.read import with_vgpus
from gpustack.hosts.health.check import Report, check
from gpustack.spec.load import parse_spec
from support.fleet_answers import device, facts, server
from support.mediated_hosts import card, mediated_host

SPEC = """
version: 1
models: {large: {match: {vendor: "10de", product: "25b6"}, vgpu: {type: A16-8Q}}}
hosts: {"gpu*": [large]}
nova: {release: "2026.2", placement: "off"}
flavors: {large: {model: large, vcpus: 1, ram: 1GiB, disk: 0}}
"""


PASSED = 'version: 1\nmodels: {k: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {gpu1: [k]}\n'


def joined(**answers: Any) -> tuple[Report, ...]:
    known = Answers(**{"servers": (), "everything": True, "consumers": {}, **answers})
    return with_use([check(host) for host in known.hosts], known)[0]


def holding(held: dict[str, dict[str, int]], *servers: Server) -> dict[str, Any]:
    consumers = {uuid: Consumer(uuid=uuid, devices=amounts, project="p1", user="u1") for uuid, amounts in held.items()}
    return {"consumers": consumers, "servers": servers}


@pytest.mark.parametrize("name", ["gpu1", "gpu1.example.com"])
def test_a_gpu_has_its_instance_by_the_short_and_the_full_name(name: str) -> None:
    devices = (device("gpu1", 0x81, used=1), device("gpu1", 0x82))
    (report,) = joined(
        devices=devices, hosts=(facts(name, 0x81, 0x82),), **holding({"vm1": {"gpu1-81": 1}}, server("vm1", "gpu1"))
    )
    uses = [(health.use["state"], health.use["used"], health.use["instances"]) for health in report.gpus if health.use]
    assert uses == [("allocated", 1, "VM1"), ("free", 0, "-")]
    assert [[holder["server"] for holder in health.use["holders"]] for health in report.gpus if health.use] == [
        ["vm1"],
        [],
    ]


def test_a_finding_of_the_host_and_of_its_offer_is_one() -> None:
    raw = facts("gpu1", 0x81)
    lost = raw.with_pci(f.model_copy(update={"responds": False}) for f in raw.pci)
    spec = parse_spec(PASSED, "gpustack.yaml")
    (report,) = joined(devices=(device("gpu1", 0x81),), hosts=(lost,), spec=spec, models=models_of(spec))
    found = [entry.severity for entry in report.gpus[0].findings if entry.code == Code.DEVICE_NOT_RESPONDING]
    assert found == [Severity.ERROR]


def test_a_gpu_that_nova_lacks_has_no_use() -> None:
    first, second = joined(devices=(device("gpu1", 0x81),), hosts=(facts("gpu1", 0x81), facts("gpu2", 0x81)))
    assert [not health.use for report in (first, second) for health in report.gpus] == [False, True]


def of_vgpus(count: int, **more: Any) -> Report:
    """A card of which Placement has two devices, of a type with two; ``count`` instances have one each."""
    cards = (device("gpu1", 0x84, capacity=2, used=count, resource_class="VGPU", mediated=True),)
    names = [f"vm{number}" for number in range(count)]
    servers = with_vgpus([server(name, "gpu1", count=0, classes={"VGPU": 1}) for name in names], cards)
    spec = parse_spec(SPEC, "gpustack.yaml")
    (report,) = joined(
        devices=cards,
        hosts=(mediated_host(card("0000:84:00.0", **more), name="gpu1"),),
        spec=spec,
        models=models_of(spec),
        **holding({name: {"gpu1-84": 1} for name in names}, *servers),
    )
    return report


def test_vgpus_are_counted_by_card() -> None:
    (health,) = of_vgpus(1, used={"nvidia-711": "instance vm0"}).gpus
    assert (health.use["state"], health.use["units"], health.use["used"]) == ("A16-8Q, allocated (1 of 2)", 2, 1)
    assert health.findings == ()


def test_a_card_with_another_type_than_the_spec_has_the_finding_in_its_row() -> None:
    (health,) = of_vgpus(0, used={"nvidia-710": None}).gpus
    assert {"GPU712"} <= {entry.code.value for entry in health.findings}


def test_an_instance_whose_device_is_gone_has_the_finding_in_its_row() -> None:
    (health,) = of_vgpus(1).gpus
    (entry,) = (entry for entry in health.findings if entry.code is Code.VGPU_DEVICE_MISSING)
    assert (entry.place, "VM0" in entry.message) == ("gpu1 0000:84:00.0", True)


def test_a_provider_without_a_card_is_a_finding_of_its_host() -> None:
    devices = (device("gpu1", 0x81), device("gpu1", 0x82))
    (report,) = joined(devices=devices, hosts=(facts("gpu1", 0x81),))
    assert {entry.place for health in report.gpus for entry in health.findings} == {"gpu1 0000:81:00.0"}
    assert "gpu1 0000:82:00.0" in {entry.place for entry in report.others}


def test_findings_of_other_hosts_are_left_out() -> None:
    (report,) = joined(devices=(device("gpu2", 0x82, used=1),), hosts=(facts("gpu1", 0x81),))
    assert not [entry for entry in report.others if entry.place.startswith("gpu2")]
