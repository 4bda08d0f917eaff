"""Somebody edits a journal: an undo writes what a plan of its kind could have written, to gpustack's objects only."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpustack.base.errors import JournalError
from gpustack.changes.change import ChangeResult, CloudChange
from gpustack.changes.journal import PlannedChange, RunHead, RunRecord, read_lines
from gpustack.changes.run import run
from gpustack.changes.undo import plan_undo
from gpustack.cli.change import kinds
from gpustack.cloud import compute
from gpustack.cloud.flavors import Sizes
from gpustack.connect.playbooks.results import load
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.flavor.flavors import PresentFlavor
from support.attacks import REMEDY, attacked, commands
from support.attacks import run as run_command
from support.change_runs import NoJournal
from support.change_samples import CLOSED, LIMIT, REPAIR, VALID
from support.fuzz_readers import HOSTS_OF_RUN, JOURNAL, RUN

FORGED: dict[str, list[dict[str, Any]]] = {
    "aggregate": [{"wanted": {"availability_zone": "x"}}, {"seen": {}}, {"wanted": "x"}],
    "aggregate_host": [{"about": {"host": "h"}}, {"wanted": {"x": 1}}, {"wanted": None}],
    "aggregate_metadata": [
        {"seen": {"availability_zone": None}, "wanted": {"availability_zone": "x"}},
        {"seen": {}},
        {"wanted": None},
    ],
    "closed_host": [{"about": {**CLOSED, "reason": "mine"}}, {"about": {"host": "h"}}, {"wanted": None}],
    "flavor": [
        {"seen": {"vcpus": 1}, "wanted": {"vcpus": 2}},
        {"seen": {"rxtx_factor": 1}, "wanted": {"rxtx_factor": 2}},
        {"seen": None, "wanted": {"extra_specs": {}}},
        {"seen": {"access": ["p"]}, "wanted": {"access": []}},
        {"about": {"rxtx_factor": "nan"}},
        {"wanted": {"extra_specs": 5}},
    ],
    "flavor_access": [{"wanted": {"q": True}}, {"seen": None}, {"wanted": {"p": "x"}}],
    "image": [
        {"seen": {"visibility": "private"}, "wanted": {"visibility": "public"}},
        {"wanted": {"hw_machine_type": "q35", "owner": "q"}},
        {"wanted": {"hw_machine_type": "q35"}},
        {"wanted": None},
    ],
    "instance": [{"seen": None}, {"wanted": {"status": "SHUTOFF"}}],
    "limit": [{"about": {**LIMIT, "resource_class": "VCPU"}}, {"about": {}}, {"wanted": "all"}, {"wanted": {"x": 1}}],
    "notice": [{"seen": {"gpustack_stopped_for": None}, "wanted": {"gpustack_stopped_for": "x"}}, {"seen": None}],
    "repair": [{"seen": None}, {"wanted": {"0000:01:00.0": 1}}],
    "repair_undo": [{"seen": None}],
    "reservation": [
        {"seen": {"VCPU": 0}, "wanted": {"VCPU": 99}},
        {"wanted": {"CUSTOM_A": -1}},
        {"wanted": {"CUSTOM_B": 1}},
        {"seen": None},
        {"about": {}},
    ],
    "shelving": [{"about": {}}, {"wanted": None}, {"wanted": {"status": "x"}}],
    "trait": [{"about": {"host": "h", "trait": "HW_CPU_X86_SGX"}}, {"about": {"trait": "CUSTOM_X"}}, {"seen": 1}],
    "unshelving": [{"about": {}}, {"seen": None}],
}


def record(kind: str, result: ChangeResult = ChangeResult.DONE, **parts: Any) -> RunRecord:
    """A journal with one change, edited."""
    line = (
        {"key": "k", "kind": kind, "id": "", "name": "it", "why": "w", "needs": [], "about": {}} | VALID[kind] | parts
    )
    head = RunHead(id="x", command="c", changes=[PlannedChange.model_validate(line)])
    payloads = {"k": REPAIR} if kind == "repair" else {}
    return RunRecord(path=Path("journal"), head=head, results={"k": result}, ends={}, payloads=payloads, closed=True)


def test_every_kind_is_attacked_and_declares_its_values() -> None:
    assert VALID.keys() == FORGED.keys() == kinds().keys()
    for kind in kinds().values():
        assert any("value" in vars(parent) for parent in kind.__mro__), kind


@pytest.mark.parametrize("kind", sorted(VALID))
def test_genuine_records_are_undone(kind: str) -> None:
    made, final = plan_undo(record(kind), kinds())
    assert len(made + final) == 1
    assert all(change.recorded for change in made)


@pytest.mark.parametrize(("kind", "parts"), [(kind, parts) for kind, forged in FORGED.items() for parts in forged])
def test_forged_records_are_refused(kind: str, parts: Mapping[str, Any]) -> None:
    with pytest.raises(JournalError, match="nothing was changed"):
        plan_undo(record(kind, **parts), kinds())


class Cloud:
    """A stand-in for a cloud with a flavor and an aggregate of somebody else; it accepts no write."""

    def get(self, flavor_id: str) -> PresentFlavor:
        sizes = Sizes(vcpus=1, ram=2, disk=3)
        return PresentFlavor(id=flavor_id, name="it", sizes=sizes, public=True, extra_specs={"a": "b"}, description="")

    def access(self, flavor_id: str) -> list[str]:
        return ["p"]

    def users(self, flavor_id: str) -> int:
        return 0


FOREIGN: dict[str, dict[str, Any]] = {
    "aggregate": {"wanted": {"filter_tenant_id": "p"}},
    "aggregate_host": {"about": {"host": "h", "aggregate": "it"}},
    "aggregate_metadata": {"seen": {"filter_tenant_id": None}, "wanted": {"filter_tenant_id": "p"}},
    "flavor": {"seen": {"extra_specs": {"a": None}}, "wanted": {"extra_specs": {"a": "b"}}},
    "flavor_access": {},
}


@pytest.mark.parametrize("kind", sorted(FOREIGN))
def test_an_undo_leaves_objects_of_others_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    aggregate = Aggregate(id=1, name="it", hosts=frozenset({"h"}), metadata={"filter_tenant_id": "p"})
    monkeypatch.setattr(compute, "aggregates", lambda api: [aggregate])
    made, _ = plan_undo(record(kind, **FOREIGN[kind]), kinds())
    apis: dict[str, Any] = {kind: Cloud() if kind.startswith("flavor") else SimpleNamespace()}
    (outcome,) = run(made, apis, NoJournal())
    assert outcome.result is ChangeResult.SKIPPED
    assert "does not have gpustack's mark" in outcome.detail


def test_a_change_of_a_plan_may_adopt_an_object() -> None:
    """Only an undo requires the mark."""
    assert not CloudChange.__dataclass_fields__["recorded"].default


def forged(_directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, all_parts in FORGED.items():
        for parts in all_parts:
            with pytest.raises(JournalError, match="nothing was changed"):
                plan_undo(record(kind, **parts), kinds())


def results(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of runs with forged hosts and texts: one that is no name, one with characters that steer a terminal."""
    path = directory / "run.json"
    for host in ("gpu01\x1b[2J", "gpu01\ngpu02: done", "gpu01 gpu02", ""):
        run = {**json.loads(HOSTS_OF_RUN), "hosts": [{"host": host}]}
        path.write_text(json.dumps(run), encoding="utf-8")
        with pytest.raises(JournalError, match="is no host name"):
            load(path)
    # A plan has lines of its own, so only what steers the terminal is refused.
    text = HOSTS_OF_RUN.decode().replace("1 file", json.dumps(ESCAPES.removesuffix(REMEDY))[1:-1])
    path.write_text(text, encoding="utf-8")
    run_command("host results", "records", path, directory)
    assert {name for name, _ in commands("record of a run")} == {"host results"}


def endless(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpustack.changes.journal._MAX_BYTES", 1000)
    path = directory / "journal"
    path.write_text("{}\n" * 1000, encoding="utf-8")
    with pytest.raises(JournalError, match="can't be read"):
        read_lines(path)


ESCAPES = f"\x1b]0;owned\x07\u202e\u2028{REMEDY}"


def names(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals with characters that steer a terminal, and whose names lead elsewhere, in the state directory."""
    state = directory / "home/gpustack/changes"
    state.mkdir(parents=True)
    journals: tuple[list[Any], ...] = (RUN, JOURNAL)
    for number, lines in enumerate(journals):
        text = "\n".join(map(json.dumps, lines)).replace('"x"', json.dumps(ESCAPES)).replace('"n"', json.dumps(ESCAPES))
        (state / f"{number}{ESCAPES}.jsonl").write_text(text + "\n", encoding="utf-8")
        (directory / "journal.jsonl").write_text(text + "\n", encoding="utf-8")
        for command in ("history", "undo", "image undo", "cleanup undo", "reclaim undo"):
            run_command(command, "change", directory / "journal.jsonl", directory)
    os.mkfifo(state / "pipe.jsonl")  # nobody writes: a reader would wait for ever
    (state / "loop.jsonl").symlink_to("loop.jsonl")
    (state / "zero.jsonl").symlink_to("/dev/null")
    run_command("history", "change", directory / "journal.jsonl", directory)
    assert {name for name, _ in commands("run journal")} == {
        *("history", "undo", "image undo", "cleanup undo", "reclaim undo")
    }


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {"forged": forged, "endless": endless, "names": names, "results": results},
    {
        "gpustack.changes.undo:plan_undo": {"gpustack.changes.undo:_malformed": lambda _change: ""},
        "gpustack.changes.journal:read_lines": {
            "gpustack.base.files:read_text": lambda path, *_, **__: path.read_text(encoding="utf-8")
        },
        "gpustack.connect.playbooks.results:load": {"gpustack.base.text:printable": lambda text, **_: text},
    },
)
