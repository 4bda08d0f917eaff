"""The configuration that a rendering meets: named on the command line, or found where the files go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.codes import Code
from gpustack.errors import NothingThereError, NovaConfigError
from gpustack.findings import Finding, finding
from gpustack.nova_conf.deployed import Existing
from gpustack.nova_conf.deployment import kolla, openstack_helm, rhoso
from gpustack.nova_conf.sources import Source, read_sources, split

if TYPE_CHECKING:
    from gpustack.nova_conf.render import Deployment


def existing_for(
    deployment: Deployment, *, arguments: Sequence[str] = (), root: Path, directory: str | None = None
) -> Existing:
    """Read the configurations, and the directory that the files go into where the deployment merges files.

    :param arguments: configurations, as on a command line; one that does not exist yet is a finding.
    :raises UsageError: when an argument is not a configuration.
    :raises NovaConfigError: when a file can't be read or is no INI file.
    """
    from gpustack.nova_conf.render import DIRECTORIES

    sources: list[Source] = []
    findings: list[Finding] = []
    documents: list[dict[str, Any]] = []
    of_yaml = {"rhoso": rhoso.sources, "openstack-helm": openstack_helm.sources}.get(deployment)
    for argument in arguments:
        if of_yaml and Path(argument).suffix in (".yaml", ".yml") and Path(argument).exists():
            parsed = _documents(Path(argument))
            documents += parsed
            sources += [source for document in parsed for source in of_yaml(Path(argument), document)]
            continue
        services, text = split(argument)
        parts = [part for part in text.split(":") if part]
        missing = [part for part in parts if not Path(part).exists()]
        findings += [
            finding(Code.CONFIGURATION_MISSING, place=part, error="there is no such file or directory")
            for part in missing
        ]
        if parts and missing == parts:
            continue
        try:
            readable = ":".join(part for part in parts if part not in missing)
            sources += read_sources([f"{','.join(services)}={readable}" if services else readable])
        except NothingThereError as error:
            findings.append(finding(Code.CONFIGURATION_MISSING, place=error.where or argument, error=error.what))
    inspected: tuple[Source, ...] = ()
    joined: tuple[Path, ...] = ()
    if deployment in ("kolla", "kayobe"):
        below = root / (directory or DIRECTORIES[deployment]).lstrip("/")
        joined = kolla.layers(below.resolve()) if deployment == "kayobe" else ()
        inspected, unread = kolla.inspected(below, joined)
        findings += unread
    return Existing(
        named=tuple(sources), inspected=inspected, joined=joined, documents=tuple(documents), findings=tuple(findings)
    )


def _documents(path: Path) -> list[dict[str, Any]]:
    """The mappings of a YAML file.

    :raises NovaConfigError: when it can't be read, or is no YAML.
    """
    import yaml

    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise NovaConfigError(f"can't be read: {error.strerror}", where=str(path), remedy="check the path") from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:  # a date that is none; nested without end
        raise NovaConfigError(f"the file is no YAML: {error}", where=str(path), remedy="name a YAML file") from error
    return [document for document in documents if isinstance(document, dict)]
