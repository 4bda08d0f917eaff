"""Pipelining: modules reach hosts without a copy, unless the operator decides otherwise."""

from __future__ import annotations

import pytest

from support.playbook_place import Place

NO_TERMINAL = """\
#!/bin/sh
test -t 0 || { echo "sudo: sorry, you must have a tty to run sudo" >&2; exit 1; }
"""
"""A stand-in for sudo with requiretty, which would need the sudoers of this machine."""


@pytest.mark.parametrize(
    ("configured", "variables", "copied"),
    [
        pytest.param("", {}, False, id="default"),
        pytest.param("[connection]\npipelining = False\n", {}, True, id="configuration"),
        pytest.param("", {"ansible_pipelining": False}, True, id="inventory"),
    ],
)
def test_modules_are_pipelined_unless_the_operator_disables_it(
    prepared_place: Place, configured: str, variables: dict[str, bool], copied: bool
) -> None:
    prepared_place.add("talk", **variables)
    (prepared_place.path / "ansible.cfg").write_text(configured)
    run = prepared_place.play("plan", "-vvv")
    assert run.code == 0, run.output
    assert ("> PUT " in run.output or " PUT /" in run.output) is copied


def test_sudo_that_requires_a_terminal_is_named(prepared_place: Place) -> None:
    sudo = prepared_place.path / "sudo"
    sudo.write_text(NO_TERMINAL)
    sudo.chmod(0o755)
    prepared_place.add("talk", ansible_become=True, ansible_become_exe=str(sudo), ansible_become_user="nobody")
    run = prepared_place.play("plan")
    assert run.code == 2
    assert "`Defaults requiretty` from the host's sudoers, or set `ansible_pipelining: false`" in run.fatal("talk")
