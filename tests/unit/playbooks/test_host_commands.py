"""gpustack host apply, verify and undo, with the real ansible-playbook on example hosts."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from gpustack.base.files import collection_dir
from gpustack.cli.app import main
from support.playbook_place import SPEC, Place, drivers, environment, tree


class Terminal(io.StringIO):
    """Somebody who can be asked."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def reworded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection with another name for all plays, blocks and tasks: nothing may read names."""
    collection = tmp_path_factory.mktemp("reworded") / "ansible_collections/nova_gpustack/passthrough"
    shutil.copytree(collection_dir(), collection)
    for path in (*collection.glob("roles/*/tasks/*.yml"), *collection.glob("playbooks/*.yml")):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r"^( *- name: ).*$", r"\1Aufgabe", text, flags=re.MULTILINE), encoding="utf-8")
    return collection


@pytest.fixture
def gpustack(place: Place, reworded: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Run a command line where the hosts of ``place`` are the inventory."""
    monkeypatch.setattr("gpustack.connect.playbooks.run.collection_dir", lambda: reworded)
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)
    for name, value in environment(place.path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(reworded.parents[2]))
    monkeypatch.chdir(place.path)
    monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "False")
    monkeypatch.setenv("XDG_STATE_HOME", str(place.path / "state"))

    def run(*argv: str, answer: str | None = None) -> tuple[int, str, str]:
        place.inventory()
        monkeypatch.setattr("sys.stdin", io.StringIO() if answer is None else Terminal(answer))
        code = main(["host", argv[0], *argv[1:], "-i", "inventory.json", "--log", "the.log"])
        return code, *capfd.readouterr()

    return run


def test_apply_asks_shows_prepares_and_is_verified_and_undone(
    place: Place, gpustack, capfd: pytest.CaptureFixture[str]
) -> None:
    root = place.add("talk")
    place.add("shared")
    before = tree(root)
    code, out, err = gpustack("apply", "gpustack.yaml", "--reboot", "talk", answer="no\n")
    assert (code, tree(root)) == (1, before)
    assert "create /etc/modprobe.d/gpustack.conf" in out
    assert "Prepare talk? (reboot talk) [y/N]" in err

    code, out, err = gpustack("apply", "gpustack.yaml", "--reboot", "--yes")
    assert code == 13, "of two hosts one is prepared, and the plan of the other is refused"
    assert drivers(root) == {"vfio-pci"}
    counts = re.search(r"^talk: (.*), needs a reboot$", out, re.MULTILINE)
    assert counts is not None, "the plan's own counts"
    summary = rf"talk: done \({counts[1]}, rebooted, verified\)"
    assert re.search(f"^working: {summary}$", err, re.MULTILINE)
    *_, first, second, _, total = out.splitlines()
    assert total == "Total: 2 hosts; 1 changed, 1 blocked, 0 to reboot"
    assert re.fullmatch(summary, first)
    assert second == "shared: refused (GPU013)"
    assert "GPU013 shared 0000:65:00.0" in err
    log = place.path / "the.log"
    assert log.stat().st_mode & 0o777 == 0o600
    assert "PLAY RECAP" in log.read_text(encoding="utf-8")

    code, out, _ = gpustack("verify", "gpustack.yaml", "-f", "json", "talk")
    assert (code, json.loads(out)[0]["verified"]) == (0, True)
    code, out, _ = gpustack("verify", "gpustack.yaml", "talk")
    assert re.fullmatch(r"talk: ready, 2 GPUs, \d+ checks\n", out), "one line for a host that is ready"
    code, out, _ = gpustack("apply", "gpustack.yaml", "talk", "--check")
    assert (code, "gpustack_serial" in out) == (0, False)  # one host has no batches
    code, out, _ = gpustack("apply", "gpustack.yaml", "talk", answer="")
    assert (code, out.splitlines()[-1]) == (0, "talk: nothing to do")

    code, out, err = gpustack("undo", "talk", "--check")
    assert code == 0
    assert re.findall("^planning: .*", err, re.MULTILINE) == [f"planning: {out.splitlines()[-1]}"]
    assert drivers(root) == {"vfio-pci"}
    counts = re.search(r"^talk: would change \((.*), needs a reboot\)$", out, re.MULTILINE)
    assert counts is not None
    code, out, _ = gpustack("undo", "talk", "--reboot", "--yes")
    assert (code, out.splitlines()[-1]) == (0, f"talk: done ({counts[1]}, rebooted, verified)")
    assert drivers(root) == {"nouveau", "snd_hda_intel"}
    assert main(["history", "-f", "json"]) == 0
    rows = json.loads(capfd.readouterr().out)
    assert [(row["Command"], row["Spec"], row["Done"], row["State"]) for row in rows] == [
        ("host undo", "", "1/1", "done"),
        ("host apply", "gpustack.yaml", "1/1", "done"),
    ]


@pytest.mark.parametrize(
    ("options", "question"),
    [(["-e", "gpustack_reboot=true"], "reboot talk"), (["--reboot", "-e", "gpustack_reboot=false"], "no reboot")],
)
def test_the_question_names_reboots_of_variables(place: Place, gpustack, options: list[str], question: str) -> None:
    root = place.add("talk")
    before = tree(root)
    code, _, err = gpustack("apply", "gpustack.yaml", "talk", *options, answer="no\n")
    assert (code, tree(root)) == (1, before)
    assert f"Prepare talk? ({question}) [y/N]" in err


def test_hosts_of_another_name_in_the_spec(place: Place, gpustack, capfd: pytest.CaptureFixture[str]) -> None:
    place.spec(SPEC.replace('"talk*"', "talk"))
    root = place.add("talk", "node1.example.org", gpustack_hostname="talk")
    place.add("talk", "talk", gpustack_hostname="node2")
    code, out, err = gpustack("apply", "gpustack.yaml", "--yes", "--record", "record.json")
    assert code == 0, err
    assert "left out: talk" in err
    assert out.splitlines()[-1] == "node1.example.org: done (4 files, 3 commands, needs a reboot)"
    assert (root / "etc/modprobe.d/gpustack.conf").exists()
    assert main(["host", "plan", "gpustack.yaml", "-i", "inventory.json"]) == 0
    assert capfd.readouterr().out.startswith("talk: needs a reboot")
    assert main(["host", "results", "record.json"]) == 0, "no host of the spec is missing"
    code, out, _ = gpustack("apply", "gpustack.yaml", "talk", "--check")
    assert (code, out.splitlines()[-1]) == (13, "talk: refused (GPU100)"), "the operator names it"


@pytest.mark.parametrize("command", [("apply", "--yes"), ("verify",)])
def test_a_record_that_cannot_be_written_is_an_error_before_the_first_host(
    place: Place, gpustack, tmp_path: Path, command: tuple[str, ...]
) -> None:
    root = place.add("talk")
    before = tree(root)
    (tmp_path / "file").touch()
    code, out, err = gpustack(*command, "gpustack.yaml", "--record", "file/a.json")
    assert (code, out, tree(root)) == (15, "", before)
    assert "file/a.json: the record of the run can't be written: Not a directory; nothing was done" in err
    assert "name another with --record" in err


def test_what_goes_wrong_has_its_exit_code(place: Place, gpustack, tmp_path: Path) -> None:
    root = place.add("talk", gpustack_command_prefix=["/bin/false"])
    place.add("talk", "talk-gone", gpustack_root=str(tmp_path / "nowhere"))
    before = tree(root)
    assert gpustack("apply", "gpustack.yaml", "--check", "talk")[0] == 0
    assert tree(root) == before
    code, _, err = gpustack("apply", "gpustack.yaml", "talk")
    assert (code, tree(root)) == (2, before)
    assert "repeat the command with --yes" in err
    code, out, err = gpustack("verify", "gpustack.yaml")
    assert code == 16
    assert out.splitlines()[-1] == "Total: 2 hosts; 0 ready, 2 not ready"
    assert "not the absolute path of a directory" in err
    code, out, err = gpustack("apply", "gpustack.yaml", "--yes")
    assert code == 14
    assert "'update-grub' failed on talk" in err  # the menu is generated before anything is written
    assert "talk-gone: unreachable" in out
    code, _, err = gpustack("verify", "gpustack.yaml", "--limit", "nobody")
    assert code == 2
    assert "no host of the inventory is meant" in err
    code, _, err = gpustack("verify", "gpustack.yaml", "talk", "-e", "@missing.yaml")
    assert code == 14
    assert "missing.yaml" in err


def test_the_ways_of_a_plan_are_those_of_host_plan(place: Place, gpustack) -> None:
    root = place.add("talk")
    before = tree(root)
    code, out, _ = gpustack("apply", "gpustack.yaml", "--check", "--reboot", "--trial")
    assert code == 0
    assert "gpustack_trial" in out
    code, out, _ = gpustack("apply", "gpustack.yaml", "--check", "--reboot")
    assert "gpustack_trial" not in out
    assert tree(root) == before


def test_this_machine_without_ssh(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """``--local`` needs no inventory; here the machine's / is an example host's directory."""
    root = place.add("talk")
    for name, value in environment(place.path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place.path)
    monkeypatch.setattr("platform.node", lambda: "talk7")
    variables = {**place.variables["talk"], "gpustack_hostname": "talk7", "ansible_become": False}
    before = tree(root)
    command = ["host", "apply", "gpustack.yaml", "--local", "--check", "--log", str(tmp_path / "log")]
    assert main([*command, "-e", json.dumps(variables)]) == 0
    assert capfd.readouterr().out.endswith("talk7: would change (4 files, 3 commands, needs a reboot)\n")
    assert tree(root) == before
    assert main([*command, "gpu01"]) == 2
    assert main(["host", "undo", "--local", "--reboot", "--yes"]) == 2
    assert "gpustack runs on it" in capfd.readouterr().err


@pytest.mark.parametrize("command", [("apply", "--yes"), ("apply", "--check"), ("verify",)])
def test_a_missing_spec_is_an_error_of_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert main(["host", command[0], str(tmp_path / "none.yaml"), "gpu01", *command[1:]]) == 10
    assert "none.yaml: the spec can't be read" in capsys.readouterr().err
    assert not (tmp_path / "state").exists(), "nothing was begun"


@pytest.mark.parametrize("command", [("apply", "gpustack.yaml"), ("undo", "talk")])
@pytest.mark.parametrize("number", ["0", "-1"])
def test_serial_is_at_least_one(capsys: pytest.CaptureFixture[str], command: tuple[str, ...], number: str) -> None:
    assert main(["host", *command, f"--serial={number}"]) == 2
    assert "must be 1 or more" in capsys.readouterr().err
