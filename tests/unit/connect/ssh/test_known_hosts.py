"""Keys of hosts, against a real OpenSSH server."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.connect.ssh.config import SshTarget
from gpustack.connect.ssh.known_hosts import KnownHosts
from support.ssh_reading import read, refusal
from support.sshd import Sshd, keygen, program


def test_an_unknown_key_is_refused_with_a_remedy(config, sshd):
    config(known="")
    message = refusal()
    fingerprint = subprocess.run(
        [program("ssh-keygen"), "-lf", str(sshd.host_key)], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    assert f"gpu01: its host key is not known: it shows ED25519 {fingerprint}" in message
    assert f"ssh-keyscan -p {sshd.port} 127.0.0.1 >> " in message


@pytest.mark.parametrize("weaken", ["StrictHostKeyChecking no", "StrictHostKeyChecking accept-new"])
def test_no_configuration_weakens_the_check(weaken, config):
    config("Host gpu01", weaken, "UserKnownHostsFile /dev/null", "CheckHostIP no")
    assert "its host key is not known" in refusal()


def test_a_changed_key(config, sshd, tmp_path):
    other_key = keygen(tmp_path / "other").with_suffix(".pub").read_text()
    config(known=f"[127.0.0.1]:{sshd.port} {other_key}")
    message = refusal()
    assert "its host key has changed" in message
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}'" in message


def test_a_key_of_another_kind_only_is_a_change_too(config, sshd, tmp_path):
    other_key = keygen(tmp_path / "other", "ecdsa").with_suffix(".pub").read_text()
    config(known=f"[127.0.0.1]:{sshd.port} {other_key}")
    assert "its host key has changed" in refusal()


def test_one_of_several_known_keys_is_enough(config, sshd, tmp_path):
    other_key = keygen(tmp_path / "other").with_suffix(".pub").read_text()
    config(known=f"[127.0.0.1]:{sshd.port} {other_key}{sshd.known()}")
    assert read()


def test_a_revoked_key(config, sshd):
    config(known=f"@revoked * {sshd.public_host_key}\n{sshd.known()}")
    assert "marks as revoked" in refusal()


@pytest.mark.parametrize("name", ["127.0.0.1", "*", "10.0.0.1,127.0.0.?", "[127.0.0.1]:*"])
def test_names_in_known_hosts(name, config, sshd):
    config(known=f"# mine\n\nnonsense\n{name} {sshd.public_host_key} comment\n")
    assert read()


@pytest.mark.parametrize("name", ["127.0.0.2", "[127.0.0.1]:1", "!127.0.0.1,!*:*,*", "127.0.0"])
def test_names_that_are_others(name, config, sshd):
    config(known=f"{name} {sshd.public_host_key}\n")
    assert "its host key is not known" in refusal()


def test_an_authority_for_certificates_is_named_and_does_not_count(config, sshd, home):
    config(known=f"\n@cert-authority * {sshd.public_host_key}\n")
    message = refusal()
    assert "its host key is not known" in message
    assert f"so {home}/.ssh/known_hosts:2 (@cert-authority) does not help" in message
    config(known=f"@cert-authority 127.0.0.2 {sshd.public_host_key}\n")
    assert "@cert-authority" not in refusal()


def test_hashed_names(config, sshd, home):
    known = home / ".ssh" / "known_hosts"
    subprocess.run([program("ssh-keygen"), "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert "127.0.0.1" not in known.read_text()
    assert read()
    assert "its host key is not known" in refusal("gpu01", port=sshd.port, known_hosts=Path("/dev/null"))


def test_a_host_key_alias(config, sshd):
    config("Host gpu01", "HostKeyAlias rack7", known=sshd.known("rack7"))
    assert read()
    assert "its host key is not known" in refusal("gpu02")


def test_the_kind_of_key_that_is_known_is_asked_for(tmp_path, home):
    server = Sshd(directory=tmp_path / "rsa", host_key_kind="rsa")
    server.start()
    try:
        (home / ".ssh" / "known_hosts").write_text(server.known())
        assert read("127.0.0.1", port=server.port, identity=server.client_key)
    finally:
        server.stop()


@pytest.mark.parametrize("option", ["UserKnownHostsFile", "GlobalKnownHostsFile"])
def test_the_files_that_the_configuration_names(option, config, sshd, tmp_path):
    (tmp_path / "fleet").write_text(sshd.known())
    config("Host gpu01", f"{option} /nonexistent {tmp_path}/fleet", known="")
    assert read()


@given(st.lists(st.text(alphabet="abc@|1!*?[]:, =AAAAB3NzaC1yc2E-sh\t\\", max_size=60), max_size=5))
def test_any_known_hosts_file_can_be_read(lines):
    path = Path("/tmp") / f"gpustack-known-hosts-{os.getpid()}"
    path.write_text("\n".join(lines))
    try:
        target = SshTarget(
            name="a", hostname="a", port=22, user="a", key_names=("a",), known_hosts=(path,), identities=()
        )
        assert KnownHosts.load((path,)).key_types(target) == set()
    finally:
        path.unlink()
