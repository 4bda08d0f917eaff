"""Metrics of a fleet: names and values, and which ones are absent if a source did not answer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

import pytest

from gpustack.fleet.index import Answers, Row
from gpustack.fleet.join import join
from gpustack.fleet.metrics import families
from gpustack.fleet.model import Fleet, Gap, Holder, Source, State
from gpustack.fleet.placement import Consumer
from support.fleet_answers import device, facts, server
from support.metric_samples import exposition, labels, samples
from support.prometheus_programs import check_metrics

MODEL = "NVIDIA Quadro K4200"
ASKED = (Source.NOVA, Source.PLACEMENT)


def text_of(fleet: Fleet | None, sources: Collection[Source] = ASKED) -> str:
    """The metrics, which promtool accepts."""
    text = exposition(families(fleet, sources, 1_800_000_000.4, 1.5))
    check_metrics(text)
    return text


def names(text: str) -> set[str]:
    """The names of metrics with samples."""
    return {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def with_gap(fleet: Fleet, source: Source) -> Fleet:
    return replace(fleet, partial=(Gap(source=source, reason="no answer"),))


@pytest.fixture
def fleet() -> Fleet:
    """A host with a GPU of ``vm1``, a free one and a reserved one; an idle host."""
    vm = server("vm1", "gpu1", since=datetime.fromisoformat("2026-01-02T03:04"))
    return join(
        Answers(
            devices=(
                device("gpu1", 0x81, used=1),
                device("gpu1", 0x82),
                device("gpu1", 0x83, capacity=0),
                device("gpu2", 0x81),
            ),
            servers=(vm,),
            consumers={"vm1": Consumer(uuid="vm1", project="p1", user="u1", devices={"gpu1-81": 1})},
            projects={"p1": "research"},
        )
    )


def test_each_gpu_has_one_state(fleet: Fleet) -> None:
    values = samples(text_of(fleet), "gpustack_gpu_state")
    assert len(values) == 4 * len(State)
    assert {place for place, value in values.items() if value} == {
        labels(hostname="gpu1", address="0000:81:00.0", state="allocated"),
        labels(hostname="gpu1", address="0000:82:00.0", state="free"),
        labels(hostname="gpu1", address="0000:83:00.0", state="reserved"),
        labels(hostname="gpu2", address="0000:81:00.0", state="free"),
    }


def test_owners_join_with_states(fleet: Fleet) -> None:
    text = text_of(fleet)
    place = {"hostname": "gpu1", "address": "0000:81:00.0"}
    owner = labels(**place, server_id="vm1", tenant_id="p1", user_id="u1", flavor="g1")
    assert samples(text, "gpustack_gpu_allocated_info") == {owner: 1}
    since = samples(text, "gpustack_gpu_allocated_since_timestamp_seconds")
    assert since == {labels(**place, server_id="vm1"): 1767323040}
    assert len(samples(text, "gpustack_gpu_info")) == 4
    assert samples(text, "gpustack_tenant_gpus") == {labels(tenant_id="p1", model=MODEL): 1}
    assert samples(text, "gpustack_tenant_info") == {labels(tenant_id="p1", tenant="research"): 1}


def test_sums_have_zeros(fleet: Fleet) -> None:
    values = samples(text_of(fleet), "gpustack_gpus")
    assert values == {
        labels(hostname=host, model=MODEL, state=state.value): counts.get(state.value, 0)
        for host, counts in (("gpu1", {"allocated": 1, "free": 1, "reserved": 1}), ("gpu2", {"free": 1}))
        for state in State
    }


def test_collection_succeeded(fleet: Fleet) -> None:
    text = text_of(fleet)
    assert samples(text, "gpustack_collect_success") == {labels(source="nova"): 1, labels(source="placement"): 1}
    assert samples(text, "gpustack_collect_timestamp_seconds") == {labels(): 1_800_000_000}
    assert samples(text, "gpustack_collect_duration_seconds") == {labels(): 1.5}


def test_nothing_but_the_failure_without_answers() -> None:
    text = text_of(None)
    assert samples(text, "gpustack_collect_success") == {labels(source="nova"): 0, labels(source="placement"): 0}
    assert all(name.startswith("gpustack_collect_") for name in names(text))


def test_without_nova_states_are_certain_and_projects_unknown(fleet: Fleet) -> None:
    text = text_of(with_gap(fleet, Source.NOVA))
    assert samples(text, "gpustack_collect_success") == {labels(source="nova"): 0, labels(source="placement"): 1}
    assert {"gpustack_gpu_state", "gpustack_gpus"} <= names(text)
    assert "gpustack_tenant_gpus" not in names(text)


def test_without_placement_no_state_is_certain() -> None:
    """A row that is free may be reserved in Placement."""
    row = Row(
        cell="cell1",
        host="gpu1",
        node="gpu1.example.org",
        address="0000:81:00.0",
        vendor_id="10de",
        product_id="11b4",
        dev_type="type-PCI",
        status="available",
    )
    known = join(Answers(servers=(), rows=(row,)))
    complete = names(text_of(known, (Source.DATABASE, Source.PLACEMENT)))
    text = text_of(with_gap(known, Source.PLACEMENT), (Source.DATABASE, Source.PLACEMENT))
    assert {"gpustack_gpu_info"} == {name for name in names(text) if not name.startswith("gpustack_collect_")}
    assert {"gpustack_gpu_state", "gpustack_gpus"} <= complete
    (info,) = samples(text, "gpustack_gpu_info")
    assert {("hostname", "gpu1.example.org"), ("cell", "cell1")} < info


def test_a_name_that_is_missing_is_no_failure_of_sums(fleet: Fleet) -> None:
    text = text_of(with_gap(fleet, Source.KEYSTONE))
    assert samples(text, "gpustack_collect_success")[labels(source="keystone")] == 0
    assert "gpustack_tenant_gpus" in names(text)


@pytest.mark.parametrize("hosts", [(), (facts("gpu1", 0x81, 0x82),)])
def test_hosts_without_addresses_have_only_known_states(hosts: tuple[object, ...]) -> None:
    fleet = join(Answers(servers=(server("vm1", "gpu1"),), hosts=hosts))
    text = text_of(fleet)
    known = {"allocated": 1, "free": 1} if hosts else {"allocated": 1}
    assert samples(text, "gpustack_gpus") == {
        labels(hostname="gpu1", model="k4200", state=state): value for state, value in known.items()
    }
    assert samples(text, "gpustack_tenant_gpus") == {labels(tenant_id="p1", model="k4200"): 1}
    assert "gpustack_gpu_state" not in names(text)
    assert "gpustack_gpus" not in names(text_of(with_gap(fleet, Source.NOVA)))


def test_virtual_functions_are_counted_as_units() -> None:
    held = {"vm1": 2, "vm2": 1}
    consumers = {
        uuid: Consumer(uuid=uuid, project=f"of {uuid}", user="u1", devices={"gpu1-81": amount})
        for uuid, amount in held.items()
    }
    servers = tuple(server(uuid, "gpu1", count=amount, project=f"of {uuid}") for uuid, amount in held.items())
    text = text_of(
        join(Answers(devices=(device("gpu1", 0x81, capacity=8, used=3),), servers=servers, consumers=consumers))
    )
    values = samples(text, "gpustack_gpus")
    assert {dict(place)["state"]: value for place, value in values.items() if value} == {"allocated": 3, "free": 5}
    tenants = samples(text, "gpustack_tenant_gpus")
    assert {dict(place)["tenant_id"]: value for place, value in tenants.items()} == {"of vm1": 2, "of vm2": 1}
    assert len(samples(text, "gpustack_gpu_allocated_info")) == 2


def test_hostile_names_make_no_other_metrics(fleet: Fleet) -> None:
    """Names of flavors come from users."""
    name = 'x"} 1\ngpustack_collect_success{source="nova"} 0\n\x1b[2J\ud800'
    vm = server("vm1", "gpu1", flavor=name)
    gpu = replace(fleet.gpus[0], holders=(Holder(consumer="vm1", server=vm, project=name, user=name),))
    text = text_of(replace(fleet, gpus=(gpu,), projects={name: name}))
    assert samples(text, "gpustack_collect_success")[labels(source="nova")] == 1
    assert "\x1b" not in text
