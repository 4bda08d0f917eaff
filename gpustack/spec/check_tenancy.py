"""Checks of the section ``tenancy`` beyond its schema."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpustack.base.findings import Severity
from gpustack.spec.document import Document, entries, mapping
from gpustack.spec.extra_specs import REQUIRED, TRAIT
from gpustack.spec.problems import Problem
from gpustack.spec.tenancy import DEFAULT_TRAIT


def check_tenancy(document: Document, flavors: Mapping[str, Any], tenancy: Mapping[str, Any]) -> Iterator[Problem]:
    """Aggregates that reserve nothing, flavors that refuse the hosts, and projects without hosts or flavors."""
    aggregates = {name: entry for name, entry in mapping(tenancy, "aggregates").items() if isinstance(entry, dict)}
    for name, entry in aggregates.items():
        if entry.get("isolated") is False and not entry.get("projects"):
            message = "the aggregate reserves nothing: list projects, or set isolated: true"
            yield document.problem(("tenancy", "aggregates", name), message, at_key=True)
    key = f"{TRAIT}{tenancy.get('trait', DEFAULT_TRAIT)}"
    for name, flavor in flavors.items() if tenancy else ():
        if mapping(flavor, "extra_specs").get(key, REQUIRED) != REQUIRED:
            message = f"GPU hosts have the trait; expected {REQUIRED!r}, which gpustack derives from tenancy"
            yield document.problem(("flavors", name, "extra_specs", key), message)
    access = {
        name: [str(project) for project in flavor["access"]]
        for name, flavor in flavors.items()
        if isinstance(flavor, dict) and isinstance(flavor.get("access"), list)
    }
    yield from _without_hosts(document, aggregates, access)
    if access.keys() == flavors.keys():
        yield from _without_flavors(document, aggregates, access)


def _without_hosts(
    document: Document, aggregates: Mapping[str, Mapping[str, Any]], access: Mapping[str, list[str]]
) -> Iterator[Problem]:
    """Projects that may use a flavor, if all hosts are reserved for others."""
    reserved = [entries(entry, "projects") for entry in aggregates.values()]
    if not any(
        projects and not entry.get("hosts") for projects, entry in zip(reserved, aggregates.values(), strict=True)
    ):
        return
    accepted = {str(project) for projects in reserved for project in projects}
    for name, projects in access.items():
        for number, project in enumerate(projects):
            if project not in accepted:
                message = f"no GPU host accepts {project}: add it, written the same way, to an aggregate"
                yield document.problem(("flavors", name, "access", number), message, severity=Severity.WARNING)


def _without_flavors(
    document: Document, aggregates: Mapping[str, Mapping[str, Any]], access: Mapping[str, list[str]]
) -> Iterator[Problem]:
    """Projects with hosts that see no flavor of the spec: all are private."""
    seeing = {project for projects in access.values() for project in projects}
    for name, entry in aggregates.items() if access else ():
        for number, project in enumerate(map(str, entries(entry, "projects"))):
            if project not in seeing:
                message = (
                    f"no flavor of the spec is visible to {project}: add it, written the same way, to `access` of one"
                )
                path = ("tenancy", "aggregates", name, "projects", number)
                yield document.problem(path, message, severity=Severity.WARNING)
