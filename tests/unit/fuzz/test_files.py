"""Files that somebody hands over: plans, journals, snapshots, specs, and configuration of Nova."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.base.errors import JournalError
from gpustack.changes import journal
from gpustack.changes.undo import plan_undo
from gpustack.cli.change import former, kinds
from gpustack.configure.inspection import existing_for
from gpustack.connect.playbooks.results import joined, load
from gpustack.connect.playbooks.show import line, problems
from gpustack.hosts.facts.store import load_snapshot
from gpustack.nova_options.config import read_files
from gpustack.novadb import sources
from gpustack.repair import show
from gpustack.repair.changes import RepairUndo
from gpustack.repair.journal import JournalEntry, entry
from gpustack.repair.repair import WRITTEN
from gpustack.repair.verdict import Repair
from gpustack.spec.load import load_spec
from support.attack import BYTES, JSON, attack, damaged, examples
from support.fuzz_inputs import CONF, RAW, SPEC
from support.fuzz_readers import HOSTS_OF_RUN

VERDICT = {
    **dict.fromkeys(("title", "cell", "host", "node", "instance", "because", "advice"), "x"),
    "class": "A",
    "status": "stale",
    "host_state": "up",
    "repair": Repair.FREE.value,
    "evidence": ["e"],
    "devices": [{"id": 1, "address": "0000:01:00.0", "status": "allocated", "dev_type": "type-PCI"}],
    "migrations": [],
    "stop_service": False,
    "allocation": None,
}
ROW = {"id": 1, "status": "allocated", "instance_uuid": "vm", "updated_at": {"datetime": "2026-01-01T00:00:00"}}
CHANGE = {"table": "pci_devices", "id": 1, "seen": {"status": "allocated"}, "new": {"status": "available"}}
BEGIN = {
    "begin": 1,
    "cell": "c",
    "database": "u",
    "verdict": VERDICT,
    "changes": [CHANGE],
    "before": [ROW],
    "allocation": None,
}
LINES = [{"gpustack_cleanup_journal": 1}, BEGIN, {"end": 1, "outcome": "done"}]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files") / "file"


def entries(file: Path) -> list[JournalEntry]:
    """The repairs that an undo would revert."""
    changes, _final = plan_undo(journal.read(file, former()), kinds())
    return [entry(change.payload or {}) for change in changes if isinstance(change, RepairUndo)]


def test_nothing_undamaged_is_refused(file: Path) -> None:
    file.write_text("\n".join(map(json.dumps, LINES)) + "\n")
    assert len(entries(file)) == 1
    file.write_text(json.dumps({"gpustack_cleanup_plan": 1, "verdicts": [VERDICT]}))
    assert len(show.load_plan(file)) == 1
    file.write_text(SPEC)
    assert load_spec(file)


@examples(200)
@given(st.one_of(BYTES, damaged(LINES).map(lambda lines: "\n".join(map(json.dumps, lines)).encode())))
def test_journals(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with attack():
        for repair in entries(file):
            assert len(repair.changes) == len(repair.before)
            for change, before in zip(repair.changes, repair.before, strict=True):
                assert change.new.keys() <= WRITTEN[change.table]
                assert change.new.keys() <= before.keys()


@examples(150)
@given(
    st.one_of(BYTES, damaged({"gpustack_cleanup_plan": 1, "verdicts": [VERDICT]}).map(lambda v: json.dumps(v).encode()))
)
def test_plans(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with attack():
        show.load_plan(file)


@examples(150)
@given(st.one_of(BYTES, damaged(json.loads(HOSTS_OF_RUN)).map(lambda v: json.dumps(v).encode())))
def test_records_of_runs(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with attack():
        for host in joined({"a": load(file)}).hosts:
            json.dumps(host.to_dict())
            line(host)
            problems(host)


@examples(60)
@given(
    st.one_of(BYTES, damaged({"gpustack_snapshot": 1, "hosts": [RAW["k4200"]]}).map(lambda v: json.dumps(v).encode()))
)
def test_snapshots(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with attack():
        load_snapshot(file)


@examples(150)
@given(
    st.one_of(BYTES, CONF.map(lambda text: text.encode("utf-8", "replace")), JSON.map(lambda v: json.dumps(v).encode()))
)
def test_specs_and_configurations_of_nova(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with attack():
        load_spec(file)
    with attack():
        read_files([file])
    with attack():
        sources.from_nova_conf([file])


@pytest.mark.parametrize(("module", "read"), [(journal, journal.read), (show, show.load_plan)])
def test_links_to_files_without_end(tmp_path, monkeypatch, module, read) -> None:
    (tmp_path / "link").symlink_to("/dev/zero")
    monkeypatch.setattr(module, "refuse_shared", lambda path, status: None)  # everybody may write to /dev/zero
    monkeypatch.setattr(module, "_MAX_BYTES", 1 << 20)
    with pytest.raises(JournalError, match="File too large"):
        read(tmp_path / "link")


YAML = [
    "a: " + "[" * 5000 + "]" * 5000,
    "dependencies: 5",
    "dependencies: [2001-99-99]",
    "dependencies: [[1], {a: b}, ../../.., '/etc', \"a\\0b\"]",
    "dependencies: [&a [" + "x," * 9 + "]" + "".join(f", &a [{'*a,' * 9}]" for _ in range(12)) + "]",
    "dependencies: [!!python/object/apply:os.system [id]]",
    "kind: ConfigMap\ndata: 5",
    "kind: OpenStackControlPlane\nspec: {nova: {template: 5}}",
    "conf: {nova: {pci: {alias: {type: multistring, values: 5}}}}",
    "conf: {nova: {pci: {alias: [&a [" + "x," * 9 + "]" + "".join(f", &a [{'*a,' * 9}]" for _ in range(12)) + "]}}}",
    "conf: {overrides: {nova_compute: {hosts: 5}}}",
    "conf: {nova: {pci: 5}, overrides: {nova_compute: {hosts: [5, {name: [1], conf: {nova: {pci: 7, 5: 6}}}]}}}",
]


@pytest.mark.parametrize("text", YAML)
def test_documents_of_deployment_tools(tmp_path: Path, text: str) -> None:
    (tmp_path / "values.yaml").write_text(text, encoding="utf-8")
    for deployment in ("rhoso", "openstack-helm"):
        with attack():
            existing_for(deployment, arguments=[str(tmp_path / "values.yaml")], root=tmp_path)
    below = tmp_path / "etc/kayobe/environments/site/kolla/config/nova"
    below.mkdir(parents=True)
    (below.parents[2] / ".kayobe-environment").write_text(text, encoding="utf-8")
    with attack():
        existing_for("kayobe", root=below, directory=".")
