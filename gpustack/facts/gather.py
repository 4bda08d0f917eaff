"""Facts from wherever they are: this host, a directory as root, a snapshot, or many hosts over SSH.

A host that can't be reached or read is a :class:`Failure` beside the others, never an end to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.errors import GpustackError, HostError
from gpustack.facts import bundle
from gpustack.facts.collector import collect
from gpustack.facts.model import Host
from gpustack.facts.store import parse_host, read_snapshot
from gpustack.hostnames import extends

if TYPE_CHECKING:
    from gpustack.ssh.config import SshOptions

Reported = Callable[[str], None]
Documents = dict[str, dict[str, object]]


@dataclass(frozen=True, kw_only=True)
class GatherFailure:
    """A host that gave no facts, as the user named it, and why."""

    host: str
    error: GpustackError


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What was read.

    :ivar hosts: the facts, in the order asked for.
    :ivar raw: the plain data they came from, to be saved, in the same order.
    :ivar failures: the hosts that gave none.
    :ivar others: the names of hosts that call themselves otherwise, and what each calls itself.
    """

    hosts: tuple[Host, ...]
    raw: tuple[dict[str, object], ...]
    failures: tuple[GatherFailure, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)

    def without(self, host: Host, error: GpustackError) -> Gathered:
        """The same with one of the hosts among those that failed."""
        others = [
            (candidate, raw) for candidate, raw in zip(self.hosts, self.raw, strict=True) if candidate is not host
        ]
        return replace(
            self,
            hosts=tuple(candidate for candidate, _ in others),
            raw=tuple(raw for _, raw in others),
            failures=(*self.failures, GatherFailure(host=host.hostname, error=error)),
        )


def gather(
    hosts: Sequence[str] = (),
    *,
    root: Path | None = None,
    snapshot: Path | None = None,
    ssh: SshOptions | None = None,
    jobs: int = 32,
    reported: Reported = lambda host: None,
) -> Gathered:
    """Read facts.

    :param hosts: hosts to read over SSH; with ``snapshot``, those of its hosts that are wanted (all when empty).
        Without hosts, root and snapshot it is this host.
    :param root: a directory to read as if it were a host's ``/``.
    :param snapshot: a snapshot file to read instead of hosts.
    :param ssh: how to reach hosts over SSH.
    :param jobs: how many hosts are read at the same time.
    :param reported: called with each host of ``hosts`` when it is done, from the calling thread.
    :raises SnapshotError: when the snapshot can't be used.
    """
    if snapshot is not None:
        return _from_snapshot(snapshot, hosts)
    if hosts and root is None:
        return _over_ssh(hosts, ssh, jobs, reported)
    return _from_root(root)


def _from_snapshot(path: Path, wanted: Sequence[str]) -> Gathered:
    snapshot = read_snapshot(path)
    if not wanted:
        return Gathered(hosts=snapshot.hosts, raw=snapshot.raw)
    index_by_name = {host.hostname: index for index, host in enumerate(snapshot.hosts)}
    known = [index_by_name[name] for name in wanted if name in index_by_name]
    return Gathered(
        hosts=tuple(snapshot.hosts[index] for index in known),
        raw=tuple(snapshot.raw[index] for index in known),
        failures=tuple(
            GatherFailure(host=name, error=HostError(f"not in the snapshot {path}", where=name))
            for name in wanted
            if name not in index_by_name
        ),
    )


def _from_root(root: Path | None) -> Gathered:
    name = "this host" if root is None else str(root)
    try:
        raw = collect("/" if root is None else str(root))
    except OSError as error:
        reason = error.strerror or str(error)
        raise HostError(
            f"can't be read: {reason}", where=name, remedy="name a directory that holds a host's files"
        ) from error
    if root is not None and raw.get("hostname") is None:
        raw["hostname"] = _host_name(root.resolve().name) or "unnamed"
    return _checked([name], {name: raw}, {})


def _over_ssh(targets: Sequence[str], options: SshOptions | None, jobs: int, reported: Reported) -> Gathered:
    from gpustack.ssh.config import SshOptions
    from gpustack.ssh.connection import Connections

    targets = list(dict.fromkeys(targets))
    raw: Documents = {}
    errors: dict[str, GpustackError] = {}
    with Connections(options or SshOptions()) as connections:
        pool = ThreadPoolExecutor(max_workers=max(1, min(jobs, len(targets))), thread_name_prefix="ssh")
        try:
            program = bundle.program().encode()
            running = {pool.submit(connections.run, target, program): target for target in targets}
            for future in as_completed(running):
                target = running[future]
                try:
                    raw[target] = future.result()
                except GpustackError as error:
                    errors[target] = error
                reported(target)
        except BaseException:
            connections.close()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
    by_name, others = _named(raw)
    return replace(_checked(targets, by_name, errors), others=others)


def _checked(targets: Iterable[str], raw: Documents, errors: dict[str, GpustackError]) -> Gathered:
    """Hold what was read to the model; what does not fit is a failure of its host."""
    hosts, valid, failures = [], [], []
    for target in targets:
        try:
            if target in errors:
                raise errors[target]
            hosts.append(parse_host(raw[target], target))
            valid.append(raw[target])
        except GpustackError as error:
            failures.append(GatherFailure(host=target, error=error))
    return Gathered(hosts=tuple(hosts), raw=tuple(valid), failures=tuple(failures))


def _named(raw: Documents) -> tuple[Documents, dict[str, str]]:
    """Give each host the name to call it by; → the documents, and the hosts that call themselves otherwise.

    The user's name counts, since a compromised host may call itself like another one, whose facts its own would
    then replace. Where both say the same, the longer name is taken (``gpu01.example.org``), as specs and inventories
    have it; but where several hosts call themselves the same (``localhost``), each is called as the user did.
    """
    called = Counter(str(document.get("hostname")) for document in raw.values())
    by_name, others = {}, {}
    for target, document in raw.items():
        own_name, name = document.get("hostname"), _host_name(target.rpartition("@")[2])
        if not name or not (own_name is None or (isinstance(own_name, str) and _host_name(own_name) == own_name)):
            by_name[target] = document  # the model refuses it
            continue
        if own_name is not None and not extends(own_name, name):
            others[name] = own_name
        elif own_name is not None and called[own_name] == 1 and len(own_name) > len(name):
            name = own_name
        by_name[target] = {**document, "hostname": name}
    return by_name, others


def _host_name(text: str) -> str | None:
    """``text`` as the name of a host: only the characters that a name may have."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text).lstrip(".-")
    return name[:254] or None
