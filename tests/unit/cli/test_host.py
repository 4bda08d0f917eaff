"""``gpustack host plan`` and ``host image``: formats, exit codes, hosts that can't be planned beside those that can."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.cli.app import main
from gpustack.hosts.facts.gather import Gathered
from gpustack.prepare.host.own_files import ADOPTED
from gpustack.prepare.host.plan import plan_host
from gpustack.spec.load import parse_spec
from support.boot_simulation import Machine
from support.host_cases import CASES, load
from support.host_samples import SNAPSHOTS, changed, snapshot
from support.host_samples import snapshot as samples

SPEC = """\
version: 1
models:
  k4200:
    match: {vendor: "10de", product: "11b4"}
  p100:
    match: {vendor: "10de", product: "15f8"}
hosts:
  gpu01: [k4200]
  gpu-nic01: [p100]
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run ``gpustack host plan`` with the spec above."""
    (tmp_path / "gpustack.yaml").write_text(SPEC, encoding="utf-8")

    def go(*arguments: object) -> tuple[int, str, str]:
        code = main(["host", "plan", str(tmp_path / "gpustack.yaml"), *map(str, arguments)])
        output = capsys.readouterr()
        return code, output.out, output.err

    return go


def save(path: Path, *hosts: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"gpustack_snapshot": 1, "hosts": list(hosts)}), encoding="utf-8")
    return path


def test_text_shows_what_changes_and_why(run: Run) -> None:
    code, out, err = run("--snapshot", SNAPSHOTS / "k4200.json")
    assert (code, err.partition(" /")[0]) == (0, "Next: gpustack host apply")
    assert out.startswith("gpu01: 4 files, 3 commands, needs a reboot\n")
    assert "+options vfio-pci ids=10de:0e0a,10de:11b4" in out
    assert "+options" not in run("--snapshot", SNAPSHOTS / "k4200.json", "--no-diff")[1]


@pytest.mark.parametrize(
    ("arguments", "hosts"),
    [((), ["gpu01", "gpu-nic01"]), (("--local",), []), (("gpu07",), ["gpu07"]), (("--root", "/x"), [])],
)
def test_hosts_of_the_spec_are_the_default(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], hosts: list[str]
) -> None:
    asked: list[Sequence[str]] = []

    def gather(hosts: Sequence[str], **_options: object) -> Gathered:
        asked.append(hosts)
        return Gathered(hosts=(), raw=())

    monkeypatch.setattr("gpustack.hosts.facts.gather.gather", gather)
    assert run(*arguments)[0] == 0
    assert asked == [hosts]


def test_this_machine_beside_hosts_is_an_error(run: Run) -> None:
    code, _, err = run("--local", "gpu01")
    assert (code, "--local and HOST exclude each other" in err) == (2, True)


def test_exit_code_reports_changes(run: Run, tmp_path: Path) -> None:
    assert run("--snapshot", SNAPSHOTS / "k4200.json", "--exit-code")[0] == 3
    machine = Machine(snapshot("k4200"))
    machine.carry_out(plan_host(parse_spec(SPEC, "test"), machine.host))
    code, out, _ = run("--snapshot", save(tmp_path / "done.json", machine.raw), "--exit-code")
    assert code == 0
    assert out.startswith("gpu01: nothing to do\n")


def test_json_is_a_list_of_plans(run: Run) -> None:
    code, out, _ = run("--snapshot", SNAPSHOTS / "k4200.json", "-f", "json")
    (plan,) = json.loads(out)
    assert code == 0
    keys = ["host", "refused", "gpus", "shared", "operations", "findings", "reboot", "expected", "next_boot", "trial"]
    assert list(plan) == [*keys, "group"]
    assert [op["kind"] for op in plan["operations"]] == ["write_file"] * 4 + ["run_command"] * 3 + ["reboot"]


def test_yaml_is_the_same_document_as_json(run: Run) -> None:
    as_json, as_yaml = (run("--snapshot", SNAPSHOTS / "k4200.json", "-f", form)[1] for form in ("json", "yaml"))
    assert yaml.safe_load(as_yaml) == json.loads(as_json)
    assert "&id" not in as_yaml


def test_a_refused_plan_exits_with_13_and_says_why(run: Run) -> None:
    code, out, err = run("--snapshot", SNAPSHOTS / "shared-nic.json", "--exit-code")
    assert code == 13
    assert "0000:1b:00.0 (network controller, driver i40e, interface ens3f0 (up))" in out
    assert "the plan is refused (gpu-nic01)" in err


def test_a_trial_boot_is_shown_or_refused(run: Run, tmp_path: Path) -> None:
    raw = snapshot("k4200")
    environment = {"path": "/boot/grub/grubenv", "exists": True, "read": True, "filesystem": "ext4", "device": "disk"}
    raw["boot"]["environment"] = environment
    code, out, _ = run("--snapshot", save(tmp_path / "hosts.json", raw), "--trial")
    assert (code, "create /etc/grub.d/45_gpustack_trial" in out) == (0, True), out
    raw["boot"].update(loader="systemd-boot", bls=True)
    code, out, _ = run("--snapshot", save(tmp_path / "hosts.json", raw), "--trial")
    assert (code, "GPU160" in out) == (13, True), out


def test_many_hosts_are_planned_one_after_another(run: Run, tmp_path: Path) -> None:
    fleet = save(tmp_path / "fleet.json", snapshot("k4200"), snapshot("shared-nic"), snapshot("laptop"))
    code, out, err = run("--snapshot", fleet, "-f", "json")
    assert [plan["host"] for plan in json.loads(out)] == ["gpu01", "gpu-nic01"]
    assert code == 13
    assert "left out: laptop" in err
    assert "1 of 2 plans are refused" in err


def test_a_host_that_was_asked_for_by_name_is_not_left_out(run: Run, tmp_path: Path) -> None:
    fleet = save(tmp_path / "fleet.json", snapshot("k4200"), snapshot("laptop"))
    code, out, _ = run("--snapshot", fleet, "laptop")
    assert code == 13
    assert "GPU100" in out
    code, out, err = run("--snapshot", fleet, "gpu01", "gpu99")
    assert code == 12
    assert "gpu99" in err
    assert out.startswith("gpu01: ")


def test_no_host_of_the_snapshot_is_in_the_spec(run: Run, tmp_path: Path) -> None:
    fleet = save(tmp_path / "fleet.json", snapshot("laptop"), {**snapshot("laptop"), "hostname": "other"})
    code, out, err = run("--snapshot", fleet)
    assert (code, out) == (2, "")
    assert "names none of these hosts" in err


def test_a_spec_that_is_not_valid_plans_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("version: 2\n", encoding="utf-8")
    assert main(["host", "plan", str(tmp_path / "bad.yaml"), "--snapshot", str(SNAPSHOTS / "k4200.json")]) == 10
    assert capsys.readouterr().out == ""


def test_control_characters_of_a_host_do_not_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    raw = changed(snapshot("k4200"), {"files": {"/etc/rc.local": "echo 0000:88:00.0 \x1b]0;owned\x07\n"}})
    _, out, err = run("--snapshot", save(tmp_path / "evil.json", raw))
    assert "\x1b" not in out + err


def test_a_host_whose_journal_can_t_be_read_is_no_end_to_the_others(run: Run, tmp_path: Path) -> None:
    broken = changed(snapshot("k4200"), {"files": {ADOPTED: "cut"}})
    code, out, err = run("--snapshot", save(tmp_path / "hosts.json", broken, snapshot("shared-nic")))
    assert code == 13
    assert out.startswith("gpu-nic01: refused")
    assert f"gpu01 {ADOPTED}: the journal" in err
    code, out, err = run("--snapshot", save(tmp_path / "hosts.json", broken))
    assert (code, out) == (12, "")
    assert f"gpu01 {ADOPTED}: the journal" in err


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, Path]:
    """A spec, and a snapshot of a host in image mode."""
    case, _, machine = load(next(path for path in CASES if path.stem == "rhel-9-image-mode"))
    spec, snapshot = tmp_path / "gpustack.yaml", tmp_path / "hosts.json"
    spec.write_text(yaml.safe_dump({"version": 1, **case["spec"]}), encoding="utf-8")
    snapshot.write_text(json.dumps({"gpustack_snapshot": 1, "hosts": [machine.raw]}), encoding="utf-8")
    return str(spec), str(snapshot), tmp_path / "out"


def test_files_are_written(files: tuple[str, str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    spec, snapshot, out = files
    assert main(["host", "image", spec, "--snapshot", snapshot, "--out", str(out)]) == 0
    assert f"{out}: 5 files for the image of gpu01" in capsys.readouterr().err
    assert sum(path.is_file() for path in out.rglob("*")) == 5
    assert main(["host", "image", spec, "--snapshot", snapshot, "--out", str(out)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_hosts_that_the_spec_does_not_name_are_left_out(
    files: tuple[str, str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    spec, snapshot, out = files
    document = json.loads(Path(snapshot).read_text(encoding="utf-8"))
    document["hosts"].append({**samples("k4200"), "hostname": "other"})
    Path(snapshot).write_text(json.dumps(document), encoding="utf-8")
    assert main(["host", "image", spec, "--snapshot", snapshot, "--out", str(out)]) == 0
    assert f"not in {spec}, left out: other" in capsys.readouterr().err
    assert main(["host", "image", spec, "other", "--snapshot", snapshot, "--out", str(out / "more")]) == 2
    assert "other: this host is not in image mode" in capsys.readouterr().err


def test_an_error_of_the_host_leaves_no_file(files: tuple[str, str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    spec, snapshot, out = files
    document = json.loads(Path(snapshot).read_text(encoding="utf-8"))
    document["hosts"][0]["container"] = "lxc"
    Path(snapshot).write_text(json.dumps(document), encoding="utf-8")
    assert main(["host", "image", spec, "--snapshot", snapshot, "--out", str(out)]) == 13
    assert "nothing was written" in capsys.readouterr().err
    assert not out.exists()


def test_the_plan_names_the_command(files: tuple[str, str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    spec, snapshot, _ = files
    assert main(["host", "plan", spec, "--snapshot", snapshot]) == 13
    assert "gpustack host image SPEC HOST --out DIR" in capsys.readouterr().out
