"""The script of the vendor data, run with a directory as the guest's root; its report, read from the console."""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from gpustack.base.errors import NovaConfigError
from gpustack.hosts.health.kernel_log import table
from gpustack.offer.guest import check, vendordata
from gpustack.offer.guest.inside import console
from support.guest_root import guest_root

ODD = ["it's *", "$(exit 9) `id`", 'g"2\\x', "gpü.ß", "a|b?[x]", "END_OF_GPUSTACK", "@PROGRAM@", "@END@"]
FLAVORS = {"g1.a100.2": check.Promise(count=2, ids=("10de:20b5",)), **{name: check.Promise(count=1) for name in ODD}}


def run(tmp_path: Path, root: Path, path: str | None = None) -> str:
    """Run the script; the console's text."""
    script = tmp_path / "part-001"
    script.write_text(vendordata.script(FLAVORS))
    (root / "dev/console").touch()
    environment = {"PATH": path or os.environ["PATH"], "GPUSTACK_ROOT": str(root)}
    command = ["/bin/sh", str(script)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=180)
    assert (ran.returncode, ran.stderr) == (0, "")
    return (root / "dev/console").read_text() + ran.stdout


def codes(log: str, promised: check.Promise | None = None) -> list[str]:
    facts = console.facts(log, check.consoles(), table())
    return [entry.code.value for entry in check.findings(facts, promised, "vm")]


def test_the_report_is_one_line_that_the_operator_reads(tmp_path: Path) -> None:
    root = guest_root(tmp_path / "root", gpus=["10de:20b5"] * 2, driver="nvidia")
    log = run(tmp_path, root)
    assert log.startswith("gpustack guest check: 2 GPUs, driver bound (nvidia 580.95.05) {")
    assert log.count("\n") == 1
    facts = console.facts(log, check.consoles(), table())
    assert [gpu["driver"] for gpu in facts["gpus"]] == ["nvidia", "nvidia"]
    assert codes(log, FLAVORS["g1.a100.2"]) == []


def test_problems_of_the_guest_reach_the_operator(tmp_path: Path) -> None:
    message = "nvidia: probe of 0000:00:05.0 failed with error -1"
    root = guest_root(tmp_path / "root", gpus=["10de:20b5"], unplaced=True, log=message)
    log = run(tmp_path, root)
    assert log.startswith("gpustack guest check: 1 of 2 GPUs, no driver bound; GPU845 GPU849 {")
    assert codes(log, FLAVORS["g1.a100.2"]) == ["GPU845", "GPU849"]


@pytest.mark.parametrize("name", ODD)
def test_flavors_with_special_characters(tmp_path: Path, name: str) -> None:
    log = run(tmp_path, guest_root(tmp_path / "root", gpus=[], flavor=name))
    assert log.startswith("gpustack guest check: 0 of 1 GPU; GPU845")


@pytest.mark.parametrize("ids", [[], ["1234:1111"], ["1013:00b8", "1b36:0100"]])
def test_it_is_silent_without_a_gpu(tmp_path: Path, ids: list[str]) -> None:
    assert run(tmp_path, guest_root(tmp_path / "root", gpus=ids, flavor="m1.small")) == ""


def test_it_is_silent_without_a_pci_bus(tmp_path: Path) -> None:
    (tmp_path / "root/dev").mkdir(parents=True)
    assert run(tmp_path, tmp_path / "root") == ""


@pytest.mark.parametrize("flavor", FLAVORS)
def test_missing_gpus_of_a_flavor_are_reported(tmp_path: Path, flavor: str) -> None:
    log = run(tmp_path, guest_root(tmp_path / "root", gpus=[], flavor=flavor))
    assert log.startswith(f"gpustack guest check: 0 of {FLAVORS[flavor].count} GPU")
    assert "GPU845" in codes(log, FLAVORS[flavor])


def test_a_guest_without_python_reports_that(tmp_path: Path) -> None:
    root = guest_root(tmp_path / "root", gpus=["10de:20b5"], driver="nvidia")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sed", "head", "cat"):
        (programs / name).symlink_to(f"/usr/bin/{name}" if Path(f"/usr/bin/{name}").exists() else f"/bin/{name}")
    log = run(tmp_path, root, str(programs))
    assert log == "gpustack guest check: functions of GPUs: 1; not checked: no Python 3.6 or later in the guest\n"
    [finding] = check.findings(console.facts(log, check.consoles(), table()), None, "vm")
    assert "not checked: no Python 3.6 or later in the guest" in finding.message


def test_the_line_goes_to_the_serial_port_too(tmp_path: Path) -> None:
    root = guest_root(tmp_path / "root", gpus=["10de:20b5"], driver="nvidia")
    (root / "dev/ttyS0").touch()
    (root / "sys/class/tty/console").mkdir(parents=True)
    active = root / "sys/class/tty/console/active"
    active.write_text("ttyS0 tty0\n")
    run(tmp_path, root)
    assert (root / "dev/ttyS0").read_text() == (root / "dev/console").read_text() != ""
    (root / "dev/ttyS0").write_text("")
    active.write_text("tty0 ttyS0\n")
    run(tmp_path, root)
    assert (root / "dev/ttyS0").read_text() == ""


@pytest.mark.parametrize("damage", ["cut", "interleaved", "crlf", "forged"])
def test_damaged_reports(tmp_path: Path, damage: str) -> None:
    root = guest_root(tmp_path / "root", gpus=["10de:20b5"] * 2, driver="nvidia")
    line = run(tmp_path, root).rstrip("\n")
    log = {
        "cut": line[:200],
        "interleaved": line.replace("{", "{[    9.1] random: crng init done", 1),
        "crlf": f"\x1b[0;1mlogin: \x1b[0m{line}\r\r\n",
        "forged": re.sub(r'"driver":"nvidia"', '"driver":{"a":1}', line),
    }[damage]
    facts = console.facts(log, check.consoles(), table())
    if damage == "crlf":
        assert len(facts["gpus"]) == 2
    else:
        [finding] = check.findings(facts, None, "vm")
        assert finding.code == "GPU859"
        assert "2 GPUs, driver bound" in finding.message


def test_the_file_is_json_with_one_script() -> None:
    document = json.loads(vendordata.render(FLAVORS))
    assert set(document) == {"cloud-init"}
    [part] = email.message_from_string(document["cloud-init"]).get_payload()
    assert part.get_content_type() == "text/x-shellscript"
    assert part.get_payload(decode=True).decode() == vendordata.script(FLAVORS)


def parts(text: str) -> list[tuple[str, str]]:
    message = email.message_from_string(json.loads(text)["cloud-init"])
    return [(part.get_content_type(), part.get_payload(decode=True).decode()) for part in message.get_payload()]


def test_other_vendor_data_is_kept() -> None:
    other = {"cloud-init": "#cloud-config\nntp: {servers: [ntp.example.org]}\n", "static": {"a": 1}}
    text = vendordata.render(FLAVORS, other)
    assert json.loads(text)["static"] == {"a": 1}
    assert parts(text)[0] == ("text/plain", other["cloud-init"])
    again = vendordata.render(FLAVORS, json.loads(text))
    assert parts(again) == parts(text)


@pytest.mark.parametrize("text", ["{", "[]", '{"cloud-init": ["#cloud-config"]}'])
def test_unusable_other_vendor_data(tmp_path: Path, text: str) -> None:
    path = tmp_path / "vendordata.json"
    path.write_text(text)
    with pytest.raises(NovaConfigError):
        vendordata.render(FLAVORS, vendordata.read(path))
