"""Nova's releases, and the PCI passthrough settings that each reads: ``gpustack/data/nova.toml`` as objects."""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpustack.base.errors import UsageError
from gpustack.base.files import data_dir

OptionKind = Literal["multi", "list", "bool", "text", "number"]
TRUE, FALSE = ("true", "1", "on", "yes"), ("false", "0", "off", "no")
"""The words that a boolean option accepts (``oslo_config.types.Boolean``)."""


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
class _Lifetime:
    since: int
    until: int | None = None
    source: str

    def known_to(self, release: Release) -> bool:
        """Whether ``release`` has the entry."""
        return self.since <= release.major and (self.until is None or release.major <= self.until)


@dataclass(frozen=True, kw_only=True)
class Option(_Lifetime):
    """An option of nova.conf, or of placement.conf.

    :ivar kind: ``multi`` options accumulate over all files; the last file decides the others.
    :ivar services: the services that read it.
    :ivar old_names: deprecated names (``GROUP/NAME``) that are read too.
    :ivar old_names_until: major version of the last release that reads the deprecated names; None if all do.
    """

    group: str
    name: str
    kind: OptionKind
    services: tuple[str, ...]
    old_names: tuple[str, ...] = ()
    old_names_until: int | None = None

    def of(self, release: Release) -> Option:
        """The option as ``release`` reads it: without deprecated names that the release has dropped."""
        dropped = self.old_names_until is not None and release.major > self.old_names_until
        return replace(self, old_names=()) if dropped else self

    @property
    def path(self) -> str:
        """``group/name``."""
        return f"{self.group}/{self.name}"

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the services that read it: ``nova-api``, ``placement-api``."""
        return tuple("placement-api" if service == "placement" else f"nova-{service}" for service in self.services)


@dataclass(frozen=True, kw_only=True)
class Key(_Lifetime):
    """A key of an alias or a device_spec, or a flavor's extra spec.

    :ivar values: the permitted words; empty for free text.
    :ivar values_since: words added later than the key, with the major version that added them.
    :ivar needs: an option (``group/name``) that must be on; without it, the key has no effect.
    """

    name: str
    of: str = ""
    values: tuple[str, ...] = ()
    values_since: tuple[tuple[str, int], ...] = ()
    needs: str | None = None

    def values_in(self, release: Release) -> tuple[str, ...]:
        """The words that ``release`` accepts."""
        later = dict(self.values_since)
        return tuple(value for value in self.values if later.get(value, 0) <= release.major)


@dataclass(frozen=True, kw_only=True)
class _DefaultFilters(_Lifetime):
    filters: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Filter(_Lifetime):
    """A class of the scheduler's filters."""

    name: str


@dataclass(frozen=True, kw_only=True)
class _Table:
    releases: tuple[Release, ...]
    options: tuple[Option, ...]
    keys: tuple[Key, ...]
    extra_specs: tuple[Key, ...]
    default_filters: tuple[_DefaultFilters, ...]
    filters: tuple[Filter, ...]


def _frozen(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        name: tuple(value.items()) if isinstance(value, dict) else tuple(value) if isinstance(value, list) else value
        for name, value in entry.items()
    }


@functools.cache
def _table() -> _Table:
    data = tomllib.loads((data_dir("") / "nova.toml").read_text(encoding="utf-8"))
    return _Table(
        releases=tuple(Release(**entry) for entry in data["release"]),
        options=tuple(Option(**_frozen(entry)) for entry in data["option"]),
        keys=tuple(Key(**_frozen(entry)) for entry in data["key"]),
        extra_specs=tuple(Key(**_frozen(entry)) for entry in data["extra_spec"]),
        default_filters=tuple(_DefaultFilters(**_frozen(entry)) for entry in data["default_filters"]),
        filters=tuple(Filter(**entry) for entry in data["filter"]),
    )


def releases() -> tuple[Release, ...]:
    """Every known release, oldest first."""
    return _table().releases


def first_with(major: int) -> Release:
    """The release with this version of Nova: the one that an option or key came with (``since``)."""
    return next(known for known in releases() if known.major == major)


def release(text: str) -> Release:
    """The release with a name or version: ``2025.2``, ``flamingo``, ``Yoga``, ``32`` or ``32.2.1``.

    :raises UsageError: when no known release has that name.
    """
    wanted = text.strip().lower()
    for known in releases():
        if wanted in (known.name, known.number, str(known.major)) or wanted.startswith(f"{known.major}."):
            return known
    names = [name for known in releases() for name in (known.name, known.number) if name]
    near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"{text!r} is not a release of Nova that gpustack knows",
        remedy=f"{hint}known are {releases()[0]} to {releases()[-1]}, by number or codename",
    )


def all_options() -> tuple[Option, ...]:
    """The options of all releases."""
    return _table().options


def options(of: Release) -> tuple[Option, ...]:
    """The options that a release has, with the deprecated names that it still reads."""
    return tuple(option.of(of) for option in _table().options if option.known_to(of))


def option(path: str) -> Option:
    """The option called ``group/name``, regardless of the release.

    :raises KeyError: when the table has no such option.
    """
    for known in _table().options:
        if known.path == path:
            return known
    raise KeyError(path)


def device_spec_option(of: Release) -> Option:
    """The option that lists nova-compute's devices: ``device_spec``, or ``passthrough_whitelist`` before Zed."""
    current = option("pci/device_spec")
    return current if current.known_to(of) else option("pci/passthrough_whitelist")


def keys(of: Literal["alias", "device_spec"], in_release: Release | None = None) -> dict[str, Key]:
    """The keys of an alias or a device_spec by name; without a release, those of all releases."""
    return {key.name: key for key in _table().keys if key.of == of and (in_release is None or key.known_to(in_release))}


def extra_specs(in_release: Release | None = None) -> dict[str, Key]:
    """The flavor extra specs that concern GPUs, by name; without a release, those of all releases."""
    return {key.name: key for key in _table().extra_specs if in_release is None or key.known_to(in_release)}


def default_filters(of: Release) -> tuple[str, ...]:
    """The default of ``[filter_scheduler] enabled_filters``."""
    return next(entry.filters for entry in _table().default_filters if entry.known_to(of))


def all_filters() -> tuple[Filter, ...]:
    """The scheduler's filters of all releases."""
    return _table().filters


@functools.cache
def filters(of: Release) -> frozenset[str]:
    """The filters that a release has (``nova.scheduler.filters.all_filters``)."""
    return frozenset(known.name for known in _table().filters if known.known_to(of))
