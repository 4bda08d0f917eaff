"""Read the configurations of a command line: files of Nova, and the YAML files of deployment tools."""

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpustack.base.errors import NovaConfigError, TemplateError
from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.sources import Source, read_sources, split


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
            sources += _of_tool(argument) or read_sources([argument])
        except TemplateError as error:
            unread.append(finding(Code.JINJA_TEMPLATE, place=error.where or argument, what=error.what))
        except NovaConfigError as error:
            unread.append(
                finding(
                    Code.NOVA_FILE_UNREADABLE,
                    place=error.where or argument,
                    error=error.what,
                    remedy=error.remedy or "check the path",
                )
            )
    return Read(sources=tuple(sources), unread=tuple(unread))


def _of_tool(argument: str) -> list[Source]:
    """The configurations in YAML files: resources of RHOSO, values of OpenStack-Helm, variables of OpenStack-Ansible.

    None for any other file.
    """
    services, text = split(argument)
    paths = [Path(part) for part in text.split(":")]
    if not all(path.suffix in (".yaml", ".yml") and path.is_file() for path in paths):
        return []
    from gpustack.configure.deployment import openstack_ansible, openstack_helm, rhoso
    from gpustack.configure.rendered import documents

    read = {path: documents(path) for path in paths}
    found: list[Source] = []
    for path, of_file in read.items():
        for document in of_file:
            found += [*rhoso.sources(path, document), *openstack_helm.sources(path, document)]
    found += openstack_ansible.sources({path: dict(ChainMap(*of_file)) for path, of_file in read.items()}, services)
    found = [source for source in found if source.configuration.settings]
    if not found:
        problem = "no settings of Nova for RHOSO, OpenStack-Helm or OpenStack-Ansible"
        raise NovaConfigError(problem, where=text, remedy="name the nova.conf that the deployment tool makes of it")
    return found
