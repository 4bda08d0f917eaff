"""What the hypervisors themselves say: which devices their guests really have, asked over SSH.

The program that is sent is :mod:`gpustack.cleanup.domains`. A host is asked afresh before each repair, and nothing is
left on it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gpustack.cleanup import domains
from gpustack.errors import HostError

if TYPE_CHECKING:
    from gpustack.facts.ssh import Connections
    from gpustack.facts.ssh_config import SshOptions

UNKNOWN = ""
"""The user of a device that some process has open, though it is not known for which guest."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a host said.

    :ivar users: by BDF address, the uuids of the guests that have the device now; None when the host could not be
        asked, or not about everything.
    :ivar reason: why it could not.
    """

    users: Mapping[str, frozenset[str]] | None
    reason: str = ""


Ask = Callable[[str], Usage]
"""Asks the host of this name."""


@dataclass
class Hypervisors:
    """Asks hosts for the devices of their guests.

    :ivar enabled: ask at all; else nothing is known of any host.
    :ivar ssh: how to reach hosts; as the SSH configuration says when None.
    """

    enabled: bool = True
    ssh: SshOptions | None = None
    _connections: Connections | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connections is not None:
            self._connections.close()

    def ask(self, host: str) -> Usage:
        """The devices that the guests of ``host`` have."""
        if not self.enabled:
            return Usage(users=None, reason="hypervisors are not asked (--no-hypervisor)")
        if not host:
            return Usage(users=None, reason="the compute node has no host")
        try:
            answer = self._open().run(host, _program())
        except HostError as error:
            return Usage(users=None, reason=" ".join(str(error).split("\n")[0].split()))
        return usage(answer)

    def _open(self) -> Connections:
        if self._connections is None:
            from gpustack.facts.ssh import Connections
            from gpustack.facts.ssh_config import SshOptions

            self._connections = Connections(self.ssh or SshOptions())
        return self._connections


def usage(answer: Mapping[str, Any]) -> Usage:
    """What a host printed; an incomplete or damaged answer counts as none."""
    try:
        if answer["unread"]:
            path, why = answer["unread"][0]
            return Usage(users=None, reason=f"the host could not read {path}: {why} (root is needed: --sudo)")
        return Usage(users={str(address): frozenset(users) for address, users in answer["used"].items()})
    except (KeyError, TypeError, ValueError, AttributeError):
        return Usage(users=None, reason="what the host printed is no list of devices")


@functools.cache
def _program() -> bytes:
    return Path(domains.__file__).read_bytes()
