"""One output for all lists: every column, by key or title, sorted by any, in every format."""

import json

import pytest

from gpustack.cli.app import main
from support.host_samples import SNAPSHOTS

HOST = str(SNAPSHOTS / "mi300x.json")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["scan", "health"])
@pytest.mark.parametrize("form", ["json", "yaml", "csv", "value", "table"])
def test_each_column_is_available_in_every_format(command: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    keys = list(json.loads(printed(capsys, command, "--snapshot", HOST, "-f", "json"))[0])
    for key in (keys[0].upper(), keys[-1], keys[len(keys) // 2]):
        assert printed(capsys, command, "--snapshot", HOST, "-f", form, "-c", key)
    many = [argument for key in keys[:20] for argument in ("-c", key)]
    assert printed(capsys, command, "--snapshot", HOST, "-f", form, *many)


def test_a_list_is_sorted_by_a_column_that_it_does_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    for direction, first in (("--sort-ascending", "0000:05:00.0"), ("--sort-descending", "0000:85:00.0")):
        command = ("scan", "--snapshot", HOST, "-f", "value", "-c", "ADDRESS", "--sort-column", "NUMA", direction)
        assert printed(capsys, *command).splitlines()[0] == first


@pytest.mark.parametrize("option", ["-c", "--sort-column"])
def test_unknown_columns_are_errors(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", "--snapshot", HOST, option, "colour"]) == 2
    assert "there is no column 'colour'" in capsys.readouterr().err
