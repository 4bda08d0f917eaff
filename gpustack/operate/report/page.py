"""The page: a template that is rendered in parts, so that a large fleet never has its page in memory.

Every text on it comes from a cloud or a host, so the template escapes all of them, and characters that reorder or hide
text are printed as their codes. The policy in its head forbids scripts and everything from elsewhere.

A row of its tables (models, projects, groups of free GPUs, findings) is a dictionary, since only the template reads it.
"""

import base64
import functools
import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from gpustack import __version__
from gpustack.base import files
from gpustack.base.errors import GpustackError
from gpustack.base.findings import joined, merged
from gpustack.base.text import clipped, counted, printable
from gpustack.cloud.identity import distinct
from gpustack.fleet.model import Fleet, Source, State
from gpustack.fleet.summary import Group, grouped
from gpustack.operate.report.hosts import GROUP, TIMES, columns, host_groups, summed
from gpustack.operate.report.quotas import QuotaTable
from gpustack.operate.report.topologies import Topologies

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
    unknown = dict.fromkeys(count.model for count in fleet.counts if count.free is None)
    for count in fleet.counts:
        for free, total in count.cards or ((count.free or 0, count.total or count.used),):
            by_model.setdefault(count.model, []).append(free)
            largest[count.model] = max(largest[count.model], total)
    is_exact = not fleet.partial and all(count.per_gpu for count in fleet.counts)
    rows: list[Row] = []
    for model, numbers in sorted(by_model.items()):
        fitting = {size: sum(number // size for number in numbers) for size in _SIZES if size <= largest[model]}
        missing = [size for size, number in fitting.items() if not number and size <= sum(numbers)] if is_exact else []
        fragments = f"free GPUs: {sum(numbers)}, but no request of {missing[0]} fits" if missing else ""
        row = {"model": clipped(model) or "unknown model", "free": sum(numbers), "most": max(numbers)}
        rows.append({**row, "fitting": fitting, "fragments": fragments})
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


PAGE = "index.html"
_OPEN_HOSTS = 12
"""The most hosts whose tables are open; of a larger fleet, all are closed."""
_BUFFER = 256
"""Pieces of the template that are written together."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything on the page.

    :ivar at: when the sources were read, in UTC.
    :ivar cloud: the name of the cloud; empty if it has none.
    :ivar topologies: those of hosts whose facts are known.
    :ivar flavors: how many more instances fit; None if that was not counted.
    :ivar quotas: projects against their quotas; None if the spec has none.
    """

    fleet: Fleet
    at: datetime
    cloud: str = ""
    topologies: Topologies = field(default_factory=Topologies)
    flavors: Sequence[Row] | None = None
    quotas: QuotaTable | None = None


def place(directory: Path) -> Path:
    """The file of the page, in a directory that is created. Checks before the work that it can be written.

    :raises GpustackError: if it can't, or if a file that is no page of gpustack would be replaced.
    """
    path, remedy = directory / PAGE, "name another directory with --out"
    with files.file_errors(GpustackError, "can't be written", path, state="nothing was done", remedy=remedy):
        files.make_directory(directory, 0o755)
        files.refuse_unwritable(path)
        if os.path.lexists(path) and not (path.is_file() and files.starts_with(path, "<title>GPUs in service", 2000)):
            raise GpustackError("the file is no page of gpustack; it is kept", where=str(path), remedy=remedy)
    return path


def parts(report: Report) -> Iterator[str]:
    """The text of the page, in parts."""
    shown = distinct(report.fleet.projects)
    fleet = replace(report.fleet, projects={entry: shown(entry) for entry in report.fleet.projects})
    models = grouped(fleet, "model")
    free, unknown = free_rows(fleet)
    number = len({count.host for count in fleet.counts})
    topologies = report.topologies
    css, policy = _style()
    stream = (
        files.templates("report", autoescape=True, finalize=_readable, trim_blocks=True, lstrip_blocks=True)
        .get_template("page.html.j2")
        .stream(
            report=report,
            version=__version__,
            css=css,
            policy=policy,
            sources=_sources(fleet),
            states=list(State),
            meanings=files.data_table("states.toml"),
            totals=summed(models),
            hosts=number,
            has_open_hosts=number <= _OPEN_HOSTS,
            groups=lambda: host_groups(fleet),
            drawing=topologies.drawing if number <= GROUP else None,
            shapes=topologies.shapes(host_groups(fleet)) if number > GROUP else [],
            models=models,
            columns=columns(models),
            projects=projects(fleet),
            free=free,
            sizes=sorted({size for row in free for size in row["fitting"]}),
            unknown_free=unknown,
            idle=idle(fleet),
            findings=list(finding_rows(fleet)),
            gaps=list(dict.fromkeys((gap.source.value, gap.reason) for gap in fleet.partial)),
            summed=summed,
        )
    )
    stream.enable_buffering(_BUFFER)
    yield from stream


def _sources(fleet: Fleet) -> list[str]:
    """The sources that have some of the GPUs, and their names."""
    used = {source for gpu in fleet.gpus for source in gpu.sources}
    if fleet.projects or fleet.users:
        used.add(Source.KEYSTONE)
    return [source.value for source in Source if source in used]


@functools.cache
def _style() -> tuple[object, str]:
    """The style sheet, and its hash for the page's policy."""
    from markupsafe import Markup

    css = (files.share_dir("templates") / "report" / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return Markup(css), f"'sha256-{digest}'"  # noqa: S704  (the file is part of gpustack)


def _readable(value: object) -> object:
    """A value as it is printed. Escaped text (``Markup``) is a text of its own class."""
    return printable(value, keep="") if type(value) is str else value
