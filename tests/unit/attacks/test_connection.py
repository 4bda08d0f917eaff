"""A machine between answers for a host: with an unknown, changed or revoked key, or one of another name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import paramiko
import pytest

from gpustack.base.errors import HostError
from gpustack.connect.ssh.config import SshTarget
from gpustack.connect.ssh.known_hosts import KnownHosts
from support.attacks import attacked, variants


@functools.cache
def keys() -> tuple[paramiko.PKey, paramiko.PKey]:
    """The host's key, and that of the machine between."""
    return paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()


def line(names: str, key: paramiko.PKey, marker: str = "") -> str:
    return f"{marker}{names} {key.get_name()} {key.get_base64()}\n"


def refused(made: Callable[[], str], directory: Path) -> None:
    path = directory / "known_hosts"
    path.write_text(made(), encoding="utf-8")
    target = SshTarget(name="gpu01", hostname="gpu01", port=22, user="root", key_names=("gpu01",), known_hosts=(path,))
    with pytest.raises(HostError, match="key"):
        KnownHosts.load([path]).check(target, keys()[1])


FILES: dict[str, Callable[[], str]] = {
    "unknown": lambda: "",
    "changed": lambda: line("gpu01", keys()[0]),
    "revoked": lambda: line("*", keys()[1]) + line("*", keys()[1], "@revoked "),
    "of another host": lambda: line("gpu02", keys()[1]),
    "excepted": lambda: line("gpu*,!gpu01", keys()[1]),
    "brackets": lambda: line("gpu[01]1", keys()[1]),
    "authority": lambda: line("gpu01", keys()[1], "@cert-authority "),
    "commented": lambda: "#" + line("gpu01", keys()[1]),
    "hash of another host": lambda: line(paramiko.HostKeys.hash_host("gpu02"), keys()[1]),
    "unknown marker": lambda: line("gpu01", keys()[1], "@trusted "),
}

test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    variants(refused, FILES),
    {
        "gpustack.connect.ssh.known_hosts": {
            "gpustack.connect.ssh.known_hosts:KnownHosts.check": lambda _self, _target, _key: None
        }
    },
)
