"""The fleet that the answers of Nova, Placement, the databases and snapshots describe together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from gpustack.cloud.compute import Service
from gpustack.cloud.servers import Server
from gpustack.fleet.cards import Models, models_of
from gpustack.fleet.index import Answers, Row, RowVerdict
from gpustack.fleet.join import join
from gpustack.fleet.model import Fleet, Gap, Source, State
from gpustack.fleet.placement import Consumer, Device
from gpustack.fleet.select import Criteria, selected
from gpustack.fleet.summary import noted
from gpustack.spec.load import parse_spec
from gpustack.spec.model import OutOfService, Spec
from support.fleet_answers import device, facts, server


def states(fleet: Fleet) -> dict[str, str]:
    return {gpu.place: gpu.state.value for gpu in fleet.gpus}


def codes(fleet: Fleet) -> list[tuple[str, str]]:
    return sorted((finding.code.value, finding.place) for finding in fleet.findings)


def answers(
    devices: Iterable[Device],
    servers: Iterable[Server] = (),
    held: Mapping[str, Iterable[str]] | None = None,
    **more: Any,
) -> Answers:
    """The answers of Nova and Placement; ``held`` has the devices of each instance."""
    consumers = {
        uuid: Consumer(uuid=uuid, project="p1", user="u1", devices=dict.fromkeys(names, 1))
        for uuid, names in (held or {}).items()
    }
    return Answers(devices=tuple(devices), servers=tuple(servers), consumers=consumers, **more)


def test_states_and_holders_from_placement() -> None:
    since = datetime.fromisoformat("2026-01-02T03:04")
    vm = server("vm1", "gpu1", since=since)
    fleet = join(
        answers(
            [device("gpu1", 0x81), device("gpu1", 0x82, used=1), device("gpu1", 0x83, capacity=0)],
            [vm],
            {"vm1": ["gpu1-82"]},
        )
    )
    assert states(fleet) == {
        "gpu1 0000:81:00.0": "free",
        "gpu1 0000:82:00.0": "allocated",
        "gpu1 0000:83:00.0": "reserved",
    }
    gpu = fleet.gpus[1]
    assert gpu.server is not None
    assert (gpu.server.id, gpu.server.since, gpu.model) == ("vm1", since, "NVIDIA Quadro K4200")
    assert fleet.findings == ()
    ((total, free, used),) = {(count.total, count.free, count.used) for count in fleet.counts}
    assert (total, free, used) == (3, 1, 1)


def test_phantom_allocation_names_class_s() -> None:
    held = {"vm1": ["gpu1-81", "gpu1-82"]}
    devices = [device("gpu1", 0x81, used=1), device("gpu1", 0x82, used=1), device("gpu1", 0x83)]
    fleet = join(answers(devices, [server("vm1", "gpu1")], held))
    assert codes(fleet) == [("GPU701", "gpu1 0000:81:00.0"), ("GPU701", "gpu1 0000:82:00.0")]
    assert set(states(fleet).values()) == {"inconsistent", "free"}
    assert "S (phantom-allocation)" in fleet.findings[0].message
    # A move that is under way has both.
    assert codes(join(answers(devices, [server("vm1", "gpu1", moving=True)], held))) == []


def test_allocation_on_another_host() -> None:
    devices = [device("gpu1", 0x81, used=1), device("gpu2", 0x81, used=1)]
    fleet = join(answers(devices, [server("vm1", "gpu2")], {"vm1": ["gpu1-81", "gpu2-81"]}))
    assert codes(fleet) == [("GPU702", "gpu1 0000:81:00.0")]
    assert states(fleet)["gpu2 0000:81:00.0"] == "allocated"


def test_unknown_consumer_is_reported_only_if_all_instances_are_known() -> None:
    devices = [device("gpu1", 0x81, used=1)]
    strangers = {"gpu1-81": frozenset({"lost"})}
    assert codes(join(answers(devices, strangers=strangers))) == [("GPU703", "gpu1 0000:81:00.0")]
    partial = join(answers(devices, strangers=strangers, everything=False))
    assert (codes(partial), states(partial)) == ([], {"gpu1 0000:81:00.0": "allocated"})


def test_a_migration_holds_what_its_instance_had() -> None:
    devices = [device("gpu1", 0x81, used=1), device("gpu2", 0x81, used=1)]
    more = {"migrations": {"move": "vm1"}, "strangers": {"gpu1-81": frozenset({"move"})}}
    fleet = join(answers(devices, [server("vm1", "gpu2", moving=True)], {"vm1": ["gpu2-81"]}, **more))
    source = fleet.gpus[0].holder
    assert source is not None
    assert source.server is not None
    assert (source.server.id, source.migration) == ("vm1", True)
    assert codes(fleet) == []
    over = join(answers(devices, [server("vm1", "gpu2")], {"vm1": ["gpu2-81"]}, **more))
    assert codes(over) == [("GPU703", "gpu1 0000:81:00.0")]


def test_instance_without_allocation() -> None:
    fleet = join(answers([device("gpu1", 0x81)], [server("vm1", "gpu1")], {"vm1": []}))
    assert codes(fleet) == [("GPU704", "gpu1 0000:81:00.0")]
    assert set(states(fleet).values()) == {"inconsistent"}
    failed = server("vm1", "gpu1", status="ERROR")  # its claim failed
    assert codes(join(answers([device("gpu1", 0x81)], [failed], {"vm1": []}))) == []
    full = join(answers([device("gpu1", 0x81, used=1)], [server("vm1", "gpu1")], {"vm1": []}))
    assert codes(full) == [("GPU704", "gpu1")]


def test_other_devices_are_counted_and_not_listed() -> None:
    nic = device("gpu1", 0x3B, resource_class="CUSTOM_PCI_15B3_1017")
    audio = device("gpu1", 0x81, function=1, resource_class="CUSTOM_PCI_10DE_0E0A")
    fleet = join(answers([device("gpu1", 0x81), audio, nic]))
    assert list(states(fleet)) == ["gpu1 0000:81:00.0"]
    assert fleet.notes == ("2 other PCI devices are not listed",)


def test_without_placement_instances_show_the_gpus_of_their_hosts() -> None:
    fleet = join(Answers(servers=(server("vm1", "gpu1", count=2), server("vm2", "", count=1))))
    assert [(gpu.host, gpu.address, gpu.state.value, gpu.model) for gpu in fleet.gpus] == [
        ("gpu1", "", "allocated", "k4200")
    ] * 2
    (count,) = fleet.counts
    assert (count.total, count.free, count.used, count.per_gpu) == (None, None, 2, False)
    (known,) = join(Answers(servers=(server("vm1", "gpu1"),), hosts=(facts("gpu1.example.org", 0x81, 0x82),))).counts
    assert (known.total, known.free, known.used) == (2, 1, 1)


def row(bus: int, status: str = "available", owner: str = "", **more: Any) -> Row:
    known = {"cell": "cell1", "host": "gpu1", "node": "gpu1", "dev_type": "type-PCI", "vendor_id": "10de"}
    return Row(
        **{**known, "product_id": "11b4", "address": f"0000:{bus:02x}:00.0", "status": status, "owner": owner, **more}
    )


def test_rows_have_the_states_of_nova() -> None:
    rows = (row(0x81), row(0x82, "claimed", "vm1"), row(0x83, "allocated", "vm1"), row(0x84, "unavailable"))
    fleet = join(Answers(servers=(server("vm1", "gpu1", count=2),), rows=rows))
    assert list(states(fleet).values()) == ["free", "claimed", "allocated", "unavailable"]


def test_rows_and_placement_must_agree() -> None:
    devices = [device("gpu1", 0x81, used=1), device("gpu1", 0x82, used=1), device("gpu1", 0x83, capacity=0)]
    rows = (row(0x81), row(0x82, "allocated", "vm1"), row(0x83))
    fleet = join(answers(devices, [server("vm1", "gpu1")], {"vm1": ["gpu1-81", "gpu1-82"]}, rows=rows))
    assert list(states(fleet).values()) == ["inconsistent", "allocated", "reserved"]
    assert codes(fleet) == [("GPU709", "gpu1 0000:81:00.0")]
    assert "class S (phantom-allocation)" in fleet.findings[0].message  # vm1 has another one
    other = join(answers(devices, [server("vm1", "gpu1", count=2)], {"vm1": ["gpu1-81", "gpu1-82"]}, rows=rows))
    assert "class Q (allocation-drift)" in other.findings[0].message


def test_verdicts_of_clean_up_become_findings() -> None:
    verdict = RowVerdict(klass="E (ghost-owner)", host="gpu1", address="0000:81:00.0", because="no cell has the owner")
    fleet = join(Answers(servers=(), rows=(row(0x81, "allocated", "gone"),), verdicts=(verdict,)))
    assert (codes(fleet), list(states(fleet).values())) == ([("GPU700", "gpu1 0000:81:00.0")], ["inconsistent"])


def test_virtual_functions_replace_their_physical_function() -> None:
    physical = row(0x81, dev_type="type-PF", product_id="25b6")
    virtual = row(0x81, address="0000:81:00.4", dev_type="type-VF", product_id="25b7", parent="0000:81:00.0")
    fleet = join(Answers(servers=(), rows=(physical, virtual)))
    assert states(fleet) == {"gpu1 0000:81:00.4": "free"}
    # Their allocations are of the provider of the physical function.
    taken = replace(virtual, status="allocated", owner="vm1")
    more = {"rows": (replace(physical, status="unavailable"), taken)}
    used = join(answers([device("gpu1", 0x81, used=1)], [server("vm1", "gpu1")], {"vm1": ["gpu1-81"]}, **more))
    assert (states(used), codes(used)) == ({"gpu1 0000:81:00.4": "allocated"}, [])
    reserved = join(answers([device("gpu1", 0x81, capacity=0)], rows=(physical, virtual)))
    assert states(reserved) == {"gpu1 0000:81:00.4": "reserved"}


def test_virtual_functions_with_ids_of_their_own_are_named_after_their_card() -> None:
    part = row(
        0x81, address="0000:81:02.0", dev_type="type-VF", vendor_id="1002", product_id="74b5", parent="0000:81:00.0"
    )
    (gpu,) = join(Answers(servers=(), rows=(part,))).gpus
    assert (gpu.model, gpu.parent) == ("AMD Instinct MI300X (virtual function)", "0000:81:00.0")


def test_snapshot_shows_what_is_missing_and_not_offered() -> None:
    hosts = (facts("gpu1", 0x82, 0x83),)
    fleet = join(answers([device("gpu1", 0x81), device("gpu1", 0x82)], hosts=hosts))
    assert codes(fleet) == [("GPU705", "gpu1 0000:81:00.0"), ("GPU707", "gpu1 0000:83:00.0")]
    assert list(states(fleet).values()) == ["inconsistent", "free", "unavailable"]
    assert fleet.gpus[1].iommu_group is not None


def test_deleted_project() -> None:
    fleet = join(
        answers(
            [device("gpu1", 0x81, used=1)], [server("vm1", "gpu1")], {"vm1": ["gpu1-81"]}, deleted=frozenset({"p1"})
        )
    )
    assert codes(fleet) == [("GPU708", "gpu1 0000:81:00.0")]


def test_reserved_virtual_functions_are_not_free() -> None:
    virtual = {"dev_type": "type-VF", "parent": "0000:81:00.0"}
    rows = (row(0x82, **virtual), row(0x83, "allocated", "vm1", **virtual))
    parent = device("gpu1", 0x81, capacity=0, used=1)
    fleet = join(answers([parent], [server("vm1", "gpu1")], {"vm1": ["gpu1-81"]}, rows=rows))
    assert list(states(fleet).values()) == ["reserved", "allocated"]
    (count,) = fleet.counts
    assert (count.total, count.free, count.used) == (2, 0, 1)


def test_free_gpus_of_a_disabled_host_are_noted() -> None:
    closed = [device("gpu1", 0x81, closed=True), device("gpu1", 0x82, used=1, closed=True)]
    (note,) = noted(join(answers([*closed, device("gpu2", 0x81)], [server("vm1", "gpu1")], {"vm1": ["gpu1-82"]}))).notes
    assert note == "free GPUs on hosts whose nova-compute is disabled, which no new instance gets: 1 on gpu1"


def test_free_rows_of_a_host_that_is_down_are_noted() -> None:
    services = (Service(host="GPU1", up=False), Service(host="gpu2", enabled=False, up=False))
    rows = (row(0x81), row(0x82, host="gpu2", node="gpu2.example.org"))
    fleet = join(Answers(servers=(), rows=rows, services=services))
    assert noted(fleet).notes == (
        "host gpu2 is closed: disabled without a reason",
        "free GPUs on hosts whose nova-compute is disabled, which no new instance gets: 1 on gpu2",
        "free GPUs on hosts whose nova-compute is down, which no new instance gets: 1 on gpu1",
    )
    # Without addresses too.
    alone = Answers(servers=(server("vm1", "gpu1"),), hosts=(facts("gpu1", 0x81, 0x82),), services=services)
    assert (
        "free GPUs on hosts whose nova-compute is down, which no new instance gets: 1 on gpu1"
        in noted(join(alone)).notes
    )
    (_closed, only) = noted(selected(fleet, Criteria(hosts=("gpu1",), states=(State.FREE,)))).notes
    assert only.endswith("1 on gpu1")


def test_hosts_of_the_spec_without_gpus_are_noted() -> None:
    services = tuple(Service(host=host) for host in ("gpu1", "gpu2", "gpu3", "cpu1"))
    models = Models(expects=lambda host: host in ("gpu1", "gpu2"))
    more = {"services": services, "hosts": (facts("gpu3", 0x81),)}
    fleet = join(answers([device("gpu1", 0x81)], models=models, **more))
    assert not fleet.located
    assert fleet.notes == ("no source lists the GPUs of hosts that have some by the spec or the snapshot: gpu2, gpu3",)
    rows = {"rows": (row(0x81),), "models": models}
    fleet = join(answers([device("gpu1", 0x81)], **rows, **more))
    assert (fleet.located, fleet.notes[0].startswith("Nova has no GPUs of hosts that have some")) == (True, True)
    # The hosts may be in the cell that was not read.
    fleet = join(answers([device("gpu1", 0x81)], **rows, **more, everything=False))
    assert (fleet.located, fleet.notes[0].startswith("no source lists the GPUs of hosts")) == (False, True)


@pytest.mark.parametrize("scheduled", [None, True])
def test_a_free_row_that_placement_lacks_is_not_free(scheduled: bool | None) -> None:
    models = Models(scheduled=scheduled)
    rows = (row(0x81), row(0x82), row(0x83, "allocated", "vm1"))
    known = {"rows": rows, "models": models}
    fleet = join(answers([device("gpu1", 0x81)], [server("vm1", "gpu1")], **known))
    assert list(states(fleet).values()) == ["free", "inconsistent", "allocated"]
    assert codes(fleet) == [("GPU710", "gpu1 0000:82:00.0")]
    (count,) = fleet.counts
    assert (count.total, count.free, count.used) == (3, 1, 1)
    # Virtual functions share the provider of their physical function.
    virtual = [row(0x81, address=f"0000:81:00.{n}", dev_type="type-VF", parent="0000:81:00.0") for n in (4, 5)]
    offered = join(answers([device("gpu1", 0x81, capacity=2)], rows=(row(0x81), *virtual), models=models))
    assert (set(states(offered).values()), codes(offered)) == ({"free"}, [])


def test_rows_count_if_nova_does_not_schedule_by_devices() -> None:
    known = {"rows": (row(0x81), row(0x82)), "models": Models(scheduled=False)}
    assert set(states(join(answers([device("gpu1", 0x81)], **known))).values()) == {"free"}


def test_hosts_that_report_nothing_to_a_scheduler_that_requires_it() -> None:
    known: dict[str, Any] = {"servers": (), "rows": (row(0x81), row(0x82), row(0x81, host="gpu2", node="gpu2"))}
    devices = (device("gpu2", 0x81),)
    fleet = join(Answers(**known, devices=devices, models=Models(scheduled=True)))
    assert list(states(fleet).values()) == ["unavailable", "unavailable", "free"]
    assert codes(fleet) == [("GPU711", "gpu1")]
    none = join(Answers(**known, devices=None, models=Models(scheduled=True)))
    assert codes(none) == [("GPU711", "gpu1"), ("GPU711", "gpu2")]
    # If it is not known how Nova schedules, they may be free.
    doubt = join(Answers(**known, devices=devices))
    assert set(states(doubt).values()) == {"free"}
    (note,) = doubt.notes
    assert note.startswith("free by their rows, though their hosts report no devices to Placement: GPUs of gpu1;")
    # A Placement that does not answer shows nothing.
    gap = Gap(source=Source.PLACEMENT, reason="no answer")
    silent = join(Answers(**known, models=Models(scheduled=True), gaps=(gap,)))
    assert (set(states(silent).values()), codes(silent)) == ({"free"}, [])


def test_models_of_one_resource_class_differ_by_traits() -> None:
    spec = parse_spec(
        """
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}, resource_class: CUSTOM_GPU, traits: [small]}
  t4: {match: {vendor: "10de", product: "1eb8"}, resource_class: CUSTOM_GPU, traits: [small, turing]}
  any: {match: {vendor: "10de", product: "20b0"}, resource_class: CUSTOM_GPU}
hosts: {gpu1: [k4200, t4, any]}
""",
        "spec",
    )
    traits: list[set[str]] = [{"CUSTOM_SMALL"}, {"CUSTOM_SMALL", "CUSTOM_TURING", "HW_X"}, set(), {"CUSTOM_OTHER"}]
    devices = [
        device("gpu1", 0x81 + number, resource_class="CUSTOM_GPU", traits=frozenset(names))
        for number, names in enumerate(traits)
    ]
    fleet = join(answers(devices, models=models_of(spec)))
    names = ["NVIDIA Quadro K4200", "NVIDIA Tesla T4", "NVIDIA A100 SXM4", "NVIDIA A100 SXM4"]
    assert [gpu.model.split(" 40")[0] for gpu in fleet.gpus] == names
    assert {gpu.model for gpu in join(answers(devices)).gpus} == {"CUSTOM_GPU"}


def test_resource_classes_without_ids_are_noted() -> None:
    (note,) = join(Answers(devices=(device("gpu1", 0x81, resource_class="CUSTOM_FPGA"),))).notes
    assert note.startswith("listed as GPUs, though no source has their PCI ids: CUSTOM_FPGA")


def test_aliases_beyond_the_spec_are_listed_and_noted() -> None:
    """An alias of another name may have the same GPUs."""
    mixed = replace(server("vm1", "gpu1"), devices={"k4200": 1, "old": 1})
    fleet = join(Answers(servers=(mixed,), models=Models(aliases={"k4200": "NVIDIA Quadro K4200"})))
    assert [gpu.model for gpu in fleet.gpus] == ["NVIDIA Quadro K4200", "old"]
    assert "listed as GPUs, though the spec does not have their aliases: old" in fleet.notes


@pytest.mark.parametrize("moving", [False, True])
def test_gpus_on_the_other_host_of_a_move_are_noted(moving: bool) -> None:
    """Nova shows one host of an instance; capacity has the same doubt."""
    fleet = join(Answers(servers=(server("vm1", "gpu1", moving=moving),)))
    assert [note.startswith("instances that move may have GPUs on two hosts") for note in fleet.notes[1:]] == [
        True
    ] * moving


def test_facts_of_another_domain_are_not_those_of_the_host() -> None:
    fleet = join(answers([device("gpu1.az1", 0x81)], hosts=(facts("gpu1.az2", 0x99),)))
    assert (states(fleet), codes(fleet)) == ({"gpu1.az1 0000:81:00.0": "free"}, [])


def test_many_instances_without_allocation_are_compared_by_host() -> None:
    names = [f"gpu{number:04}" for number in range(600)]
    devices = [device(name, bus) for name in names for bus in range(0x80, 0x88)]
    vms = [server(f"vm-{name}", name) for name in names]
    looked_at = 0

    class Counted(str):
        """A name that counts comparisons."""

        __slots__ = ()

        def casefold(self) -> str:
            nonlocal looked_at
            looked_at += 1
            return super().casefold()

    counted = [replace(entry, node=Counted(entry.node)) for entry in devices]
    fleet = join(answers(counted, vms, {vm.id: [] for vm in vms}))
    assert len(fleet.findings) == len(devices)
    assert looked_at < 100 * len(devices)


def outage(address: str, **more: Any) -> OutOfService:
    return OutOfService.model_validate({"host": "gpu1.example.org", "address": address, "reason": "no reset", **more})


def out_of_service(*entries: OutOfService) -> Spec:
    models = {"k4200": {"match": {"vendor": "10de", "product": "11b4"}}}
    document = {"version": 1, "models": models, "hosts": {"gpu1": ["k4200"]}}
    return Spec.model_validate({**document, "out_of_service": [entry.model_dump(mode="json") for entry in entries]})


def test_gpus_out_of_service_have_their_reason() -> None:
    devices = [device("gpu1", 0x81, capacity=0), device("gpu1", 0x82), device("gpu2", 0x81)]
    entries = tuple(outage(f"0000:{bus}:00.0", since="2026-11-22") for bus in (81, 82, 83))
    hosts = (facts("gpu1", 0x81, 0x82, 0x83),)
    fleet = join(answers(devices, spec=out_of_service(*entries), hosts=hosts))
    reasons = {gpu.place: gpu.out_of_service for gpu in fleet.gpus}
    why = "no reset (since 2026-11-22)"
    assert reasons == {**{f"gpu1 0000:{bus}:00.0": why for bus in (81, 82, 83)}, "gpu2 0000:81:00.0": ""}
    # The first one is reserved, the third one excluded: only the second one is still offered.
    scheduled = replace(answers(devices, spec=out_of_service(*entries), hosts=hosts), models=Models(scheduled=True))
    assert codes(join(scheduled)) == [("GPU760", "gpu1 0000:82:00.0")]
    # If it is unknown whether Nova schedules by Placement, a reservation alone enforces nothing.
    assert codes(fleet) == [("GPU760", f"gpu1 0000:{bus}:00.0") for bus in (81, 82)]


@pytest.mark.parametrize(
    ("more", "reported"),
    [
        ({}, True),
        ({"services": (Service(host="gpu1"),)}, True),
        ({"services": (Service(host="gpu1", enabled=False),)}, False),
        ({"services": (Service(host="gpu2"),)}, False),  # without a nova-compute, no instance starts
        ({"services": (Service(host="gpu2"),), "gaps": (Gap(source=Source.NOVA, reason="silent"),)}, True),
        ({"models": Models(scheduled=True)}, False),
        ({"models": Models(scheduled=True), "gaps": (Gap(source=Source.PLACEMENT, reason="silent"),)}, True),
        ({"rows": (row(0x82),)}, False),
        ({"rows": (row(0x82),), "gaps": (Gap(source=Source.DATABASE, reason="silent"),)}, True),
        ({"devices": (device("gpu1", 0x82),)}, False),
        ({"devices": (device("gpu2", 0x82),)}, True),
    ],
)
def test_an_entry_that_no_source_confirms_is_reported(more: dict[str, Any], reported: bool) -> None:
    spec = out_of_service(outage("0000:81:00.0"))
    found = codes(join(Answers(**{"servers": (), "spec": spec, **more})))
    assert (("GPU459", "gpu1.example.org 0000:81:00.0") in found) == reported


def test_virtual_functions_leave_service_with_their_card_or_alone() -> None:
    card, *parts = ("0000:81:00.0", "0000:81:00.1", "0000:81:00.2")
    rows = tuple(row(0x81, address=part, parent=card, dev_type="type-VF") for part in parts)
    host = facts("gpu1", 0x81, driver="nvidia")
    host = host.with_pci(
        [*host.pci, *(host.pci[0].model_copy(update={"address": a, "physical_function": card}) for a in parts)]
    )
    mediated = [device("gpu1", 0x81, function=number, mediated=True) for number in (1, 2)]
    for address, reasons in ((card, ["no reset", "no reset"]), (parts[0], ["no reset", ""])):
        spec = out_of_service(outage(address))
        for known in ({"rows": rows}, {"rows": rows, "hosts": (host,)}, {"devices": mediated, "hosts": (host,)}):
            fleet = join(Answers(**{"servers": (), "spec": spec, **known}))
            assert [gpu.out_of_service for gpu in fleet.gpus] == reasons, known
            assert [entry for entry in codes(fleet) if entry[0] == "GPU459"] == []


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("address", ["0000:81:00.1", "0000:81:01.0"])
def test_a_virtual_function_that_placement_counts_with_its_card_is_unseen(address: str, known: bool) -> None:
    """The provider of a card has the number of its virtual functions, not their addresses."""
    host = facts("gpu1", 0x81, 0x82)
    part = host.pci[0].model_copy(update={"address": address, "physical_function": "0000:81:00.0"})
    host = host.with_pci([*host.pci, part])
    card, other = device("gpu1", 0x81, capacity=4), device("gpu1", 0x82)
    more = {
        "spec": out_of_service(outage(address)),
        "hosts": (host,) if known else (),
        "models": Models(scheduled=True),
    }
    unseen = ("GPU459", f"gpu1.example.org {address}")
    assert unseen in codes(join(answers([card, other], **more)))
    assert unseen not in codes(join(answers([card, other], rows=(row(0x82),), **more)))


def test_a_serial_number_needs_the_facts_of_the_host() -> None:
    entry = OutOfService(host="gpu1", serial="12-34-56-78-9a-bc-de-00", reason="no reset")
    host = facts("gpu1", 0x81)
    card = host.pci[0].model_copy(update={"serial": "12-34-56-78-9a-bc-de-00"})
    fleet = join(answers([device("gpu1", 0x81)], spec=out_of_service(entry)))
    assert [gpu.out_of_service for gpu in fleet.gpus] == [""]
    assert codes(fleet) == [("GPU459", f"gpu1 serial number {entry.serial}")]
    known = (host.model_copy(update={"pci": (card,)}),)
    fleet = join(answers([device("gpu1", 0x81)], spec=out_of_service(entry), hosts=known))
    assert [gpu.out_of_service for gpu in fleet.gpus] == ["no reset"]


@pytest.mark.parametrize(("product", "address"), [("11b4", "0000:81:00.1"), ("10ca", "0000:81:10.0")])
def test_provider_of_virtual_functions_agrees_with_the_facts(product: str, address: str) -> None:
    """The provider has the address of the card, and the resource class of its virtual functions."""
    host = facts("gpu1", 0x81, driver="nvidia")
    part = host.pci[0].model_copy(
        update={"address": address, "product": product, "physical_function": "0000:81:00.0", "driver": None}
    )
    host = host.with_pci([*host.pci, part])
    shared = device("gpu1", 0x81, capacity=4, resource_class=f"CUSTOM_PCI_10DE_{product.upper()}")
    assert codes(join(answers([shared], hosts=(host,)))) == []
    stranger = replace(shared, resource_class="CUSTOM_PCI_10DE_FFFF")
    assert codes(join(answers([stranger], hosts=(host,)))) == [("GPU705", "gpu1 0000:81:00.0")]
