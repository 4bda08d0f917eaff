"""The next command: each row of the table leads to a command line that the next command accepts."""

import argparse
import functools
import importlib.metadata
import json
import re
import shlex

import pytest

from gpustack.base.findings import Code, definitions, finding
from gpustack.cli.app import Gpustack, main
from gpustack.cli.next_steps import NEXT, arguments, step_of
from gpustack.cli.registry import command_class
from gpustack_demo.examples.host import write_host
from gpustack_demo.examples.hosts import talk_host
from support.host_samples import SNAPSHOTS
from support.host_samples import snapshot as host_snapshot

COMMANDS = {entry.name.replace("_", " ") for entry in importlib.metadata.entry_points(group="gpustack.cli")}
ROWS = [(command, row) for command, rows in NEXT.items() for row, step in rows.items() if step]
ODD = "a b; rm -rf $HOME 'x"
SPEC = 'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {"*": [k4200]}\n'


@functools.cache
def parser_of(command: str) -> argparse.ArgumentParser:
    return command_class(command)(Gpustack(), None, cmd_name=command).get_parser(command)


def parsed(command: str, given: list[str]) -> dict[str, object]:
    """The arguments of a command with a value for each required one, and for the named options."""
    parser, words = parser_of(command), []
    for action in parser._actions:
        if not action.option_strings and (action.required or action.dest in given):
            words.append("0000:84:00.0" if action.dest == "address" else ODD)
        elif action.required or (action.dest in given and action.option_strings):
            words += [action.option_strings[-1], *([] if action.nargs == 0 else [ODD])]
    if command == "flavor create":
        words = ["x", "--vcpus", "1", "--ram", "1", "--disk", "1"]
    return vars(parser.parse_args(words))


def test_every_command_has_its_next_step() -> None:
    assert NEXT.keys() == COMMANDS


@pytest.mark.parametrize(("command", "row"), ROWS)
def test_the_next_command_is_accepted(command: str, row: str) -> None:
    outcome, *given = row.split(" ")
    values = {"spec": ODD if "spec" in given else None, **parsed(command, given), "code": "GPU010"}
    step = step_of(command, outcome or "done", values)
    assert step is not None
    assert step[0] in COMMANDS
    following = parser_of(step[0])
    words = arguments(step[1], values, parser_of(command).get_default, following)
    assert words is not None
    reached = vars(following.parse_args(shlex.split(words)))
    for name, value in reached.items():
        if name in values and name not in step[1] and name not in ("check", "diff"):
            assert value == values[name] or value == following.get_default(name), (words, name)


@pytest.mark.parametrize(
    ("command", "row"), [(command, row) for command, rows in NEXT.items() for row, step in rows.items() if not step]
)
def test_an_end_has_no_next_command(command: str, row: str) -> None:
    """`host undo --local --reboot` ended with an unexpected error after its work."""
    outcome, *given = row.split(" ")
    assert step_of(command, outcome, dict.fromkeys(given, True)) is None


def test_values_that_may_be_secret_are_not_repeated() -> None:
    following = parser_of("cleanup apply")
    values = {"db_url": ["mysql://nova:secret@db/nova"], "host": ["gpu01"]}
    assert arguments({}, values, lambda name: None, following) is None
    assert arguments({}, {"host": ["gpu01"]}, lambda name: None, following) == "--host gpu01"


def test_a_device_is_typed_as_host_and_address() -> None:
    values = {"unblock": [("gpu 1", "0000:81:00.0")], "columns": ["Host"]}
    assert arguments({}, values, lambda name: None, parser_of("cleanup plan")) == "--unblock 'gpu 1/0000:81:00.0'"


def test_commands_in_texts_get_the_options_of_the_present_one() -> None:
    command = command_class("gpu list")(Gpustack(), None, cmd_name="gpu list")
    parser = command.get_parser("gpu list")
    command._values = vars(
        parser.parse_args(["--config-file", "n.conf", "--os-cloud", "a b", "--host", "x", "-c", "Host"])
    )
    text = "run `gpustack cleanup plan --host y --class Q --os-cloud CLOUD`; gpustack cleanup apply does"
    shown = "run `gpustack cleanup plan --config-file n.conf --os-cloud 'a b' --host y --class Q`"
    assert command.completed(text) == f"{shown}; gpustack cleanup apply does"
    assert command.completed("`gpustack gpu list` shows the hosts").startswith(
        "`gpustack gpu list --os-cloud 'a b' --c"
    )
    assert command.completed(command.completed(text)) == command.completed(text)


def test_a_directory_is_no_host_to_change() -> None:
    assert arguments({}, {"spec": "s.yaml", "root": "/mnt"}, lambda name: None, parser_of("host apply")) is None


@pytest.mark.parametrize("path", ["/dev/stdin", "/dev/fd/63", "/proc/self/fd/11"])
def test_a_file_that_is_read_once_has_no_next_command(path: str) -> None:
    values = {"spec": "s.yaml", "snapshot": [path]}
    assert arguments({}, values, lambda name: None, parser_of("host plan")) is None


def test_a_code_is_explained_wherever_the_hosts_are() -> None:
    values = {"root": "/mnt", "db_url": "mysql://nova:secret@db/nova"}
    assert arguments({"subject": "GPU013"}, values, lambda name: None, parser_of("explain")) == "GPU013"


def test_a_required_argument_is_needed() -> None:
    assert arguments({}, {}, lambda name: None, parser_of("host plan")) is None


def test_a_key_has_another_name_for_ansible() -> None:
    words = arguments({}, {"spec": "s.yaml", "identity": "key"}, lambda name: None, parser_of("host apply"))
    assert words == "s.yaml --private-key key"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("scan",), "Next: gpustack spec init --snapshot {snapshot} --out gpustack.yaml"),
        (("host", "plan", "SPEC", "--live"), "Next: gpustack host apply SPEC --live"),
        (("topology",), None),
        (("scan", "-f", "json"), None),
        (("-q", "scan"), None),
    ],
)
def test_a_command_ends_with_the_next_one(arguments, line, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "SPEC").write_text(SPEC)
    snapshot = SNAPSHOTS / "k4200.json"
    assert main([*arguments, "--snapshot", str(snapshot)]) == 0
    printed = capsys.readouterr()
    assert "Next:" not in printed.out
    if line is None:
        assert "Next:" not in printed.err
    else:
        assert printed.err.endswith(f"{line.format(snapshot=shlex.quote(str(snapshot)))}\n")


def test_no_plan_follows_a_spec_that_can_not_be_used(tmp_path, capsys) -> None:
    (tmp_path / "spec.yaml").write_text("version: 1\n")
    assert main(["host", "apply", str(tmp_path / "spec.yaml"), "--local", "--check"]) == 10
    assert "Next:" not in capsys.readouterr().err


def test_a_spec_in_the_current_directory_comes_next(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpustack.yaml").write_text(SPEC)
    snapshot = str(SNAPSHOTS / "k4200.json")
    main(["scan", "--snapshot", snapshot])
    expected = f"Next: gpustack host plan gpustack.yaml --snapshot {shlex.quote(snapshot)}\n"
    assert capsys.readouterr().err.endswith(expected)


def test_the_next_command_reads_this_machine_too(tmp_path, monkeypatch, capsys) -> None:
    """A GPU host on which gpustack runs: the next command would try to reach it over SSH."""
    monkeypatch.setattr("gpustack.hosts.facts.gather.collect", lambda root: host_snapshot("k4200"))
    assert main(["spec", "init", "--out", str(tmp_path / "s.yaml")]) == 0
    assert capsys.readouterr().err.endswith(f"Next: gpustack host plan {tmp_path}/s.yaml --local\n")
    main(["scan", "--save", str(tmp_path / "s.json")])
    step = f"Next: gpustack spec init --snapshot {tmp_path}/s.json --out gpustack.yaml\n"
    assert capsys.readouterr().err.endswith(step)


@pytest.mark.parametrize("how", [("gpus", "--sudo"), ("-l", "gpus", "--user", "bob", "--timeout", "9", "--jobs", "3")])
def test_a_saved_snapshot_replaces_the_ways_to_read_hosts(tmp_path, monkeypatch, capsys, how) -> None:
    """spec init refuses them beside --snapshot, and a group of the inventory is no host of the snapshot."""
    monkeypatch.chdir(tmp_path)
    root = write_host(tmp_path / "talk", talk_host("talk"))
    of_host = f"{{ansible_connection: local, gpustack_root: '{root}'}}"
    (tmp_path / "hosts.yaml").write_text(f"all: {{children: {{gpus: {{hosts: {{talk: {of_host}}}}}}}}}\n")
    assert main(["scan", "-i", "hosts.yaml", *how, "--save", "s.json"]) == 0
    (step,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Next: ")]
    assert step == "Next: gpustack spec init --snapshot s.json --out gpustack.yaml"
    assert main(shlex.split(step)[2:]) == 0


@pytest.mark.parametrize(("seconds", "typed"), [("9", "9"), ("0.5", "0.5"), ("3600", "3600")])
def test_seconds_are_as_one_types_them(seconds: str, typed: str) -> None:
    values = vars(parser_of("scan").parse_args(["gpu01", "--timeout", seconds]))
    following = parser_of("host plan")
    step = arguments({"spec": "gpustack.yaml"}, values, parser_of("scan").get_default, following)
    assert step == f"gpustack.yaml gpu01 --timeout {typed}"


@pytest.mark.parametrize("ids", [None, ("8086", "9bc5", "0000:00:02.0")])
def test_no_spec_comes_next_without_a_gpu_for_it(tmp_path, monkeypatch, capsys, ids) -> None:
    """spec init refuses a host that has none, or graphics of the processor only."""
    monkeypatch.chdir(tmp_path)
    raw = host_snapshot("k4200")
    raw["pci"] = [f for f in raw["pci"] if not f["address"].startswith(("0000:84", "0000:88"))]
    if ids is not None:
        raw["pci"].append({"vendor": ids[0], "product": ids[1], "class": "030000", "address": ids[2], "driver": "i915"})
    (tmp_path / "s.json").write_text(json.dumps({"gpustack_snapshot": 1, "hosts": [raw]}))
    assert main(["scan", "--snapshot", "s.json"]) == 0
    assert "Next:" not in capsys.readouterr().err
    assert main(["spec", "init", "--snapshot", "s.json"]) != 0


def test_a_usage_error_has_no_next_command(tmp_path, monkeypatch, capsys) -> None:
    """The next command would get the same arguments, and refuse them too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SPEC)
    assert main(["host", "apply", "s.yaml", "gpu01", "--local"]) == 2
    assert "Next:" not in capsys.readouterr().err


def test_after_an_error_no_step_follows_that_needs_the_result() -> None:
    steps = {name: step_of(name, "blocked", {}) for name in NEXT}
    assert {name: step for name, step in steps.items() if step} == {"host apply": ("host plan", {})}


@pytest.mark.parametrize(
    ("code", "step"),
    [(Code.FLAVOR_SIZES_FIXED, "Next: gpustack explain GPU400"), (Code.FLAVOR_IN_USE_NOT_REMOVED, None)],
)
def test_a_warning_is_not_the_reason_of_a_failure(code: Code, step: str | None) -> None:
    """Such as a lost API, or a full disk, after a plan with a warning."""
    command = command_class("cloud apply")(Gpustack(), None, cmd_name="cloud apply")
    command._noted = (finding(code, place="f", name="f", differences="ram", users="1 instance"),)
    command._parser = parser_of("cloud apply")
    assert command._next("blocked") == step


def test_a_refused_plan_leads_to_its_explanation(tmp_path, capsys) -> None:
    (tmp_path / "s.yaml").write_text(SPEC)
    assert main(["host", "plan", str(tmp_path / "s.yaml"), "--snapshot", str(SNAPSHOTS / "shared-nic.json")]) == 13
    assert "\nNext: gpustack explain GPU" in capsys.readouterr().err


PRESENT = (
    ("nova render", "s.yaml --snapshot h.json"),
    ("nova lint", "rendered --spec s.yaml --release 2025.2"),
    ("host plan", "s.yaml gpu01 --sudo"),
    ("host apply", "s.yaml --local"),
    ("flavor apply", "s.yaml --os-cloud c --prune --replace x"),
    ("gpu list", "--config-file n.conf --os-cloud c --host gpu01"),
    ("health", "gpu01 --sudo"),
    ("topology", "--snapshot h.json gpu01"),
    ("cleanup plan", "--config-file n.conf --grace 5 --class B"),
)


@pytest.mark.parametrize(("name", "given"), PRESENT)
def test_commands_in_the_texts_of_findings_are_accepted(name: str, given: str) -> None:
    """Each remedy, as each kind of command completes it."""
    command = command_class(name)(Gpustack(), None, cmd_name=name)
    command._values = vars(command.get_parser(name).parse_args(given.split()))
    of_present = {word for word in given.split() if "." in word or word == "gpu01"}
    completed = 0
    words_of = {"klass": "B", "letter": "B", "address": "0000:84:00.0"}
    for found in definitions().values():
        text = re.sub(r"\{(\w+)\}", lambda name: words_of.get(name[1], "x"), f"{found.message}; {found.remedy}")
        assert command.completed(command.completed(text)) == command.completed(text)
        commands = re.findall("`gpustack ([^`…]*)`", command.completed(text))
        for before, line in zip(re.findall("`gpustack ([^`…]*)`", text), commands, strict=True):
            words = shlex.split(line.replace("ADDRESS", "0000:84:00.0"))
            known = next(known for known in sorted(COMMANDS, reverse=True) if f"{line} ".startswith(f"{known} "))
            if line != before and words[-1] not in ("--kernel-log", "--save", "--with-nova", "--simulate"):
                completed += 1
                parser_of(known).parse_args(words[len(known.split()) :])
                assert "--prune" in before.split() or "--prune" not in words
                assert of_present & {*words} or "--" in line, (before, line)
    assert completed > 20


def test_a_text_gets_the_spec_and_the_hosts_of_the_present_command(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = command_class("host plan")(Gpustack(), None, cmd_name="host plan")
    given = ["s.yaml", "gpu01", "--snapshot", "h.json", "--adopt"]
    command._values = vars(command.get_parser("host plan").parse_args(given))
    for text, completed in (
        ("host apply --reboot", "host apply s.yaml gpu01 --reboot"),
        ("image set SPEC IMAGE", "image set s.yaml --snapshot h.json IMAGE"),
        ("scan HOST --save FILE", "scan HOST --save FILE"),  # the facts that h.json has are too old
        ("flavor apply SPEC", "flavor apply s.yaml --snapshot h.json"),
        ("why instance", "why instance"),
        ("host plan SPEC HOST", "host plan s.yaml --snapshot h.json HOST"),
    ):
        assert command.completed(f"use `gpustack {text}`") == f"use `gpustack {completed}`"
    assert command.completed("Next: gpustack host apply x.yaml") == "Next: gpustack host apply x.yaml"
    command.reads_plan = True  # s.yaml is a saved plan
    assert command.completed("`gpustack flavor apply SPEC`") == "`gpustack flavor apply SPEC`"
    (tmp_path / "gpustack.yaml").write_text(SPEC)
    assert "flavor apply gpustack.yaml" in command.completed("`gpustack flavor apply SPEC`")
