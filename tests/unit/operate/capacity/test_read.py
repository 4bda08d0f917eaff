"""Compute nodes and their free resources with few requests, also where Placement answers less than asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpustack.base.errors import CloudError
from gpustack.cloud.compute import Hypervisor, hypervisors
from gpustack.operate.capacity.assess import State, accepted_by, assess
from gpustack.operate.capacity.model import Cards, Demand, Host, Reason
from gpustack.operate.capacity.read import accepted, rooms
from support.fleet_cloud import Answer, StandIn

DEMAND = Demand(
    flavor="f",
    gpus={"k4200": 1},
    amounts={"VCPU": 4, "MEMORY_MB": 1024},
    vcpus=4,
    ram=1024,
    required=frozenset({"CUSTOM_A"}),
    forbidden=frozenset({"CUSTOM_B"}),
)
QUERY = "resources=MEMORY_MB%3A1024%2CVCPU%3A4&required=CUSTOM_A%2C%21COMPUTE_STATUS_DISABLED%2C%21CUSTOM_B"


def entry(name: str, **more: Any) -> dict[str, Any]:
    """A hypervisor as Nova lists it."""
    sizes = {
        "running_vms": 2,
        "free_ram_mb": 1000,
        "vcpus": 8,
        "vcpus_used": 3,
        "free_disk_gb": 50,
        "disk_available_least": 40,
    }
    service = {"host": name, "id": "s", "disabled_reason": None}
    return {
        "id": f"uuid-{name}",
        "hypervisor_hostname": name,
        "service": service,
        "status": "enabled",
        "state": "up",
        **sizes,
        **more,
    }


def summary(root: str, resources: dict[str, tuple[int, int]]) -> dict[str, Any]:
    known = {name: {"capacity": capacity, "used": used} for name, (capacity, used) in resources.items()}
    return {"root_provider_uuid": root, "parent_provider_uuid": None, "resources": known, "traits": ["CUSTOM_A"]}


def candidates(**summaries: Any) -> Answer:
    return 200, {"provider_summaries": summaries, "allocation_requests": []}


def providers(*roots: str) -> Answer:
    entries = [{"uuid": root, "name": root, "root_provider_uuid": root, "generation": 1} for root in roots]
    return 200, {"resource_providers": entries}


def test_hypervisors_have_their_services_and_free_resources() -> None:
    entries = [entry("gpu1"), entry("gpu2", state="down", status="disabled", disk_available_least=None)]
    entries.append(entry("new", free_ram_mb=None, free_disk_gb=None, vcpus=None, vcpus_used=None))
    cloud = StandIn({"compute /os-hypervisors/detail": (200, {"hypervisors": entries})})
    first, second, new = hypervisors(cloud.connection)
    assert first == Hypervisor(
        uuid="uuid-gpu1", node="gpu1", host="gpu1", ram=1000, cpus=5, disk=40 * 1024, instances=2
    )
    assert (second.enabled, second.up, second.disk) == (False, False, 50 * 1024)
    assert (new.ram, new.cpus, new.disk) == (0, 0, 0)
    assert len(cloud.requests) == 1


@pytest.mark.parametrize("answer", [(403, {}), (500, {}), (200, {}), (200, {"hypervisors": [{"id": 1}]}), (200, [])])
def test_a_refusal_or_malformed_answer_is_an_error(answer: Answer) -> None:
    cloud = StandIn({"compute /os-hypervisors/detail": answer})
    with pytest.raises(CloudError, match="can't list hypervisors"):
        hypervisors(cloud.connection)
    cloud = StandIn({"placement /allocation_candidates": answer})
    with pytest.raises(CloudError, match="can't read the free resources"):
        rooms(cloud.connection, [])


def test_one_request_has_the_free_resources_of_all_hosts() -> None:
    answer = candidates(
        a=summary("a", {"VCPU": (16, 4), "MEMORY_MB": (4096, 1024), "DISK_GB": (100, 1)}),
        gpu=summary("a", {"CUSTOM_PCI_10DE_11B4": (1, 0)}),
    )
    cloud = StandIn({"placement /allocation_candidates": answer})
    found = rooms(cloud.connection, ["a"])
    assert found.amounts == {"a": {"VCPU": 12, "MEMORY_MB": 3072, "DISK_GB": 99}}
    assert found.capacities == {"a": {"VCPU": 16, "MEMORY_MB": 4096, "DISK_GB": 100}}
    assert not found.shared
    assert found.traits == {"a": {"CUSTOM_A"}}
    assert len(cloud.requests) == 1


def test_hosts_beyond_the_limit_of_candidates_are_read_one_by_one() -> None:
    known = {name: summary(name, {"MEMORY_MB": (10, 1)}) for name in ("a", "b")}

    def answer(path: str) -> Answer:
        name = path.partition("in_tree=")[2] or "a"
        return candidates(**{name: known[name]}) if name in known else candidates()

    cloud = StandIn({"placement /allocation_candidates": answer})
    cloud.answers["placement /resource_providers?resources=MEMORY_MB:1"] = providers("a", "b")
    assert rooms(cloud.connection, ["a", "b", "full"]).amounts.keys() == {"a", "b"}
    assert len(cloud.requests) == 3


def test_disk_of_a_shared_pool_is_recognized() -> None:
    host = summary("a", {"MEMORY_MB": (10, 1)})
    pool = summary("p", {"DISK_GB": (1000, 1)})
    cloud = StandIn({"placement /allocation_candidates": candidates(a=host, p=pool)})
    assert rooms(cloud.connection, ["a"]).shared == {"a"}
    cloud = StandIn({"placement /allocation_candidates": candidates(a=host)})
    assert not rooms(cloud.connection, ["a"]).shared


def test_disk_of_other_hosts_is_no_shared_pool() -> None:
    both = {"a": summary("a", {"MEMORY_MB": (10, 1), "DISK_GB": (9, 1)}), "b": summary("b", {"MEMORY_MB": (10, 1)})}
    cloud = StandIn({"placement /allocation_candidates": candidates(**both)})
    assert not rooms(cloud.connection, ["a", "b"]).shared


LIST = "placement /resource_providers?"
OF_CLASS = f"{LIST}resources={{}}&required=%21COMPUTE_STATUS_DISABLED%2C%21CUSTOM_B"


def listing(*accepting: str, memory: str, processors: str, trait: str, sharing: str = "") -> StandIn:
    """A Placement that lists providers by their names, of which each has one letter."""
    return StandIn(
        {
            f"{LIST}{QUERY}": providers(*accepting),
            OF_CLASS.format("MEMORY_MB%3A1024"): providers(*memory),
            OF_CLASS.format("VCPU%3A4"): providers(*processors),
            f"{LIST}required=MISC_SHARES_VIA_AGGREGATE": providers(*sharing),
            f"{LIST}required=CUSTOM_A": providers(*trait),
            f"placement /allocation_candidates?{QUERY}": candidates(),
        }
    )


def test_placement_is_asked_with_amounts_and_traits() -> None:
    cloud = listing("a", memory="", processors="", trait="")
    assert accepted(cloud.connection, DEMAND, ["a"]) == {"a"}
    assert cloud.requests == [f"{LIST}{QUERY}"]


def test_placement_is_asked_about_hosts_with_room_only() -> None:
    """Hosts without room count as accepted: another step refuses them."""
    free = Host(uuid="a", name="gpu1", cards=(Cards(aliases=DEMAND.aliases),), amounts=DEMAND.amounts)
    full = Host(uuid="b", name="gpu2", cards=(), amounts=DEMAND.amounts)
    for accepting in ("a", ""):
        cloud = listing(*accepting, memory="", processors="", trait="")
        assert accepted_by(cloud.connection, State(hosts=(free, full)), DEMAND) == [{*accepting, "b"}]
    assert accepted_by(StandIn().connection, State(hosts=(full,)), DEMAND) is None


@pytest.mark.parametrize("reason", [Reason.DOWN, Reason.CELL])
def test_placement_is_asked_before_the_filters(reason: Reason) -> None:
    """The limit of a host is the first step that refuses: a missing trait, although a later step refuses too."""
    down = Host(uuid="a", name="gpu1", cards=(Cards(aliases=DEMAND.aliases),), amounts=DEMAND.amounts, closed=reason)
    for accepting, expected in (("a", reason), ("", Reason.PLACEMENT)):
        cloud = listing(*accepting, memory="", processors="", trait="")
        (limit,) = assess(cloud.connection, State(hosts=(down,)), DEMAND).limits
        assert limit.reason == expected
    taken = replace(down, cards=())
    cloud = listing(memory="", processors="", trait="")
    assert accepted_by(cloud.connection, State(hosts=(taken,)), DEMAND, full=True) == [frozenset()]


@pytest.mark.parametrize("count", [10, 40])
def test_no_request_is_for_one_host_that_placement_refuses(count: int) -> None:
    """Full hosts, hosts without the trait, and closed ones, which are not in the lists of classes."""
    nodes = [chr(0x4E00 + number) for number in range(3 * count)]
    full, plain, closed = nodes[:count], nodes[count : 2 * count], nodes[2 * count :]
    cloud = listing("a", memory="".join(["a", *plain]), processors="".join(["a", *full, *plain]), trait="a")
    assert accepted(cloud.connection, DEMAND, ["a", *full, *plain, *closed]) == {"a"}
    assert len(cloud.requests) == 5


def test_hosts_with_a_part_from_another_provider_are_found() -> None:
    """One is in the answer of candidates, and one beyond their limit."""
    cloud = listing("a", memory="abcd", processors="abcd", trait="s", sharing="s")
    cloud.answers[f"placement /allocation_candidates?{QUERY}"] = candidates(b=summary("b", {}))
    cloud.answers[f"placement /allocation_candidates?{QUERY}&in_tree=c"] = candidates(c=summary("c", {}))
    cloud.answers[f"placement /allocation_candidates?{QUERY}&in_tree=d"] = candidates()
    assert accepted(cloud.connection, DEMAND, ["a", "b", "c", "d"]) == {"a", "b", "c"}
    assert len(cloud.requests) == 1 + 1 + 2 + 1 + 2


def test_a_request_with_an_unknown_trait_has_no_answer() -> None:
    cloud = StandIn({"placement /resource_providers": (400, {"errors": [{"detail": "No such trait(s)"}]})})
    assert accepted(cloud.connection, DEMAND, ["a"]) is None
    cloud = StandIn({"placement /resource_providers": (503, {})})
    with pytest.raises(CloudError):
        accepted(cloud.connection, DEMAND, ["a"])
