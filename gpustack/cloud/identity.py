"""Keystone's projects and users: their names, their ids, and which projects it does not have."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gpustack.base.errors import CloudError
from gpustack.cloud.session import Refused, each, find, get, well_formed

if TYPE_CHECKING:
    from openstack.connection import Connection

_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOST = 100
"""The most ids that are looked up one by one: lists can omit those of other domains."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project, with the domain that distinguishes it from others of the same name."""

    id: str
    name: str
    domain: str = ""


@dataclass(frozen=True, kw_only=True)
class Names:
    """Names by id.

    :ivar deleted: ids that Keystone does not have.
    :ivar unread: why names are missing; empty if none is.
    """

    names: dict[str, str] = field(default_factory=dict)
    deleted: frozenset[str] = frozenset()
    unread: str = ""


def names(cloud: Connection, kind: str, ids: Collection[str]) -> Names:
    """Return the names of ``projects`` or ``users``: one request, and one for each id that the list lacks.

    :param kind: ``projects`` or ``users``.
    """
    wanted = {entry for entry in ids if entry}
    if not wanted:
        return Names()
    doing = f"list {kind}"
    try:
        content = get(cloud, "identity", f"/{kind}", doing)
        with well_formed(doing):
            known = {str(entry["id"]): str(entry["name"]) for entry in content[kind]}
    except CloudError as error:
        return Names(unread=error.what)
    lacking = sorted(wanted - known.keys())
    found = {entry: known[entry] for entry in wanted & known.keys()}
    try:
        single = dict(
            zip(lacking[:_MOST], each(lambda entry: _single(cloud, kind, entry), lacking[:_MOST]), strict=True)
        )
    except CloudError as error:
        return Names(names=found, unread=error.what)
    found |= {entry: name for entry, name in single.items() if name}
    return Names(names=found, deleted=frozenset(entry for entry, name in single.items() if name is None))


def _single(cloud: Connection, kind: str, entry: str) -> str | None:
    """The name of one project or user; None if there is none, empty if the user may not see it."""
    doing = f"read one of the {kind}"
    try:
        content = find(cloud, "identity", f"/{kind}/{entry}", doing)
    except Refused:
        return ""
    with well_formed(doing):
        return None if content is None else str(content[kind.removesuffix("s")]["name"])


def projects(cloud: Connection, name: str = "") -> tuple[Project, ...]:
    """Return the projects with this id or name; all without one.

    :raises CloudError: if Keystone cannot be reached or refuses.
    """
    doing = f"look up the project {name!r}" if name else "list projects"
    content = get(cloud, "identity", f"/projects?name={quote(name, safe='')}" if name else "/projects", doing)
    with well_formed(doing):
        entries: list[Mapping[str, Any]] = list(content["projects"])
    if name and not entries and _ID.fullmatch(name):
        single = find(cloud, "identity", f"/projects/{name}", doing)
        with well_formed(doing):
            entries = [single["project"]] if single else []
    with well_formed(doing):
        return tuple(
            Project(id=str(entry["id"]), name=str(entry["name"]), domain=str(entry.get("domain_id") or ""))
            for entry in entries
        )


def project_id(cloud: Connection, name: str) -> str:
    """Return the id of a project; one that looks like an id is not looked up.

    :raises CloudError: if no project, or more than one, has this name; or if Keystone refuses.
    """
    if _ID.fullmatch(name):
        return name
    found = projects(cloud, name)
    if len(found) != 1:
        several = f"{len(found)} projects are" if found else "no project is"
        raise CloudError(f"{several} called {name!r}", remedy="name the project by its id")
    return found[0].id
