"""The tables of a report: models, projects, groups of free GPUs, and findings. Pure.

A row is a dictionary, since only the template reads it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from gpustack.base.findings import joined, merged
from gpustack.base.operations import counted
from gpustack.base.text import clipped
from gpustack.fleet.model import Fleet, State
from gpustack.fleet.summary import Group, grouped
from gpustack.operate.report.hosts import TIMES

_SIZES = (1, 2, 4, 8, 16)
_MOST_MESSAGES = 50
"""The most messages of one code with one remedy; `gpustack gpu list` prints all."""
_TAKEN = (State.CLAIMED, State.ALLOCATED, State.INCONSISTENT)
_IDLE = ("SHUTOFF", "PAUSED", "SUSPENDED", "SHELVED", "SOFT_DELETED", "STOPPED", "SOFT-DELETE")
"""States of instances that hold a GPU without running; the last two are those of a database (``vm_state``)."""


Row = dict[str, Any]


def projects(fleet: Fleet) -> list[Row]:
    """The projects, those with most GPUs first; ``share`` is that of all GPUs in use, in percent."""
    models: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for gpu in fleet.gpus:
        for holder in gpu.holders:
            models[holder.project][gpu.model] += holder.amount
    groups = grouped(fleet, "project")
    used = sum(_used(group) for group in groups) or 1
    rows = [
        {
            "name": clipped(fleet.projects.get(group.name, group.name)) or "unknown",
            "identity": clipped(group.name) if group.name in fleet.projects else "",
            "models": ", ".join(f"{n} {TIMES} {clipped(model)}" for model, n in models[group.name].most_common()),
            "gpus": _used(group),
            "instances": len(group.servers),
            "share": round(100 * _used(group) / used, 2),
        }
        for group in groups
    ]
    return sorted(rows, key=lambda row: (-row["gpus"], row["name"]))


def _used(group: Group) -> int:
    return sum(group.states[state] for state in State if state is not State.FREE)


def free_rows(fleet: Fleet) -> tuple[list[Row], list[str]]:
    """The free GPUs by model, and the models of which a host does not show the free ones.

    ``most`` is the most free GPUs on one host, of vGPUs on one card, and ``fitting`` the number of requests of each
    size that they satisfy. ``fragments`` are free GPUs that no request of a size can use, in words.
    """
    by_model: dict[str, list[int]] = {}
    largest: Counter[str] = Counter()
    unknown: dict[str, None] = {}
    for count in fleet.counts:
        if count.free is None:
            unknown[count.model] = None
        for free, total in count.cards or ((count.free or 0, count.total or count.used),):
            by_model.setdefault(count.model, []).append(free)
            largest[count.model] = max(largest[count.model], total)
    is_exact = not fleet.partial and all(count.per_gpu for count in fleet.counts)
    rows: list[Row] = []
    for model, numbers in sorted(by_model.items()):
        fitting = {size: sum(number // size for number in numbers) for size in _SIZES if size <= largest[model]}
        row = {
            "model": clipped(model) or "unknown model",
            "free": sum(numbers),
            "most": max(numbers),
            "fitting": fitting,
        }
        missing = [size for size, number in fitting.items() if not number and size <= sum(numbers)] if is_exact else []
        fragments = f"free GPUs: {sum(numbers)}, but no request of {missing[0]} fits" if missing else ""
        rows.append({**row, "fragments": fragments})
    return rows, [clipped(model) or "unknown model" for model in unknown]


def flavor_row(cells: Sequence[object]) -> Row:
    """A flavor by these cells of `gpustack capacity`; the last one has a line for each limit."""
    flavor, gpus, fits, free, limits = map(str, cells)
    return {"flavor": clipped(flavor), "gpus": clipped(gpus), "fits": fits, "free": free, "limits": limits.split("\n")}


def finding_rows(fleet: Fleet) -> Iterator[Row]:
    """The findings by code and remedy, most severe first: the places of each message, and how many are left out."""
    for (severity, code, remedy), messages in merged(fleet.findings).items():
        shown = islice(messages.items(), _MOST_MESSAGES)
        yield {
            "severity": severity.value,
            "code": code.value,
            "messages": [(joined(places), text) for text, places in shown],
            "remedy": remedy,
            "more": max(len(messages) - _MOST_MESSAGES, 0),
        }


def idle(fleet: Fleet) -> str:
    """The GPUs of instances that do not run: ``3 GPUs belong to instances that do not run (2 SHUTOFF, 1 PAUSED)``."""
    held = Counter(
        holder.server.status.upper()
        for gpu in fleet.gpus
        if gpu.state in _TAKEN
        for holder in gpu.holders
        if holder.server and not holder.migration and holder.server.status.upper() in _IDLE
    )
    if not held:
        return ""
    states = ", ".join(f"{number} {status}" for status, number in held.most_common())
    return f"{counted(held.total(), 'GPU')} of instances that do not run ({states})"
