"""The operations on flavors as changes: a flavor with its extra specs, and the projects that may use it.

A flavor is created with the mark in its description, and one request then sets all extra specs. Access is granted
after that. So an interruption leaves no flavor that somebody can use and that is incomplete.
"""

import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from gpustack.base.errors import CloudError, FlavorError
from gpustack.base.text import counted, quoted
from gpustack.changes.change import CloudChange, Value, difference
from gpustack.cloud import Connection, identity
from gpustack.cloud.flavors import FlavorCloud, Sizes
from gpustack.cloud.session import Refused, Unanswered
from gpustack.offer.flavor.flavors import ACCESS, ACCESS_CHANGES, SETS, PresentFlavor, present_flavors
from gpustack.offer.flavor.operations import ChangeFlavor, DeleteFlavor, FlavorOperation
from gpustack.spec.extra_specs import NAMESPACE

_SERVER_ERRORS = 500
_RESTORED = "rxtx_factor"
_SIZES = ("vcpus", "ram", "disk", "ephemeral", "swap")
Flavors = FlavorCloud[PresentFlavor]


class _ChangeOfFlavor(CloudChange):
    @classmethod
    def client(cls, connection: Connection) -> Flavors:
        return present_flavors(connection)

    def foreign(self, api: Flavors) -> str:
        found = api.get(self.id)
        if found is None or found.ours:
            return ""
        hint = f"; to delete it: gpustack flavor delete {quoted(found.name)} --force" if self.wanted is None else ""
        return f"the flavor does not have gpustack's mark{hint}"


@dataclass(frozen=True, kw_only=True)
class FlavorChange(_ChangeOfFlavor):
    """Create, change or delete a flavor.

    The value of a flavor that is created or deleted has its sizes, visibility, description and extra specs, and that
    of a deleted private one its projects. That of a change has the changed ones, with None for an extra spec that does
    not exist. If projects have access, the access mark belongs to :class:`AccessChange`.
    """

    kind: ClassVar[str] = "change_flavor"
    object_kind: ClassVar[str] = "flavor"
    undone: ClassVar[str] = (
        "restores its extra specs, creates it with its former id, or deletes it if no instance uses it"
    )
    written: ClassVar[tuple[str, ...]] = (*_SIZES, "public", "description", "extra_specs", "access")
    value: ClassVar[Any] = dict[str, bool | int | str | list[str] | dict[str, str | None]] | None

    @property
    def compared_by_api(self) -> bool:
        """A new UUID is nobody else's, and Nova refuses a name that exists; but an undo may find the flavor there."""
        return self.seen is None and not self.about.get("chosen") and not self.recorded

    def details(self) -> list[str]:
        flat = [{**value, **value.get("extra_specs", {})} for value in (self.seen or {}, self.wanted or {})]
        hidden = ("extra_specs", NAMESPACE)
        lines = difference(*({k: v for k, v in entry.items() if not k.startswith(hidden)} for entry in flat))
        return lines or ["~ gpustack's mark"]

    @property
    def lacks_projects(self) -> bool:
        """Whether it deletes a private flavor, and the value before does not have its projects."""
        return self.wanted is None and not self.seen["public"] and "access" not in self.seen

    def reverse(self) -> CloudChange:
        """The change back. A private flavor is created without projects: the undo leaves one that others gave some."""
        back = super().reverse()
        is_private = isinstance(back, FlavorChange) and back.lacks_projects
        return replace(back, seen={**back.seen, "access": []}) if is_private else back

    def remaining(self, cloud: Connection) -> Self:
        if not (self.wanted or {}).get("access"):
            return self
        return replace(
            self, wanted={**self.wanted, "access": [p for p in self.wanted["access"] if identity.projects(cloud, p)]}
        )

    def foreign(self, api: Flavors) -> str:
        """Of a change that adds the mark, as the undo of an undo of ``--adopt``, the flavor has none."""
        before, after = ((value or {}).get("extra_specs", {}).get(SETS) for value in (self.seen, self.wanted))
        return "" if self.seen and after and not before else super().foreign(api)

    def read(self, api: Flavors) -> Value:
        if (found := api.get(self.id)) is None:
            return None
        if self.seen is not None and self.wanted is not None:
            specs = {key: found.extra_specs.get(key) for key in self.wanted.get("extra_specs", ())}
            present = {**_value(found), "extra_specs": specs}
            return {key: present[key] for key in self.wanted}
        planned = self.wanted or self.seen
        access = api.access(self.id) if "access" in planned else None
        return _value(found, access, marked=ACCESS in planned["extra_specs"])

    def permitted(self) -> str:
        values = [value for value in (self.seen, self.wanted) if value is not None]
        keys = {key for value in values for key in value}
        if not all(isinstance(value.get("extra_specs", {}), Mapping) for value in values):
            return "extra specs have names and values"
        if not re.fullmatch(r"\d+(\.\d+)?", self.about.get(_RESTORED, "1")):
            return f"{_RESTORED} is no number"
        if len(values) == 1:
            complete = keys >= {*_SIZES, "public", "description", "extra_specs"}
            return "" if complete else "the journal has a part of the flavor only"
        return super().permitted() if keys <= {"description", "extra_specs"} else "Nova changes no sizes"

    def obstacle(self, api: Flavors, made: Sequence[CloudChange]) -> str:
        if self.wanted is not None or self.about.get("force"):
            return ""
        users = api.users(self.id)
        return f"in use by {counted(users, 'instance')}" if users else ""

    def carry_out(self, api: Flavors) -> str:
        if self.wanted is None:
            api.delete(self.id)
        elif self.seen is None:
            self._create(api)
        else:
            self._change(api)
        return self.id

    def _create(self, api: Flavors) -> None:
        value = self.wanted
        sizes = Sizes(**{key: value[key] for key in _SIZES})
        rest = {key: float(text) for key, text in self.about.items() if key == _RESTORED}
        try:
            if not (self.partial and api.get(self.id)):
                api.create(self.id, self.name, sizes, public=value["public"], description=value["description"], **rest)
        except Refused as error:
            if error.status < _SERVER_ERRORS:
                raise
            # The flavor may exist although the service failed. With an id of the spec, others may have created it.
            self._take_back(api, error, own=not self.about.get("chosen"))
        projects = value.get("access", ())
        # The mark of the projects is written after them.
        last = {key: spec for key, spec in value["extra_specs"].items() if projects and key == ACCESS}
        first = {key: spec for key, spec in value["extra_specs"].items() if key not in last}
        try:
            if first:
                api.set_extra_specs(self.id, first, restored=self.recorded)
            for project in projects:
                api.grant(self.id, project)
            if last:
                api.set_extra_specs(self.id, last)
        except Unanswered:
            raise  # the run reads the flavor, and begins nothing else
        except CloudError as error:
            self._take_back(api, error, own=True)

    def _take_back(self, api: Flavors, reason: CloudError, *, own: bool) -> None:
        """Delete a flavor that could not be completed, unless its name or description shows another origin.

        :param own: whether a flavor with this id, name and description is certainly one that this run created.
        :raises FlavorError: always; the message has the resulting state.
        """
        try:
            current = api.get(self.id)
            origin = (self.name, self.wanted["description"])
            alike = current is not None and (current.name, current.description) == origin
            if alike and own:
                api.delete(self.id)
        except CloudError as error:
            raise FlavorError(
                f"{self.name} may exist without its alias: {reason.what}; it could not be removed: {error.what}",
                remedy="`gpustack flavor apply` completes a flavor of the spec;"
                f" `gpustack flavor delete {quoted(self.name)}` removes it",
            ) from reason
        if alike and not own:
            raise FlavorError(
                f"{self.name} exists with the id {self.id}, created by this run or by another one at the same time;"
                f" it may be incomplete: {reason.what}",
                remedy="`gpustack flavor apply` completes a flavor of the spec, when no other run changes it",
            ) from reason
        what = f"{self.name} was not created, and nothing is left of it: {reason.what}"
        raise FlavorError(what, remedy=reason.remedy) from reason

    def _change(self, api: Flavors) -> None:
        specs: Mapping[str, str | None] = self.wanted.get("extra_specs", {})
        for key, value in specs.items():
            if value is None:
                api.unset_extra_spec(self.id, key)
        if new := {key: value for key, value in specs.items() if value is not None}:
            api.set_extra_specs(self.id, new, restored=self.recorded)
        if "description" in self.wanted:
            api.describe(self.id, self.wanted["description"])


@dataclass(frozen=True, kw_only=True)
class AccessChange(_ChangeOfFlavor):
    """Give projects access to a private flavor, or remove it: by project id, whether the project has access."""

    kind: ClassVar[str] = "change_access"
    object_kind: ClassVar[str] = "flavor_access"
    undone: ClassVar[str] = "restores the access of these projects"
    written: ClassVar[tuple[str, ...]] = ("*",)
    value: ClassVar[Any] = dict[str, bool]

    def describe(self) -> str:
        return f"change the projects of {self.name}: {self.why}"

    def made_to(self, present: Mapping[str, Any]) -> dict[str, Any]:
        listed = {"access": [p for p in present["access"] if self.wanted.get(p, True)]} if "access" in present else {}
        return {**super().made_to(present), **listed}

    def details(self) -> list[str]:
        moved = {project: now for project, now in self.wanted.items() if now != self.seen.get(project)}
        return [f"{'+' if now else '-'} project {project}" for project, now in sorted(moved.items())]

    def remaining(self, cloud: Connection) -> Self | None:
        wanted = {project: now for project, now in self.wanted.items() if not now or identity.projects(cloud, project)}
        return replace(self, seen={key: self.seen[key] for key in wanted}, wanted=wanted) if wanted else None

    def read(self, api: Flavors) -> Value:
        if self.recorded and api.get(self.id) is None:
            return None if any(self.wanted.values()) else dict(self.wanted)
        present = api.access(self.id)
        value = {project: project in present for project in self.wanted}
        if self.recorded and value == self.wanted and self.about.get("mark") != ACCESS_CHANGES:
            flavor = api.get(self.id)
            if flavor and flavor.extra_specs.get(ACCESS) == ACCESS_CHANGES:
                return dict(self.seen)  # the projects are right, and their mark is that of an interrupted change
        return value

    def carry_out(self, api: Flavors) -> str:
        mark, mark_before = self.about.get("mark"), self.about.get("mark_before")
        if mark_before and mark_before != ACCESS_CHANGES:
            # If the run is interrupted here, the old mark would be wrong.
            api.set_extra_specs(self.id, {ACCESS: ACCESS_CHANGES})
        for project, now in sorted(self.wanted.items()):
            if not now:
                api.revoke(self.id, project)
        for project, now in sorted(self.wanted.items()):
            if now:
                api.grant(self.id, project)
        if mark and (mark != ACCESS_CHANGES or not mark_before):
            api.set_extra_specs(self.id, {ACCESS: mark})
        elif mark_before and not mark:
            api.unset_extra_spec(self.id, ACCESS)
        return self.id

    def reverse(self) -> CloudChange:
        marks = {"mark": self.about.get("mark_before", ""), "mark_before": self.about.get("mark", "")}
        return replace(super().reverse(), about=marks)


def changes(operations: Sequence[FlavorOperation]) -> tuple[CloudChange, ...]:
    """The operations as changes. A flavor that replaces another one needs its deletion."""
    made: list[CloudChange] = []
    last: dict[str, str] = {}
    for operation in operations:
        for change in _changes(operation):
            needs = (last[operation.name],) if operation.name in last else ()
            change = replace(change, needs=needs, tag=f"{change.object_kind}:{operation.name}:{len(made)}")
            last[operation.name] = change.key
            made.append(change)
    return tuple(made)


def with_projects(api: Flavors, changes: Iterable[CloudChange]) -> tuple[CloudChange, ...]:
    """The changes, with the projects of each private flavor that is deleted, so that an undo can restore its access.

    :raises CloudError: if the projects of a flavor cannot be read.
    """
    return tuple(
        replace(change, seen={**change.seen, "access": sorted(api.access(change.id))})
        if isinstance(change, FlavorChange) and change.lacks_projects
        else change
        for change in changes
    )


def _changes(operation: FlavorOperation) -> Iterator[CloudChange]:
    match operation:
        case ChangeFlavor():
            yield from _modification(operation)
        case DeleteFlavor(why=why, flavor=flavor, force=force):
            about = {"force": "yes"} if force else {}
            about |= {_RESTORED: str(flavor.rxtx_factor)} if flavor.rxtx_factor != 1.0 else {}
            yield FlavorChange(why=why, id=flavor.id, name=flavor.name, seen=_value(flavor), wanted=None, about=about)
        case _:
            yield from _creation(operation)


def _creation(operation: FlavorOperation) -> Iterator[CloudChange]:
    flavor = operation.flavor
    new, value = flavor.id or str(uuid.uuid4()), _value(flavor, marked=not flavor.access)
    about = {"chosen": "yes"} if flavor.id else {}
    yield FlavorChange(why=operation.why, id=new, name=operation.name, seen=None, wanted=value, about=about)
    if flavor.access:
        mark = flavor.extra_specs.get(ACCESS)
        yield _access(operation, new, dict.fromkeys(sorted(flavor.access), True), (mark, None))


def _modification(operation: ChangeFlavor) -> Iterator[CloudChange]:
    before, flavor, grant, revoke = operation.before, operation.flavor, operation.grant, operation.revoke
    specs: dict[str, str | None] = {**dict.fromkeys(operation.unset_specs), **operation.set_specs}
    mark, former = (state.extra_specs.get(ACCESS) for state in (flavor, before))
    if mark != former and not grant | revoke:
        specs[ACCESS] = mark
    wanted: dict[str, Any] = {"extra_specs": specs} if specs else {}
    seen: dict[str, Any] = {"extra_specs": {key: before.extra_specs.get(key) for key in specs}} if specs else {}
    if flavor.description != before.description:
        wanted["description"], seen["description"] = flavor.description, before.description
    if wanted:
        yield FlavorChange(why=operation.why, id=flavor.id, name=flavor.name, seen=seen, wanted=wanted)
    between = ACCESS_CHANGES if grant and revoke else None
    if grant:
        yield _access(operation, flavor.id, dict.fromkeys(sorted(grant), True), (between or mark, former))
    if revoke:
        yield _access(operation, flavor.id, dict.fromkeys(sorted(revoke), False), (mark, between or former))


def _access(
    operation: FlavorOperation, flavor: str, wanted: Mapping[str, bool], marks: tuple[str | None, str | None]
) -> AccessChange:
    """The change of projects; ``marks`` are the access marks after it and before it."""
    return AccessChange(
        why=operation.why,
        id=flavor,
        name=operation.name,
        seen={project: not now for project, now in wanted.items()},
        wanted=wanted,
        about={"mark": marks[0] or "", "mark_before": marks[1] or ""},
    )


def _value(flavor: PresentFlavor, access: Collection[str] | None = None, *, marked: bool = True) -> dict[str, Any]:
    """The value of a flavor.

    :param access: its projects, if they belong to the value.
    :param marked: whether the access mark does.
    """
    return {
        **flavor.sizes.to_dict(),
        "public": flavor.public,
        "description": flavor.description,
        "extra_specs": {key: value for key, value in flavor.extra_specs.items() if marked or key != ACCESS},
        **({} if access is None else {"access": sorted(access)}),
    }
