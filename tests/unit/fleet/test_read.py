"""What is asked for which detail, and what remains if a source does not answer."""

from __future__ import annotations

import pytest
from keystoneauth1.exceptions import ConnectTimeout

from gpustack.base.errors import CloudError
from gpustack.fleet.join import join
from gpustack.fleet.model import Fleet, Source
from gpustack.fleet.read import Detail, Given, read
from gpustack.fleet.summary import noted
from support.fleet_answers import device
from support.fleet_cloud import StandIn, instance, servers, service, with_devices

LISTING = "compute /servers/detail?all_tenants=1"
DEVICES = [device("gpu1", 0x81, used=1), device("gpu1", 0x82), device("gpu2", 0x81, used=1)]
SERVICES = "compute /os-services?binary=nova-compute"
DEAD = ConnectTimeout("nobody answers")


def cloud() -> StandIn:
    stand_in = with_devices(DEVICES, {"vm1": {"gpu1-81": 1}, "vm2": {"gpu2-81": 1}})
    stand_in.answers[LISTING] = servers(instance("vm1"), instance("vm2", "gpu2"))
    return stand_in


def fleet(stand_in: StandIn, detail: Detail = Detail.HOLDERS, **given: frozenset[str]) -> Fleet:
    return join(read(lambda: stand_in.connection, detail, Given(**given)))


def test_requests_of_each_detail() -> None:
    expected = {
        Detail.STATES: 2 + 3,  # instances, services and compute nodes
        Detail.PROJECTS: 2 + 3 + 1,  # also names of projects
        Detail.HOLDERS: 2 + 3 + 2 + 2,  # also two instances with GPUs, names
    }
    for detail, count in expected.items():
        stand_in = cloud()
        assert fleet(stand_in, detail).complete
        assert len(stand_in.requests) == count, stand_in.requests


def test_one_host_asks_for_its_instances_only() -> None:
    stand_in = cloud()
    listed = fleet(stand_in, only=frozenset({"GPU1"})).gpus
    assert [len(gpu.holders) for gpu in listed if gpu.host == "gpu1"] == [1, 0]
    assert not [line for line in stand_in.requests if "vm2" in line]


def test_names_and_holders() -> None:
    result = fleet(cloud())
    assert (result.projects, result.users) == ({"p1": "research"}, {"u1": "ada"})
    assert [gpu.server.id if gpu.server else None for gpu in result.gpus] == ["vm1", None, "vm2"]


@pytest.mark.parametrize("failure", [DEAD, (403, {}), (500, {}), (200, {})])
def test_a_placement_that_does_not_answer_is_a_gap(failure: object) -> None:
    stand_in = cloud()
    stand_in.answers["placement /"] = stand_in.answers["placement /resource_providers"] = failure  # type: ignore[assignment]
    result = fleet(stand_in)
    assert [gap.source for gap in result.partial] == [Source.PLACEMENT]
    assert [(gpu.host, gpu.address) for gpu in result.gpus] == [("gpu1", ""), ("gpu2", "")]


def test_a_nova_that_does_not_answer_is_a_gap() -> None:
    stand_in = cloud()
    stand_in.answers[LISTING] = DEAD
    result = fleet(stand_in)
    assert [gap.source for gap in result.partial] == [Source.NOVA]
    assert [gpu.state.value for gpu in result.gpus] == ["allocated", "free", "allocated"]


def test_holders_that_cannot_be_read_leave_the_states() -> None:
    stand_in = cloud()
    stand_in.answers["placement /allocations/vm2"] = (500, {})
    result = fleet(stand_in)
    assert [gpu.state.value for gpu in result.gpus] == ["allocated", "free", "allocated"]
    assert [gap.source for gap in result.partial] == [Source.PLACEMENT]
    assert result.findings == ()


def test_without_any_answer_there_is_an_error() -> None:
    with pytest.raises(CloudError):
        fleet(StandIn({"compute /": DEAD, "placement /": DEAD}))


def test_strangers_are_looked_up() -> None:
    """A migration, an instance without devices in its flavor, and somebody that Nova does not have."""
    devices = [device("gpu1", bus, used=1) for bus in (0x81, 0x82, 0x83)]
    devices.append(device("gpu2", 0x81))
    stand_in = with_devices(devices, {"move": {"gpu1-81": 1}, "plain": {"gpu1-82": 1}, "lost": {"gpu1-83": 1}})
    plain = instance("plain", flavor={"original_name": "small", "extra_specs": {}})
    stand_in.answers[LISTING] = servers(instance("vm1", "gpu2", status="VERIFY_RESIZE"), plain)
    stand_in.answers["compute /servers/plain"] = (200, {"server": plain})
    stand_in.answers["placement /allocations/vm1"] = (200, {"allocations": {}})
    stand_in.answers["compute /os-migrations?"] = (
        200,
        {"migrations": [{"uuid": "move", "instance_uuid": "vm1", "status": "running"}]},
    )
    result = fleet(stand_in)
    holders = [holder for gpu in result.gpus for holder in gpu.holders]
    assert [holder.server.id if holder.server else None for holder in holders] == ["vm1", "plain", None]
    assert sorted(finding.code for finding in result.findings) == ["GPU701", "GPU703"]


def test_what_does_not_fit_is_read_again() -> None:
    """An instance was deleted, another was resized, and a third was booted since the instances were listed."""
    devices = [device("gpu1", 0x81, used=1), device("gpu1", 0x82, used=1)]
    stand_in = with_devices(devices, {"new": {"gpu1-81": 1}, "grown": {"gpu1-82": 1}})
    stand_in.answers["placement /allocations/gone"] = (200, {"allocations": {}})
    none = {"original_name": "small", "extra_specs": {}}
    stand_in.answers[LISTING] = servers(instance("gone"), instance("grown", flavor=none))
    for uuid in ("new", "grown"):
        stand_in.answers[f"compute /servers/{uuid}"] = (200, {"server": instance(uuid)})
    result = fleet(stand_in)
    assert (result.findings, result.partial) == ((), ())
    assert [server.id for server in result.servers] == ["grown", "new"]
    # What is still so is reported.
    stand_in.answers["compute /servers/gone"] = (200, {"server": instance("gone")})
    assert [finding.code for finding in fleet(stand_in).findings] == ["GPU704"]
    stand_in.answers["compute /servers/gone"] = (500, {})
    assert (fleet(stand_in).findings, len(fleet(stand_in).partial)) == ((), 1)


def test_names_that_may_not_be_read_leave_ids() -> None:
    stand_in = cloud()
    stand_in.answers["identity /"] = stand_in.answers["identity /projects"] = (403, {})
    stand_in.answers["identity /users"] = (403, {})
    result = fleet(stand_in)
    assert (result.projects, result.users, result.complete) == ({}, {}, True)


def test_a_project_that_keystone_does_not_have() -> None:
    stand_in = cloud()
    stand_in.answers["identity /projects"] = (200, {"projects": []})
    stand_in.answers["identity /projects/p1"] = (404, {"error": {"message": "no"}})
    assert {finding.code for finding in fleet(stand_in).findings} == {"GPU708"}
    stand_in.answers["identity /projects/p1"] = (403, {"error": {"message": "no"}})  # of another domain
    assert fleet(stand_in).findings == ()


def test_free_gpus_of_a_host_that_is_down_are_noted() -> None:
    stand_in = cloud()
    down = service("gpu1", state="down")
    stand_in.answers[SERVICES] = (200, {"services": [down, service("gpu2")]})
    result = fleet(stand_in, Detail.STATES)
    assert noted(result).notes == (
        "free GPUs on hosts whose nova-compute is down, which no new instance gets: 1 on gpu1",
    )
    assert [gpu.service for gpu in result.gpus] == ["down", "down", "up"]
    # The services of a cell that does not answer.
    unknown = {"host": "gpu1", "binary": "nova-compute", "status": "UNKNOWN"}
    stand_in.answers[SERVICES] = (200, {"services": [unknown]})
    result = fleet(stand_in, Detail.STATES)
    assert ([gap.reason for gap in result.partial], [gpu.service for gpu in result.gpus]) == (
        ["a cell does not answer: the states of 1 nova-compute services are unknown"],
        ["", "", ""],
    )
    for refusal in (DEAD, (403, {}), (200, {"services": [{}]})):
        stand_in.answers[SERVICES] = refusal
        (gap,) = fleet(stand_in, Detail.STATES).partial
        assert gap.reason.endswith("free GPUs may be on hosts whose nova-compute is down")


def test_idle_nodes_have_the_name_of_their_service() -> None:
    stand_in = with_devices([device("gpu1.example.org", 0x81)])
    stand_in.answers[LISTING] = servers()
    stand_in.answers[SERVICES] = (200, {"services": [service("gpu1"), service("gpu11")]})
    for only in (frozenset(), frozenset({"gpu1"})):
        assert [(gpu.host, gpu.node) for gpu in fleet(stand_in, only=only).gpus] == [("gpu1", "gpu1.example.org")]


def test_states_include_hosts_that_report_nothing_to_placement() -> None:
    stand_in = cloud()
    stand_in.answers[LISTING] = servers(instance("vm1"), instance("vm3", "gpu9"))
    result = fleet(stand_in, Detail.STATES)
    assert {(count.host, count.used, count.free) for count in result.counts} == {
        ("gpu1", 1, 1),
        ("gpu2", 1, 0),
        ("gpu9", 1, None),
    }
    assert not result.located
    stand_in.answers[LISTING] = DEAD
    assert [gap.source for gap in fleet(stand_in, Detail.STATES).partial] == [Source.NOVA]


def test_free_gpus_of_a_host_without_a_mapping_are_noted_and_reported() -> None:
    stand_in = cloud()
    status, content = stand_in.answers["compute /os-hypervisors/detail"]  # type: ignore[misc]
    stand_in.answers["compute /os-hypervisors/detail"] = (status, {"hypervisors": content["hypervisors"][1:]})
    found = noted(fleet(stand_in, Detail.STATES))
    assert {gpu.host: gpu.service for gpu in found.gpus} == {"gpu1": "unmapped", "gpu2": "up"}
    assert [(entry.code, entry.place) for entry in found.findings] == [("GPU719", "gpu1")]
    assert "free GPUs on hosts whose nova-compute is unmapped, which no new instance gets: 1 on gpu1" in found.notes


@pytest.mark.parametrize("status", [403, 404])
def test_compute_nodes_that_may_not_be_read_show_no_missing_mapping(status: int) -> None:
    stand_in = cloud()
    stand_in.answers["compute /os-hypervisors/detail"] = (status, {})
    found = fleet(stand_in, Detail.STATES)
    assert ({gpu.service for gpu in found.gpus}, found.partial) == ({"up"}, ())
