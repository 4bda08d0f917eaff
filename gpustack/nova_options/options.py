"""The options of nova.conf and placement.conf, release by release: names, types, limits, defaults.

The options of Nova come from its source. Those of its libraries (oslo.messaging, keystoneauth, …) are known exactly for
the releases that were imported; in any other release they are accepted without limits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from gpustack.base.by_key import by_key
from gpustack.nova_options import tables
from gpustack.nova_options.tables import Record

if TYPE_CHECKING:
    from oslo_config import types

OptionKind = Literal["multi", "list", "bool", "text", "number"]
TRUE = ("true", "1", "on", "yes")
"""The words by which a boolean option is on (``oslo_config.types.Boolean``)."""
Project = Literal["nova", "placement"]
_KINDS: Mapping[str, OptionKind] = {
    "List": "list",
    "Boolean": "bool",
    "Integer": "number",
    "Float": "number",
    "Port": "number",
}
_TABLES: Mapping[Project, str] = {"nova": "options", "placement": "placement"}
_FLAGS = ("multi", "computed", "secret", "removal", "required", "dashed", "lazy", "late")


@dataclass(frozen=True, kw_only=True, order=True)
class Release:
    """A release of Nova; releases sort by age.

    :ivar major: the major version of Nova: 32 for 32.2.1, a version of 2025.2.
    :ivar name: the codename in lower case.
    :ivar number: the release's number since Zed (``2022.2``), else None.
    """

    major: int
    name: str
    number: str | None = None

    def __str__(self) -> str:
        return self.number if self.number and self.major > 26 else self.name.capitalize()


@dataclass(frozen=True, kw_only=True)
class ValueType:
    """The type of an option's values.

    :ivar name: a class of ``oslo_config.types``, or ``Unknown``.
    :ivar item: the type of the entries of a list, or of the values of a dictionary.
    """

    name: str
    min: float | None = None
    max: float | None = None
    max_length: int | None = None
    choices: tuple[Any, ...] | None = None
    pattern: str | None = None
    ignore_case: bool = False
    schemes: tuple[str, ...] = ()
    bounds: bool = False
    item: ValueType | None = None

    @classmethod
    def of(cls, record: Record) -> ValueType:
        """The type in a record of the tables."""
        item = record.get("item")
        return cls(
            name=record["type"],
            choices=tuple(record["choices"]) if "choices" in record else None,
            schemes=tuple(record.get("schemes", ())),
            item=cls.of(item) if item else None,
            **_picked(record, "min", "max", "max_length", "pattern", "ignore_case", "bounds"),
        )

    @functools.cached_property
    def parser(self) -> types.ConfigType | None:
        """oslo.config's own type; None if it is not known."""
        from oslo_config import types

        choices = list(self.choices) if self.choices is not None else None
        if self.name == "String":
            return types.String(
                choices=choices, regex=self.pattern, ignore_case=self.ignore_case, max_length=self.max_length
            )
        if self.name in ("Integer", "Float", "Port"):
            number: Callable[..., types.ConfigType] = getattr(types, self.name)
            more = {"choices": choices} if choices and self.name != "Float" else {}
            return number(min=self.min, max=self.max, **more)
        item = self.item.parser if self.item else types.String()
        if self.name == "List":
            return types.List(item_type=item, bounds=self.bounds)
        if self.name == "Dict":
            return types.Dict(value_type=item)
        if self.name == "URI":
            return types.URI(max_length=self.max_length, schemes=list(self.schemes) or None)
        known: type[types.ConfigType] | None = getattr(types, self.name, None)
        return known() if known is not None and self.name != "Range" else None

    def fault(self, text: str) -> str | None:
        """The reason why oslo.config refuses a value; None if it accepts the value."""
        if self.parser is None:
            return None
        try:
            self.parser(text)
        except (ValueError, TypeError) as error:
            # oslo.config prints the permitted numbers with its own type.
            text, choices = str(error), getattr(self.parser, "choices", None)
            return text.replace(str(choices), str([*choices])) if choices else text
        return None

    @property
    def limits(self) -> str:
        """The limits for a message: ``at least 0``, ``one of a, b``."""
        least = self.min if self.min is None or self.name != "Float" else f"{self.min:g}"
        limits = {
            "one of {}": None if self.choices is None else ", ".join(str(choice) or "''" for choice in self.choices),
            "at least {}": least,
            "at most {}": self.max,
            "matching {}": self.pattern or None,
            "at most {} characters": self.max_length or None,
            "each entry {}": (self.item.limits if self.item else "") or None,
        }
        return "; ".join(text.format(limit) for text, limit in limits.items() if limit is not None)


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of nova.conf or placement.conf in some releases.

    :ivar group: its section; a ``*`` stands for each value of the option ``of``.
    :ivar multi: whether all lines of all files count; the last line decides the others.
    :ivar services: the services that read it; empty if that is not known.
    :ivar old_names: deprecated names (``GROUP/NAME``) that are read too.
    :ivar since: major version of Nova of the first release; ``until`` of the last one, None if the newest has it.
    :ivar dashed: whether its name can also be written with dashes.
    :ivar of_option: the option (``group/name``) whose values name its sections, and for one of them its value.
    :ivar lazy: whether it is read only if its section sets ``auth_type``.
    :ivar late: whether only nova-compute registers it, after it has read the others.
    """

    group: str
    name: str
    type: ValueType
    since: int
    until: int | None = None
    multi: bool = False
    default: Any = None
    computed: bool = False
    services: tuple[str, ...] = ()
    old_names: tuple[str, ...] = ()
    secret: bool = False
    removal: bool = False
    required: bool = False
    dashed: bool = False
    of_option: str = ""
    value_of_group: str = ""
    lazy: bool = False
    late: bool = False
    source: str = ""
    spans: tuple[tuple[int, int | None], ...] = field(default=(), compare=False, repr=False)

    @property
    def kind(self) -> OptionKind:
        """``multi`` options accumulate over all files; the last file decides the others."""
        return "multi" if self.multi else _KINDS.get(self.type.name, "text")

    @property
    def path(self) -> str:
        """``group/name``."""
        return f"{self.group}/{self.name}"

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the services that read it: ``nova-api``, ``placement-api``."""
        return tuple("placement-api" if service == "placement" else f"nova-{service}" for service in self.services)

    def known_to(self, release: Release) -> bool:
        """Whether a release has the option."""
        spans = self.spans or ((self.since, self.until),)
        return any(since <= release.major <= (until or release.major) for since, until in spans)

    def of(self, release: Release) -> Option:
        """The option as a release reads it: its names, limits and default."""
        table = option_table(release, "placement" if "placement" in self.services else "nova")
        return table.named.get(self.path, replace(self, old_names=()))


@dataclass(frozen=True, kw_only=True)
class OptionTable:
    """The options of one release.

    :ivar named: the options by ``group/name``.
    :ivar deprecated: the options by their deprecated names.
    :ivar dynamic: the options of sections named after values, such as ``[mdev_nvidia-35]``.
    """

    named: Mapping[str, Option]
    deprecated: Mapping[str, Option]
    dynamic: Sequence[Option]

    @functools.cached_property
    def groups(self) -> Mapping[str, Sequence[Option]]:
        """The options of each section."""
        return by_key((option.group, option) for option in self.named.values())

    def find(self, group: str, name: str) -> Option | None:
        """The option that reads ``name`` in a section, under its own or a deprecated name."""
        path = f"{group}/{name}"
        option = self.named.get(path) or self.deprecated.get(path) or self._dynamic(group, name)
        if option is None and "-" in name:
            dashed = self.named.get(f"{group}/{name.replace('-', '_')}")
            return dashed if dashed and dashed.dashed else None
        return option

    def section(self, group: str) -> Option | None:
        """An option of the dynamic sections to which a section belongs."""
        return next((option for option in self.dynamic if _value_in(option, group) is not None), None)

    def _dynamic(self, group: str, name: str) -> Option | None:
        for option in self.dynamic:
            value = _value_in(option, group)
            if value is not None and name in {path.partition("/")[2] for path in (option.path, *option.old_names)}:
                old_names = tuple(old.replace("*", value) for old in option.old_names)
                return replace(
                    option, group=option.group.replace("*", value), old_names=old_names, value_of_group=value
                )
        return None


def _value_in(option: Option, group: str) -> str | None:
    """The value in the name of a dynamic section: ``nvidia-35`` of ``mdev_nvidia-35``."""
    prefixes = (path.partition("/")[0].removesuffix("*") for path in (option.path, *option.old_names) if "*" in path)
    return next((group.removeprefix(prefix) for prefix in prefixes if group.startswith(prefix)), None)


@functools.cache
def option_table(release: Release, project: Project = "nova") -> OptionTable:
    """The options of a release."""
    named: dict[str, Option] = {}
    deprecated: dict[str, Option] = {}
    for option in _of_release(release.major, project):
        named.setdefault(option.path, option)
    options = list(named.values())
    for option in options:
        for old in option.old_names:
            deprecated.setdefault(old, option)
    return OptionTable(named=named, deprecated=deprecated, dynamic=[option for option in options if "*" in option.path])


def _of_release(major: int, project: Project) -> Iterator[Option]:
    own = tables.table(_TABLES[project])
    for record in own.records:
        of_library = "/" not in record["source"]
        if of_library and major not in own.imported:
            yield from _options(_loose(record))
        elif tables.holds(record, major):
            yield from _options(record)
    for record in tables.table("options").records if project == "placement" else ():
        if "/" not in record["source"]:
            yield from _options(_loose(record))


def _loose(record: Record) -> Record:
    """The record of a library's option without the values that may differ in another version."""
    kept = _picked(record, "group", "name", "secret", "old", "multi", "dashed", "lazy", "source")
    return {**kept, "type": "Unknown", "since": 0, "computed": True}


def _normal(path: str) -> str:
    """A path with its section as oslo.config compares it: in lower case, except ``DEFAULT``."""
    group, _, name = path.partition("/")
    return f"{group if group == 'DEFAULT' else group.lower()}/{name}"


def _picked(record: Record, *keys: str) -> dict[str, Any]:
    return {key: record[key] for key in keys if key in record}


def _options(record: Record) -> Iterator[Option]:
    groups = record["group"]
    for group in groups if isinstance(groups, list) else [groups]:
        path = f"{group}/{record['name']}"
        default = record.get("default")
        yield Option(
            group=group,
            type=ValueType.of(record),
            default=tuple(default) if isinstance(default, list) else default,
            services=services().get(path, ()),
            old_names=tuple(_normal(old if "/" in old else f"{group}/{old}") for old in record.get("old", ())),
            of_option=record.get("of", ""),
            **_picked(record, "name", "since", "until", "source", *_FLAGS),
        )


@functools.cache
def services() -> Mapping[str, tuple[str, ...]]:
    """The services that read each option, by ``group/name``."""
    return {path: tuple(names) for path, names in tables.facts()["services"].items()}


def option(path: str) -> Option:
    """The option called ``group/name``, regardless of the release, with the deprecated names of all releases.

    :raises KeyError: when no release has such an option.
    """
    if not (spans := _every(path)):
        raise KeyError(path)
    newest = spans[-1]
    return replace(
        newest,
        since=spans[0].since,
        old_names=tuple(dict.fromkeys(name for span in spans for name in span.old_names)),
        spans=tuple((span.since, span.until) for span in spans),
    )


@functools.cache
def _every(path: str) -> Sequence[Option]:
    """The records of an option, oldest first, in Nova or else in Placement."""
    group, _, name = path.partition("/")
    for project in ("nova", "placement"):
        records = tables.table(_TABLES[project]).records
        found = [r for r in records if r["name"] == name and (r["group"] == group or group in r["group"])]
        if options := [option for record in found for option in _options(record) if option.group == group]:
            return sorted(options, key=lambda entry: entry.since)
    return ()


@functools.cache
def of_any_release(project: Project = "nova") -> Mapping[str, Sequence[Option]]:
    """The options of all releases by each of their names, oldest first."""
    options = (option for record in tables.table(_TABLES[project]).records for option in _options(record))
    return by_key((path, option) for option in options for path in (option.path, *option.old_names))
