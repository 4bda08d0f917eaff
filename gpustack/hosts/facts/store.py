"""Snapshot files: saved facts of hosts.

Format: ``{"gpustack_snapshot": 1, "hosts": [host, …]}``, mode 0600; each host is a JSON document of the collector.
gpustack writes one host per line, and reads such a file line by line, so that only the size of a host is limited. Any
other JSON document with this content is accepted up to ``MAX_BYTES``, and the output of the collector too:
``python3 collect.py > gpu01.json`` on a host without gpustack.
Snapshots come from other machines, so :mod:`gpustack.hosts.facts.model` validates them before use.
"""

import json
import marshal
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from gpustack.base.errors import SnapshotError
from gpustack.base.files import file_errors, json_files, write_atomic
from gpustack.base.host_groups import pattern
from gpustack.base.text import clipped, listed, printable
from gpustack.base.validation import problem
from gpustack.hosts.facts.boot_model import BootKernel
from gpustack.hosts.facts.fields import FactsModel
from gpustack.hosts.facts.model import ConfigFile, Cpu, Function, Host

VERSION = 1
MAX_BYTES = 256 << 20
"""Maximum size of a snapshot that has not one host per line."""
MOST_BYTES_OF_HOST = 16 << 20
MOST_VALUES = 400_000
"""Maximum number of values in the document of one host; a PCI function has about forty."""
_SHOWN_PROBLEMS = 5
_SHOWN_INPUT = 60
_AGAIN = "take it again with `gpustack scan --save FILE`"

_FIRST_LINE = f'{{"gpustack_snapshot": {VERSION}, "hosts": ['.encode()
_LAST_LINE = b"]}"
_NAME = re.compile(rb'\{"hostname": "([A-Za-z0-9_][A-Za-z0-9._-]{0,253})"')
_MOST_SHARED = 100_000


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The hosts of a snapshot: validated facts, and, if wanted, the unparsed documents in the same order."""

    hosts: tuple[Host, ...]
    raw: tuple[dict[str, object], ...] = ()


class SharedParts:
    """Parts of facts that many hosts have, such as PCI functions and kernels: equal ones are one object.

    They are found by their complete document, so a part is shared only with hosts that have exactly the same part.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[type[FactsModel], bytes], FactsModel] = {}

    def host(self, document: dict[str, Any]) -> Host:
        """The validated facts of a host.

        :raises ValidationError: if they are invalid.
        """
        try:
            return Host.model_validate(self._with_shared(document))
        except (ValueError, TypeError, AttributeError, KeyError):  # also pydantic's ValidationError
            return Host.model_validate(document)  # the error names the places within the document

    def _with_shared(self, document: dict[str, Any]) -> dict[str, Any]:
        boot, files = document.get("boot") or {}, document.get("files") or {}
        parts: dict[str, Any] = {
            "pci": tuple([self._part(Function, function) for function in document["pci"]]),
            "files": {path: self._part(ConfigFile, file) for path, file in files.items()},
            "boot": {**boot, "kernels": [self._kernel(kernel) for kernel in boot.get("kernels", ())]},
        }
        parts |= {key: self._part(kind, document[key]) for key, kind in (("cpu", Cpu),) if key in document}
        return {**document, **parts}

    def _kernel(self, document: dict[str, Any]) -> FactsModel:
        """A kernel, whose modules are shared although the times of its images differ."""
        time = document.get("initramfs_mtime_ns")
        shared = self._part(BootKernel, {**document, "initramfs_mtime_ns": None})
        checked = BootKernel.model_validate({"release": document["release"], "initramfs_mtime_ns": time})
        return shared.model_copy(update={"initramfs_mtime_ns": checked.initramfs_mtime_ns})

    def _part(self, kind: type[FactsModel], document: dict[str, Any]) -> FactsModel:
        key = (kind, marshal.dumps(document, 2))  # version 2 depends on the values alone
        if (part := self._parts.get(key)) is None:
            if len(self._parts) >= _MOST_SHARED:
                self._parts.clear()
            part = self._parts[key] = kind.model_validate(document)
        return part


def save_snapshot(path: Path, raw_hosts: Iterable[Mapping[str, Any]]) -> None:
    """Write a snapshot file atomically, with mode 0600: one host per line, its name first.

    :raises SnapshotError: if the file can't be written.
    """
    with file_errors(SnapshotError, "can't write the snapshot", path):
        write_atomic(path, _lines(raw_hosts), mode=0o600)


def _lines(raw_hosts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    end = f"{_FIRST_LINE.decode()}\n"
    for raw in raw_hosts:
        yield end
        yield json.dumps({"hostname": raw.get("hostname"), **dict(sorted(raw.items()))})
        end = ",\n"
    yield f"{end if end[0] != ',' else chr(10)}{_LAST_LINE.decode()}\n"


def load_snapshot(paths: Path | Sequence[Path], warn: Callable[[str], None] = lambda text: None) -> tuple[Host, ...]:
    """The hosts of snapshot files; parameters and errors as in :func:`read_snapshot`."""
    return read_snapshot(paths, warn=warn).hosts


def read_snapshot(
    paths: Path | Sequence[Path], *, keep: bool = False, warn: Callable[[str], None] = lambda text: None
) -> Snapshot:
    """Read snapshot files. Of a host in several of them, the newer facts count.

    :param paths: files, or directories with files ``*.json``.
    :param keep: whether to keep the unparsed documents too.
    :param warn: is called with warnings: two files differ in more than the time of a host's facts.
    :raises SnapshotError: if a file can't be read, or is not a valid snapshot of this version, or names a host twice,
        or if two files differ about a host, and their times do not show which is newer, or if no file has a host.
    """
    reading = SnapshotReader(keep=keep)
    files = json_files([paths] if isinstance(paths, Path) else paths, SnapshotError, _AGAIN)
    for path in files:
        with file_errors(SnapshotError, "can't read the snapshot", path), path.open("rb") as stream:
            reading.add(stream, str(path))
    for (older, newer), names in reading.differing.items():
        warn(f"{older} and {newer} differ about {pattern(names)}; the facts in {newer} are newer and count")
    if not (snapshot := reading.snapshot()).hosts and files:
        raise _unusable("the snapshot contains no hosts", listed(list(map(str, files)), 2))
    return snapshot


class SnapshotReader:
    """The hosts of the files that were read.

    :ivar differing: the hosts about which two files differ, by the names of the older and the newer file.
    """

    def __init__(self, *, keep: bool) -> None:
        self.differing: dict[tuple[str, str], list[str]] = {}
        self._keep = keep
        self._hosts: dict[str, Host] = {}
        self._raw: dict[str, dict[str, object]] = {}
        self._places: dict[str, tuple[str, str]] = {}
        self._shared = SharedParts()

    def add(self, stream: BinaryIO, where: str) -> None:
        for line, place, document, text in _documents(stream, where):
            host = parse_host(document, line, self._shared, place, text)
            name = host.hostname
            if name not in self._hosts or self._counts(host, where, line):
                self._hosts[name], self._places[name] = host, (where, line)
                if self._keep:
                    self._raw[name] = document

    def _counts(self, host: Host, where: str, line: str) -> bool:
        """Whether facts replace those of the same host from another file."""
        known, (file, first) = self._hosts[host.hostname], self._places[host.hostname]
        if file == where:
            also = f", first in line {first.removeprefix(f'{where}:')}" if line != where else ""
            remedy = "keep one of the two, or rename it"
            raise SnapshotError(f"host {host.hostname} is in it twice{also}", where=line, remedy=remedy)
        times = known.read_at, host.read_at
        is_newer = None not in times and times[0] < times[1]  # type: ignore[operator]
        if known.model_copy(update={"collected_at": host.collected_at}) != host:
            if None in times or times[0] == times[1]:
                what = f"host {host.hostname}: {first} differs, and the times of the facts do not show which are newer"
                raise SnapshotError(what, where=line, remedy="omit one of the two files, or scan the host again")
            files = (file, where) if is_newer else (where, file)
            self.differing.setdefault(files, []).append(host.hostname)
        return is_newer

    def snapshot(self) -> Snapshot:
        return Snapshot(hosts=tuple(self._hosts.values()), raw=tuple(self._raw.values()))


def _documents(stream: BinaryIO, where: str) -> Iterator[tuple[str, str, dict[str, object], bytes]]:
    """The document of each host, with file and line for messages, its JSON path, and its text if it has a line."""
    start = stream.read(len(_FIRST_LINE) + 1)
    if start == _FIRST_LINE + b"\n":
        yield from _by_line(stream, where)
        return
    text = start + stream.read(MAX_BYTES + 1 - len(start))
    if len(text) > MAX_BYTES:
        remedy = "write one host per line: `gpustack scan --snapshot FILE --save NEW` of a part of the hosts"
        raise SnapshotError(f"larger than {MAX_BYTES >> 20} MiB, and not one host per line", where=where, remedy=remedy)
    for place, document in _host_documents(_json(text, where), where):
        yield where, place, document, b""


def _by_line(stream: BinaryIO, where: str) -> Iterator[tuple[str, str, dict[str, object], bytes]]:
    """The document of each host of a file with one host per line."""
    number, host = 1, ""
    while line := stream.readline(MOST_BYTES_OF_HOST + 1):
        number += 1
        place, text = f"{where}:{number}", line.strip()
        if text == _LAST_LINE:
            if stream.read(1):
                raise _unusable("the file does not end with its last host", place)
            return
        name = _NAME.match(text)
        host = f"host {name[1].decode()}: " if name else ""
        if len(line) > MOST_BYTES_OF_HOST:
            limit = f"{MOST_BYTES_OF_HOST >> 20} MiB"
            raise _unusable(f"{host}larger than {limit}, which is no description of a host", place)
        document = _json(text.removesuffix(b","), place, host, cut=not line.endswith(b"\n"))
        index = f"$.hosts[{number - 2}]"
        if not isinstance(document, dict):
            raise _unusable(f"{index}: expected an object, found {_shown(document)}", place)
        yield place, index, document, text
    raise _unusable(f"{host}the file ends too early: was it cut off?", f"{where}:{number}")


def _json(text: bytes, where: str, host: str = "", *, cut: bool | None = None) -> object:
    """The value of a text.

    :param host: the start of messages.
    :param cut: whether the text ends too early; None if it is unknown.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(error.doc.rstrip()) if cut is None else cut
        problem = "the file ends too early: was it cut off?" if cut else f"the file is not valid JSON: {error}"
    except UnicodeDecodeError:
        problem = "the file is not valid JSON: not UTF-8"
    except (RecursionError, ValueError):  # nested too deeply; a number with thousands of digits
        problem = "the JSON is nested too deeply, or has a number that is too long"
    raise _unusable(f"{host}{problem}", where)


def _host_documents(document: object, where: str) -> list[tuple[str, dict[str, object]]]:
    """The document of each host, with its JSON path."""
    if not isinstance(document, dict):
        raise _unusable(f"$: expected an object, found {_shown(document)}", where)
    if "gpustack_snapshot" not in document:
        if "pci" in document and "version" in document:
            return [("$", {**document, "inventory_groups": None})]  # as a host printed it
        raise _unusable("it is no snapshot: neither `gpustack_snapshot` nor the facts of a host are in it", where)
    if document["gpustack_snapshot"] != VERSION:
        raise _other_version(document["gpustack_snapshot"], where, "$.gpustack_snapshot")
    hosts = document.get("hosts")
    if not isinstance(hosts, list):
        raise _unusable(f"$.hosts: expected a list, found {_shown(hosts)}", where)
    for index, host in enumerate(hosts):
        if not isinstance(host, dict):
            raise _unusable(f"$.hosts[{index}]: expected an object, found {_shown(host)}", where)
    return [(f"$.hosts[{index}]", host) for index, host in enumerate(hosts)]


def _other_version(version: object, where: str, place: str) -> SnapshotError:
    return SnapshotError(
        f"{place}: version {_shown(version)}, and this gpustack reads version {VERSION}",
        where=where,
        remedy="read it with the gpustack that wrote it, or take it again with this one",
    )


def _unusable(problem: str, where: str) -> SnapshotError:
    return SnapshotError(problem, where=where, remedy=_AGAIN)


def parse_host(raw: object, where: str, shared: SharedParts | None = None, place: str = "$", text: bytes = b"") -> Host:
    """Validate the document of one host.

    :param where: its source, for messages: a file, or a host's name.
    :param shared: the parts of other hosts, to be shared.
    :param place: its JSON path in the source.
    :param text: its text, if that is one line.
    :raises SnapshotError: if the document is invalid; the message has the JSON paths of the problems.
    """
    if isinstance(raw, dict) and "version" in raw and raw["version"] != VERSION:
        raise _other_version(raw["version"], where, f"{place}.version")
    # Each value follows a comma or a bracket.
    is_small = bool(text) and sum(map(text.count, (b",", b"[", b"{"))) < MOST_VALUES
    if not is_small and not within_bounds(raw):
        raise _unusable(f"{place}: more than {MOST_VALUES} values, which is no description of a host", where)
    try:
        host = (shared or SharedParts()).host(raw) if isinstance(raw, dict) else Host.model_validate(raw)
    except ValidationError as error:
        raise _unusable(_problems(error, raw, place), where) from None
    addresses: set[str] = set()
    for index, function in enumerate(host.pci):
        if function.address in addresses:
            entry = f"{place}.pci[{index}].address"
            raise _unusable(f"host {host.hostname}: {entry}: {function.address} is listed twice", where)
        addresses.add(function.address)
    return host


def within_bounds(document: object) -> bool:
    """Whether a document has at most ``MOST_VALUES`` values."""
    count, level = 1, [document]
    while level:
        inner: list[object] = []
        for value in level:
            inner += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        count += len(inner)
        if count > MOST_VALUES:
            return False
        level = inner
    return True


def _problems(error: ValidationError, raw: object, place: str) -> str:
    """The first problems, one per line, each with host and JSON path."""
    name = raw.get("hostname") if isinstance(raw, dict) else None
    host = f"host {printable(name, keep='')}: " if isinstance(name, str) and len(name) < _SHOWN_INPUT else ""
    lines = [
        f"{host}{problem(detail, place)}"
        + ("" if detail["type"] == "missing" else f", found {_shown(detail['input'])}")
        for detail in error.errors(include_url=False, include_context=False)[:_SHOWN_PROBLEMS]
    ]
    more = error.error_count() - _SHOWN_PROBLEMS
    return "\n".join(lines) + (f"\nand {more} more" if more > 0 else "")


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value[: _SHOWN_INPUT + 1] if isinstance(value, str) else value, default=str)
    return clipped(text, _SHOWN_INPUT)
