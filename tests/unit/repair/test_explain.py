"""``gpustack cleanup explain``: one screen about one GPU or instance, in any state."""

from __future__ import annotations

import contextlib
import shlex
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpustack.cli.app import main
from gpustack.novadb.sources import Sources
from gpustack.repair.classes import COMPARED
from gpustack.repair.explain import Subject, explain
from gpustack.repair.hypervisor import Usage
from gpustack.repair.plan import Selection
from support.cellfile import CellFile, ago, nova_conf
from support.fleet_cloud import StandIn

GPU = "0000:81:00.0"
VM = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """An evacuated instance whose old host stays away, and a row of it that somebody soft-deleted."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    node = cell.host("gpu1")
    cell.host("gpu2", seen=5)
    cell.instance(VM, "gpu2")
    cell.move(VM, "gpu1", "gpu2", "done")
    cell.device(node, GPU, "allocated", instance_uuid=VM, request_id="x")
    cell.device(node, GPU, "available", deleted=71, deleted_at=ago())
    return nova_conf(tmp_path, {"cell1": cell.url})


def explanation(capsys: pytest.CaptureFixture[str], conf: Path, *arguments: str) -> str:
    assert main(["cleanup", "explain", *arguments, "--config-file", str(conf), "--no-hypervisor"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("gpu1", GPU), ("gpu1", "81:00.0"), (VM,), (VM.upper(),)])
def test_everything_about_a_gpu_or_an_instance(
    arguments: tuple[str, ...], conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = explanation(capsys, conf, *arguments)
    assert f"{GPU} (10de:11b4), type-PCI, is 'allocated', owner {VM}, request x" in out
    assert f"instance {VM}: active, task none, on gpu2 (gpu2)" in out
    assert f"requests of {VM}: 1 of k4200 (r1)" in out
    assert f"of {VM} (migration, gpu1 to gpu2): done" in out
    assert "nova-compute on gpu1, last seen" in out
    assert "hypervisor of gpu1\n  could not be asked" in out
    assert "Placement\n  not asked" in out
    assert "class A (left-behind) on gpu1, stale" in out
    assert ("is 'available', no owner" in out) == (len(arguments) == 2)
    assert len(out.splitlines()) < 40


def test_older_migrations_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    for host in ("gpu1", "gpu2"):
        cell.host(host)
    cell.instance(VM, "gpu2")
    cell.move(VM, "gpu1", "gpu2", "done")
    for _number in range(10):
        cell.move(VM, "gpu2", "gpu1", "error")
    out = explanation(capsys, nova_conf(tmp_path, {"cell1": cell.url}), VM)
    assert (out.count("gpu2 to gpu1): error"), "gpu1 to gpu2): done" in out) == (10, False)
    assert "and 1 older migration\n" in out


@pytest.mark.parametrize("arguments", [("gpu1", "0000:99:00.0"), ("gpu9", GPU), (VM.replace("1", "9"),)])
def test_nothing_is_known(arguments: tuple[str, ...], conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = explanation(capsys, conf, *arguments)
    assert "no row of pci_devices" in out
    assert ("no compute node of gpu9" in out) == (arguments[0] == "gpu9")
    assert "verdicts\n  none" in out


def test_values_that_nova_does_not_write_are_shown_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell.instance(VM, "gpu1", updated_at=None)
    cell.device(cell.host("gpu1"), GPU, "free", instance_uuid=VM.upper())
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE pci_devices SET updated_at = '0000-00-00 00:00:00'")
        connection.exec_driver_sql("UPDATE instance_extra SET pci_requests = '[{'")
    out = explanation(capsys, nova_conf(tmp_path, {"cell1": cell.url}), "gpu1", GPU)
    assert "is 'free'" in out
    assert "not readable: '[{'" in out
    assert "class U (unknown-value) on gpu1, report" in out


@pytest.mark.parametrize("place", ["instances.host", "migrations.source_compute", "compute_nodes.host"])
@pytest.mark.parametrize("arguments", [("gpu1", GPU), (VM,)])
def test_a_host_that_is_no_text_is_not_asked(
    place: str, arguments: tuple[str, ...], conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, column = place.split(".")
    with contextlib.closing(sqlite3.connect(conf.with_name("cell.sqlite"))) as connection, connection:
        connection.execute(f"UPDATE {table} SET {column} = x'ff00' WHERE id = (SELECT max(id) FROM {table})")
    assert "hypervisor of gpu1" in explanation(capsys, conf, *arguments)


@pytest.mark.parametrize("arguments", [("gpu1",), ("gpu1", "81"), (VM, GPU, "x")])
def test_neither_a_gpu_nor_an_instance(arguments: tuple[str, ...], conf: Path) -> None:
    assert main(["cleanup", "explain", *arguments, "--config-file", str(conf)]) == 2


# --- what the command asks: hosts and Placement -----------------------------------------------------------------------


@pytest.fixture
def sources(tmp_path: Path, conf: Path) -> Sources:
    """The same cell, with a record of the host before it was added again."""
    cell_file = sqlite3.connect(tmp_path / "cell.sqlite")
    with contextlib.closing(cell_file), cell_file:
        cell_file.execute("UPDATE migrations SET uuid = 'moved'")
        columns = "host, hypervisor_hostname, updated_at"
        cell_file.execute(
            f"INSERT INTO compute_nodes (id, uuid, deleted, deleted_at, {columns})"
            f" SELECT 70, 'former', 70, '2026-01-02 03:04:05', {columns} FROM compute_nodes WHERE host = 'gpu1'"
        )
    return Sources.from_nova_conf([conf])


def sections(
    sources: Sources, subject: Subject, answers: Mapping[str, Usage] | None = None, cloud: StandIn | None = None
) -> dict[str, list[str]]:
    """The lines of each section."""
    known = answers or {}
    shown = explain(
        sources,
        Selection(),
        subject,
        lambda host: known.get(host, Usage(gap=f"{host} is silent")),
        cloud and cloud.connection,
    )
    return {section.title: list(section.lines) for section in shown}


def gpu() -> Subject:
    return Subject(host="gpu1", address=GPU)


def instance() -> Subject:
    return Subject(instances={VM})


FUNCTIONS = {GPU: "10de:11b4"}


@pytest.mark.parametrize(
    ("usage", "lines"),
    [
        (
            Usage(functions=FUNCTIONS),
            [f"{GPU} is 10de:11b4", "no domain uses it", f"no running domain of {VM} has a device"],
        ),
        (
            Usage(functions=FUNCTIONS, users={GPU: frozenset({VM, ""}), "0000:82:00.0": frozenset({"x"})}),
            [f"{GPU} is 10de:11b4", f"in use by {VM}, an unknown process", f"the domain of {VM} uses {GPU}"],
        ),
        (
            Usage(),
            [
                f"there is no function {GPU}",
                "no domain uses it",
                f"no running domain of {VM} has a device",
            ],
        ),
        (
            Usage(gap="not root"),
            ["could not be asked, or not about everything: not root", f"whether there is {GPU} is not known"],
        ),
        (
            Usage(gap="not root", functions=FUNCTIONS, users={GPU: frozenset({VM})}),
            [
                "could not be asked, or not about everything: not root",
                f"{GPU} is 10de:11b4",
                f"in use by {VM}",
                f"the domain of {VM} uses {GPU}",
            ],
        ),
        (
            Usage(functions=FUNCTIONS, names=frozenset({"gpu7"})),
            ["the machine that answered as gpu1 calls itself gpu7", f"{GPU} is 10de:11b4"],
        ),
    ],
    ids=["unused", "used", "missing", "unknown", "partly", "another"],
)
def test_the_host_is_asked_about_the_device_and_its_users(sources: Sources, usage: Usage, lines: list[str]) -> None:
    assert sections(sources, gpu(), {"gpu1": usage})["hypervisor of gpu1"][: len(lines)] == lines


def test_the_other_host_is_asked_about_the_instance_alone(sources: Sources) -> None:
    usage = Usage(functions=FUNCTIONS, users={GPU: frozenset({VM})})
    assert sections(sources, gpu(), {"gpu2": usage})["hypervisor of gpu2"] == [f"the domain of {VM} uses {GPU}"]


def test_an_answer_that_is_incomplete_and_shows_nothing_is_no_witness(sources: Sources) -> None:
    """A domain that uses a device on the wrong host is class T, also if the host could not show everything."""
    used = {"0000:82:00.0": frozenset({VM})}
    known = {"0000:82:00.0": "10de:11b4"}
    for answer, reported in (
        (Usage(users=used, functions=known), True),
        (Usage(users=used, functions=known, gap="not root"), True),
        (Usage(gap="not root"), False),
    ):
        verdicts = sections(sources, gpu(), {"gpu1": answer, "gpu2": Usage()})["verdicts"]
        assert any(line.startswith("class T") for line in verdicts) is reported, verdicts


def placement() -> StandIn:
    devices = [
        {"uuid": "node-gpu1", "name": "gpu1", "root_provider_uuid": "node-gpu1"},
        {"uuid": "p81", "name": f"gpu1_{GPU}", "root_provider_uuid": "node-gpu1"},
        {"uuid": "p82", "name": "gpu1_0000:82:00.0", "root_provider_uuid": "node-gpu1"},
    ]
    allocated = {"allocations": {"p81": {"resources": {"CUSTOM_GPU": 1}}}}
    return StandIn(
        {
            "placement /resource_providers?in_tree=": (200, {"resource_providers": []}),
            "placement /resource_providers?in_tree=node-gpu1": (200, {"resource_providers": devices}),
            "placement /resource_providers/p": (200, {"allocations": {}}),
            "placement /resource_providers/p81/allocations": (
                200,
                {"allocations": {"vm": {"resources": {"CUSTOM_GPU": 1}}, "moved": {"resources": {"CUSTOM_GPU": 2}}}},
            ),
            "placement /resource_providers/p81/inventories": (
                200,
                {"resource_provider_generation": 1, "inventories": {"CUSTOM_GPU": {"total": 4, "reserved": 1}}},
            ),
            "placement /allocations/": (200, {"allocations": {}}),
            "placement /allocations/moved": (200, allocated),
        }
    )


OF_THE_MOVE = ["migration moved has 1 CUSTOM_GPU of p81"]


def test_placement_is_asked_about_the_device_its_instances_and_their_moves(sources: Sources) -> None:
    cloud = placement()
    assert sections(sources, gpu(), cloud=cloud)["Placement"] == [
        f"provider p81 (gpu1_{GPU}): CUSTOM_GPU: 4, reserved 1",
        "allocated: 2 by moved, 1 by vm",
        f"instance {VM} has nothing",
        *OF_THE_MOVE,
    ]
    assert not [line for line in cloud.requests if "former" in line]  # the compute node was deleted


@pytest.mark.parametrize(
    ("answers", "lines"),
    [
        (
            {"p81/allocations": (200, {"allocations": {}}), "p81/inventories": (404, {})},
            [f"provider p81 (gpu1_{GPU}): no inventory", "allocated: nothing"],
        ),
        (
            {"p81/allocations": (503, {"error": {"message": "busy"}})},
            [
                f"provider p81 (gpu1_{GPU}): CUSTOM_GPU: 4, reserved 1",
                "allocated: nothing; can't read the allocations of a device: HTTP 503, busy",
            ],
        ),
        ({"p81/allocations": (404, {})}, [f"instance {VM} has nothing"]),
        ({"": (403, {})}, ["could not be asked: can't list the resource providers: HTTP 403, as the test wants"]),
    ],
    ids=["empty", "partly", "gone", "refused"],
)
def test_placement_may_lack_or_refuse_an_answer(sources: Sources, answers: dict[str, Any], lines: list[str]) -> None:
    cloud = placement()
    cloud.answers |= {
        f"placement /resource_providers/{path}" if path else "placement": of for path, of in answers.items()
    }
    if "" in answers:
        cloud.answers = {"placement": answers[""]}
    assert sections(sources, gpu(), cloud=cloud)["Placement"][: len(lines)] == lines


def test_an_instance_has_its_allocations_and_those_of_its_moves(sources: Sources) -> None:
    cloud = placement()
    assert sections(sources, instance(), cloud=cloud)["Placement"] == [f"instance {VM} has nothing", *OF_THE_MOVE]
    cloud.answers[f"placement /allocations/{VM}"] = (
        200,
        {"allocations": {"n": {"resources": {"VCPU": 2, "MEMORY_MB": 64}}, "g": {"resources": {"CUSTOM_GPU": 1}}}},
    )
    held = sections(sources, instance(), cloud=cloud)["Placement"][0]
    assert held == f"instance {VM} has 1 CUSTOM_GPU of g; 64 MEMORY_MB, 2 VCPU of n"


def test_verdicts_name_the_host_and_a_command_that_can_be_pasted(
    sources: Sources, conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those on other hosts are shown if they are of the instance of the GPU."""
    cell_file = sqlite3.connect(conf.with_name("cell.sqlite"))
    with contextlib.closing(cell_file), cell_file:
        columns = "vendor_id, product_id, dev_type, status, compute_node_id, created_at, updated_at, deleted"
        for number, (address, node, owner) in enumerate(
            [("0000:82:00.0", "gpu1", "other"), ("0000:83:00.0", "gpu2", "other"), (GPU, "gpu2", "other")], start=80
        ):
            cell_file.execute(
                f"INSERT INTO pci_devices (id, address, instance_uuid, request_id, {columns}) SELECT ?, ?, ?, 'x',"
                " vendor_id, product_id, dev_type, 'allocated', (SELECT id FROM compute_nodes WHERE host = ? AND"
                " deleted = 0), created_at, updated_at, 0 FROM pci_devices WHERE status = 'allocated' LIMIT 1",
                (number, address, owner, node),
            )
    for subject in (gpu(), instance()):
        lines = sections(sources, subject, cloud=placement())["verdicts"]
        heads = [line.split(",")[0] for line in lines if not line.startswith(" ")]
        assert heads[:2] == ["class A (left-behind) on gpu1", "class L (missing-row) on gpu2"]
        assert {head.split()[1] for head in heads[2:]} <= {"Q"}
        commands = [line.removeprefix("  → gpustack ") for line in lines if "→ gpustack" in line]
        assert commands == ["cleanup apply --host gpu1 --class A"]
    for letter, needed in COMPARED.items():
        assert main(["cleanup", "plan", "--config-file", str(conf), "--class", letter]) == 2
        assert f"gpustack cleanup plan --config-file {conf} --class {letter} {needed}" in capsys.readouterr().err


def test_the_repair_of_an_allocation_names_the_cloud(tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell.device(cell.host("gpu1", seen=1), GPU)
    cell.instance(VM, "gpu1", wants=(), deleted=9, deleted_at=ago())
    cloud = placement()
    held = {"allocations": {VM: {"resources": {"CUSTOM_GPU": 1}}}, "consumer_generation": 1, "project_id": "p"}
    cloud.answers["placement /resource_providers/p81/allocations"] = (200, held)
    of_placement = Sources.from_nova_conf([nova_conf(tmp_path, {"cell1": cell.url})])
    verdicts = sections(of_placement, gpu(), {"gpu1": Usage(functions=FUNCTIONS)}, cloud)["verdicts"]
    assert verdicts[-2].startswith("class Q (allocation-drift) on gpu1, stale: ")
    assert verdicts[-1] == "  → gpustack cleanup apply --host gpu1 --class Q --os-cloud CLOUD"


def test_a_record_shows_when_it_was_written_and_whether_nova_sees_it(sources: Sources, conf: Path) -> None:
    with contextlib.closing(sqlite3.connect(conf.with_name("cell.sqlite"))) as connection, connection:
        connection.execute("UPDATE pci_devices SET created_at = '2026-01-02 03:04:05', updated_at = NULL")
        connection.execute("UPDATE pci_devices SET deleted_at = '2026-02-03 04:05:06' WHERE deleted > 0")
        connection.execute("UPDATE instances SET updated_at = '2026-03-04 05:06:07', deleted = NULL")
    lines = sections(sources, gpu())["cell cell1"]
    assert {line for line in lines if line.startswith("compute node ")} == {
        "compute node 2, gpu1 (gpu1)",
        "compute node 4, gpu2 (gpu2)",
        "compute node 70, gpu1 (gpu1); soft-deleted 2026-01-02 03:04:05",
    }
    live, deleted = (line.partition(", written ")[2] for line in lines if line.startswith("row "))
    assert (live, deleted) == ("2026-01-02 03:04:05", "2026-01-02 03:04:05; soft-deleted 2026-02-03 04:05:06")
    (instance_line,) = (line for line in lines if line.startswith("instance "))
    assert instance_line.endswith("written 2026-03-04 05:06:07; deleted is NULL: Nova does not see it")


@pytest.mark.parametrize("command", ["explain", "plan"])
def test_printed_commands_work_as_pasted(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell.device(cell.host("gpu1"), GPU, "unavailable", dev_type="type-PF")
    conf = str(nova_conf(tmp_path, {"cell1": cell.url}))
    subject = ["gpu1", GPU, "--no-hypervisor"] if command == "explain" else []
    assert main(["cleanup", command, *subject, "--config-file", conf, "--grace", "0"]) == 0
    (advice,) = (line for line in "".join(capsys.readouterr()).splitlines() if "if nobody did" in line)
    pasted = shlex.split(advice.partition("gpustack ")[2])
    assert ["--config-file", conf, "--grace", "0"] == pasted[2:6]
    assert main([*pasted, "--check", "--no-hypervisor"]) == 13  # the host must be asked
    assert "class H" in capsys.readouterr().err
