"""The claims of docs/howto/upgrade.md. Files of other versions are stand-ins; test_released.py has genuine ones."""

from __future__ import annotations

import json
import re
import shlex
from importlib.metadata import entry_points
from pathlib import Path

import older_files
import pytest
import sqlalchemy as sa

from gpustack.base.errors import DatabaseError, JournalError, SnapshotError, SpecError
from gpustack.base.operations import Reboot, WriteFile
from gpustack.cli.app import Gpustack, main
from gpustack.hosts.facts.store import parse_host
from gpustack.prepare.host.own_files import OWNED, RECORD, is_untouched, sealed
from gpustack.prepare.host.plan import plan_host
from gpustack.prepare.host.prove.undone import verify_undone
from gpustack.prepare.host.undo import plan_undo
from support.boot_simulation import Machine
from support.cellfile import CellFile, fill, nova_conf
from support.host_cases import SPEC
from support.host_samples import snapshot

INCLUDED = "```{include} ../reference/generated/older-files.inc\n```"
SOURCE = (Path(__file__).parents[2] / "docs/howto/upgrade.md").read_text(encoding="utf-8")
PAGE = SOURCE.replace(INCLUDED, older_files.table())
SPEC_TEXT = 'version: 1\nmodels:\n  k4200: {match: {vendor: "10de", product: "11b4"}}\nhosts: {gpu01: [k4200]}\n'
assert PAGE != SOURCE
COMMANDS = re.findall(r"\$ gpustack (.+)", PAGE) + re.findall(r"`gpustack ([a-z]+ [a-z]+ .+?)`", PAGE)


@pytest.fixture
def older_host() -> Machine:
    """A prepared host whose files have another comment than this version writes, and a valid checksum."""
    machine = Machine(snapshot("k4200"))
    machine.carry_out(plan_host(SPEC, machine.host))
    for path, file in machine.raw["files"].items():
        if path in OWNED and path != RECORD:
            content = file["text"].rpartition("# As gpustack wrote it")[0]
            file["text"] = sealed(f"{content}# A comment of an older version.\n")
            assert is_untouched(file["text"])
    return machine


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC_TEXT)
    return path


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    filled = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    fill(filled)
    nova_conf(tmp_path, {"cell1": filled.url})
    return filled


def saved(machine: Machine, path: Path) -> Path:
    path.write_text(json.dumps({"gpustack_snapshot": 1, "hosts": [machine.raw]}))
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_page_parse(command: str) -> None:
    group, action, *arguments = shlex.split(command)
    loaded = next(entry for entry in entry_points(group="gpustack.cli") if entry.name == f"{group}_{action}").load()
    loaded(Gpustack(), None).get_parser("gpustack").parse_args(arguments)


def test_plan_detects_files_of_an_older_version(
    older_host: Machine, spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = str(saved(older_host, tmp_path / "hosts.json"))
    assert main(["host", "plan", str(spec), "--snapshot", facts, "--exit-code"]) == 3
    assert "-# A comment of an older version." in capsys.readouterr().out


def test_apply_writes_older_files_again(older_host: Machine) -> None:
    plan = plan_host(SPEC, older_host.host)
    assert not plan.refused
    assert [operation for operation in plan.operations if isinstance(operation, WriteFile)]
    assert not any(isinstance(operation, Reboot) for operation in plan.operations), "a comment needs no reboot"
    older_host.carry_out(plan)
    assert plan_host(SPEC, older_host.host).operations == ()


def test_undo_restores_hosts_of_an_older_version(older_host: Machine) -> None:
    before = Machine(snapshot("k4200"))
    plan = plan_undo(older_host.host)
    assert (plan.refused, plan.findings) == (False, ())
    older_host.carry_out(plan)
    ordinary = {path: text for path, text in before.texts().items() if not path.startswith(("/run/", "/boot/"))}
    assert {path: text for path, text in older_host.texts().items() if path in ordinary} == ordinary
    assert not set(older_host.texts()) & set(OWNED)
    assert verify_undone(older_host.host, older_host.images).passed


def test_snapshots_with_fewer_facts_are_readable_and_plan_less() -> None:
    """Only the format and the PCI functions are required of a snapshot."""
    raw = {key: value for key, value in snapshot("k4200").items() if key in ("version", "hostname", "pci")}
    host = parse_host(raw, "test")
    assert (host.cpu.vendor, host.memory_mib, host.privileged) == (None, None, None)
    assert plan_host(SPEC, host).refused, "unknown facts must not lead to a change"


def test_unsupported_versions_are_errors_with_their_exit_codes(spec: Path, cell: CellFile, tmp_path: Path) -> None:
    facts, journal, plan = (tmp_path / name for name in ("hosts.json", "journal.jsonl", "plan.json"))
    facts.write_text('{"gpustack_snapshot": 2, "hosts": []}')
    journal.write_text('{"gpustack_cleanup_journal": 2}\n')
    plan.write_text('{"gpustack_cleanup_plan": 2, "verdicts": []}')
    before = cell.dump()
    cloud = ["--config-file", str(tmp_path)]
    assert main(["host", "plan", str(spec), "--snapshot", str(facts)]) == SnapshotError.exit_code == 11
    assert main(["cleanup", "undo", str(journal), *cloud]) == JournalError.exit_code == 15
    assert main(["cleanup", "apply", str(plan), *cloud, "--no-hypervisor", "--yes"]) == JournalError.exit_code
    spec.write_text(SPEC_TEXT.replace("version: 1", "version: 2"))
    assert main(["spec", "check", str(spec)]) == SpecError.exit_code == 10
    assert cell.dump() == before
    assert re.findall(r"exit codes? ([\d and]+\d)", PAGE) == ["10", "15", "11 and 15", "30"]


def test_undo_reads_journals_without_later_keys(cell: CellFile, tmp_path: Path) -> None:
    """The first journals had no ``allocation`` and no ``witness``."""
    before, path, cloud = cell.dump(), tmp_path / "journal.jsonl", ["--config-file", str(tmp_path)]
    apply = ["cleanup", "apply", *cloud, "--journal", str(path), "--no-hypervisor", "--class", "A"]
    assert main([*apply, "--yes", "--wait", "0"]) == 0
    assert cell.dump() != before
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.get("payload", {}).pop("allocation", None)
        line.get("payload", {}).pop("witness", None)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["cleanup", "undo", str(path), *cloud, "--yes"]) == 0
    assert cell.dump() == before


def test_cleanup_refuses_a_newer_database(cell: CellFile, tmp_path: Path) -> None:
    engine = sa.create_engine(cell.url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0123456789ab'"))
    engine.dispose()
    assert main(["cleanup", "plan", "--config-file", str(tmp_path)]) == DatabaseError.exit_code == 30


def test_plan_reports_a_kernel_without_the_driver() -> None:
    machine = Machine(snapshot("k4200"))
    for kernel in machine.raw["boot"]["kernels"][:1]:
        kernel["modules"] = {}
    assert "GPU115" in {str(finding.code) for finding in plan_host(SPEC, machine.host).findings}
    assert "[GPU115]" in PAGE
