"""The hosts of a cloud with their free resources. The cloud is a stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.base.errors import UsageError
from gpustack.hosts.facts.store import load_snapshot
from gpustack.nova_options.scheduler import Scheduler
from gpustack.operate.capacity.assess import State, state
from gpustack.operate.capacity.model import Reason
from gpustack.spec.load import load_spec
from support import growing_fleets


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


def test_an_unknown_zone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no aggregate has the availability zone 'az3'") as wrong:
        read(tmp_path, "az3")
    assert wrong.value.remedy == "zones of aggregates: az1, az2"
