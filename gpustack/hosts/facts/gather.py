"""Read facts from this host, a directory as root, a snapshot file, or many hosts over SSH.

A host that can't be reached or read becomes a :class:`GatherFailure`; the others are still read.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpustack.base.errors import GpustackError, HostError
from gpustack.base.hostnames import extends
from gpustack.connect.ssh.config import SshOptions
from gpustack.hosts.facts import bundle
from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import SharedParts, parse_host, read_snapshot

_HERE = "this host"
Reported = Callable[[str], None]
Documents = dict[str, dict[str, object]]
Groups = Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class GatherFailure:
    """A host without facts, by the name that the user gave, and the error."""

    host: str
    error: GpustackError


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """The result of :func:`gather`.

    :ivar hosts: the facts, in the requested order.
    :ivar targets: the names of ``hosts`` that the user gave, in the same order; empty for a snapshot.
    :ivar raw: if wanted, the unparsed documents of ``hosts``, in the same order, for snapshots.
    :ivar failures: the hosts that could not be read.
    :ivar others: the reported host name of each host whose name differs from the user's, by the user's name.
    """

    hosts: tuple[Host, ...]
    targets: tuple[str, ...] = ()
    raw: tuple[dict[str, object], ...] = ()
    failures: tuple[GatherFailure, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> dict[str, tuple[str, ...] | None]:
        """The groups of each host in the inventory; None for a host that was read without one."""
        return {host.hostname: host.inventory_groups for host in self.hosts}

    def without(self, host: Host, error: GpustackError) -> "Gathered":
        """Return a copy in which ``host`` is moved to the failures."""
        failure = GatherFailure(host=host.hostname, error=error)
        others = tuple(candidate for candidate in self.hosts if candidate is not host)
        return replace(self, hosts=others, raw=(), failures=(*self.failures, failure))


def gather(
    hosts: Sequence[str] = (),
    *,
    root: Path | None = None,
    snapshot: Sequence[Path] = (),
    ssh: SshOptions | None = None,
    jobs: int = 32,
    reported: Reported = lambda host: None,
    keep: bool = False,
    groups: Groups | None = None,
    warn: Reported = lambda text: None,
) -> Gathered:
    """Read the facts of hosts. Without ``hosts``, ``root`` and ``snapshot``, read this host.

    :param hosts: hosts to read over SSH; with ``snapshot``, the hosts to select from it (all if empty).
    :param root: a directory to read as a host's ``/``.
    :param snapshot: snapshot files or directories to read instead of hosts.
    :param ssh: SSH options; ``sudo`` applies to this host too.
    :param jobs: number of hosts that are read at the same time.
    :param reported: called from the calling thread with each finished host of ``hosts``.
    :param keep: whether to keep the unparsed documents.
    :param groups: the groups of each host in the inventory; None without one.
    :param warn: called with warnings about the snapshot.
    :raises SnapshotError: if the snapshot can't be used.
    :raises HostError: if ``root`` can't be read, or the SSH configuration can't be used.
    """
    if snapshot:
        return _from_snapshot(snapshot, hosts, warn, keep=keep)
    if hosts and root is None:
        return _over_ssh(hosts, ssh or SshOptions(), jobs, reported, groups or {}, keep=keep)
    if root is None and ssh is not None and ssh.sudo and os.geteuid() != 0:
        from gpustack.connect.ssh.program import run_here

        return _checked([_HERE], {_HERE: run_here(_HERE, bundle.program().encode(), ssh)}, {}, keep=keep)
    return _from_root(root, keep=keep)


def _from_snapshot(paths: Sequence[Path], wanted: Sequence[str], warn: Reported, *, keep: bool) -> Gathered:
    snapshot = read_snapshot(paths, keep=keep, warn=warn)
    if not wanted:
        return Gathered(hosts=snapshot.hosts, raw=snapshot.raw)
    index_by_name = {host.hostname: index for index, host in enumerate(snapshot.hosts)}
    known = [index_by_name[name] for name in wanted if name in index_by_name]
    what = f"not in the snapshot {', '.join(map(str, paths))}"
    remedy = "`gpustack scan HOST… --save FILE` writes a snapshot of all named hosts"
    return Gathered(
        hosts=tuple(snapshot.hosts[index] for index in known),
        raw=tuple(snapshot.raw[index] for index in known if keep),
        failures=tuple(
            GatherFailure(host=name, error=HostError(what, where=name, remedy=remedy))
            for name in wanted
            if name not in index_by_name
        ),
    )


def _from_root(root: Path | None, *, keep: bool) -> Gathered:
    name = _HERE if root is None else str(root)
    try:
        raw = collect("/" if root is None else str(root))
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = "name a directory that holds a host's files"
        raise HostError(f"can't be read: {reason}", where=name, remedy=remedy) from error
    if root is not None and raw.get("hostname") is None:
        raw["hostname"] = _host_name(root.resolve().name) or "unnamed"
    return _checked([name], {name: raw}, {}, keep=keep)


def _over_ssh(
    targets: Sequence[str], options: SshOptions, jobs: int, reported: Reported, groups: Groups, *, keep: bool
) -> Gathered:
    from gpustack.connect.ssh.connection import Connections

    targets = list(dict.fromkeys(targets))
    raw: Documents = {}
    errors: dict[str, GpustackError] = {}
    with Connections(options) as connections:
        pool = ThreadPoolExecutor(max_workers=max(1, min(jobs, len(targets))), thread_name_prefix="gather")
        bundle.program()  # assembled here: Python 3.11 does not parse in several threads

        def read(target: str) -> dict[str, object]:
            return connections.run(target, bundle.program(options.settings(target).root).encode())

        try:
            running = {pool.submit(read, target): target for target in targets}
            for future in as_completed(running):
                target = running[future]
                try:
                    # A host can't name its own groups.
                    raw[target] = {**future.result(), "inventory_groups": groups.get(target)}
                except GpustackError as error:
                    errors[target] = error
                reported(target)
        except BaseException:
            connections.close()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
    by_name, others = _named(raw, options)
    return replace(_checked(targets, by_name, errors, keep=keep), others=others)


def _checked(
    targets: Iterable[str], raw: Documents, errors: dict[str, GpustackError], *, keep: bool = False
) -> Gathered:
    """Validate the documents; an invalid one becomes a failure of its host."""
    hosts, read, valid, failures, shared = [], [], [], [], SharedParts()
    for target in targets:
        try:
            if target in errors:
                raise errors[target]
            hosts.append(parse_host(raw[target], target, shared))
            read.append(target)
            valid += [raw[target]] if keep else []
        except GpustackError as error:
            failures.append(GatherFailure(host=target, error=error))
    return Gathered(hosts=tuple(hosts), targets=tuple(read), raw=tuple(valid), failures=tuple(failures))


def _named(raw: Documents, options: SshOptions) -> tuple[Documents, dict[str, str]]:
    """Choose the name of each host; return the documents by target, and the differing reported names.

    The user's name takes precedence: a compromised host could report the name of another host, and replace its facts.
    If one name extends the other, the longer one is used (``gpu01.example.org``), without an inventory. If several
    hosts report the same name (``localhost``), each keeps the name that the user gave.
    """
    called = Counter(str(document.get("hostname")) for document in raw.values())
    by_name, others = {}, {}
    for target, document in raw.items():
        own_name, given = document.get("hostname"), _host_name(target.rpartition("@")[2])
        name = options.settings(target).hostname or given
        if not name or not (own_name is None or (isinstance(own_name, str) and _host_name(own_name) == own_name)):
            by_name[target] = document  # the model rejects it
            continue
        if own_name is not None and not (extends(own_name, name) or extends(own_name, given or name)):
            others[name] = own_name
        elif own_name is not None and called[own_name] == 1 and document.get("inventory_groups") is None:
            name = max(name, own_name, key=len)
        by_name[target] = {**document, "hostname": name}
    return by_name, others


def _host_name(text: str) -> str | None:
    """Convert ``text`` to a valid host name: replace characters that host names can't have."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text).lstrip(".-")
    return name[:254] or None
