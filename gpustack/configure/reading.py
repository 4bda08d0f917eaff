"""Read the configurations of a command line: files of Nova, and the YAML files of deployment tools."""

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpustack.base.errors import NovaConfigError, TemplateError
from gpustack.base.files import file_errors, read_text
from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.deployment import kolla, openstack_ansible, openstack_helm, rhoso
from gpustack.configure.rendered import documents
from gpustack.configure.sources import Source, read_sources, split
from gpustack.nova_options.markers import has_ours

_RESOURCES = ("controlplane.yaml", "dataplane.yaml", "gpustack-*.yaml")
"""The files for RHOSO and OpenStack-Helm."""


@dataclass(frozen=True, kw_only=True)
class Read:
    """The configurations of a command line, and the findings about those that can't be read."""

    sources: tuple[Source, ...]
    unread: tuple[Finding, ...] = ()


def read(arguments: Sequence[str]) -> Read:
    """Read configurations.

    :param arguments: configurations as on a command line (:mod:`gpustack.configure.sources`).
    :raises UsageError: when an argument is not a configuration.
    """
    sources: list[Source] = []
    unread: list[Finding] = []
    for argument in arguments:
        try:
            of_tool = _of_tool(argument, unread)
            sources += read_sources([argument]) if of_tool is None else of_tool
        except TemplateError as error:
            unread.append(finding(Code.JINJA_TEMPLATE, place=error.where or argument, what=error.what))
        except NovaConfigError as error:
            about: dict[str, Any] = {"error": error.what, "remedy": error.remedy or "check the path"}
            unread.append(finding(Code.NOVA_FILE_UNREADABLE, place=error.where or argument, **about))
    return Read(sources=tuple(sources), unread=tuple(unread))


def _of_tool(argument: str, unread: list[Finding]) -> list[Source] | None:
    """The configurations in YAML files of RHOSO, OpenStack-Helm or OpenStack-Ansible; None for any other file.

    A directory stands for the files that ``gpustack nova render`` wrote for one of these or for kolla-ansible, in it or
    in the usual directories below.

    :param unread: gets the findings about parts that are not known.
    """
    services, text = split(argument)
    paths, known = [Path(part) for part in text.split(":")], len(unread)
    if not services and len(paths) == 1 and paths[0].is_dir():
        return _rendered(paths[0], unread) or ([] if len(unread) > known else None)
    ignored = (path for path in paths if path.name == "nova.conf" and kolla.is_usual(path.parent))
    unread += [finding(Code.OVERRIDE_IGNORED, place=str(path)) for path in ignored]
    if not all(path.suffix in (".yaml", ".yml") and path.is_file() for path in paths):
        return None
    read = {path: documents(path) for path in paths}
    found: list[Source] = []
    for path, of_file in read.items():
        for document in of_file:
            found += [*rhoso.sources(path, document, own=True), *openstack_helm.sources(path, document)]
            unread += rhoso.ignored(path, document)
    variables = {path: dict(ChainMap(*documents(path, base_60=True))) for path in paths}
    found += openstack_ansible.sources(variables, services)
    unread += openstack_ansible.unknown(variables)
    own = (f":{rhoso.KEY}", *(str(path) for path in paths if _is_own(path)))
    found = [_with_own(source, own) for source in found if source.configuration.settings]
    if not found and len(unread) == known:
        problem = "no settings of Nova for RHOSO, OpenStack-Helm or OpenStack-Ansible"
        raise NovaConfigError(problem, where=text, remedy="name the nova.conf that the deployment tool makes of it")
    return found


def _with_own(source: Source, own: tuple[str, ...]) -> Source:
    """A configuration whose settings in gpustack's files, by the ends of their names, are marked."""
    configuration = source.configuration
    settings = tuple(replace(s, ours=s.ours or s.file.endswith(own)) for s in configuration.settings)
    return replace(source, configuration=replace(configuration, settings=settings))


def _rendered(directory: Path, unread: list[Finding]) -> list[Source]:
    if directory.name in ("", ".."):
        directory = directory.resolve()  # the overrides for all are above those for Nova
    usual = ("nova", kolla.DIRECTORY[1:], kolla.KAYOBE_DIRECTORY, openstack_ansible.DIRECTORY[1:])
    names = ("", *usual, rhoso.DIRECTORY, openstack_helm.DIRECTORY)
    near = sorted(file.parent for file in directory.glob("*/nova-*.conf"))
    found: list[Source] = []
    for place in dict.fromkeys((*(directory / name for name in names), *near)):
        if kolla.has_overrides(place):
            sources, findings = kolla.inspected(place, kolla.layers(place.resolve()), own=True)
            found, unread[:] = [*found, *sources], [*unread, *findings]
        has_resources = any(_is_own(file) for name in _RESOURCES for file in place.glob(name))
        files = sorted(map(str, place.glob("*.yaml"))) if has_resources else ()
        for argument in (*files, *openstack_ansible.arguments(place)):
            found += _of_tool(argument, unread) or []
    return found


def _is_own(file: Path) -> bool:
    with file_errors(NovaConfigError, "can't be read", file):
        return file.is_file() and has_ours(read_text(file, errors="replace"))
