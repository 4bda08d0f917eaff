"""The page: a template that is rendered in parts, so that a large fleet never has its page in memory.

Every text on it comes from a cloud or a host, so the template escapes all of them, and characters that reorder or hide
text are printed as their codes. The policy in its head forbids scripts and everything from elsewhere.
"""

import base64
import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from gpustack import __version__
from gpustack.base.files import data_table, share_dir, templates, write_atomic
from gpustack.base.text import printable
from gpustack.cloud.identity import distinct
from gpustack.fleet.model import Fleet, Source, State
from gpustack.fleet.summary import grouped
from gpustack.operate.report import tables
from gpustack.operate.report.hosts import GROUP, columns, host_groups, summed
from gpustack.operate.report.quotas import QuotaTable
from gpustack.operate.report.topologies import Topologies

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
    flavors: Sequence[tables.Row] | None = None
    quotas: QuotaTable | None = None


def write(report: Report, directory: Path) -> Path:
    """Write the page into a directory, which is created; the page of an earlier run is replaced atomically.

    :raises OSError: if the directory can't be created or written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / PAGE
    write_atomic(path, parts(report), mode=0o644)
    return path


def parts(report: Report) -> Iterator[str]:
    """The text of the page, in parts."""
    shown = distinct(report.fleet.projects)
    fleet = replace(report.fleet, projects={entry: shown(entry) for entry in report.fleet.projects})
    models = grouped(fleet, "model")
    free, unknown = tables.free_rows(fleet)
    number = len({count.host for count in fleet.counts})
    topologies = report.topologies
    css, policy = _style()
    stream = (
        templates("report", autoescape=True, finalize=_readable, trim_blocks=True, lstrip_blocks=True)
        .get_template("page.html.j2")
        .stream(
            report=report,
            version=__version__,
            css=css,
            policy=policy,
            sources=_sources(fleet),
            states=list(State),
            meanings=data_table("states.toml"),
            totals=summed(models),
            hosts=number,
            has_open_hosts=number <= _OPEN_HOSTS,
            groups=lambda: host_groups(fleet),
            drawing=topologies.drawing if number <= GROUP else None,
            shapes=topologies.shapes(host_groups(fleet)) if number > GROUP else [],
            models=models,
            columns=columns(models),
            projects=tables.projects(fleet),
            free=free,
            sizes=sorted({size for row in free for size in row["fitting"]}),
            unknown_free=unknown,
            idle=tables.idle(fleet),
            findings=list(tables.finding_rows(fleet)),
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

    css = (share_dir("templates") / "report" / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return Markup(css), f"'sha256-{digest}'"  # noqa: S704  (the file is part of gpustack)


def _readable(value: object) -> object:
    """A value as it is printed. Escaped text (``Markup``) is a text of its own class."""
    return printable(value, keep="") if type(value) is str else value
