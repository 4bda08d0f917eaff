"""Hosts with free resources from the fleet, Nova's compute nodes, Placement, databases and snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpustack.cloud.compute import Hypervisor
from gpustack.fleet.model import Fleet, Gap, Gpu, Source, State
from gpustack.hosts.facts.store import parse_host
from gpustack.nova_options.aggregates import Aggregate
from gpustack.novadb.model import NodeResources, NumaNode, Pool
from gpustack.operate.capacity.hosts import Sources, hosts
from gpustack.operate.capacity.model import ANY_NODE, Cards, Host, Reason
from gpustack.operate.capacity.read import Rooms
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from support.fleet_answers import facts, server

ALIAS = frozenset({"k4200"})
SPEC = """
version: 1
models: {{k4200: {{match: {{vendor: "10de", product: "11b4"}}}}}}
hosts: {{"gpu[1:4]": [k4200]}}
nova: {{release: "2025.2", placement: {placement}}}
"""
OFF, SCHEDULE = (parse_spec(SPEC.format(placement=placement), "spec") for placement in ("off", "schedule"))
AMOUNTS = {"VCPU": 30, "PCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 100}


def hypervisor(name: str, **more: Any) -> Hypervisor:
    known = {"node": name, "host": name, "enabled": True, "up": True, "ram": 1, "cpus": 2, "disk": 3, **more}
    return Hypervisor(uuid=f"uuid-{name}", **known)


def gpu(node: str, bus: int, state: State = State.FREE, **more: Any) -> Gpu:
    known = {"vendor_id": "10de", "product_id": "11b4", "resource_class": "CUSTOM_PCI_10DE_11B4", **more}
    return Gpu(host=node, node=node, address=f"0000:{bus:02x}:00.0", state=state, **known)


def sources(*names: str, **more: Any) -> Sources:
    known: dict[str, Any] = {"fleet": Fleet(), **more}
    amounts = {f"uuid-{name}": AMOUNTS for name in names}
    hypervisors = [hypervisor(name) for name in names]
    return Sources(**{"hypervisors": hypervisors, "rooms": Rooms(amounts=amounts, capacities=amounts), **known})


def by_name(found: tuple[Host, ...]) -> dict[str, Host]:
    return {host.name: host for host in found}


def test_free_gpus_of_placement_are_counted_and_others_withheld() -> None:
    fleet = Fleet(
        gpus=(
            gpu("gpu1", 0x81),
            gpu("gpu1", 0x82, State.ALLOCATED, used=1),
            gpu("gpu1", 0x83, State.RESERVED),
            gpu("gpu1", 0x84, State.INCONSISTENT, used=1),
            gpu("gpu1", 0x85, vendor_id="8086", product_id="1572", resource_class="CUSTOM_NIC"),
        )
    )
    (host,) = hosts(SCHEDULE, sources("gpu1", fleet=fleet))
    assert host.cards == (Cards(aliases=ALIAS, node=ANY_NODE, count=1),)
    assert host.withheld == {("k4200", Reason.RESERVED): 1, ("k4200", Reason.INCONSISTENT): 1}
    assert host.amounts == AMOUNTS
    assert host.free == (1, 32, 3)
    assert (host.others, host.shares_disk) == (0, False)


@pytest.mark.parametrize(
    ("empty", "free"), [(False, (1, 0, 3)), (True, (0, 0, 0))], ids=["with instances", "as if empty"]
)
def test_a_host_without_free_memory_has_no_free_amounts(empty: bool, free: tuple[int, int, int]) -> None:
    """Placement does not list such a host."""
    found = sources("gpu1", fleet=Fleet(gpus=(gpu("gpu1", 0x81),)), rooms=Rooms())
    (host,) = hosts(SCHEDULE, found, empty=empty)
    assert (host.amounts, host.free) == ({}, free)


def test_hosts_whose_disk_is_of_a_pool_are_marked() -> None:
    found = sources("gpu1", "gpu2", rooms=Rooms(shared=frozenset({"uuid-gpu2"})))
    assert [(host.name, host.shares_disk) for host in hosts(OFF, found)] == [("gpu1", False), ("gpu2", True)]


def test_a_device_without_ids_is_recognized_by_its_resource_class() -> None:
    classes = ("CUSTOM_PCI_10DE_11B4", "CUSTOM_NIC")
    gpus = [gpu("gpu1", bus, vendor_id="", product_id="", resource_class=of) for bus, of in enumerate(classes)]
    (host,) = hosts(OFF, sources("gpu1", fleet=Fleet(gpus=tuple(gpus))))
    assert host.cards == (Cards(aliases=ALIAS, count=1),)


def test_vgpus_of_two_cards_stay_apart() -> None:
    """An instance gets those of one provider."""
    spec = parse_spec(SPEC.format(placement="off").replace("}}}", "}, vgpu: {type: A16-8Q}}}"), "spec")
    more = {"resource_class": "VGPU", "dev_type": "mdev", "units": 4}
    gpus = [gpu("gpu1", bus, State.ALLOCATED, provider=f"uuid-{bus}", used=bus, **more) for bus in (1, 3)]
    (host,) = hosts(spec, sources("gpu1", fleet=Fleet(gpus=tuple(gpus))))
    assert [(entry.provider, entry.count) for entry in host.cards or ()] == [("uuid-1", 3), ("uuid-3", 1)]


def test_traits_distinguish_models_of_one_resource_class() -> None:
    spec = parse_spec(
        """
version: 1
models:
  plain: {match: {vendor: "10de", product: "11b4"}, resource_class: gpu}
  fast:
    match: {vendor: "10de", product: "11b4", subsystem_vendor: "10de", subsystem_product: "1096"}
    resource_class: gpu
    traits: [fast]
hosts: {gpu1: [plain, fast]}
nova: {release: "2025.2", placement: schedule}
""",
        "spec",
    )
    fast = {"traits": frozenset({"CUSTOM_FAST", "HW_PCI_ONE_TIME_USE"})}
    gpus = tuple(gpu("gpu1", bus, resource_class="CUSTOM_GPU", **more) for bus, more in ((1, {}), (2, fast)))
    (host,) = hosts(spec, sources("gpu1", fleet=Fleet(gpus=gpus)))
    assert [host.count(frozenset({alias})) for alias in ("plain", "fast")] == [2, 1]
    # Pools of the databases have the traits of their providers.
    pools = tuple(
        Pool(vendor="10de", product="11b4", dev_type="type-PCI", node=0, count=1, address=g.address) for g in gpus
    )
    computes = {"uuid-gpu1": NodeResources(uuid="uuid-gpu1", name="gpu1", pools=pools, nodes=None)}
    (host,) = hosts(spec, sources("gpu1", fleet=Fleet(gpus=gpus), computes=computes))
    assert [host.count(frozenset({alias})) for alias in ("plain", "fast")] == [2, 1]


def test_pools_of_virtual_functions_are_not_their_card() -> None:
    """A card and virtual functions with the same ids are two models, on different hosts."""
    match = 'match: {vendor: "10de", product: "11b4"'
    text = f"version: 1\nmodels: {{card: {{{match}}}}}, part: {{{match}, function: virtual}}}}}}\n"
    spec = parse_spec(text + 'hosts: {gpu1: [card], gpu2: [part]}\nnova: {release: "2025.2"}\n', "spec")
    computes = {
        f"uuid-{name}": NodeResources(
            uuid=f"uuid-{name}",
            name=name,
            pools=(Pool(vendor="10de", product="11b4", dev_type=kind, node=0, count=count),),
            nodes=None,
        )
        for name, kind, count in (("gpu1", "type-PF", 1), ("gpu2", "type-VF", 4))
    }
    found = by_name(hosts(spec, sources("gpu1", "gpu2", computes=computes)))
    counts = {name: [host.count(frozenset({a})) for a in ("card", "part")] for name, host in found.items()}
    assert counts == {"gpu1": [1, 0], "gpu2": [0, 4]}


def test_vgpus_of_other_resource_classes_are_not_counted() -> None:
    spec = parse_spec(SPEC.format(placement="off").replace("}}}", "}, vgpu: {type: A16-8Q}}}"), "spec")
    gpus = [gpu("gpu1", bus, dev_type="mdev", resource_class=of) for bus, of in ((1, "VGPU"), (2, "CUSTOM_A2_4Q"))]
    (host,) = hosts(spec, sources("gpu1", fleet=Fleet(gpus=tuple(gpus))))
    assert [(entry.provider, entry.count) for entry in host.cards or ()] == [("0000:01:00.0", 1)]


def test_devices_match_the_aliases_of_selections_too() -> None:
    spec = parse_spec(
        SPEC.format(placement="off") + "flavors: {f: {gpu: {min_memory: 4GiB}, vcpus: 1, ram: 512, disk: 1}}\n", "spec"
    )
    (host,) = hosts(spec, sources("gpu1", fleet=Fleet(gpus=(gpu("gpu1", 0x81),))))
    assert [entry.aliases for entry in host.cards or ()] == [frozenset({"k4200", "any-4gb"})]


@pytest.mark.parametrize("part", [", function: virtual}", "}, vfs: 3"])
def test_rows_of_virtual_functions_belong_to_the_pool_of_their_card(part: str) -> None:
    """Nova's pool has the address of the card; rows, which the metrics read, have those of virtual functions."""
    text = f'version: 1\nmodels: {{part: {{match: {{vendor: "10de", product: "11b4"{part}}}}}\n'
    spec = parse_spec(text + 'hosts: {gpu1: [part]}\nnova: {release: "2025.2", placement: schedule}\n', "spec")
    parts = [
        replace(gpu("gpu1", 0x81, state), address=f"0000:81:00.{n}", parent="0000:81:00.0", dev_type="type-VF")
        for n, state in enumerate((State.FREE, State.FREE, State.ALLOCATED), 4)
    ]
    parts[-1] = replace(parts[-1], used=1)
    pool = Pool(vendor="10de", product="11b4", dev_type="type-VF", node=0, count=2, address="0000:81:00.0")
    computes = {"uuid-gpu1": NodeResources(uuid="uuid-gpu1", name="gpu1", pools=(pool,), nodes=None)}
    (host,) = hosts(spec, sources("gpu1", fleet=Fleet(gpus=tuple(parts)), computes=computes))
    assert host.cards == (Cards(aliases=frozenset({"part"}), node=0, count=2),)
    reserved = Fleet(gpus=tuple(replace(part, state=State.RESERVED) for part in parts))
    (closed,) = hosts(spec, sources("gpu1", fleet=reserved, computes=computes))
    assert not closed.cards


def test_as_if_empty_counts_the_gpus_of_instances_too() -> None:
    fleet = Fleet(
        gpus=(
            gpu("gpu1", 0x81),
            *(gpu("gpu1", bus, State.ALLOCATED, used=1) for bus in (0x82, 0x83)),
            gpu("gpu1", 0x84, State.RESERVED),
        )
    )
    rooms = Rooms(amounts={"uuid-gpu1": {"VCPU": 1}}, capacities={"uuid-gpu1": AMOUNTS})
    (host,) = hosts(SCHEDULE, sources("gpu1", fleet=fleet, rooms=rooms), empty=True)
    assert host.cards == (Cards(aliases=ALIAS, node=ANY_NODE),) * 3
    assert (host.amounts, host.free) == (AMOUNTS, (4096, 32, 102400))


def test_devices_of_the_databases_count_if_placement_has_them_free_too() -> None:
    pools = tuple(
        Pool(vendor="10de", product=product, dev_type="type-PCI", node=node, count=1, address=f"0000:{bus:02x}:00.0")
        for bus, product, node in ((0x81, "11b4", 0), (0x82, "11b4", 1), (0x83, "11b4", 1), (0x84, "beef", 1))
    )
    nodes = {0: NumaNode(), 1: NumaNode()}
    computes = {"uuid-gpu1": NodeResources(uuid="uuid-gpu1", name="gpu1", pools=pools, nodes=nodes)}
    fleet = Fleet(gpus=(gpu("gpu1", 0x81), gpu("gpu1", 0x82, State.RESERVED)))
    (with_placement,) = hosts(SCHEDULE, sources("gpu1", fleet=fleet, computes=computes))
    assert with_placement.cards == (Cards(aliases=ALIAS, node=0, count=1),)
    (without,) = hosts(OFF, sources("gpu1", computes=computes))
    assert without.cards == (Cards(aliases=ALIAS, node=0), *[Cards(aliases=ALIAS, node=1)] * 2)
    assert without.nodes == nodes
    assert (with_placement.others, without.others) == (3, 1)


POOLS = tuple(
    Pool(vendor="10de", product="11b4", dev_type="type-PCI", node=0, count=1, address=f"0000:{bus:02x}:00.0")
    for bus in (0x81, 0x82)
)
UNKNOWN = parse_spec(SPEC.partition("nova:")[0].format(), "spec")


@pytest.mark.parametrize(
    ("spec", "reported", "doubtful"),
    [
        (UNKNOWN, [gpu("gpu1", 0x81)], True),
        (UNKNOWN, [replace(gpu("gpu1", 0x91), parent="0000:81:00.0")], True),
        (UNKNOWN, [gpu("gpu1", 0x81), gpu("gpu1", 0x82)], False),
        (UNKNOWN, [gpu("gpu1", 0x81), replace(gpu("gpu1", 0x92), parent="0000:82:00.0")], False),
        (UNKNOWN, [], False),
        (OFF, [gpu("gpu1", 0x81)], False),
        (SCHEDULE, [gpu("gpu1", 0x81)], False),
    ],
)
def test_devices_that_placement_lacks_are_a_doubt(spec: Spec, reported: list[Gpu], doubtful: bool) -> None:
    """Only if Placement has others of the host, and it is unknown whether Nova schedules by them."""
    computes = {"uuid-gpu1": NodeResources(uuid="uuid-gpu1", name="gpu1", pools=POOLS, nodes=None)}
    (host,) = hosts(spec, sources("gpu1", fleet=Fleet(gpus=tuple(reported)), computes=computes))
    assert host.doubt.startswith("Placement lacks some free devices") is doubtful
    assert bool(host.doubt) is doubtful


def test_a_host_whose_gpus_are_all_in_use_stays() -> None:
    used = {
        f"uuid-{name}": NodeResources(uuid=f"uuid-{name}", name=name, pools=(), nodes={}) for name in ("gpu1", "other")
    }
    found = by_name(hosts(OFF, sources("gpu1", "other", computes=used)))
    assert {name: host.cards for name, host in found.items()} == {"gpu1": ()}


def test_without_any_source_the_gpus_of_a_host_of_the_spec_are_unknown() -> None:
    found = by_name(hosts(OFF, sources("gpu1", "web1")))
    assert {name: host.cards for name, host in found.items()} == {"gpu1": None}


def test_a_snapshot_has_the_gpus_and_instances_the_use() -> None:
    fleet = Fleet(servers=(server("a", "gpu1", count=2), server("b", "gpu9")))
    found = sources("gpu1", "gpu2", fleet=fleet, facts=[facts("gpu1", 0x81, 0x82, 0x83), facts("gpu2", 0x81)])
    known = by_name(hosts(OFF, found))
    assert known["gpu1"].cards == (Cards(aliases=ALIAS, node=ANY_NODE, count=1),)
    assert known["gpu2"].cards == (Cards(aliases=ALIAS, node=0, count=1),)
    assert "stale rows" in known["gpu1"].doubt
    emptied = by_name(hosts(OFF, found, empty=True))
    assert emptied["gpu1"].cards == (Cards(aliases=ALIAS, node=0, count=3),)


def test_gpus_on_a_host_driver_are_not_counted() -> None:
    (host,) = hosts(OFF, sources("gpu1", facts=[facts("gpu1", 0x81, driver="nouveau")]))
    assert (host.cards, {*host.withheld.values()}) == ((), {1})
    assert {reason for _, reason in host.withheld} == {Reason.UNPREPARED}


def test_each_instance_is_read_once_for_all_hosts() -> None:
    class Counting(list[Any]):
        reads = 0

        def __iter__(self) -> Iterator[Any]:
            Counting.reads += 1
            return super().__iter__()

    names = [f"gpu{number}" for number in range(1, 5)]
    servers = Counting(server(f"vm-{name}", name) for name in names)
    found = hosts(OFF, sources(*names, fleet=Fleet(servers=servers), facts=[facts(name, 0x81) for name in names]))  # type: ignore[arg-type]
    assert len(found) == 4
    assert Counting.reads <= 2


def test_the_databases_count_instead_of_a_snapshot() -> None:
    computes = {"uuid-gpu1": NodeResources(uuid="uuid-gpu1", name="gpu1", pools=POOLS, nodes=None)}
    (host,) = hosts(OFF, sources("gpu1", facts=[facts("gpu1", 0x81, driver="nouveau")], computes=computes))
    assert (host.count(ALIAS), host.withheld) == (2, {})


@pytest.mark.parametrize(("changes", "cards", "reason"), [({"responds": False}, (), Reason.BLOCKED), ({}, None, None)])
def test_blocked_gpus_are_withheld_and_unreadable_ones_unknown(changes, cards, reason) -> None:
    host = facts("gpu1", 0x81)
    unread = [] if changes else [{"path": "/sys/bus/pci/devices/0000:81:00.0/driver", "error": "EIO"}]
    raw = {**host.model_dump(mode="json", by_alias=True), "unread": unread}
    raw["pci"][0] |= changes
    (found,) = hosts(OFF, sources("gpu1", facts=[parse_host(raw, "gpu1")]))
    assert found.cards == cards
    assert {why for _, why in found.withheld} == ({reason} if reason else set())


def test_missing_instances_and_moves_make_the_use_uncertain() -> None:
    gap = Gap(source=Source.NOVA, reason="a cell does not answer")
    with_facts = {"facts": [facts("gpu1", 0x81)]}
    (partial,) = hosts(OFF, sources("gpu1", fleet=Fleet(partial=(gap,)), **with_facts))
    assert "a cell does not answer" in partial.doubt
    moving = replace(server("a", "gpu9"), moving=True)
    (host,) = hosts(OFF, sources("gpu1", fleet=Fleet(servers=(moving,)), **with_facts))
    assert "instances that move" in host.doubt
    # Placement counts by itself, whatever Nova lists.
    (known,) = hosts(SCHEDULE, sources("gpu1", fleet=Fleet(gpus=(gpu("gpu1", 0x81),), partial=(gap,))))
    assert not known.doubt


def test_a_host_that_nova_does_not_list_is_unknown() -> None:
    fleet = Fleet(gpus=(gpu("gpu1", 0x81), gpu("gpu2", 0x81)))
    found = by_name(hosts(SCHEDULE, sources("gpu1", fleet=fleet)))
    assert found["gpu2"].cards is None
    assert found["gpu1"].cards is not None


def test_services_close_hosts() -> None:
    fleet = Fleet(gpus=(gpu("gpu1", 0x81), gpu("gpu2", 0x81)))
    closed = [hypervisor("gpu1", enabled=False, up=False), hypervisor("gpu2", up=False)]
    found = by_name(hosts(SCHEDULE, sources("gpu1", "gpu2", fleet=fleet, hypervisors=closed)))
    assert (found["gpu1"].closed, found["gpu2"].closed) == (Reason.DISABLED, Reason.DOWN)


def test_a_zone_closes_the_hosts_of_others() -> None:
    aggregates = [Aggregate(name="az1", hosts=frozenset({"gpu1"}), metadata={"availability_zone": "az1"})]
    fleet = Fleet(gpus=(gpu("gpu1", 0x81), gpu("gpu2", 0x81)))
    found = by_name(hosts(OFF, sources("gpu1", "gpu2", fleet=fleet, aggregates=aggregates)))
    assert [(entry.zone, entry.closed) for entry in found.values()] == [("az1", None), ("", None)]
    found = by_name(hosts(OFF, sources("gpu1", "gpu2", fleet=fleet, aggregates=aggregates, zone="az1")))
    assert (found["gpu1"].closed, found["gpu2"].closed) == (None, Reason.ZONE)


def test_gpus_of_a_host_that_reports_none_to_placement_are_not_offered() -> None:
    with_facts = {"facts": [facts("gpu1", 0x81, 0x82)], "fleet": Fleet(gpus=(gpu("gpu2", 0x81),))}
    found = by_name(hosts(SCHEDULE, sources("gpu1", "gpu2", **with_facts)))
    assert (found["gpu1"].cards, found["gpu1"].withheld) == ((), {("k4200", Reason.NOT_OFFERED): 2})
    assert not found["gpu2"].withheld


def test_a_snapshot_of_another_domain_is_not_that_of_the_host() -> None:
    spec = parse_spec(SPEC.format(placement="off").replace("gpu[1:4]", "gpu1.az1"), "spec")
    found = sources("gpu1.az1", facts=[facts("gpu1.az2", 0x81)])
    assert [(host.name, host.cards) for host in hosts(spec, found)] == [("gpu1.az1", None)]


def test_devices_that_are_free_in_placement_only_are_a_surplus() -> None:
    gpus = tuple(gpu("gpu1", bus) for bus in (0x81, 0x82, 0x83))
    pool = Pool(vendor="10de", product="11b4", dev_type="type-PCI", node=0, count=1, address="0000:81:00.0")
    computes = {"uuid-gpu1": NodeResources(uuid="uuid-gpu1", name="gpu1", pools=(pool,), nodes=None)}
    (host,) = hosts(SCHEDULE, sources("gpu1", fleet=Fleet(gpus=gpus), computes=computes))
    assert (host.count(ALIAS), host.surplus) == (1, (Cards(aliases=ALIAS),) * 2)


def test_hosts_of_a_disabled_cell_are_closed() -> None:
    pool = Pool(vendor="10de", product="11b4", dev_type="type-PCI", node=0, count=1)
    computes = {"uuid-gpu1": NodeResources(uuid="uuid-gpu1", name="gpu1", pools=(pool,), nodes=None, disabled=True)}
    (host,) = hosts(OFF, sources("gpu1", computes=computes))
    assert host.closed is Reason.CELL
