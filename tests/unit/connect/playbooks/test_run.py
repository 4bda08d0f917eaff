"""What Ansible is started with: its configuration, SSH host keys, secrets; with the real ansible and ssh."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpustack.base.errors import ApplyError, UsageError
from gpustack.connect.playbooks.run import Call, as_files, configuration, environment, play, printable_log


@pytest.fixture
def directories(tmp_path: Path) -> tuple[Path, Path]:
    """A home and a current directory that has an ansible.cfg."""
    home, current = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    current.mkdir()
    (current / "ansible.cfg").write_text("[defaults]\ncallback_plugins = .\n", encoding="utf-8")
    return home, current


def test_the_current_directorys_file_is_skipped(directories, tmp_path):
    home, current = directories
    configured = configuration({"HOME": str(home)}, current, system=tmp_path / "none")
    assert (configured.path, configured.ignored) == (None, current / "ansible.cfg")
    variables = configured.environment({}, home)
    assert Path(variables["ANSIBLE_CONFIG"]).read_text(encoding="utf-8") == ""
    assert Path(variables["ANSIBLE_CONFIG"]).parent == home


@pytest.mark.parametrize(("encoding", "named"), [("UTF-8", None), ("ANSI_X3.4-1968", "C.UTF-8")])
def test_ansible_gets_a_locale_in_which_it_starts(directories, monkeypatch, encoding, named):
    home, current = directories
    monkeypatch.setattr("locale.getencoding", lambda: encoding)
    assert configuration({"HOME": str(home)}, current).environment({}, home).get("LC_ALL") == named


@pytest.mark.parametrize("setting", ["ansible.cfg", ".", "{here}/ansible.cfg", "{here}"])
def test_a_named_file_is_used(directories, setting):
    home, current = directories
    configured = configuration({"HOME": str(home), "ANSIBLE_CONFIG": setting.format(here=current)}, current)
    assert (configured.path, configured.ignored) == (current / "ansible.cfg", None)


def test_the_users_file_comes_before_the_machines(directories, tmp_path):
    home, current = directories
    system = tmp_path / "ansible.cfg"
    system.touch()
    assert configuration({"HOME": str(home)}, current, system=system).path == system
    (home / ".ansible.cfg").touch()
    assert (
        configuration({"HOME": str(home), "ANSIBLE_CONFIG": ""}, current, system=system).path == home / ".ansible.cfg"
    )


def test_a_file_that_is_not_there_is_refused(directories):
    home, current = directories
    with pytest.raises(UsageError, match="ANSIBLE_CONFIG"):  # Ansible would take the current directory's
        configuration({"HOME": str(home), "ANSIBLE_CONFIG": "/nowhere/ansible.cfg"}, current)


def test_no_module_of_the_current_directory_is_imported():
    assert Call(playbook="verify", inventory=["i"]).argv()[:2] == [sys.executable, "-P"]


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ("-o ControlPersist=7", "private"),
        ("-o ControlPersist=7 -o ControlPath={home}/%C", "none"),
        ("-C", "none"),
    ],
)
def test_ssh_refuses_unknown_host_keys_whatever_is_configured(directories, tmp_path, monkeypatch, request, more, path):
    """Ansible's own ssh command line, interpreted by the real ssh with a configuration that trusts everybody."""
    home, current = directories
    private = Path(tempfile.mkdtemp())  # with a short name, as gpustack's own: sockets are to be made in it
    request.addfinalizer(lambda: shutil.rmtree(private))
    recorder, noted, lax = tmp_path / "ssh", tmp_path / "noted", tmp_path / "ssh_config"
    recorder.write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" > {shlex.quote(str(noted))}\nexit 255\n', encoding="utf-8")
    recorder.chmod(0o755)
    lax.write_text(f"StrictHostKeyChecking no\nControlPath {home}/%C\nControlMaster auto\n", encoding="utf-8")
    (home / ".ansible.cfg").write_text(
        "[defaults]\nhost_key_checking = False\n"
        f"[ssh_connection]\nssh_args = -o StrictHostKeyChecking=no {more.format(home=home)}\n"
        f"control_path = {home}/%%h\n",
        encoding="utf-8",
    )
    inventory = {"ansible_host_key_checking": False, "ansible_ssh_common_args": "-o StrictHostKeyChecking=no"}
    (tmp_path / "inventory.json").write_text(
        json.dumps({"all": {"hosts": {"gpu01.invalid": inventory}}}), encoding="utf-8"
    )
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(current)
    subprocess.run(
        [
            *(sys.executable, "-P", "-m", "ansible", "adhoc", "gpu01.invalid", "-m", "raw", "-a", "true"),
            *("-i", str(tmp_path / "inventory.json")),
        ],
        env={**environment(7, private), "ANSIBLE_SSH_EXECUTABLE": str(recorder)},
        capture_output=True,
        check=False,
    )
    argv = noted.read_text(encoding="utf-8").split("\0")[:-1]
    assert all(argument in argv for argument in more.split()[:2] if "=" in argument)
    process = subprocess.run(["ssh", "-F", str(lax), "-G", *argv], capture_output=True, text=True, check=True)
    options = dict(line.split(" ", 1) for line in process.stdout.splitlines() if " " in line)
    assert options["stricthostkeychecking"] == "true"
    # Another connection that is open already was perhaps opened without the check.
    assert options.get("controlpath", "none").startswith(str(private / "cp") if path == "private" else "none")


def test_a_socket_whose_path_would_be_too_long_is_not_made(tmp_path):
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    variables = configuration({"HOME": str(tmp_path)}, tmp_path, system=tmp_path / "none").environment({}, deep)
    assert "-o ControlPath=none" in variables["ANSIBLE_SSH_ARGS"]


@pytest.mark.parametrize(
    "value",
    ['a=geheim "x', 'a="{{geheim"', '{"a": "geheim"', "{a: *geheim}", "[!geheim", "@broken.yaml", "@alias.yaml"],
)
def test_no_error_quotes_extra_variables(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.yaml").write_text('a: "geheim\nb: "x\n', encoding="utf-8")
    (tmp_path / "alias.yaml").write_text("a: *geheim\n", encoding="utf-8")
    with pytest.raises(UsageError, match="neither key=value, JSON nor YAML") as caught:
        as_files([value], tmp_path)
    named = value.partition("@")[2]
    assert caught.value.where == (f"-e @{named}" if named else "-e")
    assert "geheim" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alias.yaml", "broken.yaml"]


def test_extra_variables_with_tags_are_left_to_ansible(tmp_path):
    secrets = tmp_path / "vault.yaml"
    secrets.write_text("a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\n", encoding="utf-8")
    values = [f"@{secrets}", f"@{tmp_path}/none", '{\t"a": 1}']
    assert len(as_files(values, tmp_path)) == len(values)


def test_extra_variables_travel_in_private_files(tmp_path):
    values = ["@vars.yaml", 'a=1 b="two words"', "{c: 3}", '{"d": "x"}', "/not/a/file"]
    first, second, third, fourth, last = (argument.partition("=")[2] for argument in as_files(values, tmp_path))
    assert (first, last) == ("@vars.yaml", "/not/a/file")
    assert json.loads(Path(second[1:]).read_text(encoding="utf-8")) == {"a": "1", "b": "two words"}
    assert [Path(f[1:]).read_text(encoding="utf-8") for f in (third, fourth)] == ["{c: 3}", '{"d": "x"}']
    assert {Path(f[1:]).stat().st_mode & 0o777 for f in (second, third, fourth)} == {0o600}


FULL = Path("/dev/full")


def test_a_full_disk_does_not_end_ansible() -> None:
    """Its output has a reader until its end: it would otherwise end between two changes of a host."""
    text = b"TASK [Write the files]\n" * 10_000
    with FULL.open("ab", buffering=0) as log, printable_log(log) as descriptor:
        subprocess.run(["cat"], input=text, stdout=descriptor, check=True)


def test_no_playbook_begins_without_its_log(tmp_path: Path) -> None:
    with pytest.raises(ApplyError, match=r"the playbook plan was not begun, .*: No space left on device") as caught:
        play(Call(playbook="plan", inventory=["none"]), FULL, tmp_path, lambda *_event: None)
    assert caught.value.where == str(FULL)
