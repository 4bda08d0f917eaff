"""Records of runs: files with the results of hosts, which join the runs of a fleet's parts. Pure, except two functions.

A record is one JSON document, mode 0600: the attributes of :class:`RunResults`. It may come from another machine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from gpustack import __version__
from gpustack.base.by_key import by_key
from gpustack.base.errors import JournalError
from gpustack.base.files import file_errors, make_directory, own_name, read_text, refuse_unwritable, write_atomic
from gpustack.base.text import listed, printable
from gpustack.base.validation import problem
from gpustack.connect.playbooks.record import HostRecord, RunOutcome

_MOST = 256 << 20
LEFT_BY = "name records of runs, which `gpustack host apply --record FILE` or GPUSTACK_RECORD leave"
"""The remedy for a file that is no record."""
_UNWRITTEN = "the record of the run can't be written"
_MISSING = "in no record: did its part of the inventory run, and leave a record?"


@dataclass(frozen=True, kw_only=True)
class SpecSeen:
    """The spec of a run.

    :ivar hosts: those that it names, without groups and patterns with ``*``.
    """

    path: str
    sha256: str
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunResults:
    """The results of a run.

    :ivar gpustack: the version.
    :ivar specs: one, unless the spec was changed during the run; none for a run that needs no spec.
    """

    gpustack_run: Literal[1] = 1
    gpustack: str = __version__
    playbook: str
    checked: bool = False
    specs: tuple[SpecSeen, ...] = ()
    hosts: tuple[HostRecord, ...]

    @property
    def run(self) -> str:
        """The playbook, with ``--check`` for a dry run."""
        return f"{self.playbook} --check" if self.checked else self.playbook


@cache
def _adapter() -> TypeAdapter[RunResults]:
    return TypeAdapter(RunResults)


def place_for(place: Path, playbook: str) -> Path:
    """The file of a record, in a directory with a name of its own. Checks before a run that it can be written.

    :raises JournalError: if it can't; nothing but missing directories is created.
    """
    place = own_name(place, f"gpustack-{playbook}")
    with file_errors(JournalError, _UNWRITTEN, place, state="nothing was done", remedy="name another with --record"):
        make_directory(place.parent)
        refuse_unwritable(place)
    return place


def save(results: RunResults, place: Path) -> Path:
    """Write a record, into a directory with a name of its own.

    :returns: the file.
    :raises JournalError: if it can't be written.
    """
    place = own_name(place, f"gpustack-{results.playbook}")
    hosts = tuple(replace(host, task="", details="", failure=None) for host in results.hosts)
    text = _adapter().dump_json(replace(results, hosts=hosts)).decode()
    with file_errors(JournalError, _UNWRITTEN, place):
        make_directory(place.parent)
        write_atomic(place, f"{text}\n", mode=0o600)
    return place


def load(path: Path) -> RunResults:
    """Read a record.

    :raises JournalError: if it can't be read, or is not a record of this format.
    """
    try:
        with file_errors(JournalError, "can't read the record", path):
            results = _adapter().validate_json(read_text(path, _MOST))
    except ValidationError as error:
        first = problem(error.errors(include_url=False, include_context=False)[0])
        raise JournalError(f"not a record of a run: {first}", where=str(path), remedy=LEFT_BY) from None
    except UnicodeDecodeError as error:
        raise JournalError("not a record of a run: not UTF-8", where=str(path), remedy=LEFT_BY) from error
    for host in results.hosts:
        if not host.host or printable(host.host, keep="") != host.host or " " in host.host:
            raise JournalError(f"{printable(host.host, keep='')!r} is no host name", where=str(path), remedy=LEFT_BY)
    return results


def joined(records: Mapping[str, RunResults]) -> RunResults:
    """The results of a fleet; hosts of the spec that no record has are unreachable.

    :param records: those of its parts, by the names of their files; at least one.
    :raises JournalError: if a host is in two records, or they are of different runs, specs or versions.
    """
    places = by_key((host.host, path) for path, record in records.items() for host in record.hosts)
    problems = [f"{host} is in {' and in '.join(paths)}" for host, paths in places.items() if len(paths) > 1]
    problems += _differences("version", records, lambda record: {record.gpustack: record.gpustack})
    problems += _differences("playbook", records, lambda record: {record.run: record.run})
    problems += _differences("spec", records, lambda record: {spec.sha256: spec.path for spec in record.specs})
    if problems:
        remedy = "name one record for each part, of runs with the same gpustack, playbook and spec"
        raise JournalError(f"the records can't be joined: {listed(problems, 8)}", remedy=remedy)
    first, *_ = records.values()
    specs = next((record.specs for record in records.values() if record.specs), ())
    hosts = [host for record in records.values() for host in record.hosts]
    called = {host.called for host in hosts}
    missing = [name for spec in specs for name in spec.hosts if name not in places and name not in called]
    hosts += [HostRecord(host=name, outcome=RunOutcome.UNREACHABLE, problem=_MISSING) for name in missing]
    return replace(first, specs=specs, hosts=tuple(hosts))


def _differences(
    noun: str, records: Mapping[str, RunResults], values: Callable[[RunResults], Mapping[str, str]]
) -> list[str]:
    found = {key: f"{noun} {text} in {path}" for path, run in records.items() for key, text in values(run).items()}
    return list(found.values()) if len(found) > 1 else []
