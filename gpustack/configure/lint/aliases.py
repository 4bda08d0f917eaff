"""Checks of aliases: each line by itself, and all lines of one configuration."""

import difflib
from collections.abc import Iterator, Sequence

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.lint.subject import ALIAS, AliasLine, LintSubject, about_key, check, padded_traits
from gpustack.nova_options import releases
from gpustack.nova_options.pci_values import alias_faults, alias_of, placement_faults
from gpustack.nova_options.scheduler import SCHEDULE

_TITLE = "Aliases"
_CHECKS_IDS_SINCE = 32
"""The release from which Nova refuses aliases without ids (commit acc6221660, 2025.2)."""


@check(_TITLE)
def syntax(subject: LintSubject) -> Iterator[Finding]:
    """Values that are not JSON objects."""
    yield from subject.misshapen(ALIAS, alias_of, "api", "compute")


@check(_TITLE)
def keys(subject: LintSubject) -> Iterator[Finding]:
    """Keys and values that the release's schema refuses."""
    known = releases.keys("alias", subject.release)
    for line in subject.alias_lines:
        for key in line.data:
            if key in known:
                continue
            near = next(iter(difflib.get_close_matches(key, known, n=1, cutoff=0.6)), None)
            about = about_key("alias", key, near, subject.release)
            yield finding(Code.ALIAS_KEY_UNKNOWN, place=line.place, **about)
        for key, fault in alias_faults(line.data, subject.release):
            yield finding(Code.VALUE_INVALID, place=line.place, where=key, error=fault)
        if subject.scheduled_by_placement is not None and not list(alias_faults(line.data, subject.release)):
            for fault in placement_faults(line.data):
                yield finding(Code.VALUE_INVALID, place=line.place, where="alias", error=fault)
            yield from padded_traits(line)
        for character in ",:":
            if character in line.name:
                yield finding(Code.ALIAS_NAME_UNUSABLE, place=line.place, alias=line.name, character=repr(character))


@check(_TITLE)
def device_type(subject: LintSubject) -> Iterator[Finding]:
    """Aliases without device_type."""
    for line in subject.aliases:
        if "device_type" not in line.data and not subject.hosts:
            yield finding(Code.ALIAS_WITHOUT_DEVICE_TYPE, place=line.place, alias=line.name)


@check(_TITLE)
def what_is_asked(subject: LintSubject) -> Iterator[Finding]:
    """Aliases without ids or resource class, and with keys that have no effect."""
    # The configuration of a compute host alone does not show the settings of API and scheduler.
    shown = subject.serving("api", "scheduler", "conductor") and SCHEDULE.known_to(subject.release)
    unused = shown and subject.scheduled_by_placement is None
    for line in subject.aliases:
        scheduled = subject.on(SCHEDULE, line.source)
        ids = "vendor_id" in line.data and "product_id" in line.data
        if not ids and subject.release.major < _CHECKS_IDS_SINCE:
            if subject.scheduled_by_placement is None or "resource_class" not in line.data:
                code = Code.ALIAS_MATCHES_OTHER_DEVICES
                yield finding(code, place=line.place, alias=line.name, release=subject.release)
        elif not ids and not (scheduled and "resource_class" in line.data):
            possible = SCHEDULE.known_to(subject.release)
            use = "add vendor_id and product_id"
            if "resource_class" in line.data and possible:
                use += ", or set [filter_scheduler] pci_in_placement = true in this configuration too"
            lacks = "vendor_id with product_id, and a resource_class" if scheduled else "vendor_id with product_id"
            yield finding(Code.ALIAS_WITHOUT_IDS, place=line.place, alias=line.name, lacks=lacks, use=use)
        placement_keys = [key for key in ("resource_class", "traits") if key in line.data]
        if placement_keys and ids and unused:
            yield finding(
                Code.ALIAS_PLACEMENT_KEYS_UNUSED, place=line.place, alias=line.name, keys=" and ".join(placement_keys)
            )


@check("Alias names")
def repeated(subject: LintSubject) -> Iterator[Finding]:
    """Several lines with the same name in one configuration."""
    for source in subject.serving("api", "compute"):
        for name, lines in by_key((line.name, line) for line in subject.aliases_of(source)).items():
            if len(lines) > 1:
                yield from _together(subject, name, lines)


def _together(subject: LintSubject, name: str, lines: Sequence[AliasLine]) -> Iterator[Finding]:
    first = lines[0]
    # Up to 2025.1, nova-compute parses such aliases; a boot fails in the services that schedule it.
    used = subject.release.major >= _CHECKS_IDS_SINCE or first.source.services != ("compute",)
    if (subject.on(SCHEDULE, first.source) and used) or (
        subject.scheduled_by_placement is not None and "api" in first.source.services
    ):
        yield finding(Code.ALIAS_LINES_UNDER_PLACEMENT, place=lines[-1].place, alias=name, count=len(lines))
    for line in lines[1:]:
        if why := _refused(first, line):
            yield finding(Code.ALIAS_LINES_INCOMPATIBLE, place=line.place, alias=name, other=first.place, why=why)
        else:
            yield finding(Code.ALIAS_DUPLICATE, place=line.place, alias=name, other=first.place)


def _refused(first: AliasLine, line: AliasLine) -> str | None:
    """Why Nova refuses two lines of one name; None when it accepts them."""
    policies = [str(entry.data.get("numa_policy") or "legacy") for entry in (first, line)]
    if policies[0] != policies[1]:
        return f"their NUMA policies differ ({policies[0]}, {policies[1]})"
    kinds = [entry.data.get("device_type") for entry in (first, line)]
    if not all(kinds):
        return "a line without device_type excludes other lines"
    return f"their device types differ ({kinds[0]}, {kinds[1]})" if kinds[0] != kinds[1] else None
