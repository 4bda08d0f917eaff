"""Read the names of projects and users from Keystone, and which projects it does not have."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpustack.base.errors import CloudError
from gpustack.cloud.session import Refused
from gpustack.fleet.requests import each, get, well_formed

if TYPE_CHECKING:
    from openstack.connection import Connection

_MISSING = 404
_MOST = 100
"""The most ids that are looked up one by one: lists can omit those of other domains."""


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
        content = get(cloud, "identity", f"/{kind}/{entry}", doing)
    except Refused as error:
        if error.status == _MISSING:
            return None
        return ""
    with well_formed(doing):
        return str(content[kind.removesuffix("s")]["name"])
