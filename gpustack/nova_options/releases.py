"""Nova's releases, and the PCI passthrough settings that each reads, from the tables of ``gpustack/data/nova``."""

import difflib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpustack.base.errors import UsageError
from gpustack.nova_options import options as _options
from gpustack.nova_options import tables
from gpustack.nova_options.options import Option, Release

option, table, TRUE = _options.option, _options.option_table, _options.TRUE


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key of an alias or a device_spec, or a flavor's extra spec.

    :ivar values: the permitted words; empty for free text.
    :ivar values_since: words added later than the key, with the major version that added them.
    :ivar needs: an option (``group/name``) that must be on; without it, the key has no effect.
    :ivar strict: whether Nova refuses words of a device_spec that are not boolean.
    """

    name: str
    since: int
    until: int | None = None
    source: str
    values: tuple[str, ...] = ()
    values_since: tuple[tuple[str, int], ...] = ()
    needs: str | None = None
    strict: bool = False

    def known_to(self, release: Release) -> bool:
        """Whether ``release`` has the key."""
        return self.since <= release.major and (self.until is None or release.major <= self.until)

    def values_in(self, release: Release) -> tuple[str, ...]:
        """The words that ``release`` accepts."""
        later = dict(self.values_since)
        return tuple(value for value in self.values if later.get(value, 0) <= release.major)


@functools.cache
def releases() -> tuple[Release, ...]:
    """Every known release, oldest first."""
    return tuple(Release(**entry) for entry in tables.facts()["release"])


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
    remedy = f"{hint}known are {releases()[0]} to {releases()[-1]}, by number or codename"
    raise UsageError(f"{text!r} is not a release of Nova that gpustack knows", remedy=remedy)


@functools.cache
def all_options() -> tuple[Option, ...]:
    """The options that concern GPUs, of all releases."""
    return tuple(option(path) for path in _options.services())


@functools.cache
def names() -> frozenset[str]:
    """The names of these options, with the deprecated ones."""
    return frozenset(name for known in all_options() for name in (known.path, *known.old_names))


def options(of: Release) -> tuple[Option, ...]:
    """The options that concern GPUs and that a release has, with the deprecated names that it still reads."""
    return tuple(known.of(of) for known in all_options() if known.known_to(of))


@functools.cache
def device_spec_option(of: Release) -> Option:
    """The option that lists nova-compute's devices: ``device_spec``, or ``passthrough_whitelist`` before Zed."""
    current = option("pci/device_spec")
    return current.of(of) if current.known_to(of) else option("pci/passthrough_whitelist").of(of)


@functools.cache
def _keys(of: str) -> Mapping[str, Key]:
    facts = tables.facts()
    found: dict[str, Key] = {}
    for (owner, name), records in tables.runs("pci_keys", "of", "name").items():
        if owner == of:
            path, last = f"{of}/{name}", records[-1]
            values = facts["words"].get(path, last.get("enum", ()))
            found[name] = Key(
                name=name,
                since=records[0]["since"],
                until=last.get("until"),
                values=tuple(values),
                values_since=_since(records),
                needs=facts["needs"].get(path),
                strict=last.get("as") == "boolean",
                source=last["source"],
            )
    return found


def _since(records: Sequence[tables.Record]) -> tuple[tuple[str, int], ...]:
    """The words that a later record adds, each with its release."""
    first: dict[str, int] = {}
    for record in records:
        for word in record.get("enum", ()):
            first.setdefault(word, record["since"])
    return tuple((word, since) for word, since in first.items() if since > records[0]["since"])


def keys(of: Literal["alias", "device_spec"], in_release: Release | None = None) -> dict[str, Key]:
    """The keys of an alias or a device_spec by name; without a release, those of all releases."""
    return {name: key for name, key in _keys(of).items() if in_release is None or key.known_to(in_release)}


@functools.cache
def _extra_specs() -> Mapping[str, Key]:
    by_name = tables.runs("extra_specs", "name")
    found = {}
    for entry in tables.facts()["extra_spec"]:
        records = by_name.get((entry["name"],), ())
        last = records[-1] if records else {}
        values = ("true", "false") if last.get("type") == "bool" else tuple(last.get("enum", ()))
        found[entry["name"]] = Key(**entry, values=values, values_since=_since(records) if records else ())
    return found


def extra_specs(in_release: Release | None = None) -> dict[str, Key]:
    """The flavor extra specs that concern GPUs, by name; without a release, those of all releases."""
    return {name: key for name, key in _extra_specs().items() if in_release is None or key.known_to(in_release)}


def default_filters(of: Release) -> tuple[str, ...]:
    """The default of ``[filter_scheduler] enabled_filters``."""
    return tuple(option("filter_scheduler/enabled_filters").of(of).default)


@functools.cache
def filters(of: Release) -> frozenset[str]:
    """The filters that a release has (``nova.scheduler.filters.all_filters``)."""
    return frozenset(path.rpartition(".")[2] for path in classes("filters", of))


@functools.cache
def classes(kind: Literal["filters", "weighers"], of: Release | None = None) -> frozenset[str]:
    """The filters or weighers of a release, or of all, each as ``MODULE.CLASS``."""
    records = tables.table(kind).records
    known = (record for record in records if of is None or tables.holds(record, of.major))
    return frozenset(f"{record['module']}.{record['name']}" for record in known)
