"""Variables instead of options: the command line goes before them; each is documented."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import UsageError
from gpustack.cli import environment
from gpustack.cli.app import Gpustack
from gpustack.cli.common import Command

TOP = Path(__file__).parents[3]
PAGE = TOP / "docs" / "howto" / "command-line.md"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {*environment.VARIABLES.values(), environment.COLOR}:
        monkeypatch.delenv(name, raising=False)


def parsed(*arguments: str, hosts: bool = True) -> argparse.Namespace:
    """A command with a spec, hosts and SSH options, as ``host plan`` has them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("spec", type=Path)
    if hosts:
        parser.add_argument("hosts", nargs="*")
    parser.add_argument("--user")
    parser.add_argument("--identity", type=Path)
    parser.add_argument("--sudo", action="store_true")
    variables = environment.Variables(parser)
    namespace = parser.parse_intermixed_args(arguments)
    variables.complete(namespace)
    return namespace


def test_the_command_line_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSTACK_USER", "ops")
    monkeypatch.setenv("GPUSTACK_IDENTITY", "/keys/ops")
    namespace = parsed("a.yaml", "--user", "root")
    assert (namespace.user, namespace.identity) == ("root", Path("/keys/ops"))


def test_the_user_to_log_in_as_selects_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSTACK_USER", "ops")
    parser = Gpustack().parser_of("gpu list")
    namespace = parser.parse_args([])
    environment.Variables(parser).complete(namespace)
    assert namespace.users == []


@pytest.mark.parametrize(
    ("arguments", "spec", "hosts"),
    [
        ((), "/etc/g.yaml", []),
        (("gpu01",), "/etc/g.yaml", ["gpu01"]),
        (("gpu01", "gpu-[01:04].example.org"), "/etc/g.yaml", ["gpu01", "gpu-[01:04].example.org"]),
        (("other.yaml",), "other.yaml", []),
        (("other.yaml", "gpu01"), "other.yaml", ["gpu01"]),
        (("./spec", "gpu01"), "spec", ["gpu01"]),
    ],
)
def test_a_host_is_no_spec(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], spec: str, hosts: list[str]
) -> None:
    monkeypatch.setenv("GPUSTACK_SPEC", "/etc/g.yaml")
    namespace = parsed(*arguments)
    assert (str(namespace.spec), namespace.hosts) == (spec, hosts)


def test_without_hosts_each_argument_is_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSTACK_SPEC", "/etc/g.yaml")
    assert parsed("spec", hosts=False).spec == Path("spec")
    assert parsed(hosts=False).spec == Path("/etc/g.yaml")


def test_without_the_variable_a_spec_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed()
    assert "spec" in capsys.readouterr().err


def test_a_value_that_the_option_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--user", type=int)
    monkeypatch.setenv("GPUSTACK_USER", "ops")
    with pytest.raises(UsageError, match="GPUSTACK_USER is 'ops'"):
        environment.Variables(parser).complete(parser.parse_args([]))


def test_colour(monkeypatch: pytest.MonkeyPatch, gpustack: Any) -> None:
    assert environment.color(None, ("auto", "always", "never")) == "auto"
    monkeypatch.setenv("GPUSTACK_COLOR", "never")
    assert environment.color(None, ("auto", "always", "never")) == "never"
    assert environment.color("always", ("auto", "always", "never")) == "always"
    monkeypatch.setenv("GPUSTACK_COLOR", "red")
    ran = gpustack("explain", "B")
    assert (ran.code, ran.err) == (2, "gpustack: GPUSTACK_COLOR is 'red', expected auto, always, never\n")


def test_a_command_takes_its_spec_from_the_environment(
    gpustack: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUSTACK_SPEC", str(tmp_path / "missing.yaml"))
    ran = gpustack("host", "plan", "gpu01")
    assert (ran.code, f"{tmp_path}/missing.yaml: the spec can't be read" in ran.err) == (10, True)
    assert "environment: GPUSTACK_SPEC" in " ".join(gpustack("host", "plan", "--help").out.split())


def test_a_health_check_without_instances_needs_no_spec(
    monkeypatch: pytest.MonkeyPatch, gpustack: Any, snapshots: Path
) -> None:
    monkeypatch.setenv("GPUSTACK_SPEC", "/etc/g.yaml")
    ran = gpustack("health", "--snapshot", snapshots / "k4200.json")
    assert (ran.code, "only --instances" in ran.err) == (0, False)


def test_every_variable_is_of_an_option_and_documented() -> None:
    app = Gpustack()
    dests = set()
    for name, entry in app.commands:
        command: Command = entry.load()(app, None, cmd_name=name)
        actions = command.get_parser(name)._actions
        dests |= {action.dest for action in actions}
        # A default of the option would hide the variable.
        assert {action.default for action in actions if action.dest in environment.VARIABLES} <= {None}, name
    assert set(environment.VARIABLES) <= dests
    page = PAGE.read_text(encoding="utf-8")
    used = {
        name
        for path in (TOP / "gpustack" / "cli").glob("*.py")
        for name in re.findall(r'"(GPUSTACK_\w+)"', path.read_text(encoding="utf-8"))
    }
    assert used == set(re.findall(r"^\| `(GPUSTACK_\w+)`", page, re.MULTILINE))
