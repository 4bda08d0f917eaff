"""The hosts of a cloud with their free resources. The cloud is a stand-in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpustack.base.errors import UsageError
from gpustack.base.findings import Code
from gpustack.hosts.facts.store import load_snapshot
from gpustack.nova_options.releases import release
from gpustack.nova_options.scheduler import Scheduler
from gpustack.novadb.sources import Sources
from gpustack.offer.flavor.desired import wanted
from gpustack.operate.capacity.assess import State, count_all, state
from gpustack.operate.capacity.model import Reason
from gpustack.spec.load import load_spec, parse_spec
from support import growing_fleets
from support.fleet_cloud import hypervisor


def read(directory: Path, zone: str, scheduler: Scheduler | None = None) -> State:
    """The state of a cloud of two hosts, of which one is in the zone ``az1``; nobody is in ``az2``."""
    sizes = growing_fleets.Sizes(hosts=2)
    places = growing_fleets.written(directory, sizes)
    cloud = growing_fleets.cloud(sizes)
    zones = {"az1": ["gpu00001"], "az2": []}
    aggregates = [
        {"id": 9, "uuid": name, "name": name, "hosts": hosts, "metadata": {"availability_zone": name}}
        for name, hosts in zones.items()
    ]
    cloud.answers["compute /os-aggregates"] = (200, {"aggregates": aggregates})
    facts = load_snapshot(places["snapshot"])
    spec = load_spec(places["spec"], facts)
    return state(cloud.connection, spec, facts=facts, zone=zone, scheduler=scheduler)


@pytest.mark.parametrize(
    ("zone", "scheduler", "refused"),
    [
        ("", None, 0),
        ("az1", None, 1),
        ("az2", None, 2),
        ("nova", None, 0),  # Nova places such instances on hosts of every zone
        ("rest", Scheduler(unzoned="rest"), 0),
        ("", Scheduler(zone="az1"), 1),
        ("nova", Scheduler(zone="az1"), 0),
        ("", Scheduler(zone="gone"), 0),
    ],
)
def test_a_zone_that_an_aggregate_has_leaves_out_other_hosts(
    tmp_path: Path, zone: str, scheduler: Scheduler | None, refused: int
) -> None:
    found = read(tmp_path, zone, scheduler)
    assert sum(host.closed is Reason.ZONE for host in found.hosts) == refused
    assert {entry.name for entry in found.aggregates} == {"az1", "az2"}


def test_databases_of_another_region_are_reported(tmp_path: Path) -> None:
    """Its hosts may have the same names; the uuids of their compute nodes differ."""
    sizes = growing_fleets.Sizes(hosts=2)
    conf, spec = growing_fleets.databases(tmp_path, sizes), load_spec(growing_fleets.written(tmp_path, sizes)["spec"])

    def gaps() -> Sequence[str]:
        databases = lambda: Sources.from_nova_conf([conf])  # noqa: E731
        return state(growing_fleets.cloud(sizes).connection, spec, databases=databases).gaps

    assert gaps() == ()
    with sa.create_engine(f"sqlite:///{tmp_path}/cell.sqlite", poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql("UPDATE compute_nodes SET uuid = 'node-' || host")
    (gap,) = gaps()
    assert gap.endswith("--config-file is of another cloud or region")


def test_an_unknown_zone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no aggregate has the availability zone 'az3'") as wrong:
        read(tmp_path, "az3")
    assert wrong.value.remedy == "zones of aggregates: az1, az2"


SPEC = """
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {"gpu[1:2]": [k4200]}
nova: {release: "2025.2", placement: schedule}
flavors: {one: {model: k4200, vcpus: 2, ram: 4GiB, disk: 10}}
"""


def test_a_host_without_a_mapping_gets_no_instance_and_the_reason_is_reported() -> None:
    spec, gpus = parse_spec(SPEC, "spec"), [(f"0000:{bus}:00.0", "CUSTOM_PCI_10DE_11B4") for bus in (84, 88)]
    cloud = growing_fleets.cloud_of({"gpu1": gpus, "gpu2": gpus})
    cloud.answers["compute /os-hypervisors/detail"] = (200, {"hypervisors": [hypervisor("gpu2", "gpu2")]})
    flavors = wanted(spec, release=release("2025.2")).flavors
    (counted,), found, gaps = count_all(cloud.connection, spec, flavors)
    assert (counted.least, counted.most, gaps) == (1, 1, ())
    assert [(limit.reason, limit.hosts) for limit in counted.limits] == [(Reason.UNMAPPED, ("gpu1",))]
    assert [entry.place for entry in found if entry.code == Code.HOST_NOT_MAPPED] == ["gpu1"]
