"""The state of one GPU, from the fleet, the facts of its host, the spec, Placement and the journals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import PartialError, UsageError
from gpustack.changes.change import ChangeOutcome, ChangeResult, CloudChange
from gpustack.changes.journal import Cloud, RunHead, RunJournal, new_id
from gpustack.cloud.compute import Service
from gpustack.cloud.placement import Inventory
from gpustack.fleet.cards import Models
from gpustack.fleet.model import MDEV, Fleet, Gap, Gpu, Holder, HostCount, Source, State
from gpustack.fleet.read import Given
from gpustack.hosts.facts.model import Host
from gpustack.operate.gpu_service.changes import reservation
from gpustack.operate.gpu_service.look import look
from gpustack.operate.gpu_service.plan import Seen
from gpustack.spec.load import parse_spec
from support.change_runs import PLACE
from support.fleet_answers import facts
from support.fleet_cloud import StandIn

CARD, PART, NIC = "0000:81:00.0", "0000:81:00.4", "0000:01:00.0"
SERVICE = Service(id="s1", host="gpu1", enabled=True)
GPU = Gpu(host="gpu1", node="node1", address=CARD, state=State.FREE, provider="p1", sources=(Source.PLACEMENT,))
FLEET = Fleet(gpus=(GPU,), services=(SERVICE,), exhaustive=True)


def spec(entry: str) -> Given:
    head = 'version: 1\nmodels: {a: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {"gpu[1:2]": [a], node1: [a]}\n'
    return Given(spec=parse_spec(f"{head}out_of_service: [{entry}]\n", "spec"))


def machine(name: str = "gpu1", serial: str | None = None) -> Host:
    """A host with a GPU, its virtual function, and a network card."""
    card, *_ = facts(name, 0x81).pci
    part = card.model_copy(update={"address": PART, "physical_function": CARD})
    network = card.model_copy(update={"address": NIC, "pci_class": "020000"})
    return facts(name).model_copy(update={"pci": (network, card.model_copy(update={"serial": serial}), part)})


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StandIn:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("gpustack.cloud.session.place_of", lambda connection: dict(PLACE))
    stand_in = StandIn()
    reserve(stand_in, 0)
    return stand_in


def reserve(cloud: StandIn, amount: int) -> None:
    fields = {"CUSTOM_GPU": {"total": 1, "reserved": amount}}
    content = {"resource_provider_generation": 3, "inventories": fields}
    cloud.answers["placement /resource_providers/p1/inventories"] = (200, content)


def seen(cloud: StandIn, gpu: Gpu | None = GPU, address: str = CARD, given: Given = Given(), **more: Any) -> Seen:  # noqa: B008
    fleet = replace(FLEET, gpus=(gpu,) if gpu else ())
    return look(cloud.connection, fleet, more.pop("host", "gpu1"), address, given, **{"force": False, **more})


@pytest.mark.parametrize("host", ["gpu1", "node1"])
def test_nova_placement_and_the_spec_show_a_gpu(cloud: StandIn, host: str) -> None:
    found = seen(cloud, host=host, given=Given(models=Models(scheduled=True)))
    assert (found.place, found.gpu, found.service) == (f"gpu1 {CARD}", GPU, SERVICE)
    assert (found.inventory and found.inventory.totals, found.scheduled) == ({"CUSTOM_GPU": 1}, True)
    assert (found.entry, found.by_address, found.reserved, found.one_time_use) == (None, True, False, False)
    assert seen(cloud, replace(GPU, traits=frozenset({"HW_PCI_ONE_TIME_USE"}))).one_time_use


@pytest.mark.parametrize(
    ("gpu", "scheduled", "inventory"),
    [
        (replace(GPU, dev_type="type-PCI"), True, True),
        (replace(GPU, dev_type=MDEV), None, True),  # nova-compute may remove its reservation
        (replace(GPU, dev_type="type-VF"), True, False),  # the provider is that of the card
        (replace(GPU, provider=""), True, False),
        (None, True, False),
        (replace(GPU, sources=(Source.SNAPSHOT,)), True, False),  # Nova does not offer it
        (replace(GPU, sources=(Source.SNAPSHOT, Source.PLACEMENT)), True, True),
    ],
)
def test_only_a_gpu_with_its_own_provider_can_be_reserved(
    cloud: StandIn, gpu: Gpu | None, scheduled: bool | None, inventory: bool
) -> None:
    found = seen(cloud, gpu, given=Given(models=Models(scheduled=True)), force=True)
    assert (found.scheduled, found.inventory is not None and not found.card) == (scheduled, inventory)
    assert (found.gpu is None) == (gpu is None or gpu.sources == (Source.SNAPSHOT,))


@pytest.mark.parametrize(
    ("used", "state", "reserved"), [(1, State.ALLOCATED, 0), (0, State.FREE, 0), (0, State.RESERVED, 1)]
)
def test_a_card_whose_functions_have_rows_is_offered(cloud: StandIn, used: int, state: State, reserved: int) -> None:
    """With ``--config-file``, the fleet lists the virtual functions and not their card."""
    reserve(cloud, reserved)
    free = State.RESERVED if reserved else State.FREE
    part = replace(GPU, parent=CARD, dev_type="type-VF", sources=(Source.DATABASE, Source.PLACEMENT), state=free)
    parts = (
        replace(part, address=PART),
        replace(part, address="0000:81:00.5", used=used, holders=(Holder(consumer="c1"),) * used),
    )
    found = look(cloud.connection, replace(FLEET, gpus=parts), "gpu1", CARD, Given(), force=False)
    assert found.gpu is not None
    assert (found.gpu.state, found.gpu.units, len(found.gpu.holders)) == (state, 2, used)
    assert (found.gone, found.in_use, found.reserved) == (False, bool(used), bool(reserved))
    assert found.inventory is not None


@pytest.mark.parametrize("rows", [True, False])
def test_the_reservation_of_a_card_is_seen_for_its_function(cloud: StandIn, *, rows: bool) -> None:
    """Without the databases, the fleet lists the card, and the snapshot has its functions."""
    reserve(cloud, 1)
    part = replace(GPU, address=PART, parent=CARD, dev_type="type-VF", state=State.RESERVED, reserved=True)
    other = replace(GPU, address="0000:82:00.0", provider="p2")
    fleet = replace(FLEET, gpus=(part if rows else GPU, other))
    found = look(cloud.connection, fleet, "gpu1", PART, Given(hosts=(machine(),)), force=False)
    assert (found.card, found.reserved, found.gone, found.gpu is None) == (CARD, True, False, not rows)
    assert found.others == ["0000:82:00.0"]
    assert not look(cloud.connection, fleet, "gpu1", other.address, Given(), force=False).card


OUT = f'{{host: gpu1, address: "{CARD}", reason: fan}}'
ONE, TWO = "24-6e-96-ff-ff-0a-11-20", "24-6e-96-ff-ff-0a-11-21"
MOVED = f'{{host: gpu1, serial: "{ONE}", reason: fan}}'


@pytest.mark.parametrize(
    ("gpu", "address", "entry", "hosts", "excluded"),
    [
        (GPU, CARD, OUT, (), True),
        (GPU, CARD, OUT.replace("81", "82"), (), False),
        (GPU, CARD, OUT.replace("gpu1", "gpu2"), (), False),
        (GPU, CARD, OUT.replace("gpu1", "node1"), (), True),
        # A virtual function leaves service with its card, which a row or the facts name.
        (replace(GPU, address=PART, parent=CARD), PART, OUT, (), True),
        (replace(GPU, address=PART), PART, OUT, (), False),
        (replace(GPU, address=PART), PART, OUT, (machine(),), True),
        (None, PART, OUT, (machine(),), True),
        (None, PART, OUT, (machine("gpu2"),), False),
        # By the serial number, the card is the same with any address.
        (GPU, CARD, MOVED, (machine(serial=ONE),), True),
        (GPU, CARD, MOVED, (machine(serial=TWO),), False),
        (GPU, CARD, MOVED, (machine(),), False),
        (None, PART, MOVED, (machine(serial=ONE),), True),
    ],
)
def test_the_entry_of_the_spec_is_that_of_the_card(
    cloud: StandIn, gpu: Gpu | None, address: str, entry: str, hosts: tuple[Host, ...], excluded: bool
) -> None:
    found = seen(cloud, gpu, address, replace(spec(entry), hosts=hosts), force=True)
    assert (found.entry is not None) == excluded


@pytest.mark.parametrize(
    ("gpu", "address", "hosts", "by_address"),
    [
        (None, CARD, (), True),
        (GPU, "0000:82:00.0", (), True),
        (replace(GPU, address=""), CARD, (), False),
        (GPU, PART, (), False),  # its card may offer it
        (GPU, PART, (machine(),), False),
        (replace(GPU, address="0000:82:00.0"), PART, (machine(),), True),  # another card
        (replace(GPU, units=4), CARD, (), True),
    ],
)
def test_a_missing_gpu_is_not_offered_if_all_are_listed(
    cloud: StandIn, gpu: Gpu | None, address: str, hosts: tuple[Host, ...], by_address: bool
) -> None:
    assert seen(cloud, gpu, address, Given(hosts=hosts), force=True).by_address == by_address


def recorded(cloud_of_run: dict[str, str], amount: int) -> None:
    """A run that reserved the GPU."""
    before = Inventory(provider="p1", generation=3, classes={"CUSTOM_GPU": {"total": 1, "reserved": 1 - amount}})
    done(reservation(f"gpu1 {CARD}", before, {"CUSTOM_GPU": amount}, why="fan"), cloud_of_run)


def done(change: CloudChange, cloud_of_run: dict[str, str]) -> None:
    head = RunHead(id=new_id(), command="gpu disable", cloud=Cloud(**cloud_of_run))
    with RunJournal(head, [change]) as journal:
        journal.begin(change)
        journal.end(ChangeOutcome(change=change, result=ChangeResult.DONE, id=change.id))


@pytest.mark.parametrize(
    ("made", "reserved", "ours"),
    [
        ([(PLACE, 1)], 1, True),
        ([], 1, False),
        ([(PLACE, 1)], 0, False),
        ([(PLACE, 1), (PLACE, 0)], 0, False),
        ([(PLACE, 1), (PLACE, 0)], 1, False),  # somebody else reserved it again
        ([({**PLACE, "region": "other"}, 1)], 1, False),
    ],
)
def test_a_reservation_is_that_of_the_last_run_on_this_cloud(
    cloud: StandIn, made: list[tuple[dict[str, str], int]], reserved: int, ours: bool
) -> None:
    for place, amount in made:
        recorded(place, amount)
    reserve(cloud, reserved)
    found = seen(cloud)
    assert (found.reserved_by is not None) == ours
    assert bool(found.reserved_for) == (reserved == 1 and not ours)


def test_an_undone_undo_keeps_the_reason_of_the_operator(cloud: StandIn) -> None:
    before = Inventory(provider="p1", generation=3, classes={"CUSTOM_GPU": {"total": 1, "reserved": 0}})
    change: CloudChange = reservation(f"gpu1 {CARD}", before, {"CUSTOM_GPU": 1}, why="fan")
    for why in ("undo of 1", "undo of 2"):
        change = replace(change.reverse(), why=why)
    done(change, PLACE)
    reserve(cloud, 1)
    assert str(seen(cloud).reserved_by).endswith("(fan)")


CLOSED = replace(SERVICE, enabled=False, reason="gpustack: GPU 82:00.0")
HOSTS = (machine(),)


@pytest.mark.parametrize(
    ("address", "given", "service", "force", "known"),
    [
        (CARD, Given(), SERVICE, False, True),
        (CARD, Given(hosts=HOSTS), SERVICE, False, True),
        ("0000:82:00.0", Given(hosts=HOSTS), SERVICE, False, False),
        ("0000:82:00.0", Given(), SERVICE, True, True),
        ("0000:82:00.0", spec(OUT.replace("81", "82")), SERVICE, False, True),
        ("0000:82:00.0", Given(), CLOSED, False, True),
        ("0000:83:00.0", Given(), CLOSED, False, False),
        (NIC, Given(hosts=HOSTS), SERVICE, False, False),
        (PART, Given(hosts=HOSTS), SERVICE, False, True),
        (PART, Given(hosts=(machine("gpu2"),)), SERVICE, False, False),
    ],
)
def test_an_address_without_a_gpu_is_an_error(
    cloud: StandIn, address: str, given: Given, service: Service, force: bool, known: bool
) -> None:
    fleet = replace(FLEET, services=(service,))
    if known:
        assert look(cloud.connection, fleet, "gpu1", address, given, force=force).address == address
        return
    with pytest.raises(UsageError, match=rf"no source has a GPU {address} on gpu1; known GPUs of this host: {CARD}\n"):
        look(cloud.connection, fleet, "gpu1", address, given, force=force)


def test_a_host_without_known_gpus_leads_to_others(cloud: StandIn) -> None:
    count = HostCount(host="gpu3", model="a", total=1, free=1, used=0, per_gpu=False)
    with_nic = facts("cpu1").model_copy(update={"pci": machine().pci[:1]})
    given = Given(hosts=(machine("gpu2"), with_nic))
    fleet = Fleet(services=(SERVICE,), counts=(count,))
    with pytest.raises(UsageError, match=r"no GPU of this host is known\. Hosts with GPUs: gpu2, gpu3\n"):
        look(cloud.connection, fleet, "gpu1", CARD, given, force=False)
    with pytest.raises(UsageError, match="Hosts with GPUs: none that a source names\n"):
        look(cloud.connection, Fleet(services=(SERVICE,)), "gpu1", CARD, Given(), force=False)


def test_a_gpu_that_a_silent_source_may_have_is_not_unknown(cloud: StandIn) -> None:
    gap = Gap(source=Source.PLACEMENT, reason="nobody answers")
    fleet = Fleet(services=(SERVICE,), partial=(gap,))
    with pytest.raises(PartialError, match=r"whether gpu1 has a GPU .* is unknown: Placement: nobody answers"):
        look(cloud.connection, fleet, "gpu1", CARD, Given(), force=False)
    assert look(cloud.connection, fleet, "gpu1", CARD, Given(), force=True).gpu is None


def test_the_service_is_that_of_the_fleet_or_of_nova(cloud: StandIn) -> None:
    assert seen(cloud).service is SERVICE
    assert cloud.requests == ["placement /resource_providers/p1/inventories"]
    listed = [{"id": "s7", "host": "gpu1", "status": "disabled", "state": "up", "disabled_reason": "fan"}]
    cloud.answers["compute /os-services"] = (200, {"services": listed})
    for known in ((), (SERVICE, replace(SERVICE, id="s2"))):
        found = look(cloud.connection, replace(FLEET, services=known), "node1", CARD, Given(), force=False)
        assert (found.service.id, found.host) == ("s7", "gpu1")
    cloud.answers["compute /os-services"] = (200, {"services": []})
    with pytest.raises(UsageError, match="only Placement has its GPUs: no instance starts there") as alone:
        look(cloud.connection, replace(FLEET, services=()), "gpu1", CARD, Given(), force=False)
    assert "out_of_service" in (alone.value.remedy or "")
    with pytest.raises(UsageError, match="Nova has no nova-compute service on gpu9\n") as wrong:
        seen(cloud, host="gpu9")
    assert wrong.value.remedy == "hosts with GPUs: gpu1"
