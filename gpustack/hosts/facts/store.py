"""Snapshot files: saved facts of hosts.

Format: ``{"gpustack_snapshot": 1, "hosts": [host, …]}``, mode 0600; each host is a JSON document of the collector.
The output of the collector is accepted too: ``python3 collect.py > gpu01.json`` on a host without gpustack.
Snapshots come from other machines, so :mod:`gpustack.hosts.facts.model` validates them before use.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpustack.base.errors import SnapshotError
from gpustack.base.files import file_remedy, write_atomic
from gpustack.hosts.facts.model import Host

VERSION = 1
MAX_BYTES = 256 << 20
MOST_VALUES = 400_000
"""Maximum number of values in the document of one host; a PCI function has about forty."""
_SHOWN_PROBLEMS = 5
_SHOWN_INPUT = 60
_LONGEST_KEY = 256
_AGAIN = "take it again with `gpustack scan --save FILE`"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The hosts of a snapshot: validated facts, and the unparsed documents in the same order."""

    hosts: tuple[Host, ...]
    raw: tuple[dict[str, object], ...]


def save_snapshot(path: Path, raw_hosts: Sequence[Mapping[str, Any]]) -> None:
    """Write a snapshot file atomically, with mode 0600.

    :raises SnapshotError: if the file can't be written.
    """
    document = {"gpustack_snapshot": VERSION, "hosts": list(raw_hosts)}
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    try:
        write_atomic(path, text, mode=0o600)
    except OSError as error:
        raise SnapshotError(
            f"can't write the snapshot: {error.strerror}",
            where=str(path),
            remedy=file_remedy(error),
        ) from error


def load_snapshot(path: Path) -> tuple[Host, ...]:
    """The hosts of a snapshot file.

    :raises SnapshotError: if the file can't be read, or is not a valid snapshot of this version.
    """
    return read_snapshot(path).hosts


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot file; errors as in :func:`load_snapshot`."""
    return parse_snapshot(_read(path), str(path))


def parse_snapshot(text: bytes, where: str) -> Snapshot:
    """Parse the text of a snapshot.

    :param where: the file's name, for messages.
    :raises SnapshotError: if ``text`` is not a valid snapshot, or names a host twice.
    """
    raw = _host_documents(_json(text, where), where)
    hosts = tuple(_parse(document, where, place) for place, document in raw)
    names: set[str] = set()
    for host in hosts:
        if host.hostname in names:
            raise SnapshotError(
                f"host {host.hostname} is in it twice", where=where, remedy="keep one of the two, or rename it"
            )
        names.add(host.hostname)
    return Snapshot(hosts=hosts, raw=tuple(document for _, document in raw))


def parse_host(raw: object, where: str) -> Host:
    """Validate the document of one host.

    :param where: its source, for messages: a file, or a host's name.
    :raises SnapshotError: if the document is invalid; the message has the JSON paths of the problems.
    """
    return _parse(raw, where, "$")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise SnapshotError(
            f"can't read the snapshot: {error.strerror}", where=str(path), remedy=file_remedy(error)
        ) from error
    if len(text) > MAX_BYTES:
        raise SnapshotError(
            f"larger than {MAX_BYTES >> 20} MiB", where=str(path), remedy="save fewer hosts in one snapshot"
        )
    return text


def _json(text: bytes, where: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(error.doc.rstrip())
        problem = "the file ends too early: was it cut off?" if cut else f"the file is not valid JSON: {error}"
        raise SnapshotError(problem, where=where, remedy=_AGAIN) from error
    except UnicodeDecodeError as error:
        raise SnapshotError("the file is not valid JSON: not UTF-8", where=where, remedy=_AGAIN) from error
    except (RecursionError, ValueError) as error:  # nested too deeply; a number with thousands of digits
        raise SnapshotError(
            "the JSON is nested too deeply, or has a number that is too long", where=where, remedy=_AGAIN
        ) from error


def _host_documents(document: object, where: str) -> list[tuple[str, dict[str, object]]]:
    """The document of each host, with its JSON path."""
    if not isinstance(document, dict):
        raise SnapshotError(f"$: expected an object, found {_shown(document)}", where=where, remedy=_AGAIN)
    if "gpustack_snapshot" not in document:
        if "pci" in document and "version" in document:
            return [("$", document)]
        raise SnapshotError(
            "it is no snapshot: neither `gpustack_snapshot` nor the facts of a host are in it",
            where=where,
            remedy=_AGAIN,
        )
    if document["gpustack_snapshot"] != VERSION:
        raise _other_version(document["gpustack_snapshot"], where, "$.gpustack_snapshot")
    hosts = document.get("hosts")
    if not isinstance(hosts, list):
        raise SnapshotError(f"$.hosts: expected a list, found {_shown(hosts)}", where=where, remedy=_AGAIN)
    for index, host in enumerate(hosts):
        if not isinstance(host, dict):
            message = f"$.hosts[{index}]: expected an object, found {_shown(host)}"
            raise SnapshotError(message, where=where, remedy=_AGAIN)
    return [(f"$.hosts[{index}]", host) for index, host in enumerate(hosts)]


def _other_version(version: object, where: str, place: str) -> SnapshotError:
    return SnapshotError(
        f"{place}: version {_shown(version)}, and this gpustack reads version {VERSION}",
        where=where,
        remedy="read it with the gpustack that wrote it, or take it again with this one",
    )


def _parse(raw: object, where: str, place: str) -> Host:
    if isinstance(raw, dict) and "version" in raw and raw["version"] != VERSION:
        raise _other_version(raw["version"], where, f"{place}.version")
    if not within_bounds(raw):
        raise SnapshotError(
            f"{place}: more than {MOST_VALUES} values, which is no description of a host", where=where, remedy=_AGAIN
        )
    try:
        host = Host.model_validate(raw)
    except ValidationError as error:
        raise SnapshotError(_problems(error, raw, place), where=where, remedy=_AGAIN) from None
    addresses: set[str] = set()
    for index, function in enumerate(host.pci):
        if function.address in addresses:
            message = f"host {host.hostname}: {place}.pci[{index}].address: {function.address} is listed twice"
            raise SnapshotError(message, where=where, remedy=_AGAIN)
        addresses.add(function.address)
    return host


def within_bounds(document: object) -> bool:
    """Whether a document has at most ``MOST_VALUES`` values."""
    count, waiting = 0, [document]
    while waiting:
        value = waiting.pop()
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        count += 1 + len(inner)
        if count > MOST_VALUES:
            return False
        waiting.extend(inner)
    return True


def _problems(error: ValidationError, raw: object, place: str) -> str:
    """The first problems, one per line, each with host and JSON path."""
    name = raw.get("hostname") if isinstance(raw, dict) else None
    host = f"host {name}: " if isinstance(name, str) and len(name) < _SHOWN_INPUT else ""
    lines = [
        f"{host}{place}{_path(detail['loc'])}: {detail['msg'].lower()}"
        + ("" if detail["type"] == "missing" else f", found {_shown(detail['input'])}")
        for detail in error.errors(include_url=False, include_context=False)[:_SHOWN_PROBLEMS]
    ]
    more = error.error_count() - _SHOWN_PROBLEMS
    return "\n".join(lines) + (f"\nand {more} more" if more > 0 else "")


def _path(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part[:_LONGEST_KEY]}" for part in location)


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value[: _SHOWN_INPUT + 1] if isinstance(value, str) else value, default=str)
    return text if len(text) <= _SHOWN_INPUT else text[:_SHOWN_INPUT] + "…"
