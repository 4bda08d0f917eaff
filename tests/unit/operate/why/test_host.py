"""``why host``: the first broken link of each GPU, and the requests. Nova, Placement and facts are made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import CloudError, DatabaseError, UsageError
from gpustack.fleet.index import Answers, Row
from gpustack.fleet.model import Gap, Source
from gpustack.fleet.placement import Device
from gpustack.fleet.read import OTHER_CLOUD
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.device_spec import parse_line
from gpustack.nova_options.scheduler import Scheduler
from gpustack.novadb.sources import Sources
from gpustack.operate.why.host import HostAnswer, answer
from gpustack.operate.why.links import counts
from gpustack.operate.why.read import WhySources
from support.fleet_answers import device, facts
from support.fleet_cloud import StandIn, servers, service, with_devices

SPEC = 'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {gpu1: [k4200]}\n'
FULL = SPEC.replace("gpu1:", "gpu1.example.org:")
OUT = 'out_of_service: [{host: gpu1, address: "0000:81:00.0", reason: "fan"}]\n'
BUSES = (0x81, 0x82, 0x83)
MATCHED = tuple(parse_line('{"vendor_id": "10de", "product_id": "11b4"}'))
ONE_LESS = tuple(parse_line('{"address": "0000:82:00.0"}'))


def row(bus: int, **more: Any) -> Row:
    known = {"cell": "cell1", "host": "gpu1", "node": "gpu1", "vendor_id": "10de", "product_id": "11b4"}
    return Row(**{**known, "address": f"0000:{bus:02x}:00.0", "dev_type": "type-PCI", "status": "available", **more})


def asked(
    monkeypatch: pytest.MonkeyPatch,
    directory: Path,
    *,
    hosts: tuple[Host, ...] = (facts("gpu1", *BUSES),),
    rows: tuple[Row, ...] | None = tuple(map(row, BUSES)),
    devices: tuple[Device, ...] = tuple(device("gpu1", bus) for bus in BUSES),
    spec: str = SPEC,
    state: dict[str, Any] | None = None,
    name: str = "gpu1",
    answers: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[HostAnswer, StandIn]:
    (directory / "gpustack.yaml").write_text(spec)
    cloud = with_devices(devices)
    cloud.answers["compute /servers/detail?all_tenants=1"] = servers()
    cloud.answers["compute /os-services"] = (200, {"services": [service("gpu1", **(state or {}))]})
    aggregates = [{"id": 1, "name": "racks", "hosts": ["gpu1"], "metadata": {}}]
    cloud.answers["compute /os-aggregates"] = (200, {"aggregates": aggregates})
    for path, refused in (answers or {}).items():
        cloud.answers |= {known: refused for known in (path, *cloud.answers) if known.startswith(path)}
    if rows is not None:
        monkeypatch.setattr("gpustack.fleet.databases.cells", lambda _sources: (Answers(rows=rows), ()))
        more["databases"] = lambda: Sources(api=None, cells=())
    known = {"device_specs": MATCHED, "scheduler": Scheduler(by_devices=True), **more}
    sources = WhySources(spec=directory / "gpustack.yaml", scanned=hosts, **known)
    return answer(cloud.connection, name, sources), cloud


@pytest.mark.parametrize(
    ("change", "link", "codes"),
    [
        ({}, "", []),
        ({"hosts": (facts("gpu1", 0x82, 0x83),)}, "host", ["GPU589", "GPU705"]),
        ({"spec": SPEC.replace("11b4", "11b5")}, "spec", ["GPU590"] * 3),
        (
            {"hosts": (facts("gpu1", *BUSES, driver="nouveau"),)},
            "bound",
            [code for code in ("GPU010", "GPU307", "GPU706") for _bus in BUSES],
        ),
        ({"device_specs": ONE_LESS}, "device_spec", ["GPU591"] * 2),
        ({"rows": tuple(map(row, BUSES[1:]))}, "row", ["GPU592"]),
        ({"devices": tuple(device("gpu1", bus) for bus in BUSES[1:])}, "Placement", ["GPU593", "GPU710"]),
        ({"devices": tuple(device("gpu1", bus, used=int(bus == 0x81)) for bus in BUSES)}, "Placement", ["GPU593"]),
        ({"state": {"status": "disabled"}}, "service", ["GPU574"]),
        ({"state": {"state": "down"}}, "service", ["GPU575"]),
        ({"devices": tuple(device("gpu1", bus, capacity=int(bus != 0x81)) for bus in BUSES)}, "in service", ["GPU594"]),
        ({"spec": SPEC + OUT}, "in service", ["GPU594", "GPU760"]),
        # As render withholds it, and nova-compute then reports it:
        (
            {
                "spec": SPEC + OUT,
                "device_specs": ONE_LESS,
                "rows": tuple(map(row, BUSES[1:])),
                "devices": tuple(device("gpu1", bus) for bus in BUSES[1:]),
            },
            "in service",
            ["GPU591", "GPU594"],
        ),
    ],
)
def test_the_first_broken_link_of_a_gpu_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: dict[str, Any], link: str, codes: list[str]
) -> None:
    found, cloud = asked(monkeypatch, tmp_path, **change)
    assert [gpu.broken for gpu in found.gpus if gpu.address == "0000:81:00.0"] == [link]
    assert sorted(entry.code.value for entry in found.findings) == codes
    assert bool(found.gpus[0].findings) == bool(link)
    assert len(cloud.requests) <= 9, cloud.requests  # and one to sign in
    assert found.gaps == []


def test_a_host_in_other_letters_has_the_same_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usual, other = (asked(monkeypatch, tmp_path, spec=SPEC + OUT, name=name)[0] for name in ("gpu1", "GPU1"))
    assert "GPU760" in {entry.code for entry in usual.findings}  # of the fleet
    assert other == usual


def link_of(found: HostAnswer, name: str, address: str = "0000:81:00.0") -> bool | None:
    (gpu,) = [gpu for gpu in found.gpus if gpu.address == address]
    return gpu.records[name]


@pytest.mark.parametrize(
    ("change", "because"),
    [
        ({"spec": SPEC + OUT}, "out of service in the spec: fan"),
        ({"spec": SPEC + OUT, "hosts": ()}, "out of service in the spec: fan"),
        ({"devices": tuple(device("gpu1", bus, capacity=0) for bus in BUSES)}, "reserved in Placement"),
        ({"devices": tuple(device("gpu1", bus, capacity=0) for bus in BUSES), "hosts": ()}, "reserved in Placement"),
        (
            {"state": {"status": "disabled", "disabled_reason": "gpustack: GPU 81:00.0, 82:00.0 (fan) | rack"}},
            "out of service in Nova: fan",
        ),
    ],
)
def test_the_reason_for_no_service_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: dict[str, Any], because: str
) -> None:
    found, _cloud = asked(monkeypatch, tmp_path, **change)
    (entry,) = [entry for entry in found.findings if entry.code == "GPU594" and entry.place.endswith("81:00.0")]
    assert because in entry.message
    assert link_of(found, "in service") is False


@pytest.mark.parametrize(
    ("change", "model", "state", "served"),
    [
        ({}, "Quadro K4200", "free", True),
        ({"hosts": ()}, "Quadro K4200", "free", True),
        (
            {"rows": tuple(map(row, BUSES[1:])), "devices": tuple(device("gpu1", bus) for bus in BUSES[1:])},
            "Quadro K4200",
            "",
            None,
        ),
        ({"rows": (row(0x81, status="unavailable"), *map(row, BUSES[1:]))}, "Quadro K4200", "unavailable", None),
    ],
)
def test_each_gpu_has_its_model_and_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: dict[str, Any], model: str, state: str, served: bool | None
) -> None:
    found, _cloud = asked(monkeypatch, tmp_path, **change)
    gpu = found.gpus[0]
    assert (gpu.address, model in gpu.model, gpu.state) == ("0000:81:00.0", True, state)
    assert gpu.records["in service"] is served


def test_rows_and_devices_are_those_of_the_compute_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The compute node has another name than the host; another host has the same addresses."""
    rows = [row(bus, node="node1") for bus in BUSES[1:]] + [row(0x81, host="gpu2", node="node2")]
    devices = (*(device("node1", bus) for bus in BUSES[1:]), device("node2", 0x81))
    found, _cloud = asked(monkeypatch, tmp_path, rows=tuple(rows), devices=devices)
    assert [link_of(found, "row", gpu.address) for gpu in found.gpus] == [False, True, True]
    assert [link_of(found, "Placement", gpu.address) for gpu in found.gpus][1:] == [True, True]


def test_findings_of_other_hosts_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = facts("gpu2", 0x82, driver="nouveau")
    spec = SPEC.replace("gpu1:", '"gpu[1:2]":')
    devices = (*(device("gpu1", bus) for bus in BUSES), device("gpu2", 0x81))
    more = {"hosts": (facts("gpu1", *BUSES), other), "spec": spec, "devices": devices, "rows": None}
    found, _cloud = asked(monkeypatch, tmp_path, **more)
    assert (found.findings, {gpu.host for gpu in found.gpus}) == ([], {"gpu1"})
    found, _cloud = asked(monkeypatch, tmp_path, name="gpu2", **more)
    assert {entry.place.partition(" ")[0] for entry in found.findings} == {"gpu2"}


@pytest.mark.parametrize(
    ("specs", "hosts", "has"),
    [(MATCHED, 1, True), (ONE_LESS, 1, False), ((), 1, None), (MATCHED, 0, None), ((), 0, None)],
)
def test_device_spec_is_compared_with_facts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, specs: Any, hosts: int, has: bool | None
) -> None:
    known = (facts("gpu1", *BUSES),) * hosts
    found, _cloud = asked(monkeypatch, tmp_path, hosts=known, device_specs=specs)
    assert link_of(found, "device_spec") is has


@pytest.mark.parametrize(
    ("scheduled", "devices", "has"),
    [
        (True, BUSES, True),
        (True, (), False),
        (None, BUSES, True),
        (None, (), None),  # Nova may report none
        (False, BUSES, None),  # Nova does not schedule by them
        (False, (), None),
    ],
)
def test_placement_lacks_a_gpu_only_if_nova_schedules_by_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheduled: bool | None, devices: tuple[int, ...], has: bool | None
) -> None:
    present = tuple(device("gpu1", bus) for bus in devices)
    found, _cloud = asked(monkeypatch, tmp_path, devices=present, scheduler=Scheduler(by_devices=scheduled))
    assert link_of(found, "Placement") is has


def test_a_virtual_function_has_the_links_of_its_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    part, card = "0000:81:00.4", "0000:81:00.0"
    rows = (row(0x81, address=part, dev_type="type-VF", parent=card), *map(row, BUSES[1:]))
    found, _cloud = asked(monkeypatch, tmp_path, rows=rows)
    records = {name: link_of(found, name, part) for name in ("spec", "ready", "bound", "row", "Placement")}
    assert records == dict.fromkeys(records, True)
    assert link_of(found, "row") is True  # the card is passed through by its functions
    used = tuple(device("gpu1", bus, used=int(bus == 0x81)) for bus in BUSES)
    found, _cloud = asked(monkeypatch, tmp_path, rows=rows, devices=used)  # other functions of it may be free
    assert link_of(found, "Placement", part) is True


def test_databases_that_can_not_be_read_leave_the_api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(_sources: Sources) -> None:
        raise DatabaseError("the database refused", where="cell cell1")

    monkeypatch.setattr("gpustack.fleet.databases.cells", refused)
    found, _cloud = asked(monkeypatch, tmp_path, rows=None, databases=lambda: Sources(api=None, cells=()))
    assert (found.gaps, link_of(found, "row"), len(found.gpus)) == (["cell cell1: the database refused"], None, 3)


@pytest.mark.parametrize(("rows", "broken"), [((), ""), ((row(0x82),), "row")])
def test_no_row_is_missing_in_a_cell_that_was_not_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: tuple[Row, ...], broken: str
) -> None:
    """A host that has rows is in a cell that was read."""
    gap = Gap(source=Source.DATABASE, reason="cell2 is lost")
    known = Answers(rows=(row(0x81, host="gpu2", node="gpu2"), *rows), everything=False, gaps=(gap,))
    monkeypatch.setattr("gpustack.fleet.databases.cells", lambda _sources: (known, ()))
    found, _cloud = asked(monkeypatch, tmp_path, rows=None, databases=lambda: Sources(api=None, cells=()))
    (gpu,) = [gpu for gpu in found.gpus if gpu.address == "0000:81:00.0"]
    assert (gpu.records["row"], gpu.broken) == (False if broken else None, broken)


@pytest.mark.parametrize(("node", "row_of"), [(device("gpu1", 0x81).root, True), ("elsewhere", None)])
def test_rows_of_another_region_do_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, node: str, row_of: bool | None
) -> None:
    known = Answers(rows=tuple(map(row, BUSES)), nodes=frozenset({node}))
    monkeypatch.setattr("gpustack.fleet.databases.cells", lambda _sources: (known, ()))
    found, _cloud = asked(monkeypatch, tmp_path, rows=None, databases=lambda: Sources(api=None, cells=()))
    assert link_of(found, "row") is row_of
    assert found.gaps == ([] if row_of else [OTHER_CLOUD])


def test_gaps_of_nova_end_with_its_databases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Their own gaps, and those of other sources, stay."""
    state = {"status": "UNKNOWN"}
    found, _cloud = asked(monkeypatch, tmp_path, state=state, rows=None)
    assert ["a cell does not answer" in gap for gap in found.gaps] == [True]
    found, _cloud = asked(monkeypatch, tmp_path, state=state)
    assert found.gaps == []
    gap = Gap(source=Source.DATABASE, reason="cell2 is lost")
    lost = Answers(rows=tuple(map(row, BUSES)), everything=False, gaps=(gap,))
    monkeypatch.setattr("gpustack.fleet.databases.cells", lambda _sources: (lost, ()))
    found, _cloud = asked(monkeypatch, tmp_path, rows=None, databases=lambda: Sources(api=None, cells=()))
    assert found.gaps == ["database: cell2 is lost"]


def test_aggregates_that_may_not_be_read_are_a_gap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refused = (403, {"forbidden": {"message": "not permitted"}})
    found, _cloud = asked(monkeypatch, tmp_path, answers={"compute /os-aggregates": refused})
    assert (list(found.aggregates), ["not permitted" in gap for gap in found.gaps]) == ([], [True])
    assert "aggregates" not in found.summary
    with pytest.raises(CloudError, match=r"whether there is a host 'gpu9' is unknown: .*not permitted") as unknown:
        asked(monkeypatch, tmp_path, name="gpu9", answers={"compute /servers/detail": refused}, rows=None)
    assert "role admin" in (unknown.value.remedy or "")


def test_the_first_line_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _cloud = asked(monkeypatch, tmp_path, rows=(row(0x81), row(0x82, status="allocated", owner="vm")))
    assert found.summary == (
        "gpu1: 3 in the host, 3 ready, 3 in device_spec, 2 in Nova (restart nova-compute), 3 in Placement, 1 free;"
        " aggregates: racks"
    )


def test_sources_that_were_not_read_leave_links_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _cloud = asked(monkeypatch, tmp_path, hosts=(), rows=None, device_specs=(), scheduler=None)
    unknown = {name for name, has in found.gpus[0].records.items() if has is None}
    assert unknown == {"host", "spec", "ready", "bound", "device_spec", "row"}
    assert found.summary.startswith("gpu1: 3 in Placement, 3 free")


def test_gpus_that_no_source_lists_are_unknown_and_not_0_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    silent: dict[str, Any] = {"hosts": (), "devices": (), "device_specs": (), "scheduler": None}
    found, _cloud = asked(monkeypatch, tmp_path, rows=None, **silent)
    assert found.summary.startswith("gpu1: its GPUs are unknown")
    assert found.gaps == ["no source shows the GPUs of gpu1; --config-file reads them from Nova's databases"]
    found, _cloud = asked(monkeypatch, tmp_path, rows=(), **silent)
    assert (found.gaps, found.summary.partition(";")[0]) == ([], "gpu1: 0 free")


def test_what_is_not_known_to_be_free_is_not_0_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _cloud = asked(monkeypatch, tmp_path)
    one, *others = (replace(gpu, state="", records={**dict.fromkeys(gpu.records), "host": True}) for gpu in found.gpus)
    assert counts([one, *others]) == "3 in the host, 3 of unknown state"
    assert counts([replace(one, state="free"), *others]) == "3 in the host, 1 free, 2 of unknown state"
    assert counts([replace(one, state="allocated")]) == "1 in the host, 0 free"


def test_an_unknown_host_has_the_nearest_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no host 'gpu11'") as raised:
        asked(monkeypatch, tmp_path, name="gpu11", hosts=(facts("gpu12", 0x81),))
    assert raised.value.remedy == "use one of: gpu1, gpu12"


def test_a_full_name_is_the_same_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _cloud = asked(monkeypatch, tmp_path, hosts=(fully_named(facts("gpu1", *BUSES)),), spec=FULL)
    assert {gpu.broken for gpu in found.gpus} == {""}


def fully_named(host: Host) -> Host:
    return host.model_copy(update={"hostname": "gpu1.example.org"})
