"""Read a host over SSH: its facts, or the error."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.base.errors import HostError
from gpustack.connect.ssh.config import SshOptions
from gpustack.hosts.facts.gather import gather

MANY = tuple(f"127.0.0.{n}" for n in range(1, 9))
SECONDS = 120.0
"""A time limit for hosts that answer, also on a machine with little processor time."""


def read(name: str = "gpu01", **options: Any) -> dict[str, object]:
    """The facts of one host, or its error."""
    gathered = gather([name], ssh=SshOptions(**{"timeout": SECONDS, **options}), keep=True)
    if gathered.failures:
        raise gathered.failures[0].error
    return gathered.raw[0]


def refusal(name: str = "gpu01", **options: Any) -> str:
    """The error of an unreadable host, after checking that it names the host and has a remedy."""
    with pytest.raises(HostError) as caught:
        read(name, **options)
    assert caught.value.where == name
    assert caught.value.remedy
    return str(caught.value)
