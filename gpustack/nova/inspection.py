"""The configuration that a rendering meets: named on the command line, or found where the files go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.errors import NothingThereError
from gpustack.findings import Finding, finding
from gpustack.nova import kolla
from gpustack.nova.existing import Existing
from gpustack.nova.sources import Source, read_sources, split

if TYPE_CHECKING:
    from gpustack.nova.render import Deployment


def existing_for(
    deployment: Deployment, *, words: Sequence[str] = (), root: Path, directory: str | None = None
) -> Existing:
    """Read what the words name, and the directory that the files go into where the deployment merges files.

    :param words: configurations, as on a command line; one that does not exist yet is a finding.
    :raises UsageError: when a word names no configuration.
    :raises NovaConfigError: when a file can't be read or is no INI file.
    """
    from gpustack.nova.render import DIRECTORIES

    named: list[Source] = []
    findings: list[Finding] = []
    for word in words:
        services, text = split(word)
        parts = [part for part in text.split(":") if part]
        missing = [part for part in parts if not Path(part).exists()]
        findings += [finding("GPU328", place=part, error="there is no such file or directory") for part in missing]
        if parts and missing == parts:
            continue
        try:
            left = ":".join(part for part in parts if part not in missing)
            named += read_sources([f"{','.join(services)}={left}" if services else left])
        except NothingThereError as error:
            findings.append(finding("GPU328", place=error.where or word, error=error.what))
    inspected: tuple[Source, ...] = ()
    joined: tuple[Path, ...] = ()
    if deployment in ("kolla", "kayobe"):
        below = root / (directory or DIRECTORIES[deployment]).lstrip("/")
        joined = kolla.layers(below.resolve()) if deployment == "kayobe" else ()
        inspected, unread = kolla.inspected(below, joined)
        findings += unread
    return Existing(named=tuple(named), inspected=inspected, joined=joined, findings=tuple(findings))
