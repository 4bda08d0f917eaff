"""The filters that nova-scheduler can enable: those that ``[filter_scheduler] available_filters`` makes available.

The rules are Nova's own (``HostManager._choose_host_filters`` in ``nova/scheduler/host_manager.py``, and
``nova/loadables.py``): each line names a class, or a function that returns classes, and ``enabled_filters`` names
classes. nova-scheduler does not start with any other name. ``gpustack/data/nova.toml`` lists the classes of each
release.
"""

import difflib
import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpustack.nova_options import releases
from gpustack.nova_options.options import Release

ALL = "nova.scheduler.filters.all_filters"
_PACKAGE = "nova.scheduler.filters."
DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_NEAR = 0.8


class Fault(enum.StrEnum):
    """Why a filter can't be enabled."""

    GONE = "gone"
    """Another release has it."""
    MISSPELLED = "misspelled"
    """No release has it, but the release has one of nearly the same name."""
    UNKNOWN = "unknown"
    """No release has it."""
    UNAVAILABLE = "unavailable"
    """The release has it, but available_filters leaves it out."""
    NOT_IMPORTABLE = "not importable"
    """It is a line of available_filters from which nova-scheduler can't import anything."""


@dataclass(frozen=True, kw_only=True)
class FilterFault:
    """A filter that can't be enabled.

    :ivar hint: the reason, for a message.
    :ivar instead: the filter that was probably meant; None if there is no similar name.
    """

    name: str
    fault: Fault
    hint: str
    instead: str | None = None


def available(lines: Sequence[str], release: Release) -> frozenset[str] | None:
    """The filters that lines of available_filters make available.

    None if a line names a third-party function, or nothing that can be imported.
    """
    if any(not_importable(lines, release)):
        return None
    names: set[str] = set()
    for line in (line.strip() for line in lines or (ALL,)):
        module, _, last = line.rpartition(".")
        if line == ALL:
            names |= releases.filters(release)
        elif not last[:1].isupper():
            return None
        elif not f"{module}.".startswith(_PACKAGE) or last in releases.filters(release):
            names.add(last)
    return frozenset(names)


def not_importable(lines: Sequence[str], release: Release) -> Iterator[FilterFault]:
    """The lines of available_filters with which nova-scheduler does not start.

    Modules that an operator added to Nova's package are not known, nor are third-party classes.
    """
    known = {path.rpartition(".")[2].lower(): path for path in releases.classes("filters", release)}
    modules = {path.rpartition(".")[0] for path in releases.classes("filters")}
    for line in (line.strip() for line in lines):
        module, _, last = line.rpartition(".")
        instead = None
        if DOTTED.fullmatch(line) is None:
            hint = "each line of available_filters takes one MODULE.CLASS"
        elif line in (ALL, *known.values()) or not line.startswith(_PACKAGE):
            continue
        elif instead := known.get(last.lower(), ALL if f"{module}." == _PACKAGE and last.islower() else None):
            hint = f"did you mean {instead}?"
        elif module in modules:
            hint = "this release has no such class in that module"
        else:
            continue
        yield FilterFault(name=line or "''", fault=Fault.NOT_IMPORTABLE, hint=hint, instead=instead)


def startable(enabled: Sequence[str], lines: Sequence[str], release: Release) -> list[str]:
    """A list with misspelled filters corrected, and without empty entries and filters that the release lost."""
    lines = () if any(not_importable(lines, release)) else lines
    faults_by_name = {fault.name: fault for fault in faults(enabled, lines, release)}
    instead = {name: fault.instead or name for name, fault in faults_by_name.items() if fault.fault is not Fault.GONE}
    names = (instead.get(name, name) for name in enabled if name and (name not in faults_by_name or name in instead))
    return [part for name in names for part in name.split(",")]


def faults(enabled: Sequence[str], lines: Sequence[str], release: Release) -> Iterator[FilterFault]:
    """The enabled filters that lines of available_filters (empty: the default) do not make available."""
    possible = available(lines, release)
    standard = releases.filters(release)
    for name in dict.fromkeys(enabled):
        if possible is None or name in possible:
            continue
        if not name:
            yield FilterFault(name=name, fault=Fault.UNKNOWN, hint="there is an empty entry between two commas")
            continue
        elsewhen = [known for known in releases.releases() if name in releases.filters(known)]
        near = difflib.get_close_matches(name, standard, n=1, cutoff=_NEAR)
        same = [candidate for candidate in standard if candidate.lower() == name.lower()]
        inside = [word for word in re.findall(r"\w+", name) if word in standard]  # in quotes, with a comment, by path
        if name in standard:
            yield FilterFault(name=name, fault=Fault.UNAVAILABLE, hint="available_filters leaves it out")
        elif elsewhen:
            span = f"{elsewhen[0]} to {elsewhen[-1]}" if len(elsewhen) > 1 else str(elsewhen[0])
            yield FilterFault(name=name, fault=Fault.GONE, hint=f"only Nova {span} has it")
        elif meant := (same or near):
            hint = f"did you mean {meant[0]}?"
            yield FilterFault(name=name, fault=Fault.MISSPELLED, hint=hint, instead=meant[0])
        elif inside:
            hint = "an entry of enabled_filters is the name of one class, without path, quotes, brackets or comment"
            yield FilterFault(name=name, fault=Fault.MISSPELLED, hint=hint, instead=",".join(inside))
        else:
            yield FilterFault(name=name, fault=Fault.UNKNOWN, hint="no line of available_filters names its class")
