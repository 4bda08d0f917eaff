"""Commands that change a cloud: question, record, results, signals, undo. Flavors are in memory."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import os
import shlex
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpustack.changes import journal, lock
from gpustack.changes.change import ChangeResult
from gpustack.cli import change
from gpustack.cli.app import Gpustack, main
from gpustack.cli.change import ChangeCommand, UndoCommand, kinds
from gpustack.cli.flavor import InCloud
from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.changes import AccessChange
from gpustack.offer.flavor.flavors import ACCESS, ACCESS_CHANGES, PresentFlavor
from gpustack.spec.extra_specs import ALIAS
from support import house
from support.change_runs import PLACE, without_cloud
from support.flavor_model import NEVER, NovaModel

CREATE = ("flavor", "create", "hand", "--alias", "A", "--vcpus", "1", "--ram", "1GiB", "--disk", "1")


def test_the_process_of_a_guardian_without_a_run_undoes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/null").open("rb") as stream:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stream))
        assert main(["undo", "--unless-confirmed", "60"]) == 0


@pytest.mark.parametrize("region", ["RegionTwo", ""])
def test_the_process_of_a_guardian_undoes_in_the_region_of_the_run(
    monkeypatch: pytest.MonkeyPatch, region: str
) -> None:
    """``openstack --os-region-name`` chooses one of several; clouds.yaml may name none."""
    connection: Any = SimpleNamespace(config=SimpleNamespace(name="prod", get_region_name=lambda: region))
    arguments: list[str] = []
    monkeypatch.setattr("gpustack.cli.change.Guardian", lambda _run, undo: arguments.extend(undo))
    monkeypatch.setattr("gpustack.cli.change.cloud_names", lambda: ["prod"])
    monkeypatch.setattr("gpustack.cli.change.see_terminal", lambda command: None)
    command = UndoCommand(Gpustack(), None)
    command.confirm_within = 60
    command._guarded(connection, "1Z", None)
    parsed = command.get_parser("undo").parse_args(arguments[1:])
    assert (parsed.os_cloud, parsed.region, parsed.unless_confirmed) == ("prod", region or None, 60)
    assert (Path(parsed.change).name, parsed.run) == ("1Z.jsonl", "1Z")


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NovaModel:
    model = NovaModel(projects={"research": "1" * 32})
    without_cloud(monkeypatch, tmp_path / "state")
    monkeypatch.setattr(InCloud, "cloud", lambda self, parsed_args: model)
    monkeypatch.setattr("gpustack.offer.flavor.changes.present_flavors", lambda connection: model)
    monkeypatch.chdir(tmp_path)
    return model


class GuardStandIn(contextlib.nullcontext[Any]):
    """The process that undoes an unconfirmed run; ``code`` is its exit code."""

    log = Path("undo.log")

    def __init__(self, code: int) -> None:
        super().__init__(self)
        self.succeeds = lambda: code == 0
        self.asks = lambda answer, seconds: False


@pytest.mark.parametrize(
    ("code", "message"), [(0, "the changes are undone"), (14, "the undo failed: not all changes are undone")]
)
def test_a_run_that_nobody_confirms_reports_the_result_of_its_undo(
    cloud: NovaModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.setattr(ChangeCommand, "_guarded", lambda self, *arguments: GuardStandIn(code))
    assert main([*CREATE, "--yes"]) == 22
    assert f"gpustack: not confirmed: {message}\n" in capsys.readouterr().err


def test_an_interrupted_run_that_nobody_confirmed_reports_the_result_of_its_undo(
    cloud: NovaModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ChangeCommand, "_guarded", lambda self, *arguments: GuardStandIn(0))
    monkeypatch.setattr(cloud, "create", lambda *arguments, **fields: os.kill(os.getpid(), signal.SIGINT))
    assert main([*CREATE, "--yes"]) == 130
    err = capsys.readouterr().err
    assert "not confirmed: the changes are undone\n" in err
    assert "its messages: undo.log" in err
    assert "keep these changes?" not in err


def last() -> journal.RunRecord:
    _, record = next(journal.records())
    assert isinstance(record, journal.RunRecord)
    return record


def test_every_kind_is_found_and_names_its_object() -> None:
    assert {name: kind.object_kind for name, kind in kinds().items()} == {name: name for name in kinds()}


def test_check_shows_and_writes_nothing(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CREATE, "--check"]) == 0
    assert "create hand (1 vCPU, 1 GiB RAM, 1 GiB disk; public)" in capsys.readouterr().out
    assert (cloud.writes, list(journal.records())) == ([], [])


@pytest.mark.parametrize(("answer", "code"), [("", 2), ("n\n", 1), ("y\n", 0)])
def test_a_change_is_asked_for(cloud: NovaModel, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    class Answer(io.StringIO):
        def isatty(self) -> bool:
            return bool(answer)

    monkeypatch.setattr("sys.stdin", Answer(answer))
    assert main([*CREATE]) == code
    assert bool(cloud.writes) == (code == 0)


def test_a_second_run_on_one_cloud_is_refused(
    cloud: NovaModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    defaults = lock.held.__wrapped__.__kwdefaults__  # type: ignore[attr-defined]
    monkeypatch.setitem(defaults, "seconds", 0)
    with lock.on_this_machine(journal.Cloud(**PLACE).key):
        assert main([*CREATE, "--yes"]) == 17
    assert cloud.writes == []
    assert "another run changes this cloud" in capsys.readouterr().err


def test_undo_restores_and_can_be_undone(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CREATE, "--project", "research", "--yes"]) == 0
    before = cloud.state()
    assert main(["flavor", "delete", "hand", "--yes"]) == 0
    deleted = last()
    assert (deleted.head.command, deleted.head.cloud.model_dump(exclude_defaults=True), deleted.state) == (
        "flavor delete",
        PLACE,
        "done",
    )
    assert f"to undo: gpustack undo {deleted.head.id}" in capsys.readouterr().err
    assert main(["undo", "--check"]) == 0
    assert cloud.state() == {}
    assert main(["undo", "--yes"]) == 0
    assert cloud.state() == before
    assert last().head.undoes == deleted.head.id
    assert main(["undo", "--yes"]) == 0
    assert cloud.state() == {}


def test_a_name_stays_on_its_line(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    """A domain's administrator chooses the names of projects, and could write lines of a plan."""
    assert main([*CREATE[:2], "a\nb", *CREATE[3:], "--yes"]) == 0
    assert "create a\\nb (1 vCPU" in capsys.readouterr().out
    (flavor,) = cloud.by_id
    cloud.by_id[flavor] = replace(cloud.by_id[flavor], extra_specs={"x": "1\n2"})
    assert main(["undo", "--yes"]) == 14
    printed = capsys.readouterr()
    assert "delete a\\nb: undo of" in printed.out
    assert any(
        line.startswith("a\\nb: skipped: changed since") and "1\\n2" in line for line in printed.err.splitlines()
    )


def test_check_of_an_undo_names_what_it_would_skip(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CREATE, "--yes"]) == 0
    assert main(["undo", "--check"]) == 0
    assert "would not be undone" not in capsys.readouterr().err
    (flavor,) = cloud.by_id
    cloud.by_id[flavor] = replace(cloud.by_id[flavor], extra_specs={"foo": "bar"})
    before = cloud.state()
    assert main(["undo", "--check"]) == 14
    printed = capsys.readouterr()
    assert "delete hand" in printed.out
    assert "hand: changed since the plan" in printed.err
    assert "1 of 1 change would not be undone" in printed.err
    assert cloud.state() == before


def test_a_request_whose_result_is_unknown_leads_to_the_undo(
    cloud: NovaModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """The undo finds the flavor, whether or not the answer came."""
    cloud.dies_at, cloud.comes_back, cloud.carried_out = 2, False, True
    assert main([*CREATE, "--yes"]) == 22
    printed = capsys.readouterr().err
    assert ": unknown: " in printed
    assert f"to undo: gpustack undo {last().head.id}\n" in printed
    cloud.dies_at = NEVER
    assert main(["undo", "--yes"]) == 0
    assert cloud.by_id == {}


def test_a_flavor_of_others_is_restored_with_all_it_had(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = PresentFlavor(id="7", name="their own", sizes=Sizes(vcpus=1, ram=2, disk=3), rxtx_factor=2.5)
    cloud.by_id["7"] = theirs
    assert main(["flavor", "delete", "their own", "7", "--force", "--yes"]) == 0  # one flavor by its name and its id
    assert [change.name for change in last().head.changes] == ["their own"]
    assert cloud.by_id == {}
    assert main(["undo", "--yes"]) == 0
    assert cloud.by_id == {"7": theirs}
    assert main(["undo", "--yes"]) == 14
    assert "gpustack's mark; to delete it: gpustack flavor delete 'their own' --force" in capsys.readouterr().err


def test_a_run_that_goes_on_while_its_undo_is_planned(
    cloud: NovaModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*CREATE, "--project", "research", "--yes"]) == 0
    present, path = cloud.state(), last().path
    complete = path.read_text(encoding="utf-8").splitlines(keepends=True)
    keys = [json.loads(line).get("begin") for line in complete]
    path.write_text("".join(complete[: len(keys) - 1 - keys[::-1].index(next(filter(None, keys[::-1])))]))

    @contextlib.contextmanager
    def held(*args: object, **options: object) -> Iterator[None]:
        path.write_text("".join(complete))
        yield

    monkeypatch.setattr("gpustack.changes.lock.held", held)
    assert main(["undo", last().head.id, "--yes"]) == 15
    assert "the run went on, or was undone, since this undo was planned" in capsys.readouterr().err
    assert cloud.state() == present


@pytest.mark.parametrize("named", [True, False])
def test_two_undos_at_once_revert_a_run_once(
    cloud: NovaModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: bool
) -> None:
    """The second one planned what the first one did while it waited for the lock."""
    assert main([*CREATE, "--yes"]) == 0
    run = last().head.id
    outer = iter([True])

    @contextlib.contextmanager
    def held(*args: object, **options: object) -> Iterator[None]:
        if next(outer, False):
            assert main(["undo", run, "--yes"]) == 0
        yield

    monkeypatch.setattr("gpustack.changes.lock.held", held)
    assert main(["undo", *([run] if named else []), "--yes"]) == 15
    assert f"was undone, since this undo was planned\n  → run this command again: gpustack undo {run}" in (
        capsys.readouterr().err
    )
    assert main(["undo", run, "--yes"]) == 0
    assert f"{run}: nothing to undo" in capsys.readouterr().err
    assert cloud.by_id == {}


def test_an_object_that_changed_since_is_skipped(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CREATE, "--yes"]) == 0
    (flavor,) = cloud.flavors()
    cloud.describe(flavor.id, "by hand [gpustack]")
    assert main(["undo", "--yes"]) == 14
    assert "hand: skipped: changed since the plan: description = by hand" in capsys.readouterr().err
    assert cloud.by_id


def test_an_undo_of_an_undone_adoption_adopts_again(cloud: NovaModel) -> None:
    """The flavor has no mark of gpustack then, as before the adoption."""
    theirs = PresentFlavor(id="1", name="theirs", sizes=Sizes(vcpus=1, ram=64, disk=1), extra_specs={ALIAS: "A:1"})
    cloud.by_id["1"] = theirs
    assert main(["flavor", "set", "theirs", "--adopt", "--description", "lab", "--yes"]) == 0
    adopted = cloud.by_id["1"]
    assert main(["undo", "--yes"]) == 0
    assert cloud.by_id["1"] == theirs
    assert main(["undo", "--yes"]) == 0
    assert cloud.by_id["1"] == adopted
    assert adopted.ours


def test_the_last_change_can_be_a_repair_of_databases_that_are_named(
    cloud: NovaModel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older change of the cloud would be reverted instead of the repair."""
    assert main([*CREATE, "--yes"]) == 0
    planned = journal.PlannedChange(
        key="repair:x", kind="repair", id="", name="x", why="", seen=None, wanted=None, needs=[], about={}
    )
    place = journal.Cloud(databases="cell1 uuid")
    head = journal.RunHead(id=journal.new_id(), command="cleanup apply", cloud=place, changes=[planned])
    results = {planned.key: ChangeResult.DONE}
    repaired = journal.RunRecord(path=Path("x"), head=head, results=results)
    listed = [(Path("x"), repaired), *journal.records()]
    monkeypatch.setattr(journal, "records", lambda: iter(listed))
    monkeypatch.setattr(change, "cell_names", lambda _sources: "cell1 uuid")
    monkeypatch.setattr(UndoCommand, "sources", lambda *_arguments: None)
    monkeypatch.setattr(change, "plan_undo", lambda record, _kinds: print(record.head.command) or ((), ()))
    for more, command in ((["--config-file", "nova.conf"], "cleanup apply"), ([], "flavor create")):
        capsys.readouterr()
        assert main(["undo", "--check", *more]) == 0
        assert capsys.readouterr().out.splitlines()[0] == command


def test_a_preview_of_an_undo_names_the_objects_that_stay(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CREATE, "--yes"]) == 0
    cloud.by_id.clear()
    assert main(["undo", "--check"]) == 0
    assert "hand: unchanged" in capsys.readouterr().err


def test_a_second_undo_has_nothing_to_undo(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CREATE, "--yes"]) == 0
    created = last().head.id
    assert main(["undo", created, "--yes"]) == 0
    records = len(list(journal.records()))
    for mode in ("--check", "--yes"):
        assert main(["undo", created, mode]) == 0
        assert f"{created}: nothing to undo" in capsys.readouterr().err
    assert len(list(journal.records())) == records
    assert main(["undo", "--yes"]) == 0
    assert len(cloud.by_id) == 1
    assert main(["undo", created, "--yes"]) == 0
    assert cloud.by_id == {}


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("request_number", range(12))
def test_an_interrupted_undo_is_completed_or_reverted(cloud: NovaModel, request_number: int, forward: bool) -> None:
    """The flavor is created, gets its extra specs, its projects one by one, and their mark."""
    cloud.projects["teaching"] = "2" * 32
    projects = ("--project", "research", "--project", "teaching")
    assert main([*CREATE, *projects, "--yes"]) == 0
    before = cloud.state()
    assert main(["flavor", "delete", "hand", "--yes"]) == 0
    deleted = last().head.id
    cloud.dies_at, cloud.carried_out, cloud.comes_back = len(cloud.requests) + request_number, True, False
    main(["undo", deleted, "--yes"])
    cloud.dies_at = NEVER
    undo = last().head.id
    assert main(["undo", deleted if forward or undo == deleted else undo, "--yes"]) == 0
    assert cloud.state() == (before if forward or undo == deleted else {})


def test_a_preview_of_an_undo_finds_what_the_undo_would_skip(
    cloud: NovaModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of changes that need others: the flavor is deleted after its projects lost access."""
    assert main([*CREATE, "--project", "research", "--yes"]) == 0
    assert main(["undo", "--check"]) == 0
    (flavor,) = cloud.by_id
    cloud.instances[flavor] = 2
    ran = []
    for mode in ("--check", "--yes"):
        capsys.readouterr()
        assert main(["undo", "--format", "json", mode]) == 14
        ran.append([line for line in capsys.readouterr().err.splitlines() if line.startswith("hand: ")])
    assert ran == [["hand: in use by 2 instances"], ["hand: skipped: in use by 2 instances"]]


@pytest.mark.parametrize("content", ["", '{"gpustack_change": 1, "id"', "\0" * 100], ids=["empty", "half", "zeros"])
def test_an_undo_names_an_empty_journal_and_reverts_the_change_before(
    content: str, cloud: NovaModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a power cut, or on a full disk."""
    assert main([*CREATE, "--yes"]) == 0
    empty = journal.directory() / "29991124T061500123456Z.jsonl"
    empty.touch(mode=0o600)
    empty.write_text(content)
    assert main(["history"]) == 0
    named = f"{empty}: empty or half-written, as after a power cut: its run ended before its first change"
    assert named in capsys.readouterr().err
    assert main(["undo", empty.stem, "--yes"]) == 15
    assert f"nothing to undo; remove the file: rm {empty}" in capsys.readouterr().err
    assert main(["undo", "--yes"]) == 0
    assert f"warning: {named}; nothing to undo; remove the file: rm {empty}\n" in capsys.readouterr().err
    assert cloud.by_id == {}


def test_an_empty_journal_hides_no_damaged_one(cloud: NovaModel) -> None:
    assert main([*CREATE, "--yes"]) == 0
    for year, content in (("2998", "damaged\n"), ("2999", "")):
        path = journal.directory() / f"{year}1124T061500123456Z.jsonl"
        path.touch(mode=0o600)
        path.write_text(content)
    assert main(["undo", "--yes"]) == 15
    assert cloud.by_id


def test_an_undo_that_changed_nothing_is_not_the_last_change(
    cloud: NovaModel, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*CREATE, "--yes"]) == 0
    created = last().head.id
    (flavor,) = cloud.flavors()
    cloud.instances[flavor.id] = 2
    assert main(["undo", "--yes"]) == 14
    assert f"see the reasons above; when they no longer apply: gpustack undo {created}\n" in capsys.readouterr().err
    del cloud.instances[flavor.id]
    assert main(["undo", "--yes"]) == 0
    assert (last().head.undoes, cloud.by_id) == (created, {})


def test_a_refused_change_does_not_hide_the_one_before(cloud: NovaModel) -> None:
    """Each `gpustack undo` took the refused change again, of which nothing was there to revert."""
    assert main([*CREATE, "--yes"]) == 0
    cloud.refuses = "POST /flavors refused"
    assert main([*CREATE[:2], "refused", *CREATE[3:], "--yes"]) == 22
    assert main(["undo", "--yes"]) == 0
    assert len(cloud.by_id) == 1
    assert main(["undo", "--yes"]) == 0
    assert cloud.by_id == {}
    assert main(["undo", "--yes"]) == 0  # the undo
    assert len(cloud.by_id) == 1


def test_a_flavor_in_use_is_not_deleted_by_an_undo(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CREATE, "--yes"]) == 0
    (flavor,) = cloud.flavors()
    cloud.instances[flavor.id] = 2
    assert main(["undo", "--yes"]) == 14
    assert "hand: skipped: in use by 2 instances" in capsys.readouterr().err
    assert cloud.by_id


def test_the_mark_of_an_interrupted_change_of_projects_is_restored(cloud: NovaModel) -> None:
    assert main([*CREATE, "--project", "research", "--yes"]) == 0
    (flavor,) = cloud.flavors()
    about = {"mark": "new", "mark_before": "old"}
    change = AccessChange(why="w", id=flavor.id, name="hand", seen={"p": False}, wanted={"p": True}, about=about)
    cloud.set_extra_specs(flavor.id, {ACCESS: ACCESS_CHANGES})
    undo = replace(change.reverse(), recorded=True)
    assert undo.read(cloud) == undo.seen
    undo.carry_out(cloud)
    assert undo.read(cloud) == undo.wanted
    assert cloud.by_id[flavor.id].extra_specs[ACCESS] == "old"


def test_a_record_of_another_cloud_is_not_undone(
    cloud: NovaModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*CREATE, "--yes"]) == 0
    made = last().head.id
    elsewhere: Mapping[str, Any] = {**PLACE, "region": "Elsewhere"}
    monkeypatch.setattr("gpustack.cloud.session.place_of", lambda connection: dict(elsewhere))
    assert main(["undo", made, "--yes"]) == 15
    assert "the change is of another cloud: https://keystone/v3 R" in capsys.readouterr().err
    assert main(["undo", "--yes"]) == 15
    assert "no change of this cloud is recorded" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("named", "line", "text", "error"),
    [
        ("20990101T000000000000Z", 0, "", "there is no change '20990101T000000000000Z'"),
        ("", 0, '{"gpustack_change": 2}', "a journal of version 2; this gpustack reads version 1"),
        ("", 0, '{"gpustack_change": 1, "id', "not a journal of gpustack"),
        ("", 0, '{"gpustack_change": 1, "id": "../x"}', "a line does not belong to a journal"),
        ("", 1, '{"begin": "fla', "line 2 is damaged"),
    ],
)
def test_a_bad_record_is_one_error_with_the_next_step(
    cloud: NovaModel, capsys: pytest.CaptureFixture[str], named: str, line: int, text: str, error: str
) -> None:
    assert main([*CREATE, "--yes"]) == 0
    path = last().path
    lines = path.read_text(encoding="utf-8").splitlines()
    if text:
        lines[line] = text
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    present, content = cloud.state(), path.read_bytes()
    capsys.readouterr()
    assert main(["undo", named or path.stem, "--yes"]) == 15
    printed = capsys.readouterr().err
    assert error in printed
    assert (printed.count("gpustack: "), printed.count("  → ")) == (1, 1)
    assert (cloud.state(), path.read_bytes(), len(list(journal.records()))) == (present, content, 1)


def test_an_undo_without_a_name_passes_no_record_over(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    """A record that others can write is refused; the one before it is not the last change."""
    assert main([*CREATE, "--yes"]) == 0
    first = last()
    assert main(["flavor", "set", "hand", "--description", "x", "--yes"]) == 0
    last().path.chmod(0o666)
    assert main(["undo", "--yes"]) == 15
    error = capsys.readouterr().err
    assert ["may be in a record that cannot be read" in error, "chmod 600" in error] == [True, True]
    assert list(cloud.by_id)
    first.path.chmod(0o666)
    newest, _ = next(journal.records())
    newest.chmod(0o600)
    assert main(["undo", "--yes"]) == 0  # an older one does not matter


def test_an_unfinished_change_is_reported_first(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CREATE, "--yes"]) == 0
    path = last().path
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    assert main(["flavor", "set", "hand", "--count", "2", "--yes"]) == 0
    assert f"warning: the change {path.stem} (flavor create) is unfinished" in capsys.readouterr().err


def test_a_drain_does_not_hide_a_run_that_is_to_be_completed(cloud: NovaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """`host apply` records the drain of a host, and completes no run."""
    assert main([*CREATE, "--yes"]) == 0
    created, looked_at = last(), list[str]()
    drain = journal.RunHead(id=journal.new_id(), command="host apply", cloud=created.head.cloud)
    journal.RunJournal(drain, []).close()

    def completion(record: journal.RunRecord, api: object) -> tuple[tuple[()], tuple[()]]:
        looked_at.append(record.head.id)
        return (), ()

    monkeypatch.setattr("gpustack.cli.change.completion", completion)
    assert main(["flavor", "set", "hand", "--count", "2", "--yes"]) == 0
    assert looked_at == [created.head.id]


def test_an_unreadable_last_record_is_reported_first(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CREATE, "--yes"]) == 0
    (file := last().path.with_stem("zz")).touch(0o600)
    file.write_text("{}\n")
    assert main(["flavor", "set", "hand", "--count", "2", "--yes"]) == 0
    warning = "zz.jsonl: not a journal of gpustack; the change of this record may be unfinished: gpustack history"
    assert warning in capsys.readouterr().err


def test_history_lists_runs_and_their_operations(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CREATE, "--yes"]) == 0
    assert main(["flavor", "set", "hand", "--count", "2", "--yes"]) == 0
    capsys.readouterr()
    assert main(["history", "-f", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["Command"], row["Done"], row["State"]) for row in rows] == [
        ("flavor set", "1/1", "done"),
        ("flavor create", "1/1", "done"),
    ]
    assert main(["history", rows[0]["ID"], "-f", "json"]) == 0
    (operation,) = json.loads(capsys.readouterr().out)
    assert (operation["Kind"], operation["Object"], operation["Result"]) == ("flavor", "hand", "done")
    assert operation["Wanted"]["extra_specs"]["pci_passthrough:alias"] == "A:2"


def test_the_printed_undo_is_of_the_same_cloud(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CREATE, "--yes", "--os-cloud", "other cloud"]) == 0
    undo = f"gpustack undo {last().head.id} --os-cloud 'other cloud'"
    assert f"to undo: {undo}\n" in capsys.readouterr().err
    assert main([*shlex.split(undo)[1:], "--yes"]) == 0
    assert cloud.state() == {}
    assert f"to undo: gpustack undo {last().head.id} --os-cloud 'other cloud'\n" in capsys.readouterr().err


def test_a_journal_elsewhere_is_named_by_its_file(
    cloud: NovaModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*CREATE, "--yes", "--journal", str(tmp_path / "j.jsonl")]) == 0
    assert f"to undo: gpustack undo {tmp_path / 'j.jsonl'}" in capsys.readouterr().err
    assert main(["undo", str(tmp_path / "j.jsonl"), "--yes"]) == 0
    assert cloud.state() == {}


TOP = Path(__file__).parents[3]


def executing() -> set[str]:
    """The modules that carry changes of a cloud or a database out."""
    product = [source for source in house.sources(TOP) if source.path.startswith("gpustack/")]
    writing = {source.name for source, _ in house.writing(product, house.cloud_writers(product))}
    return {"gpustack.changes.run", "gpustack.repair.apply"} | {
        name for name in writing if not name.endswith(".changes")
    }


def imported(command: type) -> set[str]:
    """The modules whose names the methods of a command use."""
    found: set[str] = set()
    for base in command.__mro__:
        if base.__module__.startswith("gpustack.cli."):
            tree = ast.parse(Path(str(inspect.getsourcefile(base))).read_text(encoding="utf-8"))
            imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
            origins = {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}
            used = {node.id for node in ast.walk(ast.parse(inspect.getsource(base))) if isinstance(node, ast.Name)}
            found |= {origins[name] for name in used & origins.keys()}
    return found


def test_every_command_that_writes_shows_asks_and_records() -> None:
    modules = executing()
    commands = {entry.name: entry.load() for entry in entry_points(group="gpustack.cli")}
    writing = {name for name, command in commands.items() if imported(command) & modules}
    assert {"flavor_create", "image_set", "undo", "reclaim_apply", "cleanup_apply", "cloud_apply"} <= writing
    for name in sorted(writing):
        parser = commands[name](Gpustack(), None).get_parser(name)
        assert {"--yes", "--check", "--journal"} <= parser._option_string_actions.keys(), name
        assert issubclass(commands[name], ChangeCommand), name
