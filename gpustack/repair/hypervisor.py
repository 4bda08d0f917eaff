"""Ask hypervisors over SSH which devices their instances use.

The program that runs there is :mod:`gpustack.repair.domains`; it leaves nothing on the host. A host is asked again
before each repair. :mod:`gpustack.repair.permission` alone decides what an answer permits.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import HostError
from gpustack.base.text import printable_data
from gpustack.repair import domains

if TYPE_CHECKING:
    from gpustack.connect.ssh.config import SshOptions
    from gpustack.connect.ssh.connection import Connections

UNKNOWN = ""
"""The user of a device that a process has open while its domain is unknown."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The answer of a host.

    :ivar users: by BDF address, the uuids of the domains that use the device. Valid even if ``gap`` is set.
    :ivar functions: by BDF address, vendor and product of each PCI function of the machine that answered.
    :ivar gap: why the answer is incomplete or missing; empty if it is complete.
    :ivar nova_compute: whether a nova-compute process runs there.
    :ivar age: no nova-compute process there is older; None if unknown.
    :ivar names: the names of the machine that answered.
    :ivar gone: whether the operator declared this host gone (``--gone``), which replaces the missing part of the
        answer.
    """

    users: Mapping[str, frozenset[str]] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    gap: str = ""
    nova_compute: bool = False
    age: timedelta | None = None
    names: frozenset[str] = frozenset()
    gone: bool = False


Ask = Callable[[str], Usage]
"""Asks a host by name."""


@dataclass
class Hypervisors(AbstractContextManager["Hypervisors"]):
    """Asks hosts for the devices that their instances use; several at a time if called from several threads.

    :ivar enabled: whether to ask at all; if not, nothing is known about any host.
    :ivar ssh: SSH options; the defaults of the SSH configuration if None.
    """

    enabled: bool = True
    ssh: SshOptions | None = None
    _connections: Connections | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __exit__(self, *_: object) -> None:
        if self._connections is not None:
            self._connections.close()

    def ask(self, host: str) -> Usage:
        """Return the devices that the instances of ``host`` use. Errors become the ``gap`` of the answer."""
        if not self.enabled:
            return Usage(gap="hypervisors are not asked (--no-hypervisor)")
        if not host:
            return Usage(gap="the compute node has no host")
        try:
            if self.ssh is not None and self.ssh.settings(host).root:
                return Usage(gap="gpustack_root of the inventory is a directory, in which no guest runs")
            answer = self._open().run(host, _program())
        except HostError as error:
            return Usage(gap=error.what)
        return usage(answer)

    def _open(self) -> Connections:
        with self._lock:
            if self._connections is None:
                from gpustack.connect.ssh.config import SshOptions
                from gpustack.connect.ssh.connection import Connections

                self._connections = Connections(self.ssh or SshOptions())
            return self._connections


def ask_all(hosts: Iterable[str], ask: Ask, jobs: int, answered: Callable[[str], None]) -> dict[str, Usage]:
    """Return the answers of hosts, by host.

    :param jobs: how many hosts are asked at the same time.
    :param answered: called with each host that answered or failed, from the calling thread.
    """
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        host_by_future = {pool.submit(ask, host): host for host in sorted(hosts)}
        for future in as_completed(host_by_future):
            answered(host_by_future[future])
    return {host: future.result() for future, host in host_by_future.items()}


def usage(answer: Mapping[str, Any]) -> Usage:
    """Parse the answer that a host printed, each text one line. Of a damaged one, the readable part counts."""
    gap = ""
    users: dict[str, frozenset[str]] = {}
    functions: dict[str, str] = {}
    names: frozenset[str] = frozenset()
    try:
        answer = printable_data(answer, keep="")
        for address, uuids in answer["used"].items():
            users[str(address).lower()] = _texts(uuids)
        functions = {str(address).lower(): str(ids).lower() for address, ids in answer["functions"].items()}
        names = _texts(answer["names"])
        if answer["unread"]:
            path, why = answer["unread"][0]
            gap = f"the host could not read {path}: {why} (root is needed: --sudo)"
        elif answer["libvirt"] is not True:
            gap = f"the machine that answered has no /{domains.STATUS}: libvirt is not installed, or has not started"
        elif not names:
            gap = "the machine that answered has no name"
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        gap = "the output of the host is not a list of devices"
    return Usage(
        users=users,
        functions=functions,
        gap=gap,
        nova_compute=isinstance(answer, Mapping) and bool(answer.get("nova_compute")),
        age=_age(answer),
        names=names,
    )


def _texts(uuids: Any) -> frozenset[str]:  # noqa: ANN401 - JSON of another machine
    if not isinstance(uuids, list):
        raise TypeError(uuids)
    return frozenset(str(uuid).lower() for uuid in uuids)


def _age(answer: Mapping[str, Any]) -> timedelta | None:
    try:
        age = timedelta(seconds=answer["age"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return age if age >= timedelta(0) else None


@functools.cache
def _program() -> bytes:
    return Path(domains.__file__).read_bytes()
