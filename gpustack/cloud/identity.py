"""Keystone's projects and users: their names, their ids, and which projects it does not have."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from gpustack.base.errors import CloudError, PlanError
from gpustack.base.text import listed
from gpustack.cloud import Connection
from gpustack.cloud.session import Refused, each, find, listing, well_formed

_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOST = 100
"""The most ids that are looked up one by one: lists can omit those of other domains."""

_SHOWN = 8


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
    """

    names: dict[str, str] = field(default_factory=dict)
    deleted: frozenset[str] = frozenset()


def names(cloud: Connection, kind: str, ids: Collection[str]) -> Names:
    """Return the names of ``projects`` or ``users``: one request, and one for each id that the list lacks.

    :param kind: ``projects`` or ``users``.
    """
    if not (wanted := {entry for entry in ids if entry}):
        return Names()
    doing = f"list {kind}"
    try:
        entries = listing(cloud, "identity", f"/{kind}?", kind, doing)
        with well_formed(doing):
            known = {str(entry["id"]): str(entry["name"]) for entry in entries}
    except CloudError:
        return Names()
    lacking = sorted(wanted - known.keys())[:_MOST]
    found = {entry: known[entry] for entry in wanted & known.keys()}
    try:
        single = dict(zip(lacking, each(lambda entry: _single(cloud, kind, entry), lacking), strict=True))
    except CloudError:
        return Names(names=found)
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


def is_id(ref: str) -> bool:
    """Whether a reference is an id: a name of this form counts nowhere, since others may choose it."""
    return _ID.fullmatch(ref) is not None


def projects(cloud: Connection, ref: str = "") -> tuple[Project, ...]:
    """Return the projects that an id or a name means; all without one.

    32 hexadecimal digits are always an id: a project that is named like the id of another one is named by its own id.

    :raises CloudError: if Keystone cannot be reached or refuses.
    """
    doing = f"look up the project {ref!r}" if ref else "list projects"
    if is_id(ref):
        single = find(cloud, "identity", f"/projects/{ref}", doing)
        entries = [] if single is None else [single.get("project")]
    else:
        path = f"/projects?name={quote(ref, safe='')}" if ref else "/projects?"
        entries = listing(cloud, "identity", path, "projects", doing)
    with well_formed(doing):
        found = (
            Project(id=str(entry["id"]), name=str(entry["name"]), domain=str(entry.get("domain_id") or ""))
            for entry in entries
        )
        # Keystone's database may compare names without case.
        return tuple(entry for entry in found if ref in ("", entry.id, entry.name))


Lookup = Callable[[str], tuple[Project, ...]]
"""Finds the projects that an id or a name means."""


def project(cloud: Connection, ref: str, lookup: Lookup | None = None) -> Project:
    """Return the only project that an id or a name means.

    :param lookup: finds projects; None to ask Keystone.
    :raises PlanError: if there is none, or more than one in all domains.
    :raises CloudError: if Keystone refuses.
    """
    found = lookup(ref) if lookup else projects(cloud, ref)
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} projects are called {ref!r}: {several(found)}" if found else f"no project is called {ref!r}"
    gone = "" if found else "; if it was deleted, remove it from the spec"
    raise PlanError(what, remedy=f"run `openstack project list`, and name the project by its id{gone}")


def several(found: Sequence[Project]) -> str:
    """The projects that one name means."""
    return listed([f"{entry.id} (domain {entry.domain})" for entry in found], _SHOWN)


def distinct(names: Mapping[str, str]) -> Callable[[str], str]:
    """What people read for an id: its name, with the id if others have this name too; the id if it has none."""
    ids = Counter(names.values())
    shown = {entry: name if ids[name] == 1 else f"{name} ({entry})" for entry, name in names.items()}
    return lambda entry: shown.get(entry, entry)


def project_id(cloud: Connection, ref: str, lookup: Lookup | None = None) -> str:
    """Return the id of a project, as :func:`project`; an id is not looked up."""
    return ref if is_id(ref) else project(cloud, ref, lookup).id


def project_ids(refs: Iterable[str], find: Callable[[str], str]) -> dict[str, str]:
    """The ids of projects, by their id or name; ``find`` looks one up, and is called for several at a time."""
    known = sorted(set(refs))
    return dict(zip(known, each(find, known), strict=True))
