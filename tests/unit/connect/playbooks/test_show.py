"""Problems of hosts are printed with the remedies that fit."""

from __future__ import annotations

import pytest

from gpustack.connect.playbooks.record import HostRecord, RunOutcome
from gpustack.connect.playbooks.show import problems, verdict


@pytest.mark.parametrize(
    ("problem", "remedy"),
    [
        ("no root rights: Missing sudo password", "add -K"),
        ("no root rights: Incorrect sudo password", "type this user's password"),
        ("no root rights: Sorry, try again", "type this user's password"),
        ("Task failed: the connection plugin 'chroot' was not found", "correct ansible_connection"),
        ("Task failed: stdin is not interactive", "Ansible would ask whether a host key is right"),
        ("Data could not be sent to remote host", None),
    ],
)
def test_problem_of_a_connection_has_its_own_remedy(problem: str, remedy: str | None) -> None:
    first, *others = problems(HostRecord(host="gpu01", problem=problem)).splitlines()
    assert first == f"gpu01: {problem}"
    assert [line.startswith(f"  → {remedy}") for line in others] == ([True] if remedy else [])


def test_hosts_whose_turn_did_not_begin_are_named() -> None:
    records = [
        HostRecord(host="gpu01", outcome=RunOutcome.DONE),
        HostRecord(host="gpu02", outcome=RunOutcome.NOT_BEGUN),
    ]
    assert str(verdict(records, "see the log")).startswith("1 of 2 hosts not begun: gpu02")
