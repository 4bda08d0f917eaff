"""The tables that ``tools/nova-tables`` makes from Nova's source (``gpustack/data/nova/*.jsonl``), as plain records."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.base.files import data_dir, data_table

Record = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table.

    :ivar imported: the releases of which computed values and the options of libraries are known.
    """

    imported: frozenset[int]
    records: Sequence[Record]


@functools.cache
def table(name: str) -> Table:
    """Read a table.

    :param name: ``options``, ``placement``, ``filters``, ``weighers``, ``task_states``, ``pci_keys``, ``providers`` or
        ``extra_specs``.
    """
    text = (data_dir("nova") / f"{name}.jsonl").read_text(encoding="utf-8")
    header, *records = json.loads(f"[{','.join(text.splitlines())}]")
    return Table(imported=frozenset(header["imported"]), records=records)


def facts() -> Mapping[str, Any]:
    """The facts that no code of Nova states (``gpustack/data/nova.toml``)."""
    return data_table("nova.toml")


def holds(record: Record, major: int) -> bool:
    """Whether a record is of a release."""
    return bool(record["since"] <= major <= record.get("until", major))


def runs(name: str, *keys: str) -> Mapping[tuple[str, ...], Sequence[Record]]:
    """The records of a table by the values of some keys; several are of consecutive spans of releases."""
    return by_key((tuple(record[key] for key in keys), record) for record in table(name).records)
