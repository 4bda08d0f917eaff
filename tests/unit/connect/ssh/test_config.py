"""The user's SSH configuration and options."""

from __future__ import annotations

import os

import pytest

from gpustack.base.errors import HostError
from gpustack.connect.ssh import connection as ssh
from gpustack.connect.ssh.config import SshConfig, SshOptions
from gpustack.hosts.facts.gather import gather
from support.ssh_reading import read, refusal
from support.sshd import user


def test_options_win_over_the_configuration(config, sshd, home):
    config("Host gpu01", "Port 1", "User nobody")
    (home / ".ssh" / "known_hosts").unlink()
    known = home / "known"
    known.write_text(sshd.known())
    assert read(port=sshd.port, user=user(), identity=sshd.client_key, known_hosts=known)


def test_another_configuration_file(home, sshd):
    path, known = home / "other", home / "known"
    known.write_text(sshd.known())
    path.write_text(
        f"Host alias\n HostName 127.0.0.1\n Port {sshd.port}\n IdentityFile {sshd.client_key}\n"
        f' UserKnownHostsFile /nonexistent "{known}"\n'
    )
    assert read("alias", config=path)


def test_included_files_and_the_block_around_them(config, home, sshd):
    (home / ".shh").mkdir()
    included = home / ".ssh" / "conf.d"
    included.mkdir()
    (included / "a").write_text("Host gpu01\n  User nobody\n  Port 1\nHost gpu02\n  Port 2\n")
    config("Include conf.d/*", f"User {user()}")
    connections = ssh.Connections(SshOptions())
    targets = {name: connections._config.target(name) for name in ("gpu01", "gpu02", "gpu03")}
    assert {name: (t.user, t.port) for name, t in targets.items()} == {
        "gpu01": ("nobody", 1),
        "gpu02": (user(), 2),
        "gpu03": (user(), sshd.port),
    }


def test_a_directory_of_another_user_is_skipped_as_by_ssh(home, monkeypatch):
    """``sudo -E`` and containers set ``HOME`` to such a directory; the tests run as root, who may read all."""
    stat = os.stat

    def refusing(path, **options):
        if str(path).startswith(f"{home}/.ssh"):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", refusing)
    assert SshConfig.load(SshOptions()).target("gpu01").hostname == "gpu01"


def test_a_user_without_a_name_has_its_number(home, monkeypatch):
    """As in a container with ``--user 1234``; paramiko asks for the name, also if the command line has one."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    assert SshConfig.load(SshOptions()).target("gpu01").user == "1234"
    assert SshConfig.load(SshOptions(user="ann")).target("gpu01").user == "ann"


def test_files_that_include_one_another(home):
    (home / ".ssh" / "config").write_text("Include config\n")
    with pytest.raises(HostError, match="include one another"):
        gather(["gpu01"])


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=x", "a b", "$(reboot)@gpu01", "-l@gpu01", "gpu01;reboot", "gpu01\n", "@gpu01 "]
)
def test_names_that_are_none(name, config, home):
    config("Host *", f"ProxyCommand touch {home}/run %h %r %n")
    assert "this is no name of a host" in refusal(name)
    assert not (home / "run").exists()


def test_a_configuration_that_makes_no_sense(config):
    config("Host gpu01", "Port ssh")
    with pytest.raises(HostError, match="its SSH configuration makes no sense"):
        read()
