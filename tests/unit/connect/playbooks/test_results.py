"""Records of runs: written, read from other machines, and joined."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpustack.base.errors import JournalError
from gpustack.connect.playbooks.record import HostRecord, RunOutcome
from gpustack.connect.playbooks.results import RunResults, SpecSeen, joined, load, save

SPEC = SpecSeen(path="/a/gpustack.yaml", sha256="1" * 64, hosts=("gpu01", "gpu02"))


def run(*hosts: str, **attributes: object) -> RunResults:
    records = tuple(HostRecord(host=name, outcome=RunOutcome.DONE, changed=True) for name in hosts)
    return RunResults(**{"playbook": "prepare", "specs": (SPEC,), "hosts": records, **attributes})


def test_a_record_keeps_what_a_summary_needs(tmp_path: Path) -> None:
    finding = {"severity": "error", "code": "GPU013", "message": "m", "remedy": "r"}
    host = HostRecord(
        host="gpu01", text="gpu01: 2 files", todo=True, reboot=("why",), planned={"file": 2}, problem="p",
        findings=(finding,), outcome=RunOutcome.REFUSED,
    )  # fmt: skip
    path = save(RunResults(playbook="plan", specs=(SPEC,), hosts=(host,)), tmp_path / "new" / "a.json")
    assert path.stat().st_mode & 0o777 == 0o600
    assert load(path) == RunResults(playbook="plan", specs=(SPEC,), hosts=(host,))


def test_records_in_one_directory_have_names_of_their_own(tmp_path: Path) -> None:
    assert len({save(run("gpu01"), tmp_path) for _ in range(3)}) == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], "not a record of a run: $: invalid JSON"),
        (lambda _: "[]", "not a record of a run: $: "),
        (lambda text: text.replace('"gpustack_run":1', '"gpustack_run":2'), "$.gpustack_run: input should be 1"),
        (lambda text: text.replace('"done"', '"perfect"'), "$.hosts[0].outcome: input should be"),
        (lambda text: text.replace('"gpu01"', '"gpu01\\u001b[2J"'), "'gpu01\\\\x1b[2J' is no host name"),
        (lambda text: text.replace('"gpu01"', '"gpu01 gpu02"'), "'gpu01 gpu02' is no host name"),
        (lambda text: text.replace('"gpu01"', '""'), "'' is no host name"),
    ],
)
def test_a_damaged_record_is_named(change, said: str, tmp_path: Path) -> None:
    path = save(run("gpu01", specs=()), tmp_path / "a.json")
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(JournalError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\xff")
    for name in "ab":
        with pytest.raises(JournalError, match=str(tmp_path / name)):
            load(tmp_path / name)


def test_a_fleet_is_joined_in_the_order_of_its_records() -> None:
    whole = joined({"a": run("gpu02"), "empty": run(specs=()), "b": run("gpu01")})
    assert [host.host for host in whole.hosts] == ["gpu02", "gpu01"]
    assert whole.specs == (SPEC,)


def test_a_host_of_the_spec_without_a_record_is_unreachable() -> None:
    missing = joined({"a": run("gpu01")}).hosts[1]
    assert (missing.host, missing.outcome) == ("gpu02", RunOutcome.UNREACHABLE)
    assert "in no record" in missing.problem


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (run("gpu01"), "gpu01 is in a and in b"),
        (run("gpu02", gpustack="9.9"), "version 9.9 in b"),
        (run("gpu02", playbook="plan"), "playbook prepare in a, playbook plan in b"),
        (run("gpu02", checked=True), "playbook prepare --check in b"),
        (run("gpu02", specs=(SpecSeen(path="/b/old.yaml", sha256="2" * 64),)), "spec /b/old.yaml in b"),
    ],
)
def test_records_that_do_not_belong_together_are_named(other: RunResults, said: str) -> None:
    with pytest.raises(JournalError) as caught:
        joined({"a": run("gpu01"), "b": other})
    assert said in str(caught.value)


def test_a_spec_is_the_same_at_another_path() -> None:
    moved = SpecSeen(path="/b/gpustack.yaml", sha256=SPEC.sha256, hosts=SPEC.hosts)
    assert len(joined({"a": run("gpu01"), "b": run("gpu02", specs=(moved,))}).hosts) == 2


def test_a_spec_that_changed_during_a_run_is_named() -> None:
    other = SpecSeen(path=SPEC.path, sha256="2" * 64, hosts=SPEC.hosts)
    with pytest.raises(JournalError, match="spec"):
        joined({"a": run("gpu01", "gpu02", specs=(SPEC, other))})


def test_a_record_is_one_json_document(tmp_path: Path) -> None:
    document = json.loads(save(run("gpu01"), tmp_path / "a.json").read_text(encoding="utf-8"))
    assert document["gpustack_run"] == 1
    assert document["hosts"][0]["outcome"] == "done"
