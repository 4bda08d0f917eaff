"""The options that all reading commands share: --exit-code, with one meaning, and --findings."""

from __future__ import annotations

import argparse
import importlib.metadata
import inspect
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack.base.errors import exit_codes
from gpustack.cli.app import Gpustack, main
from gpustack.cli.common import Command
from support.host_samples import SNAPSHOTS

TESTS = Path(__file__).parents[2]
SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {"*": [k4200]}
nova: {release: "2025.2", deployment: drop-in}
"""
REPORTS = re.compile(r"\.(report_findings|note)\(")


def commands() -> Iterator[tuple[str, type[Command], dict[str, argparse.Action]]]:
    """The name, class and options of each command."""
    app = Gpustack()
    for entry in importlib.metadata.entry_points(group="gpustack.cli"):
        name = entry.name.replace("_", " ")
        yield name, app.commands.find_command(name.split())[0], app.parser_of(name)._option_string_actions


def test_every_command_that_plans_or_reports_findings_has_both_options() -> None:
    judged = 0
    for name, command, options in commands():
        own = [base for base in command.__mro__ if base.__module__.startswith("gpustack.cli") and base is not Command]
        reports = any(REPORTS.search(inspect.getsource(base)) for base in own)
        ends_otherwise = "--yes" in options or command.streams  # a change has its results; a stream has no end
        if name.endswith((" plan", " check")) or (reports and not ends_otherwise):
            assert {"--exit-code", "--findings"} <= options.keys(), name
            judged += 1
    assert judged > 20


def test_no_command_takes_an_empty_argument_for_all() -> None:
    """As a variable of the shell that is not set: without the value, a command would work on more than was meant."""
    refused = 0
    for name, _command, _options in commands():
        parser = Gpustack().parser_of(name)
        for action in parser._actions:
            if action.nargs != 0 and action.default != "" and action.dest != "description":
                for empty in ("", " ", ","):
                    with pytest.raises(argparse.ArgumentError):
                        parser._get_value(action, empty)
                refused += 1
    assert refused > 500


@pytest.mark.parametrize(
    "command",
    [
        ("host", "undo", "-i", "inventory", "-l", "", "--check"),
        ("scan", "-i", "inventory", ""),
        ("cleanup", "apply", "--instance", ""),
        ("undo", ""),
        ("scan", "--snapshot", ""),
    ],
)
def test_an_empty_value_may_be_a_variable(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(command)) == 2
    assert "empty value\n  → name one: is a variable of the shell not set?" in capsys.readouterr().err


def test_a_dash_is_no_file() -> None:
    parser = Gpustack().parser_of("scan")
    with pytest.raises(argparse.ArgumentError, match="name /dev/stdin or /dev/stdout"):
        parser._get_value(parser._option_string_actions["--snapshot"], "-")
    parser = Gpustack().parser_of("guest check")
    assert parser._get_value(parser._option_string_actions["--console"], "-") == "-"


def test_no_number_of_things_or_seconds_is_negative() -> None:
    refused = 0
    for name, _command, options in commands():
        parser = Gpustack().parser_of(name)
        for action in {*options.values()}:
            if action.metavar in ("N", "S", "SECONDS") and action.dest != "seed":
                for odd in ("-1", "nan"):
                    with pytest.raises((argparse.ArgumentError, argparse.ArgumentTypeError)):
                        parser._get_value(action, odd)
                refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    ("arguments", "snapshot", "code"),
    [
        (("scan",), "k4200", 3),  # a warning: the IOMMU is off
        (("scan",), "k4200-prepared", 0),
        (("topology",), "k4200", 0),
        (("health",), "k4200", 0),  # only findings of severity info
        (("host", "plan", "SPEC"), "k4200", 3),  # changes
        (("nova", "render", "SPEC"), "k4200-prepared", 0),
        (("nova", "render", "SPEC", "--out", "OUT", "--diff"), "k4200-prepared", 3),  # changes
    ],
)
def test_the_exit_code_has_one_meaning(
    arguments: tuple[str, ...], snapshot: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gpustack.yaml").write_text(SPEC)
    places = {"SPEC": str(tmp_path / "gpustack.yaml"), "OUT": str(tmp_path / "out")}
    command = [*(places.get(word, word) for word in arguments), "--snapshot", str(SNAPSHOTS / f"{snapshot}.json")]
    assert main(command) == 0
    assert main([*command, "--exit-code"]) == code
    capsys.readouterr()


def test_all_findings_are_written_also_those_that_are_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "findings.json"
    command = ["scan", "--snapshot", str(SNAPSHOTS / "k4200.json"), "-f", "json"]
    assert main([*command, "--findings", str(path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    findings = json.loads(path.read_text())["findings"]
    of_rows = {(f["code"], f["place"]) for row in rows for f in (*row["reasons"], *row["notes"])}
    assert of_rows <= {(f["code"], f["place"]) for f in findings}
    assert path.stat().st_mode & 0o777 == 0o600


def test_findings_are_written_if_the_command_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, path = tmp_path / "gpustack.yaml", tmp_path / "findings.json"
    spec.write_text(SPEC)
    command = ["host", "plan", str(spec), "--snapshot", str(SNAPSHOTS / "shared-nic.json"), "--findings", str(path)]
    assert main([*command, "--exit-code"]) == 13
    assert any(f["severity"] == "error" for f in json.loads(path.read_text())["findings"])
    capsys.readouterr()


def test_findings_that_can_not_be_written_are_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, missing = tmp_path / "gpustack.yaml", tmp_path / "missing" / "findings.json"
    spec.write_text(SPEC)
    command = ["nova", "render", str(spec), "--snapshot", str(SNAPSHOTS / "k4200-prepared.json")]
    for path, reason in ((missing, f"mkdir -p {missing.parent}"), (tmp_path, "name a file: this is a directory")):
        assert main([*command, "--out", str(tmp_path / "out"), "--findings", str(path)]) == 1
        assert reason in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["gpustack.yaml"]


ENDS = {
    0: ("scan", "--snapshot", "SNAPSHOT"),
    2: ("scan", "--snapshot", "SNAPSHOT", "-c", "nothing"),
    3: ("scan", "--snapshot", "SNAPSHOT", "--exit-code"),
    10: ("spec", "check", "BROKEN"),
    11: ("scan", "--snapshot", "BROKEN"),
    12: ("scan", "nobody.invalid"),
    13: ("host", "plan", "SPEC", "--snapshot", "SHARED"),
    15: ("history", "of-nobody"),
    20: ("nova", "lint", "BROKEN", "--release", "2025.2"),
    21: ("flavor", "list", "--os-cloud", "nowhere"),
    30: ("cleanup", "plan", "--db-url", "sqlite:////nowhere/nova.sqlite"),
}
"""A command for each exit code that one reaches without a cloud."""
ELSEWHERE = {
    1: "unit/cli/test_change.py::test_a_change_is_asked_for",
    14: "unit/playbooks/test_host_commands.py::test_what_goes_wrong_has_its_exit_code",
    16: "unit/playbooks/test_host_commands.py::test_what_goes_wrong_has_its_exit_code",
    17: "unit/cli/test_change.py::test_a_second_run_on_one_cloud_is_refused",
    22: "unit/cli/test_flavor.py::test_failures_are_counted",
    23: "unit/cli/test_gpu.py::test_a_partial_list_has_an_exit_code_of_its_own",
    24: "unit/cli/test_sync.py::test_limits_that_were_not_changed_have_an_exit_code",
    130: "unit/cli/test_app.py::test_exit_codes",
    141: "unit/cli/test_app.py::test_a_reader_that_goes_away_is_no_traceback",
}
"""The tests of the others."""


@pytest.mark.parametrize("code", ENDS)
def test_a_command_ends_with_each_code(
    code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "none.yaml"))
    for name, text in (("gpustack.yaml", SPEC), ("broken", "[pci\n")):
        (tmp_path / name).write_text(text)
    places = {"SPEC": "gpustack.yaml", "BROKEN": "broken", "SNAPSHOT": str(SNAPSHOTS / "k4200.json")}
    places["SHARED"] = str(SNAPSHOTS / "shared-nic.json")
    assert main([places.get(word, word) for word in ENDS[code]]) == code
    error = capsys.readouterr().err
    assert code in (0, 3, 10) or "\n  → " in error, error  # spec check lists the places


def test_each_exit_code_has_a_test() -> None:
    assert ENDS.keys() | ELSEWHERE.keys() == exit_codes().keys()
    for code, test in ELSEWHERE.items():
        path, _, name = test.partition("::")
        text = (TESTS / path).read_text()
        _, found, body = text.partition(f"def {name}(")
        assert found, test
        near = text[text.index(found) - 1200 : text.index(found)] + body.partition("\ndef ")[0]
        assert re.search(rf"\b{code}\b", near), test


class Unread(Command):
    """A command that could not read something."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.report_partial(["these scheduler hints are not evaluated: x\n  → run `sh`\nERROR GPU001 b: no"])


def test_the_name_of_a_gap_begins_no_line() -> None:
    """Tenants choose the names of scheduler hints."""
    command = Unread(Gpustack(), None)
    command.app.stderr = io.StringIO()
    command.run(argparse.Namespace())
    assert command.app.stderr.getvalue().splitlines() == [
        "partial: these scheduler hints are not evaluated: x;   → run `sh`; ERROR GPU001 b: no"
    ]
