"""The fields of one GPU."""

from __future__ import annotations

from datetime import datetime

import pytest

from gpustack.base.errors import PartialError, UsageError
from gpustack.cloud.servers import Event
from gpustack.fleet.index import Answers, named
from gpustack.fleet.join import join
from gpustack.fleet.model import Gap, Source
from gpustack.fleet.placement import Consumer
from gpustack.fleet.story import chosen, history, shown, story
from support.fleet_answers import device, facts, server
from support.fleet_cloud import StandIn

AT = datetime.fromisoformat("2026-01-02T03:04:05")


def test_card_host_holder_and_history() -> None:
    hosts = (facts("gpu1.example.org", 0x81), facts("gpu2", 0x81))
    consumer = Consumer(uuid="vm1", project="p1", user="u1", devices={"gpu1-81": 1})
    answers = Answers(
        devices=(device("gpu1", 0x81, used=1),),
        servers=(server("vm1", "gpu1", since=AT),),
        consumers={"vm1": consumer},
        hosts=hosts,
        projects={"p1": "research"},
        users={"u1": "ada"},
    )
    fleet = join(answers)
    gpu = chosen(fleet, "gpu1", "0000:81:00.0")
    fields = story(
        fleet, gpu, named(hosts, {gpu.host, gpu.node}), [Event(at=AT, server="vm1", what="create", user="u1")]
    )
    assert (fields["model"], fields["driver"], fields["required_driver"]) == (
        "NVIDIA Quadro K4200",
        "vfio-pci",
        "vfio-pci",
    )
    assert (fields["iommu_group"], fields["numa_node"], fields["memory"]) == (0x81, 0, "4 GiB")
    assert "R470" in shown(fields["requirements"])
    assert shown(fields["history"]) == "2026-01-02T03:04:05Z create by ada"
    holder = shown(fields["holders"])
    assert holder == "VM1 (vm1), project research, user ada, flavor g1, status ACTIVE, since 2026-01-02T03:04:05Z"
    assert (shown(None), shown([]), shown(False), fields["findings"]) == ("-", "-", "no", [])


@pytest.mark.parametrize(("user", "ends"), [("", " create"), ("u9", " create by u9"), ("u1", " create by ada")])
def test_history_names_users_as_far_as_they_are_known(user: str, ends: str) -> None:
    fleet = join(Answers(devices=(device("gpu1", 0x81),), users={"u1": "ada"}))
    events = [Event(at=AT, server="vm1", what="create", user=user)]
    fields = story(fleet, fleet.gpus[0], [], events)
    assert shown(fields["history"]) == f"2026-01-02T03:04:05Z{ends}"


def test_a_name_adds_no_line_to_a_field() -> None:
    """Tenants and users choose names; `-f value` has a line for each entry."""
    name = "vm\navailable\u2028x"
    holders = [{"project_name": name, "user_name": name, "server_name": name, "consumer": "vm1", "migration": False}]
    holders[0] |= dict.fromkeys(("project", "user", "flavor", "status", "since", "server"), "")
    event = {"event": name, "source": None, "target": None, "user": "u", "user_name": name, "at": None}
    for field, number in ((holders * 2, 2), ([event], 1), ([name], 1), (name, 1)):
        assert len(shown(field).splitlines()) == number
        assert "\\navailable\\u2028x" in shown(field)


def test_a_gpu_that_is_not_there() -> None:
    fleet = join(Answers(devices=(device("gpu1", 0x81),)))
    with pytest.raises(UsageError, match=r"0000:81:00\.0"):
        chosen(fleet, "gpu1", "0000:99:00.0")
    with pytest.raises(UsageError, match="gpu list"):
        chosen(fleet, "gpu2", "0000:81:00.0")
    with pytest.raises(UsageError, match="--config-file"):
        chosen(join(Answers(servers=(server("vm1", "gpu1"),))), "gpu1", "0000:81:00.0")


def test_a_gpu_that_a_silent_source_may_have() -> None:
    gap = Gap(source=Source.PLACEMENT, reason="nobody answers")
    for answers in (Answers(gaps=(gap,)), Answers(servers=(server("vm1", "gpu1"),), gaps=(gap,))):
        with pytest.raises(PartialError, match=r"whether gpu1 has a GPU 0000:81:00\.0 .* unknown: Placement: nobody"):
            chosen(join(answers), "gpu1", "0000:81:00.0")


def test_history_is_complete_or_names_what_is_missing() -> None:
    action = {"action": "create", "start_time": "2026-01-02T03:04:05.000000", "user_id": "u1", "message": None}
    failed = {**action, "action": "migrate", "start_time": "2026-01-03T03:04:05.000000", "message": "Error"}
    move = {
        "uuid": "m",
        "instance_uuid": "vm1",
        "status": "error",
        "created_at": "2026-01-03T04:00:00.000000",
        "migration_type": "migration",
    }
    cloud = StandIn(
        {
            "compute /servers/vm1/os-instance-actions": (200, {"instanceActions": [action, failed]}),
            "compute /os-migrations?instance_uuid=vm1": (200, {"migrations": [{**move, "dest_compute": "gpu2"}]}),
        }
    )
    events, missing = history(cloud.connection, "vm1")
    texts = [event.to_dict()["event"] for event in events]
    assert (texts, missing) == (["migration: error", "migrate (failed)", "create"], "")
    assert [(event.what, event.failed) for event in events][1:] == [("migrate", True), ("create", False)]
    cloud.answers["compute /os-migrations?instance_uuid=vm1"] = (403, {})
    events, missing = history(cloud.connection, "vm1")
    assert (len(events), "migrations" in missing) == (2, True)
