"""A host answers with facts that have the names of variables: it fails, and decides nothing for itself or others."""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible import constants
from ansible.module_utils.facts import default_collectors
from ansible.plugins import loader
from ansible.plugins.action import normal
from ansible.vars.clean import clean_facts

from gpustack.base.errors import SnapshotError
from gpustack.base.text import printable_data
from gpustack.connect.playbooks.record import Record
from gpustack.connect.playbooks.reserved import facts_refusal, reserved
from gpustack.hosts.facts.store import MOST_VALUES, parse_host
from gpustack.novadb.hardware import hardware
from gpustack_demo.examples.host import write_host
from support.attacks import REMEDY, attacked, commands, run, variants
from support.collection_modules import PLUGINS, imported
from support.fuzz_inputs import RAW
from support.fuzz_readers import MODULES
from support.hostile_hosts import COLLECTION, MAGIC, Hostile, forged
from support.lowest_ansible import supported
from support.playbook_place import EXAMPLES, SPEC, Place, tree

ROOT = Path(__file__).parents[3]
ROLES = COLLECTION / "roles"
ALL = "GPUSTACK_ATTACKS" in os.environ
"""Whether the plays run: `make attacks`. In CI, tests/unit/repair/test_playbook.py has a host that forges facts."""
RUNS = [
    run
    for run in itertools.product(
        ("prepare", "undo", "nova", "plan", "verify", "facts"),
        ("lowest", "newest"),
        ((), ("--check",)),
        (False, True),
        ("first", "later", "templates", "connection"),
    )
    if ALL
    and supported(run[1])
    and not (run[3] and run[4] == "templates")
    and (run[0] == "prepare" or run[4] != "later")  # the others run no other module on this host
]
EXTRA: dict[str, dict[str, Any]] = {
    "facts": {"gpustack_snapshot": "hosts.json"},
    "nova": {"gpustack_nova_services": ["compute"]},
    "prepare": {"gpustack_reboot": True},
    "undo": {"gpustack_reboot": True},
}


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example host of the talk."""
    directory = tmp_path_factory.mktemp("examples")
    write_host(directory / "talk", EXAMPLES["talk"]("talk"))
    return directory


@pytest.fixture
def hostile(tmp_path: Path, templates: Path) -> Hostile:
    place = Place(path=tmp_path, templates=templates)
    place.spec(SPEC + '  "evil": [k4200]\n')
    honest = place.add("talk")
    place.add("talk", "evil", ansible_python_interpreter=str(place.path / "python"))
    return Hostile(place, forged(honest))


def assert_refused(output: str) -> None:
    """The host failed for its facts, in one line, and no other host failed."""
    lines = [line for line in output.splitlines() if line.startswith("fatal: ")]
    assert [line for line in lines if "GPU480" in line], output
    assert all(line.startswith("fatal: [evil]: ") for line in lines), output
    assert re.search(r"^evil +: .*failed=1", output, re.MULTILINE), output


@pytest.mark.parametrize(("playbook", "ansible", "arguments", "cached", "kind"), RUNS)
def test_a_host_sets_no_option(
    hostile: Hostile, playbook: str, ansible: str, arguments: tuple[str, ...], cached: bool, kind: str
) -> None:
    if kind == "connection":
        hostile.facts = {"ansible_sftp_executable": str(hostile.mark)}
    hostile.arm("first" if kind == "connection" else kind)
    honest = hostile.place.path / "roots/talk"
    before = tree(honest)
    output = hostile.play(playbook, ansible, *arguments, cached=cached, **EXTRA.get(playbook, {}))
    assert tree(honest) == before
    assert not hostile.mark.exists(), output
    if kind == "templates":
        assert playbook in ("nova", "facts") or "lookup('pipe'" in output  # else the texts were not shown
    else:
        assert_refused(output)
    assert not cached or "--flush-cache" in output
    if kind == "later" and not (cached or arguments):  # the answer itself is refused, before its facts are stored
        assert "fatal: [evil]" in output.partition("Run a command]")[2].partition("TASK [")[0], output


@pytest.mark.skipif(not ALL, reason="make attacks; CI asks each plugin alone")
def test_hosts_with_forged_facts_fail_alone(hostile: Hostile) -> None:
    """A host forges facts in a later answer, and those of another one are in the cache."""
    hostile.place.add("talk", "stale")
    hostile.place.spec(SPEC + '  "evil": [k4200]\n  "stale": [k4200]\n')
    hostile.arm("later")
    honest = hostile.place.path / "roots/talk"
    before = tree(honest), tree(honest.with_name("stale"))
    output = hostile.play("prepare", "newest", stale="stale", **EXTRA["prepare"])
    assert (tree(honest), tree(honest.with_name("stale"))) == before
    assert not hostile.mark.exists(), output
    fatal = [line for line in output.splitlines() if line.startswith("fatal: ")]
    assert all(line.startswith(("fatal: [stale]: ", "fatal: [evil]: ")) for line in fatal), output
    assert any("[stale]" in line and "GPU480" in line and "--flush-cache" in line for line in fatal), output
    assert any("[evil]" in line and "GPU480" in line for line in fatal), output
    assert "fatal: [evil]" in output.partition("Run a command]")[2].partition("TASK [")[0], output


@pytest.mark.skipif(not ALL, reason="make attacks")
def test_a_fact_hides_no_variable_of_the_inventory(hostile: Hostile) -> None:
    """An option of the operator may be a template with such a variable; facts of Ansible's modules do no harm."""
    hostile.place.variables["evil"] |= {"domain": "example.org", "gpustack_compute_host": "evil.{{ domain }}"}
    hostile.facts = {"ansible_domain": "evil.example"}
    hostile.arm("none")
    assert "GPU480" not in hostile.play("plan", "newest", cached=True)
    hostile.facts = {"domain": "evil.example"}
    assert_refused(hostile.play("plan", "newest", cached=True))


def options_of_plugins() -> set[str]:
    """The variables with which plugins and settings of the installed ansible-core are configured."""
    definitions = [constants.config.get_configuration_definitions()]
    for kind in ("become", "connection", "lookup", "shell"):
        for plugin in getattr(loader, f"{kind}_loader").all(class_only=True):
            definitions += [constants.config.get_configuration_definitions(kind, plugin._load_name)]
    variables = (entry for plugin in definitions for option in plugin.values() for entry in option.get("vars") or ())
    return {entry["name"] for entry in variables if entry["name"].startswith("ansible_")}


def test_no_fact_steers_a_connection() -> None:
    """Ansible removes most facts that do; gpustack refuses the others, and no fact of Ansible's own module."""
    left = set(clean_facts(dict.fromkeys(options_of_plugins(), "x")))
    assert len(left) > 30
    assert left - set(reserved(dict.fromkeys(left, "x"))) == set()
    facts = {f"ansible_{name}" for collector in default_collectors.collectors for name in collector._fact_ids}
    assert reserved(dict.fromkeys(facts | {"ansible_ssh_host_key_rsa_public"}, "x")) == []


def test_only_settings_resolve_options() -> None:
    """Tasks, variables and plugins of a role read an option from ``gpustack_settings``, which facts can't replace."""
    for role in sorted(ROLES.iterdir()):
        specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
        options = {name for entry in specs.values() for name in entry["options"]}
        generated = role / "tasks/settings.yml"
        for path in {*role.glob("tasks/*.yml"), *role.glob("vars/*.yml")} - {generated}:
            code = "\n".join(re.findall(r"\{\{[\s\S]*?\}\}|(?:when|that):.*", path.read_text(encoding="utf-8")))
            expressions = re.sub(r"'(?:[^'\\]|\\.)*'", "", code)
            names = re.findall(
                r"(?<!\.)\bgpustack_\w+|\binventory_hostname\w*|\bgroup_names\b|\bhostvars\b", expressions
            )
            assert not {name for name in names if name in options or not name.startswith("gpustack_")}, path
        for path in role.glob("tasks/*.yml"):
            entry = path.stem
            if entry in specs and entry != "main":
                first = yaml.safe_load(path.read_text(encoding="utf-8"))[0]
                assert "settings.yml" in str(first), path


def refused(name: str) -> None:
    for facts in ({name: "x"}, {name: None, "ansible_domain": "y"}):
        names = reserved(facts)
        assert names, name
        for cache in ("memory", "jsonfile"):
            assert "GPU480" in facts_refusal("evil", names, cache)["msg"]


def each_name(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*forged(directory), *MAGIC, "gpustack_new_option", "ansible_gpustack_x"):
        if name.startswith("gpustack_") or name in MAGIC:
            refused(name)


def from_a_cache(_directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible's ``ansible_facts`` lack the prefix; an option of the operator with the name of a fact is none."""
    facts = {"sftp_executable": "/tmp/evil", "distribution": "Debian"}
    assert reserved(facts, {"ansible_sftp_executable": "/tmp/evil"}) == ["ansible_sftp_executable"]
    assert reserved(facts, {"ansible_sftp_executable": "/usr/bin/sftp"}) == []


def each_plugin(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts of an earlier answer or of a cache stop each task, and those of an answer before Ansible stores them."""
    facts, ran = forged(directory), list[str]()

    def module(*_: object) -> dict[str, Any]:
        ran.append("a module")
        return {"ansible_facts": facts}

    monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda *_: {})
    monkeypatch.setattr("ansible.plugins.action.normal.ActionModule.run", module)
    monkeypatch.setattr("ansible.constants.CACHE_PLUGIN", "jsonfile")
    names = [path.stem for path in (ROOT / "playbooks/action_plugins").glob("*.py")]
    assert len(names) > len(MODULES.keys() & set(names)) > 5
    for name in names:
        plugin = imported(f"{PLUGINS}action.{name}")
        answers = [
            object.__new__(plugin.ActionModule).run(None, {"inventory_hostname": "evil", "ansible_facts": facts})
        ]
        assert not ran, name
        if issubclass(plugin.ActionModule, normal.ActionModule):
            answers.append(object.__new__(plugin.ActionModule).run(None, {"inventory_hostname": "evil"}))
            assert ran.pop(), name
        for answer in answers:
            assert answer["failed"], name
            assert re.search("GPU480 .*--flush-cache", answer["msg"]), name
            assert "ansible_facts" not in answer, name


STEERING = "x\x1b]0;owned\x07\u202e"


def printed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible prints some results of a module as they are, also without a failure: gpustack's modules escape them."""
    texts = {"diff": {"before": STEERING}, "warnings": [STEERING], "deprecations": [{"msg": STEERING}]}
    for name in MODULES.keys() - {"gpustack_domains"}:  # which a plugin of the controller runs
        plugin = imported(f"{PLUGINS}action.{name}")
        for more in ({"changed": True}, {"failed": True, "msg": STEERING}):
            monkeypatch.setattr(
                "ansible.plugins.action.normal.ActionModule.run", lambda *_, more=more: {**texts, **more}
            )
            result = plugin.ActionModule.run(object.__new__(plugin.ActionModule), None, {})
            assert "owned" in str(result)
            assert printable_data(result) == result, name


def printed_by_the_controller(_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two plugins of the controller take their message from an answer of the host."""
    failed = {"failed": True, "msg": f"{STEERING}{REMEDY}"}
    nova = object.__new__(imported(f"{PLUGINS}action.gpustack_nova").ActionModule)
    monkeypatch.setattr(nova, "_execute_module", lambda **_: failed, raising=False)
    arguments: dict[str, Any] = {"root": "/", "kolla": False}
    answers = [nova._for_host(arguments, {}), nova._checked({}, arguments, {})]
    assert not [answer for answer in answers if "\n" in answer["msg"]]
    reboot = object.__new__(imported(f"{PLUGINS}action.gpustack_reboot_host").ActionModule)
    monkeypatch.setattr("ansible.plugins.action.reboot.ActionModule.run", lambda *_: failed)
    answers.append(reboot.run(None, {}))
    for answer in answers:
        assert "owned" in answer["msg"]
        assert printable_data(answer) == answer


def steps_of_a_drain(_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have names of the cloud, such as the user of a lock that is taken over."""
    module, shown = imported(f"{PLUGINS}action.gpustack_service"), list[str]()
    plugin = object.__new__(module.ActionModule)
    monkeypatch.setattr(plugin, "_task", SimpleNamespace(check_mode=False), raising=False)
    monkeypatch.setattr(plugin, "_others", lambda _variables: [])
    monkeypatch.setattr(module, "Display", lambda: SimpleNamespace(display=shown.append))
    monkeypatch.setattr(module.plugin_api, "service_phase", lambda *_, log, **__: log(f"{STEERING}{REMEDY}"))
    texts = {"phase": "disable", "hostname": "h", "guests": "refuse", "device_guests": "refuse"}
    arguments: dict[str, Any] = dict.fromkeys(plugin.arguments, ())
    plugin.outcome({**arguments, **texts, "spec": "", "compute_host": "", "facts": {}}, {})
    assert shown == [printable_data(f"{STEERING}{REMEDY}", keep="")]


TALK = RAW["k4200"]
ANSWERS: dict[str, Any] = {
    "another path": {**TALK, "hostname": "../../etc/cron.d/x"},
    "dots": {**TALK, "hostname": ".."},
    "lines": {**TALK, "hostname": "gpu01\n[evil]"},
    "terminal": {**TALK, "hostname": f"gpu01\x1b[2J\u202e{REMEDY}", "files": {REMEDY: 5}},
    "not one host": {**TALK, "pci": TALK["pci"] * 2},
    "too many values": {**TALK, "more": [0] * (MOST_VALUES + 1)},
    "no address": {**TALK, "pci": [{**TALK["pci"][0], "address": "0000:88:00.0; reboot"}]},
}
COMMANDS = sorted(commands("snapshot"))


def times(_directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    """No time that a host sends ends the check of all hosts; one at the ends of the calendar has no UTC."""
    for sent in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "yesterday"):
        (found,) = hardware([parse_host({**TALK, "collected_at": sent}, "evil")]).values()
        assert found.read_at is None


def one_word(_directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of a failed task is searched for sudo's words: in a square of its length, this takes a minute."""
    began = time.process_time()
    for text in ("a" * (1 << 18), "sudo: " * (1 << 16)):
        failed = {"event": "task", "host": "evil", "task": "Read", "action": "gpustack_facts", "phase": ""}
        record = Record()
        record.take({**failed, "state": "failed", "changed": False, "ignored": False, "result": {"msg": text}})
        assert record.hosts["evil"].problem
    assert time.process_time() - began < 5


def answer(name: str, directory: Path) -> None:
    with pytest.raises(SnapshotError):
        parse_host(ANSWERS[name], "evil")
    if name in ("dots", "terminal"):  # with each command that reads what hosts answered
        path = directory / "snapshot.json"
        path.write_text(json.dumps({"gpustack_snapshot": 1, "hosts": [ANSWERS[name]]}), encoding="utf-8")
        for command, argument in COMMANDS:
            assert run(command, argument, path, directory)[0], command


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {
        "names": each_name,
        "from a cache": from_a_cache,
        "each plugin": each_plugin,
        "printed": printed,
        "printed by the controller": printed_by_the_controller,
        "steps of a drain": steps_of_a_drain,
        "times": times,
        "one word": one_word,
        **variants(answer, {name: name for name in ANSWERS}),
    },
    {
        "gpustack.connect.playbooks.reserved:reserved": {
            "gpustack.connect.playbooks.reserved:reserved": lambda _facts, _variables=None: []
        },
        "gpustack.hosts.facts.store:parse_host": {"gpustack.hosts.facts.store:within_bounds": lambda _document: True},
    },
)
