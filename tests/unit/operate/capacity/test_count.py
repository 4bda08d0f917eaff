"""How many instances fit on hosts, and the reasons against more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpustack.nova_options.scheduler import Scheduler
from gpustack.novadb.model import NumaNode
from gpustack.operate.capacity.assess import findings
from gpustack.operate.capacity.count import capacity
from gpustack.operate.capacity.model import ANY_NODE, Capacity, Cards, Demand, Host, Reason
from gpustack.operate.capacity.room import Room
from gpustack.operate.capacity.topology import GuestNode, Topology
from gpustack.operate.capacity.walk import walk

K4200, ANY, VGPU = frozenset({"k4200"}), frozenset({"k4200", "any"}), frozenset({"VGPU"})
PLENTY = {"VCPU": 64, "PCPU": 64, "MEMORY_MB": 65536, "DISK_GB": 1000}


def cards(count: int, node: int | None = ANY_NODE, aliases: frozenset[str] = K4200) -> Cards:
    return Cards(aliases=aliases, node=node, count=count)


def host(name: str, *known: Cards, amounts: dict[str, int] | None = None, **more: Any) -> Host:
    return Host(uuid=name, name=name, cards=known, amounts={**PLENTY, **(amounts or {})}, **more)


def demand(
    count: int = 1, *, gpus: dict[str, int] | None = None, amounts: dict[str, int] | None = None, **more: Any
) -> Demand:
    known = {"vcpus": 2, "ram": 1024, **more}
    known["policies"] = {"k4200": known.pop("policy", "legacy")}
    dedicated, nodes = known.pop("dedicated", False), known.pop("nodes", None)
    needs = amounts or {"PCPU" if dedicated else "VCPU": known["vcpus"], "MEMORY_MB": known["ram"]}
    if nodes:
        cpus, memory = known["vcpus"] // nodes, known["ram"] // nodes
        cell = GuestNode(shared=0 if dedicated else cpus, dedicated=cpus if dedicated else 0, memory=memory)
        known["topology"] = Topology(nodes=(cell,) * nodes, policy="dedicated" if dedicated else "shared")
    return Demand(flavor="f", gpus=gpus or {"k4200": count}, amounts=needs, **known)


def node(dedicated: int = 8, **more: Any) -> NumaNode:
    """A NUMA node with eight shared processors, and some dedicated ones that are free."""
    pcpus = frozenset(range(8, 16))
    known: dict[str, Any] = {
        "cpus": frozenset(range(8)),
        "pcpus": pcpus,
        "pinned": frozenset(sorted(pcpus)[dedicated:]),
        "siblings": tuple(frozenset({number}) for number in range(16)),
        "memory": 8192,
        "cpu_ratio": 2.0,
        "socket": 0,
    }
    return NumaNode(**{**known, **more})


def numbers(found: Capacity) -> tuple[int, int | None]:
    return found.least, found.most


def reasons(found: Capacity) -> list[tuple[Reason, int, int]]:
    """Each reason with its GPUs and hosts."""
    return [(limit.reason, limit.gpus, len(limit.hosts)) for limit in found.limits]


def test_free_gpus_of_a_doubtful_host_are_a_limit() -> None:
    certain, doubtful = host("h1", cards(2)), host("h2", cards(1), doubt="stale rows")
    assert [capacity(hosts, demand()).free_is_limit for hosts in ([certain], [certain, doubtful])] == [False, True]


def test_free_gpus_in_fragments_are_named_with_their_number() -> None:
    hosts = [host(f"gpu{number}", cards(4)) for number in range(8)]
    found = capacity(hosts, demand(8))
    assert numbers(found) == (0, 0)
    assert found.free == 32
    assert reasons(found) == [(Reason.FRAGMENTS, 32, 8)]
    assert found.limits[0].most == 4


@pytest.mark.parametrize(
    ("amounts", "needs", "reason"),
    [
        ({"VCPU": 5}, {"VCPU": 2}, Reason.VCPUS),
        ({"PCPU": 5}, {"PCPU": 2}, Reason.VCPUS),
        ({"MEMORY_MB": 2047 + 1024}, {"MEMORY_MB": 1024}, Reason.RAM),
        ({"DISK_GB": 99}, {"DISK_GB": 40}, Reason.DISK),
        ({"CUSTOM_GPU_K4200": 2}, {"CUSTOM_GPU_K4200": 1}, Reason.RESOURCE),
        ({}, {"CUSTOM_UNKNOWN": 1}, Reason.RESOURCE),
    ],
)
def test_the_scarce_resource_is_the_reason(amounts: dict[str, int], needs: dict[str, int], reason: Reason) -> None:
    found = capacity([host("gpu1", cards(4), amounts=amounts)], demand(amounts=needs))
    number = 0 if "CUSTOM_UNKNOWN" in needs else 2
    assert numbers(found) == (number, number)
    assert reasons(found) == [(reason, 4 - number, 1)]


def test_a_host_without_free_gpus_has_no_reason() -> None:
    found = capacity([host("gpu1", cards(2), amounts={"VCPU": 4}), host("gpu2", closed=Reason.DOWN)], demand())
    assert numbers(found) == (2, 2)
    assert found.limits == ()


def test_closed_hosts_and_withheld_gpus_are_not_counted() -> None:
    withheld = {("k4200", Reason.RESERVED): 1, ("k4200", Reason.INCONSISTENT): 2, ("other", Reason.RESERVED): 9}
    hosts = [host("gpu1", cards(2), closed=Reason.DISABLED), host("gpu2", cards(1), withheld=withheld)]
    found = capacity(hosts, demand())
    assert numbers(found) == (1, 1)
    assert reasons(found) == [(Reason.DISABLED, 2, 1), (Reason.INCONSISTENT, 2, 1), (Reason.RESERVED, 1, 1)]


def test_hosts_that_placement_refuses_are_a_reason() -> None:
    found = capacity([host("gpu1", cards(2)), host("gpu2", cards(3))], demand(), accepted=[{"gpu1"}])
    assert numbers(found) == (2, 2)
    assert reasons(found) == [(Reason.PLACEMENT, 3, 1)]


@pytest.mark.parametrize(("policy", "number"), [("required", 2), ("legacy", 3), ("preferred", 4), ("socket", 2)])
def test_policies_restrict_the_nodes_of_gpus(policy: str, number: int) -> None:
    """One GPU on node 0, which has no processor left; two on node 1; one without a node."""
    nodes = {0: node(dedicated=0), 1: node(socket=1)}
    hosts = [host("gpu1", cards(1, 0), cards(2, 1), cards(1, None), nodes=nodes)]
    found = capacity(hosts, demand(nodes=1, policy=policy, dedicated=True))
    assert numbers(found) == (number, number)


def test_each_alias_has_a_policy_of_its_own() -> None:
    """As Nova: ``required`` of one alias does not forbid the others a GPU without a NUMA node."""
    gpus = {"k4200": 1, "p100": 1}
    fleet = [host("gpu1", cards(1, None), cards(1, 0, frozenset({"p100"})), nodes={0: node(), 1: node()})]
    for policies, number in (({"p100": "required"}, 1), ({"k4200": "required"}, 0), (dict.fromkeys(gpus, "legacy"), 1)):
        needs = replace(demand(gpus=gpus, nodes=1, dedicated=True), policies=policies)
        assert numbers(capacity(fleet, needs)) == (number, number)


def test_socket_permits_the_other_node_of_a_socket() -> None:
    nodes = {0: node(dedicated=0), 1: node()}
    hosts = [host("gpu1", cards(1, 0), cards(2, 1), nodes=nodes)]
    assert numbers(capacity(hosts, demand(nodes=1, policy="socket", dedicated=True))) == (3, 3)
    assert numbers(capacity(hosts, demand(nodes=1, policy="required", dedicated=True))) == (2, 2)


def test_gpus_of_an_instance_may_be_on_all_of_its_nodes() -> None:
    hosts = [host("gpu1", cards(1, 0), cards(2, 1), nodes={0: node(), 1: node()})]
    assert numbers(capacity(hosts, demand(3, nodes=1, policy="required", dedicated=True))) == (0, 0)
    assert numbers(capacity(hosts, demand(3, nodes=2, policy="required", dedicated=True))) == (1, 1)


@pytest.mark.parametrize(
    ("more", "number"),
    [
        ({"dedicated": True}, 4),  # eight dedicated processors
        ({"dedicated": False}, 8),  # sixteen shares
        ({"dedicated": True, "ram": 3000}, 2),
        ({"dedicated": False, "ram": 3000}, 3),  # overcommitted
        ({"dedicated": False, "vcpus": 9}, 0),  # not with itself
        ({"dedicated": False, "ram": 8193}, 0),
    ],
)
def test_nodes_limit_processors_and_memory(more: dict[str, Any], number: int) -> None:
    hosts = [host("gpu1", cards(9, 0), nodes={0: node(ram_ratio=9500 / 8192)})]
    assert numbers(capacity(hosts, demand(nodes=1, policy="required", **more))) == (number, number)


def test_unknown_nodes_make_an_upper_bound() -> None:
    found = capacity([host("gpu1", cards(3))], demand(nodes=1, policy="required"))
    assert numbers(found) == (0, 3)
    assert "NUMA nodes of gpu1" in found.doubts[0]
    assert numbers(capacity([host("gpu1", cards(3))], demand())) == (3, 3)


def test_known_nodes_of_gpus_restrict_an_upper_bound() -> None:
    hosts = [host("gpu1", cards(2, 0), cards(2, 1))]
    assert numbers(capacity(hosts, demand(3, nodes=1, policy="required"))) == (0, 0)
    assert numbers(capacity(hosts, demand(2, nodes=1, policy="required"))) == (0, 2)


def test_unknown_gpus_make_a_lower_bound() -> None:
    unknown = Host(uuid="gpu2", name="gpu2", cards=None, amounts=PLENTY)
    found = capacity([host("gpu1", cards(3)), unknown], demand())
    assert numbers(found) == (3, None)
    assert found.doubts == ("the GPUs of gpu2 are not known",)


def test_unknown_aliases_are_no_doubt_about_a_refused_flavor() -> None:
    for refused, expected in (("no such policy", (0, 0)), ("", (3, None))):
        found = capacity([host("gpu1", cards(3))], demand(unknown=("h100",), refused=refused))
        assert (numbers(found), len(found.doubts)) == (expected, 0 if refused else 1)


@pytest.mark.parametrize(
    ("more", "needs"),
    [
        ({"doubt": "instances that move may have GPUs on two hosts"}, {}),
        ({"shares_disk": True}, {"amounts": {"VCPU": 1, "DISK_GB": 10}}),
        ({}, {"unmodelled": ("hw:mem_page_size",)}),
    ],
)
def test_doubts_make_an_upper_bound(more: dict[str, Any], needs: dict[str, Any]) -> None:
    found = capacity([host("gpu1", cards(3), **more)], demand(**needs))
    assert numbers(found) == (0, 3)
    assert len(found.doubts) == 1


def test_aliases_that_share_gpus_do_not_count_them_twice() -> None:
    hosts = [host("gpu1", cards(2, aliases=ANY), cards(3, aliases=frozenset({"any"})))]
    assert numbers(capacity(hosts, demand(gpus={"any": 2, "k4200": 1}))) == (1, 1)
    assert numbers(capacity(hosts, demand(gpus={"any": 1, "k4200": 1}))) == (2, 2)
    assert numbers(capacity(hosts, demand(gpus={"any": 1}))) == (5, 5)


def vgpus(provider: str, count: int, aliases: frozenset[str] = VGPU) -> Cards:
    return Cards(aliases=aliases, provider=provider, count=count)


LARGE = VGPU | {"VGPU CUSTOM_LARGE"}


@pytest.mark.parametrize(
    ("known", "gpus", "number"),
    [
        ([vgpus("a", 3), vgpus("b", 3)], {"VGPU": 1}, 6),
        ([vgpus("a", 3), vgpus("b", 3)], {"VGPU": 2}, 2),
        ([vgpus("a", 1), vgpus("b", 1)], {"VGPU": 2}, 0),  # such as virtual functions
        ([vgpus("a", 3, LARGE), vgpus("b", 3)], {"VGPU CUSTOM_LARGE": 2}, 1),
        ([vgpus("a", 3, LARGE), vgpus("b", 3)], {"VGPU": 2}, 2),
        ([vgpus("a", 2), vgpus("b", 1), cards(3)], {"VGPU": 2, "k4200": 2}, 1),
    ],
)
def test_vgpus_of_an_instance_are_of_one_provider(known: list[Cards], gpus: dict[str, int], number: int) -> None:
    names = {name: False for name in gpus if name.startswith("VGPU")}
    found = capacity([host("gpu1", *known)], demand(gpus=gpus, vgpus=names))
    assert numbers(found) == (number, number)
    (entry,) = found.hosts
    assert entry.failed is not None
    assert entry.failed.name == f"Placement: {', '.join(names)}"


def test_vgpus_in_numbered_groups_are_of_several_providers() -> None:
    pair = demand(gpus={"VGPU": 2}, vgpus={"VGPU": True})
    assert numbers(capacity([host("gpu1", vgpus("a", 1), vgpus("b", 3))], pair)) == (2, 2)


def test_the_free_vgpus_of_a_step_are_those_of_one_provider() -> None:
    pair = demand(gpus={"VGPU": 2}, vgpus={"VGPU": False})
    failed = walk(Room(host("gpu1", vgpus("a", 1), vgpus("b", 1))), pair, Scheduler()).failed
    assert failed is not None
    assert (failed.wanted, failed.available, failed.reason) == (2, 1, Reason.FRAGMENTS)


def test_returned_resources_are_those_that_were_taken() -> None:
    whole = host("gpu1", cards(2, 0), cards(2, 1), nodes={0: node(), 1: node()})
    room, untouched = Room(whole), Room(whole)
    taken = walk(room, demand(2, nodes=1, policy="required", dedicated=True), Scheduler()).claim
    assert taken is not None
    room.apply(taken)
    assert vars(room) != vars(untouched)
    room.apply(taken, sign=1)
    assert vars(room) == vars(untouched)


def test_many_hosts_are_abbreviated() -> None:
    unknown = [replace(host(f"gpu{number}"), cards=None) for number in range(9)]
    assert capacity(unknown, demand()).doubts == ("the GPUs of gpu0, gpu1, gpu2 and 6 more are not known",)


def test_a_host_without_free_memory_is_not_in_placements_answers() -> None:
    full = Host(uuid="gpu1", name="gpu1", cards=(cards(2),))
    assert reasons(capacity([full], demand())) == [(Reason.RAM, 2, 1)]


def test_gpus_of_the_wrong_alias_are_no_fragments() -> None:
    """The host has as many free GPUs as the flavor requests, of one of its two aliases."""
    mixed = demand(gpus={"k4200": 1, "p100": 3})
    assert list(findings([capacity([host("a", cards(4))], mixed)])) == []
    for free, wanted in ((3, 4), (1, 2)):
        spread = capacity([host("a", cards(free)), host("b", cards(free))], demand(wanted))
        assert [entry.code for entry in findings([spread])] == ["GPU730"]
