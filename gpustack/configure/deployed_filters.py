"""Scheduler filters in a deployment's configuration: which are carried over, and which keep a service from starting."""

from collections.abc import Collection, Iterator, Sequence

from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.deployed import Existing
from gpustack.configure.desired import PCI_FILTER, DesiredConfig
from gpustack.configure.sections import with_filters
from gpustack.configure.sources import Source
from gpustack.nova_options import releases
from gpustack.nova_options.config import Setting, foreign
from gpustack.nova_options.filters import Fault, FilterFault, available, faults
from gpustack.nova_options.options import Release

FILTERS = releases.option("filter_scheduler/enabled_filters")
AVAILABLE = releases.option("filter_scheduler/available_filters")


def values(text: str) -> tuple[str, ...]:
    """The entries of a list option as oslo.config reads them (``oslo_config.types.List``).

    Only commas at the end are ignored. A line break in an entry becomes a blank: Nova has no such filter either way,
    but a rendered file stays an INI file. A Jinja expression is one entry, since it may contain commas.
    """
    if "{{" in text:
        return (text.strip(),)
    stripped = text.strip().rstrip(",")
    return tuple(" ".join(part.split()) for part in stripped.split(",")) if stripped else ()


def filters(existing: Existing, wanted: DesiredConfig) -> tuple[tuple[str, ...], Setting | None]:
    """The scheduler's complete filter list and the line it is carried over from (None: the release's default).

    Filters that the release no longer has are left out: nova-scheduler does not start with them.
    """
    option = FILTERS.of(wanted.release)
    for source in existing.sources:
        # The last file decides a list option, so gpustack's own file must not hide the list of another file.
        assignments = list(foreign(source.configuration.all(option))) if source.serves(option) else []
        if assignments and source.hosts is None:
            return kept(source, assignments[-1], wanted), assignments[-1]
    return with_filters(releases.default_filters(wanted.release), wanted.filters), None


def filter_findings(
    existing: Existing, wanted: DesiredConfig, setting: Setting, known: Collection[str] = ()
) -> Iterator[Finding]:
    """Report carried-over filters with which nova-scheduler does not start.

    :param known: filters that the deployment tool itself makes available.
    """
    source = next(source for source in existing.sources if setting in source.configuration.settings)
    for fault in _filter_faults(source, setting, wanted):
        removed = fault.fault is Fault.GONE
        if removed or fault.name not in ("", *known, *wanted.filters):
            code = Code.FILTER_DROPPED if removed else Code.FILTER_CARRIED_OVER
            yield finding(code, place=setting.place, filter=fault.name, release=wanted.release, hint=fault.hint)


def kept(source: Source, setting: Setting, wanted: DesiredConfig) -> tuple[str, ...]:
    """The filters of a line without empty entries and those that the release lost, and with the required ones added."""
    removed = {f.name for f in _filter_faults(source, setting, wanted) if f.fault is Fault.GONE}
    return with_filters([name for name in values(setting.value) if name and name not in removed], wanted.filters)


def _filter_faults(source: Source, setting: Setting, wanted: DesiredConfig) -> Iterator[FilterFault]:
    lines = source.configuration.effective(AVAILABLE.of(wanted.release))
    if any(line.unknown for line in (setting, *lines)):
        return iter(())
    return faults(values(setting.value), [line.value for line in lines], wanted.release)


def makes_available(lines: Sequence[str], release: Release) -> bool:
    """Whether lines of available_filters make PciPassthroughFilter available, or may do so."""
    names = available(lines, release)
    return names is None or PCI_FILTER in names
