"""Read the facts of a guest: of this machine, of a directory, or over SSH."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import HostError
from gpustack.hosts.health.kernel_log import table
from gpustack.offer.guest import bundle
from gpustack.offer.guest.check import consoles
from gpustack.offer.guest.inside import read, report

if TYPE_CHECKING:
    from gpustack.connect.ssh.config import SshOptions

_HERE = "this machine"


def local(root: Path | None = None) -> dict[str, Any]:
    """The facts of this machine, or of a directory.

    :raises HostError: if the directory can't be read.
    """
    try:
        return read.facts(str(root or "/"), consoles(), table())
    except OSError as error:
        what = f"can't be read: {error.strerror or error}"
        raise HostError(what, where=str(root), remedy="name a directory with a guest's files") from error


def with_sudo(options: SshOptions) -> dict[str, Any]:
    """The facts of this machine, read as root.

    :raises HostError: as :func:`gpustack.connect.ssh.program.run_here`.
    """
    from gpustack.connect.ssh.program import run_here

    return _checked(run_here(_HERE, bundle.program({}, "--facts").encode(), options), _HERE)


def over_ssh(target: str, options: SshOptions) -> dict[str, Any]:
    """The facts of a guest, read over SSH.

    :raises HostError: if the guest can't be reached or read.
    """
    from gpustack.connect.ssh.connection import Connections

    with Connections(options) as connections:
        return _checked(connections.run(target, bundle.program({}, "--facts").encode()), target)


def _checked(document: dict[str, object], where: str) -> dict[str, Any]:
    """The facts, as :mod:`gpustack.offer.guest.inside.read` prints them: a guest can print anything."""
    if (facts := report.checked(document)) is None:
        what = "its facts have another form than expected"
        raise HostError(what, where=where, remedy="check that nothing replaces its python3")
    return {**facts, "source": "guest", "problem": None}
