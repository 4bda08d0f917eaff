"""The journal of a run: what it holds, who may write it, what is refused."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import JournalError
from gpustack.changes import journal, saved
from gpustack.changes.change import ChangeOutcome, ChangeResult, CloudChange
from gpustack.changes.journal import RESTORE, Cloud, JournalFile, RunHead, read_lines
from gpustack.repair import show
from support.journals import CHANGES, CLOUD, edited, written


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records/run.jsonl"


def test_each_line_is_on_the_disk_before_the_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, fsync = list[str](), os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        synced.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else path.read_text())

    monkeypatch.setattr(os, "fsync", noted)
    file = JournalFile(path, {"gpustack_change": 1})
    file.write({"begin": "a"}, "a was not changed")
    assert [text.count("\n") for text in synced] == [0, 1, 2]
    assert synced[0] == "directory"
    file.close()
    head, begin = read_lines(path)
    assert (head["gpustack_change"], begin) == (1, {"begin": "a"})
    assert datetime.fromisoformat(head["at"]).tzinfo is not None
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


def test_a_file_that_exists_is_not_overwritten(path: Path) -> None:
    JournalFile(path, {"gpustack_change": 1}).close()
    before = path.read_text()
    with pytest.raises(JournalError, match=r"the journal can't be made.*nothing was changed") as raised:
        JournalFile(path, {"gpustack_change": 1})
    assert "--journal" in str(raised.value.remedy)
    assert path.read_text() == before


def test_a_line_that_can_not_be_written_names_the_state(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = JournalFile(path, {"gpustack_change": 1})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalError, match=r"No space left on device.*a was not changed"):
        file.write({"begin": "a"}, "a was not changed")
    file.close()


def test_a_file_without_a_first_line_is_removed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalError, match=r"No space left on device.*nothing was changed"):
        JournalFile(path, {"gpustack_change": 1})
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", []),
        ('{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
        ('{"a": 1}\n{"b": 2}', [{"a": 1}, {"b": 2}]),
        ('{"a": 1}\n{"b": ', [{"a": 1}]),  # cut short
        ('{"a"', []),
    ],
)
def test_a_last_line_that_a_crash_cut_short_is_ignored(tmp_path: Path, text: str, read: list[object]) -> None:
    (tmp_path / "run.jsonl").write_text(text)
    assert read_lines(tmp_path / "run.jsonl") == read


@pytest.mark.parametrize(
    ("content", "message", "remedy"),
    [
        (b'{"a": 1}\n{"b": \n{"c": 3}\n', "line 2 is damaged", RESTORE),
        (b'{"a": 1}\n{"b": \n', "line 2 is damaged", RESTORE),  # complete, so no crash
        (b"[[\n{}\n", "not a journal of gpustack", "name a file or an ID of `gpustack history`"),
        (b"\xff\n", "not a journal: ", "name the file that apply printed"),
        (b'{"a": 1}\n' + b"[" * 200_000 + b"\n{}\n", "line 2 is damaged", RESTORE),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, message: str, remedy: str) -> None:
    (tmp_path / "run.jsonl").write_bytes(content)
    with pytest.raises(JournalError, match=message) as raised:
        read_lines(tmp_path / "run.jsonl")
    assert (raised.value.where, raised.value.remedy) == (str(tmp_path / "run.jsonl"), remedy)


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"can't be read.*No such file") as raised:
        read_lines(tmp_path / "run.jsonl")
    assert str(tmp_path / "run.jsonl") in str(raised.value)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "gpustack" / "changes"


ALL_DONE = [(made, ChangeResult.DONE) for made in CHANGES]


def test_a_journal_is_private_and_complete(state: Path) -> None:
    path = written(*ALL_DONE)
    assert path.parent == state
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(state.stat().st_mode)) == (0o600, 0o700)
    record = journal.read(path)
    assert (record.head.command, record.head.cloud, record.state) == ("flavor apply", CLOUD, "done")
    assert record.head.user
    assert record.head.host
    assert [line.key for line in record.made] == ["value:a", "value:b", "value:c"]


@pytest.mark.parametrize(
    ("path", "state"),
    [
        (lambda: written(*ALL_DONE[:2], closed=False), "unfinished"),
        (lambda: written(*ALL_DONE[:1], begun=(CHANGES[1],)), "unfinished"),
        (lambda: written(*ALL_DONE[:2], (CHANGES[2], ChangeResult.SKIPPED)), "failed"),
        (lambda: written(*ALL_DONE[:2]), "failed"),
    ],
)
def test_the_state_of_a_run(path: Any, state: str) -> None:
    assert journal.read(path()).state == state


def test_a_change_that_failed_before_it_began_was_not_made() -> None:
    path = written(*ALL_DONE[:2], (CHANGES[2], ChangeResult.FAILED))
    assert [line.key for line in journal.read(path).made] == ["value:a", "value:b", "value:c"]
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if json.loads(line).get("begin") != "value:c"))
    assert [line.key for line in journal.read(path).made] == ["value:a", "value:b"]


@pytest.mark.parametrize(
    ("number", "values", "message"),
    [
        (0, {"gpustack_change": 2}, "version 2"),
        (0, {"surprise": 1}, "does not belong"),
        (0, {"id": "../../etc/passwd"}, "does not belong"),
        (1, {"begin": "value:z"}, "not in the plan: value:z"),
        (2, {"result": "splendid"}, "does not belong"),
    ],
)
def test_an_edited_journal_is_refused(number: int, values: dict[str, Any], message: str) -> None:
    with pytest.raises(JournalError, match=message):
        journal.read(edited(written(*ALL_DONE), number, **values))


def test_a_file_that_others_can_write_is_refused() -> None:
    path = written(*ALL_DONE)
    path.chmod(0o660)
    with pytest.raises(JournalError, match=r"others can write this file \(mode 0660\)"):
        journal.read(path)


def test_a_last_line_that_was_cut_off_is_ignored() -> None:
    path = written(*ALL_DONE)
    path.write_text(path.read_text()[:-5])
    assert journal.read(path).state == "unfinished"


def test_a_record_is_found_by_id_and_by_file(tmp_path: Path) -> None:
    path = written(*ALL_DONE)
    assert journal.find(path.stem).path == path
    assert journal.find(str(path)).path == path
    with pytest.raises(JournalError, match="no change 'nothing'"):
        journal.find("nothing")
    (state := path.parent / "zz.jsonl").write_text("{}\n")
    assert [found for found, _ in journal.records()] == [state, path]


def test_two_changes_with_one_key_are_refused() -> None:
    path = written(*ALL_DONE)
    changes = json.loads(path.read_text().splitlines()[0])["changes"]
    with pytest.raises(JournalError, match="two changes have one key"):
        journal.read(edited(path, 0, changes=[changes[0], *changes]))


def test_the_last_run_is_found_without_reading_older_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(10):
        written(*ALL_DONE)
    reads, read = list[Path](), journal.read

    def counted(path: Path) -> journal.RunRecord:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(journal, "read", counted)
    last, _unread = journal.last(lambda: CLOUD, lambda record: True)
    assert last is not None
    assert reads == [last.path] * 2


def begun() -> journal.RunJournal:
    return journal.RunJournal(RunHead(id=journal.new_id(), command="flavor apply", cloud=CLOUD), CHANGES[:1])


def test_what_an_undo_needs_is_recorded_with_the_begin() -> None:
    log = begun()
    log.begin(CHANGES[0], {"rows": [1]})
    log.begin(CHANGES[1])
    log.close()
    record = journal.read(log.path)
    assert record.payloads == {"value:a": {"rows": [1]}, "value:b": None}
    assert [line.key for line in record.head.changes] == ["value:a", "value:b"], "a change that was planned later"


def test_a_run_without_a_change_ends() -> None:
    log = begun()
    log.close()
    assert journal.read(log.path).closed


def test_a_run_that_an_error_ends_is_unfinished() -> None:
    with pytest.raises(KeyError), begun() as log:
        raise KeyError
    assert not journal.read(log.path).closed


def test_a_result_that_is_not_recorded_leaves_the_run_unfinished(monkeypatch: pytest.MonkeyPatch) -> None:
    log, write = begun(), journal.JournalFile.write

    def refusing(file: journal.JournalFile, line: dict[str, Any], doing: str) -> None:
        if "end" in line:
            raise JournalError("no space left", where=doing)
        write(file, line, doing)

    monkeypatch.setattr(journal.JournalFile, "write", refusing)
    log.begin(CHANGES[0])
    with pytest.raises(JournalError, match="no space left"):
        log.end(ChangeOutcome(change=CHANGES[0], result=ChangeResult.DONE))
    log.close()
    record = journal.read(log.path)
    assert (record.closed, record.results) == (False, {"value:a": ChangeResult.UNKNOWN})


def test_a_journal_of_another_kind_is_refused(tmp_path: Path) -> None:
    for content in ("[]", '{"gpustack_cleanup_journal": 2}', '{"gpustack_cleanup_journal": 1}'):
        path = tmp_path / "file.jsonl"
        path.write_text(content + "\n")
        path.chmod(0o600)
        with pytest.raises(JournalError, match="not a journal of gpustack"):
            journal.read(
                path, None if content.endswith("1}") else {"gpustack_cleanup_journal": lambda line: CHANGES[0]}
            )
    former = journal.read(path, {"gpustack_cleanup_journal": lambda line: CHANGES[0]})
    assert (former.closed, former.head.changes) == (True, [])
    path = written(*ALL_DONE)
    assert journal.read(path, {"gpustack_cleanup_journal": lambda line: CHANGES[0]}).head.command == "flavor apply"


@pytest.mark.parametrize(
    ("ends", "results"),
    [
        ([], {"1": ChangeResult.UNKNOWN, "2": ChangeResult.UNKNOWN}),
        ([{"end": 2, "outcome": "skipped"}], {"1": ChangeResult.UNKNOWN, "2": ChangeResult.SKIPPED}),
        (
            [{"end": 1, "outcome": "done"}, {"end": 2, "outcome": "failed"}],
            {"1": ChangeResult.DONE, "2": ChangeResult.FAILED},
        ),
    ],
)
def test_a_journal_of_0_1_0(tmp_path: Path, ends: list[dict[str, Any]], results: dict[str, ChangeResult]) -> None:
    """Its name is the ID, as far as an ID may be so."""
    (path := tmp_path / f"cleanup_{'1' * 70}.jsonl").touch(0o600)
    lines = [{"gpustack_cleanup_journal": 1, "at": "then"}, {"begin": 1, "n": 0}, {"begin": 2, "n": 1}, *ends]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = journal.read(path, {"gpustack_cleanup_journal": lambda line: CHANGES[line["n"]]})
    assert (record.head.id, record.head.at) == (f"cleanup-{'1' * 56}", "then")
    assert record.results == results
    assert [change.name for change in record.head.changes] == [change.name for change in CHANGES[:2]]


def test_two_changes_of_0_1_0_with_one_key_are_refused(tmp_path: Path) -> None:
    (path := tmp_path / "file.jsonl").touch(0o600)
    path.write_text('{"gpustack_cleanup_journal": 1}\n{"begin": 1}\n{"begin": 1}\n')
    with pytest.raises(JournalError, match="two changes have one key"):
        journal.read(path, {"gpustack_cleanup_journal": lambda line: CHANGES[0]})


def test_a_run_is_read_with_those_that_completed_it() -> None:
    first = journal.read(written(*ALL_DONE[:1], begun=(CHANGES[1],), closed=False))
    for completes, result in ((first.head.id, ChangeResult.DONE), ("another", ChangeResult.FAILED)):
        head = RunHead(id=journal.new_id(), command="flavor apply", cloud=CLOUD, completes=completes)
        with journal.RunJournal(head, CHANGES[1:2]) as log:
            log.begin(CHANGES[1])
            log.end(ChangeOutcome(change=CHANGES[1], result=result))
    assert journal.completed(first).results == {"value:a": ChangeResult.DONE, "value:b": ChangeResult.DONE}


def undo_of(run: str, *outcomes: tuple[CloudChange, ChangeResult]) -> str:
    head = RunHead(id=journal.new_id(), command="undo", cloud=CLOUD, undoes=run)
    with journal.RunJournal(head, [made for made, _ in outcomes]) as log:
        for made, result in outcomes:
            log.end(ChangeOutcome(change=made, result=result))
    return head.id


def test_a_run_is_read_without_what_its_undos_reverted() -> None:
    first, (a, b, c) = journal.read(written(*ALL_DONE)), CHANGES
    undo_of(first.head.id, (c, ChangeResult.DONE), (b, ChangeResult.UNKNOWN), (a, ChangeResult.SKIPPED))
    assert [change.name for change in journal.completed(first).made] == ["a", "b"]
    assert journal.completed(first).results == {
        "value:a": ChangeResult.DONE,
        "value:b": ChangeResult.UNKNOWN,
        "value:c": ChangeResult.UNCHANGED,
    }
    again = undo_of(first.head.id, (b, ChangeResult.UNCHANGED), (a, ChangeResult.DONE))
    assert journal.completed(first).made == ()
    undo_of(again, (a, ChangeResult.DONE))
    assert [change.name for change in journal.completed(first).made] == ["a"]


def test_the_last_run_is_of_this_cloud_and_meets_the_condition() -> None:
    other = Cloud(auth_url="https://other/v3")
    path = written(*ALL_DONE)
    newer = journal.RunJournal(RunHead(id=journal.new_id(), command="flavor apply", cloud=other), [])
    newer.close()
    (path.parent / "0.jsonl").write_text("{}\n")
    last, unread = journal.last(lambda: CLOUD, lambda record: True)
    assert last is not None
    assert (last.path, unread) == (path, None)
    (path.parent / "zz.jsonl").write_text("{}\n")
    unread = journal.last(lambda: CLOUD, lambda record: True)[1]
    assert unread is not None
    assert unread.where == str(path.parent / "zz.jsonl")
    assert journal.last(lambda: CLOUD, lambda record: False)[0] is None
    completing = RunHead(id=journal.new_id(), command="flavor apply", cloud=CLOUD, completes=last.head.id)
    journal.RunJournal(completing, []).close()
    last, _unread = journal.last(lambda: CLOUD, lambda record: True)
    assert last is not None
    assert last.path == path


ONE, TWO = (f"{number}1111111-1111-4111-8111-111111111111" for number in (1, 2))
CELL0 = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("databases", "same"),
    [(f"renamed {ONE}", True), (f"cell0 {CELL0}, cell1 {ONE}, cell2 {TWO}", True), (f"cell0 {CELL0}, a {TWO}", False)],
)
def test_databases_are_one_cloud_after_a_cell_was_renamed_or_added(databases: str, same: bool) -> None:
    recorded = Cloud(databases=f"cell0 {CELL0}, cell1 {ONE}")
    assert Cloud(databases=databases).is_same(recorded) is same
    log = journal.RunJournal(RunHead(id=journal.new_id(), command="cleanup apply", cloud=recorded), [])
    log.close()
    found, _unread = journal.last(lambda: Cloud(databases=databases), lambda record: True)
    assert (found is not None) is same


@pytest.mark.parametrize("address", ["https://k/v3", "https://k", "https://k/", "https://k/v3/", "HTTPS://K//v3"])
def test_a_cloud_is_one_under_each_spelling_of_its_address(address: str) -> None:
    here = Cloud(auth_url=address, region="a")
    assert here.key == Cloud(auth_url="https://k/v3", region="a").key
    others = [Cloud(auth_url="https://k/v3", region="b"), Cloud(auth_url="http://k/v3", region="a"), Cloud(region="a")]
    assert here.key not in {other.key for other in others}


def test_a_file_of_root_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    journal.refuse_shared(Path("/etc/passwd"), Path("/etc/passwd").stat())
    with pytest.raises(JournalError, match="others can write this file"):
        journal.read(Path("/dev/null"))


@pytest.mark.parametrize("read", [journal.read, lambda path: saved.load(path, {}), show.load_plan])
def test_a_file_that_is_swapped_when_it_is_opened_is_refused(
    read: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, theirs, open_file = tmp_path / "mine", tmp_path / "theirs", os.open
    path.write_text("{}", encoding="utf-8")
    path.chmod(0o600)
    theirs.write_text("{}", encoding="utf-8")
    theirs.chmod(0o666)

    def swapped(*arguments: Any) -> int:
        theirs.replace(path)
        return open_file(*arguments)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(JournalError, match=r"others can write this file \(mode 0666\)"):
        read(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused() -> None:
    path = written(*ALL_DONE)
    os.chown(path, 4711, 4711)
    with pytest.raises(JournalError, match=r"others can write this file \(owner 4711\)") as refusal:
        journal.read(path)
    assert f"sudo chown 0 {path}" in str(refusal.value)  # chmod would change nothing


def test_ids_sort_in_the_order_of_runs_although_the_clock_is_set_back() -> None:
    """Without an ID, an undo reverts the run whose ID sorts last."""
    first = journal.directory() / "29991124T061500999999Z.jsonl"
    first.parent.mkdir(parents=True)
    for name in (first.name, "20991124T061500999999Z.jsonl", "by-hand.jsonl"):
        first.with_name(name).touch()
    assert journal.new_id() == "29991124T061501000000Z"


@pytest.mark.parametrize("link", ["needs", "after"])
def test_changes_that_need_one_another_are_refused(link: str) -> None:
    """Somebody edited the journal; a run of such changes would not end."""
    path = written(*ALL_DONE)
    changes = [
        {**made.to_record(), link: [other.key]} for made, other in zip(CHANGES, CHANGES[1:] + CHANGES[:1], strict=True)
    ]
    with pytest.raises(JournalError, match="changes need one another"):
        journal.read(edited(path, 0, changes=changes))
