"""A guest over SSH, against a real OpenSSH server on loopback: `gpustack guest check --ssh`."""

from __future__ import annotations

import json

from gpustack.cli.app import main
from gpustack.hosts.health.kernel_log import table
from gpustack.offer.guest import check
from gpustack.offer.guest.inside import read


def test_the_same_facts_as_in_the_guest_itself(config, capsys):
    local = read.facts("/", check.consoles(), table())
    assert main(["guest", "check", "--ssh", "gpu01", "--timeout", "120", "-f", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["address"] for row in rows] == [gpu["address"] for gpu in local["gpus"]]


def test_an_unknown_host_key_is_refused(config, home, capsys):
    (home / ".ssh/known_hosts").write_text("")
    assert main(["guest", "check", "--ssh", "gpu01", "--timeout", "120"]) != 0
    assert "host key" in capsys.readouterr().err


def test_output_that_is_no_guest_is_refused(config, capsys, monkeypatch):
    monkeypatch.setattr("gpustack.offer.guest.bundle.program", lambda *_: "print('{\"gpus\": [{}]}')")
    assert main(["guest", "check", "--ssh", "gpu01", "--timeout", "120"]) == 12
    assert "its facts have another form than expected" in capsys.readouterr().err
