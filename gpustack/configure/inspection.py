"""Read the existing configuration: files named on the command line, or found where the rendered files go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpustack.base.errors import NothingThereError
from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.deployed import Existing
from gpustack.configure.deployment import kolla
from gpustack.configure.render import TOOLS
from gpustack.configure.rendered import documents
from gpustack.configure.sources import Source, read_sources, split
from gpustack.spec.deployment import Deployment


def existing_for(
    deployment: Deployment, *, arguments: Sequence[str] = (), root: Path, directory: str | None = None
) -> Existing:
    """Read the named configurations, and the target directory if the deployment tool merges files there.

    :param arguments: configurations as on a command line; one that does not exist is reported as a finding.
    :param root: the directory below which the rendered files are written.
    :param directory: the directory of the deployment tool, instead of its default.
    :raises UsageError: when an argument is not a configuration.
    :raises NovaConfigError: when a file can't be read or is no INI file.
    """
    tool = TOOLS[deployment]
    named = _Named()
    for argument in arguments:
        path = Path(argument)
        if tool.sources and path.suffix in (".yaml", ".yml") and path.exists():
            for document in documents(path):
                named.documents.append(document)
                named.mode &= path.stat().st_mode
                named.sources += tool.sources(path, document)
        else:
            named.read(argument)
    inspected: tuple[Source, ...] = ()
    joined: tuple[Path, ...] = ()
    unread: tuple[Finding, ...] = ()
    if tool.overrides:
        below = root / (directory or tool.directory).lstrip("/")
        joined = kolla.layers(below.resolve()) if deployment == "kayobe" else ()
        inspected, unread = kolla.inspected(below, joined)
    return Existing(
        named=tuple(named.sources),
        inspected=inspected,
        joined=joined,
        documents=tuple(named.documents),
        mode=named.mode,
        findings=(*named.findings, *unread),
    )


@dataclass(kw_only=True)
class _Named:
    """The configurations named on a command line."""

    sources: list[Source] = field(default_factory=list)
    documents: list[Mapping[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    mode: int = 0o644

    def read(self, argument: str) -> None:
        """Read the files of an argument; files that do not exist are reported as findings."""
        services, text = split(argument)
        parts = [part for part in text.split(":") if part]
        readable = [part for part in parts if Path(part).exists()]
        for part in parts:
            if part not in readable:
                self._missing(part, "there is no such file or directory")
        if parts and not readable:
            return
        try:
            files = ":".join(readable)
            self.sources += read_sources([f"{','.join(services)}={files}" if services else files])
        except NothingThereError as error:
            self._missing(error.where or argument, error.what)

    def _missing(self, place: str, error: str) -> None:
        self.findings.append(finding(Code.CONFIGURATION_MISSING, place=place, error=error))
