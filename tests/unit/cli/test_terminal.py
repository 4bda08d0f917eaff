"""Every path of output makes text fit for a terminal: a name with escape sequences moves no cursor anywhere."""

from __future__ import annotations

import ast
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpustack
from gpustack.base import errors
from gpustack.base.findings import Code, finding
from gpustack.base.task_results import failure
from gpustack.base.text import SafeStream, printable, printable_data
from gpustack.cli.app import Gpustack
from gpustack.cli.common import Lister
from gpustack.connect.playbooks.run import printable_log

EVIL = "\x1b]0;owned\x07\x9b2J\u202egpu"
HARMLESS = "\\x1b]0;owned\\x07\\u009b2J\\u202egpu"
PACKAGE = Path(gpustack.__file__).parent
PLUGINS = PACKAGE.parent / "playbooks" / "action_plugins"

# Programs that run on hosts, or print their data for gpustack.
OTHER_PROGRAMS = (
    "hosts/facts/collector",
    "hosts/facts/bundle.py",
    "offer/guest/bundle.py",
    "offer/guest/inside",
    "linux/initramfs",
    "repair/domains.py",
    "configure/installed",
)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Gpustack:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    return Gpustack()


def printed(app: Gpustack) -> str:
    return app.stdout.raw.getvalue() + app.stderr.raw.getvalue()


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))


def test_the_command_line_prints_to_the_applications_streams_only() -> None:
    """Those are SafeStreams; whoever needs the stream below says so (``raw``)."""
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith(OTHER_PROGRAMS):
            continue
        for call in calls(path):
            name = ast.unparse(call.func)
            if name == "print":
                (stream,) = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "file"] or [
                    "none"
                ]
                assert stream in ("self.app.stdout", "self.app.stderr", "self.stdout", "self.stderr"), (
                    f"{place}: {stream}"
                )
            assert not name.startswith(("sys.stdout.write", "sys.stderr.write")), place
            assert not (name == "raw" and place not in ("cli/common.py", "cli/progress.py", "cli/decoration.py")), place


def test_action_plugins_print_what_the_controllers_made_printable() -> None:
    texts = {
        "str(error)",
        "_REMEDY",  # constant
        "_WITH_URL",  # constant
        "outcome['details' if detailed else 'text']",
        'f"an answer of the host can\'t be read: {type(error).__name__}"',
        "f'{name} has no value: set one, or remove the variable to use its default'",  # name of an option of the role
        "f'{name} is a text, expected a list of words: {json.dumps(words)}'",  # the operator's words, as ASCII
        "plugin_api.printable_data(text, keep='')",
        "wrong",  # values of the operator, printed by Ansible as JSON
        'f"{name} is {value!r}, which is no host name: set the host\'s name in the spec"',
        "f'{name}: {error}'",  # Ansible's error in a template of the operator, printed by Ansible as JSON
    }
    for path in PLUGINS.glob("*.py"):
        for call in calls(path):
            name = ast.unparse(call.func)
            if name.endswith((".display", "AnsibleActionFail")):
                printed = ast.unparse(call.args[0])
                assert printed in texts or "gpustack is not installed for the Python" in printed, (
                    f"{path.name}: {printed}"
                )


class Names(Lister):
    """A list with a name from elsewhere."""

    def take_action(self, parsed_args: object) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        return ("Name",), [(EVIL,)]


@pytest.mark.parametrize("form", ["table", "value", "csv", "yaml", "json"])
def test_tables(app: Gpustack, form: str) -> None:
    command = Names(app, None, cmd_name="names")
    command.run(command.get_parser("names").parse_args(["-f", form]))
    assert not set(printed(app)) & set("\x1b\x07\x9b\u202e")
    if form == "json":
        assert json.loads(printed(app)) == [{"Name": EVIL}]


@pytest.mark.parametrize("argv", [[], ["--debug"], ["--debug", "-v"]])
def test_errors_tracebacks_and_logs(app: Gpustack, argv: list[str], tmp_path: Path, monkeypatch) -> None:
    def broken(self: Gpustack, argv: list[str]) -> int:
        logging.getLogger("library").error(EVIL)
        raise errors.HostError(EVIL, where=EVIL, remedy=EVIL) from ValueError(EVIL)

    monkeypatch.setattr(Gpustack, "run_subcommand", broken)
    app.run([*argv, "--log-file", str(tmp_path / "log"), "scan"])
    log = (tmp_path / "log").read_text()
    assert HARMLESS in printed(app)
    assert HARMLESS in log
    assert not set(printed(app) + log) & set("\x1b\x07\x9b\u202e")


def test_errors_are_printable_wherever_they_are_shown() -> None:
    """Also in ``openstack gpu flavor`` and in Ansible, whose streams are not ours."""
    assert str(errors.GpustackError(EVIL, where=EVIL, remedy="x\ty")) == f"{HARMLESS}: {HARMLESS}\n  → x\ty"


def test_msg_and_findings_of_action_plugins() -> None:
    reported = finding(Code.DROP_INS_NOT_READ, place=EVIL, words=EVIL, directory="/x")
    result = failure(EVIL, EVIL, [reported])
    assert not set(json.dumps(result, ensure_ascii=False)) & set("\x1b\x07\x9b\u202e")


def test_the_log_of_a_playbook(tmp_path: Path) -> None:
    script = f"import sys; sys.stdout.buffer.write(({EVIL!r} + '\\n\\t').encode() + b'\\xff\\n' + b'x' * 200_000)"
    with (tmp_path / "log").open("ab") as log, printable_log(log) as descriptor:
        subprocess.run([sys.executable, "-c", script], stdout=descriptor, check=True)
    assert (tmp_path / "log").read_text() == f"{HARMLESS}\n\t\ufffd\n" + "x" * 200_000


def test_playbooks_print_into_the_printable_log() -> None:
    """The process gets the pipe of ``printable_log``, and no other stream of it is the log itself."""
    (started,) = [c for c in calls(PACKAGE / "connect/playbooks/run.py") if ast.unparse(c.func) == "subprocess.Popen"]
    streams = {keyword.arg: ast.unparse(keyword.value) for keyword in started.keywords}
    assert (streams["stdout"], streams["stderr"]) == ("printed", "subprocess.STDOUT")


@given(st.text())
def test_nothing_that_is_written_is_harmful(text: str) -> None:
    raw = io.StringIO()
    SafeStream(raw).write(text)
    assert raw.getvalue() == printable(raw.getvalue(), keep="\n\t")
    assert all(
        character.isprintable() or character in "\n\t\u00a0" or character.isspace() for character in raw.getvalue()
    )


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_a_json_document_stays_the_same(value: object) -> None:
    assert json.loads(printable(json.dumps(value, ensure_ascii=False), keep="")) == value
    assert printable(json.dumps(printable_data(value), ensure_ascii=False)) == json.dumps(
        printable_data(value), ensure_ascii=False
    )
