"""Read the existing configuration: files named on the command line, or found where the rendered files go."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpustack.base.errors import NothingThereError
from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.deployment import kolla, rhoso
from gpustack.configure.render import TOOLS
from gpustack.configure.rendered import documents
from gpustack.configure.sources import Existing, Source, read_sources, split
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
    named: list[Source] = []
    of_tool: list[Mapping[str, Any]] = []
    findings: list[Finding] = []
    mode = 0o644
    for argument in arguments:
        path = Path(argument)
        if tool.sources and path.suffix in (".yaml", ".yml") and path.exists():
            for document in documents(path):
                of_tool.append(document)
                mode &= path.stat().st_mode
                named += tool.sources(path, document)
                findings += rhoso.ignored(path, document) if deployment == "rhoso" else ()
        else:
            named += _read(argument, findings)
    below = root / (directory or tool.directory).lstrip("/")
    joined = kolla.layers(below.resolve()) if deployment == "kayobe" else ()
    inspected, unread = kolla.inspected(below, joined) if tool.overrides else ((), ())
    return Existing(
        named=tuple(named),
        inspected=inspected,
        joined=joined,
        documents=tuple(of_tool),
        mode=mode,
        findings=(*findings, *unread),
    )


def _read(argument: str, findings: list[Finding]) -> tuple[Source, ...]:
    """Read the files of an argument.

    :param findings: gets the findings about files that do not exist.
    """
    services, text = split(argument)
    parts = [part for part in text.split(":") if part]
    readable = [part for part in parts if Path(part).exists()]
    missing = [(part, "there is no such file or directory") for part in parts if part not in readable]
    sources: tuple[Source, ...] = ()
    if readable or not parts:
        files = ":".join(readable)
        try:
            sources = read_sources([f"{','.join(services)}={files}" if services else files])
        except NothingThereError as error:
            missing.append((error.where or argument, error.what))
    findings += [finding(Code.CONFIGURATION_MISSING, place=place, error=error) for place, error in missing]
    return sources
