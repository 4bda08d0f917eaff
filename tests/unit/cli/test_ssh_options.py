"""The options for SSH are the same for every command that reads hosts."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from gpustack.cli.common import add_ssh_options, ssh_options
from gpustack.connect.ssh.config import SshOptions

COMMANDS = [("scan", "gpu01"), ("cleanup", "plan"), ("cleanup", "apply"), ("cleanup", "explain", "gpu01/0000:81:00.0")]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("--timeout", "nan", "must be more than 0 seconds"), ("--port", "70000", "70000 is no port")],
)
def test_each_command_refuses_senseless_values(command, option, value, message, gpustack):
    ran = gpustack(*command, option, value)
    assert ran.code == 2
    assert message in ran.err


def test_each_option_reaches_the_connection():
    parser = argparse.ArgumentParser()
    add_ssh_options(parser.add_argument_group(), timeout=15.0)
    options = ["--user=u", "--port=22", "--identity=i", "--ssh-config=c", "--known-hosts=k", "--timeout=3", "--sudo"]
    assert ssh_options(parser.parse_args([])) == SshOptions(timeout=15.0)
    assert ssh_options(parser.parse_args(options)) == SshOptions(
        user="u",
        port=22,
        identity=Path("i"),
        config=Path("c"),
        known_hosts=Path("k"),
        timeout=3.0,
        sudo=True,
    )
