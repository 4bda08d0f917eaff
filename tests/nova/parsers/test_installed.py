"""`gpustack nova lint --with-nova`: a real Nova in a virtual environment, here and on a host over SSH."""

from __future__ import annotations

import json

import pytest

from gpustack.cli.app import main
from gpustack.configure.installed import launch
from gpustack.nova_options.markers import BEGIN, BLAZAR, END
from gpustack_demo.embedded.environment import ensure
from support.sshd import Sshd, user

CONF = """\
[pci]
alias = {"name": "a", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}
[compute]
cpu_shared_set = 0-3
cpu_dedicated_set = 2-5
[placement]
auth_type = password
password = s3cret$hidden
"""


@pytest.fixture(scope="module")
def nova():
    return ensure("2025.2").path


@pytest.fixture
def conf(tmp_path):
    path = tmp_path / "nova-compute.conf"
    path.write_text(CONF)
    return path


def linted(capsys, *arguments: str) -> tuple[int, dict[str, list[dict]], str]:
    code = main(["nova", "lint", *arguments, "-f", "json"])
    output = capsys.readouterr()
    return code, {row["Check"]: row["Details"] for row in json.loads(output.out)}, output.out + output.err


def test_novas_refusals_are_findings_without_secrets(nova, conf, capsys):
    code, rows, output = linted(capsys, str(conf), "--with-nova", str(nova / "bin" / "nova-compute"))
    assert code == 20
    found = {(f["code"], f["place"], f["basis"]) for f in rows["Installed Nova"]}
    assert ("GPU534", f"{conf}:5", "refused") in found
    assert "GPU535" not in {f["code"] for f in rows["Installed Nova"]}, "lint and Nova agree"
    assert "32.2.1" in output
    assert "s3cret" not in output


@pytest.mark.parametrize("name", ["nova-scheduler.conf", "config/nova/nova-scheduler.conf"])
def test_lines_that_are_templates_are_no_refusals(nova, tmp_path, capsys, name):
    """The deployment tool evaluates them, so Nova never reads them; the other lines are checked."""
    path = tmp_path / name
    (path.parent / "gpu01").mkdir(parents=True)
    (path.parent / "gpu01" / "nova.conf").write_text("[pci]\n")
    lines = f"enabled_filters = ComputeFilter,PciPassthroughFilter{BLAZAR}\n"
    block = f"{BEGIN}\n[filter_scheduler]\n{lines}{END}\n"
    path.write_text(f"{block}[DEFAULT]\nreserved_host_memory_mb = {{{{ reserved }}}}\ndebug = maybe\n")
    argument = path if name == path.name else path.parent
    _, rows, _ = linted(capsys, str(argument), "--release", "2025.2", "--with-nova", str(nova))
    assert {found["place"] for found in rows["Installed Nova"] if found["code"] == "GPU534"} == {f"{path}:7"}
    assert "GPU535" not in {found["code"] for found in rows["Installed Nova"]}
    assert [found["place"] for found in rows["Option names"] if found["code"] == "GPU372"] == [f"{path}:6"]


def test_one_process_checks_many_configurations(nova, tmp_path, capsys, monkeypatch):
    paths = [tmp_path / f"host{n}" / "nova.conf" for n in range(5)]
    for path in paths:
        path.parent.mkdir()
        path.write_text("[DEFAULT]\n")
    started = []
    run = launch.run
    monkeypatch.setattr(launch, "run", lambda *arguments: started.append(1) or run(*arguments))
    code, rows, _ = linted(capsys, *(f"api={path}" for path in paths), "--with-nova", str(nova))
    assert (code, rows["Installed Nova"], len(started)) == (0, [], 1)


def test_a_release_that_contradicts_nova_is_refused(nova, conf, capsys):
    assert main(["nova", "lint", str(conf), "--release", "yoga", "--with-nova", str(nova)]) == 2
    assert "contradicts the installed Nova 32.2.1" in capsys.readouterr().err


def test_a_host_runs_its_own_nova_over_ssh(nova, conf, tmp_path, capsys):
    server = Sshd(directory=tmp_path / "sshd")
    server.start()
    try:
        known, config = tmp_path / "known_hosts", tmp_path / "ssh_config"
        known.write_text(server.known())
        config.write_text(
            f"Host gpu01\nHostName 127.0.0.1\nPort {server.port}\nUser {user()}\nIdentityFile {server.client_key}\n"
        )
        ssh = ["--ssh-config", str(config), "--known-hosts", str(known), "--timeout", "120"]
        code, rows, output = linted(capsys, str(conf), "--on", "gpu01", "--with-nova", str(nova), *ssh)
    finally:
        server.stop()
    assert code == 20
    assert ("GPU534", f"gpu01:{conf}:5") in {(f["code"], f["place"]) for f in rows["Installed Nova"]}
    assert "s3cret" not in output
