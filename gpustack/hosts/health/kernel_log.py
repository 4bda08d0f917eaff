"""Signs of trouble in kernel logs (:mod:`gpustack.hosts.facts.collector.signs`), with the table of the installation."""

import functools
import json
from collections.abc import Iterable
from typing import Any

from gpustack.base.codes import Code
from gpustack.base.files import data_dir
from gpustack.hosts.facts.collector.signs import Event, SignTable


def events(messages: Iterable[str]) -> list[Event]:
    """The signs in the lines of a log, each with its sign, address and last message; harmless ones are left out."""
    return [event for event in table().events(messages) if event.code is not None]


def on_host(event: Event) -> Event:
    """A sign with the finding about hosts: a BAR without an address has another cause in a guest."""
    return event._replace(code=Code.BAR_UNASSIGNED.value) if event.kind == "bar-unplaced" else event


@functools.cache
def rows() -> tuple[dict[str, Any], ...]:
    """The lines of ``gpustack/data/signs.jsonl``."""
    return tuple(map(json.loads, data_dir("signs.jsonl").read_text(encoding="utf-8").splitlines()))


@functools.cache
def table() -> SignTable:
    """The table of signs."""
    return SignTable(rows())
