"""What a deployment's own configuration says already: what is carried over, and what stands in the way.

Files that gpustack wrote itself are passed over, so that rendering again gives the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from gpustack.codes import Code
from gpustack.facts.model import Host
from gpustack.findings import Finding, Severity, finding
from gpustack.hostnames import key, short
from gpustack.nova_conf.desired import PCI_FILTER, DesiredConfig
from gpustack.nova_conf.sections import Carried, with_filters
from gpustack.nova_conf.sources import Source
from gpustack.nova_options import releases
from gpustack.nova_options.config import Setting, foreign, in_drop_in
from gpustack.nova_options.device_spec import DeviceSpec, offered, parse_line
from gpustack.nova_options.filters import Fault, FilterFault, available, faults
from gpustack.nova_options.pci_values import EntryError, alias_of, quotes_hint
from gpustack.nova_options.releases import Option, Release

ALIAS = releases.option("pci/alias")
FILTERS = releases.option("filter_scheduler/enabled_filters")
AVAILABLE = releases.option("filter_scheduler/available_filters")


@dataclass(frozen=True, kw_only=True)
class Existing:
    """The configurations that are there, without gpustack's own lines.

    :ivar named: those that were named.
    :ivar inspected: those that were found where the rendered files go.
    :ivar joined: directories whose files of the same name become one with the rendered files (kayobe's environments).
    :ivar documents: resources or values in YAML that were named, for tools that join their files with those.
    :ivar findings: configurations that could not be read.
    """

    named: tuple[Source, ...] = ()
    inspected: tuple[Source, ...] = ()
    joined: tuple[Path, ...] = ()
    documents: tuple[Mapping[str, Any], ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """All of them; those that were named come first."""
        return (*self.named, *self.inspected)

    def effective(self, option: Option) -> Iterator[tuple[Source, Setting]]:
        """The assignments that count, of every configuration that a reader of the option reads."""
        reported = set()
        for source in self.sources:
            if source.serves(option):
                settings = source.configuration.effective(option)
                for setting in settings if source in self.inspected else foreign(settings):
                    if (setting.place, source.services, source.hosts) not in reported:
                        reported.add((setting.place, source.services, source.hosts))
                        yield source, setting


def values(text: str) -> tuple[str, ...]:
    """The entries of a list option; a Jinja expression may hold commas of its own, so it is one entry."""
    if "{{" in text:
        return (text.strip(),)
    return tuple(part.strip() for part in text.split(",") if part.strip())


def filters(existing: Existing, wanted: DesiredConfig) -> tuple[tuple[str, ...], Setting | None]:
    """The scheduler's complete list, and the line it is carried over from (None: the release's default).

    Filters that the release no longer has are left out: nova-scheduler does not start with them.
    """
    option = FILTERS.of(wanted.release)
    for source in existing.sources:
        if source.serves(option) and source.hosts is None:
            # A list is decided by the last file, so our own must not hide what another one says.
            assignments = tuple(foreign(source.configuration.all(option)))
            names = {s.file for s in assignments}
            last = [file for file in source.configuration.files if file in names]
            if last:
                setting = [s for s in assignments if s.file == last[-1]][-1]
                return _kept_filters(source, setting, wanted), setting
    return with_filters(releases.default_filters(wanted.release), wanted.filters), None


def filter_findings(
    existing: Existing, wanted: DesiredConfig, setting: Setting, known: Collection[str] = ()
) -> Iterator[Finding]:
    """Filters of the list that is carried over with which nova-scheduler does not start.

    :param known: filters that the deployment tool makes available by itself.
    """
    source = next(source for source in existing.sources if setting in source.configuration.settings)
    for fault in _filter_faults(source, setting, wanted):
        removed = fault.fault is Fault.GONE
        if removed or fault.name not in (*known, *wanted.filters):
            code = Code.FILTER_DROPPED if removed else Code.FILTER_CARRIED_OVER
            yield finding(code, place=setting.place, filter=fault.name, release=wanted.release, hint=fault.hint)


def _kept_filters(source: Source, setting: Setting, wanted: DesiredConfig) -> tuple[str, ...]:
    """A list with the filters that are needed, and without those that the release no longer has."""
    removed = {f.name for f in _filter_faults(source, setting, wanted) if f.fault is Fault.GONE}
    return with_filters([name for name in values(setting.value) if name not in removed], wanted.filters)


def _filter_faults(source: Source, setting: Setting, wanted: DesiredConfig) -> Iterator[FilterFault]:
    lines = [s.value for s in source.configuration.effective(AVAILABLE.of(wanted.release))]
    if setting.is_template or any("{{" in line for line in lines):
        return iter(())
    return faults(values(setting.value), lines, wanted.release)


def carried(
    existing: Existing,
    wanted: DesiredConfig,
    service: str,
    host: Host | None = None,
    hosts: Sequence[Host] = (),
    *,
    into: Path | None = None,
) -> Carried:
    """The lines of options that kolla-ansible replaces whole, without those that ours stand for.

    :param host: for a device_spec: an entry that matches nothing but the host's prepared GPUs is replaced by ours.
    :param hosts: all hosts, to tell whose configuration one is.
    :param into: the file that ours go into: what stands there stays there, and adds up with ours.
    """
    names = {alias.name for alias in wanted.aliases}
    aliases, devices = [], []
    spec_option = releases.device_spec_option(wanted.release)
    targets = _joined_with(into, existing.joined)
    for source in existing.sources:
        of_others = source.hosts is not None if host is None else host not in hosts_of(source, hosts)
        if service not in source.services or of_others:
            continue
        configuration = source.configuration
        aliases += [
            _one_line(setting.written)
            for setting in foreign(configuration.effective(ALIAS))
            if setting.path == ALIAS.path and _alias_name(setting) not in names and not _is(setting, targets)
        ]
        if host is not None:
            own_devices = _reach(wanted, host)
            for setting in foreign(configuration.effective(spec_option)):
                if setting.path == spec_option.path and not _is(setting, targets) and not _fault(setting):
                    reach = frozenset() if setting.is_template else offered(parse_line(setting.value), host)
                    if not reach or not reach <= own_devices:
                        devices.append(_one_line(setting.written))
    return Carried(aliases=tuple(dict.fromkeys(aliases)), devices=tuple(dict.fromkeys(devices)))


def in_the_way(
    existing: Existing,
    wanted: DesiredConfig,
    hosts: Sequence[Host],
    *,
    replaces: bool,
    own_file: str | None,
    drop_in: bool = True,
    overrides: Path | None = None,
) -> list[Finding]:
    """Lines that go on counting beside ours, or against ours.

    :param replaces: options are replaced whole (kolla-ansible): then lines stay under other names, and in files that
        ours go into.
    :param own_file: the file name of our drop-in, to tell which files are read after it; None where there is none.
    :param drop_in: ours go into that file, and not into ``nova.conf``.
    :param overrides: the directory of kolla-ansible's overrides for Nova that ours go into.
    """
    findings: list[Finding] = []
    option = releases.device_spec_option(wanted.release)
    directories = (overrides.resolve(), *existing.joined) if overrides else ()
    for _, setting in existing.effective(ALIAS):
        if not replaces or setting.path != ALIAS.path or _fault(setting):
            findings += _alias_in_the_way(setting, wanted)
        elif _of_one_host(setting, directories):
            findings.append(finding(Code.OVERRIDDEN_BY_LATER_FILE, place=setting.place, line=_named(setting)))
        elif _beside(setting, directories):
            findings += _alias_in_the_way(setting, wanted)
    for source, setting in existing.effective(option):
        if _after_ours(setting, directories) and setting.path == option.path:
            findings.append(finding(Code.OVERRIDDEN_BY_LATER_FILE, place=setting.place, line=_named(setting)))
        elif setting.is_template:
            findings += _template_in_the_way(setting, wanted, hosts_of(source, hosts))
        elif not replaces or setting.path != option.path or _fault(setting) or _beside(setting, directories):
            for host in hosts_of(source, hosts):
                findings += _device_in_the_way(setting, wanted, host)
    if own_file is not None:
        findings += _later(existing, wanted, own_file, drop_in=drop_in)
    findings += _decided_for_one_host(existing, wanted, directories)
    findings += _available(existing, wanted)
    return list(dict.fromkeys(findings))


def _of_one_host(setting: Setting, directories: Collection[Path]) -> bool:
    """Whether a line stands among kolla-ansible's overrides for one host, which come after those for a service."""
    return Path(setting.file).resolve().parent.parent in directories


def _after_ours(setting: Setting, directories: Collection[Path]) -> bool:
    """Whether a line stands in ``HOST/SERVICE.conf``, which kolla-ansible merges after ``HOST/nova.conf``."""
    return _of_one_host(setting, directories) and Path(setting.file).name != "nova.conf"


def _beside(setting: Setting, directories: Collection[Path]) -> bool:
    """Whether a line stands in a file that ours go into: kolla-ansible adds up what one file says."""
    file = Path(setting.file).resolve()
    of_service = file.parent in directories and file.name.startswith("nova-")
    return of_service or _of_one_host(setting, directories)


def _decided_for_one_host(
    existing: Existing, wanted: DesiredConfig, directories: Collection[Path]
) -> Iterator[Finding]:
    """Options with one value that an override for one host decides against ours."""
    for option in _of_one_value(wanted) if directories else ():
        for _, setting in existing.effective(option):
            if _of_one_host(setting, directories) and not _right(setting, option, wanted):
                yield finding(Code.OVERRIDDEN_BY_LATER_FILE, place=setting.place, line=_named(setting))


def _joined_with(into: Path | None, joined: Sequence[Path]) -> frozenset[Path]:
    """The file that ours go into, and the files of the same name that it becomes one with."""
    if into is None:
        return frozenset()
    of_host = into.parent.name if into.name == "nova.conf" else ""
    return frozenset((into.resolve(), *((directory / of_host / into.name).resolve() for directory in joined)))


def _is(setting: Setting, files: Collection[Path]) -> bool:
    return Path(setting.file).resolve() in files


def _fault(setting: Setting) -> bool:
    """Whether a value is none that Nova takes; of a template, nobody can tell."""
    if setting.is_template:
        return False
    try:
        alias_of(setting.value) if setting.path in (ALIAS.path, *ALIAS.old_names) else parse_line(setting.value)
    except EntryError:
        return True
    return False


def hosts_of(source: Source, hosts: Sequence[Host]) -> list[Host]:
    """The hosts that a configuration may be of: those that its path names, in full or in short, else all."""
    if source.hosts is not None:
        return [host for host in hosts if host.hostname in source.hosts]
    parts = {part for path in source.configuration.files for part in PurePath(path).parts}
    possible = [host for host in hosts if host.hostname not in source.but]
    exact = [host for host in possible if host.hostname in parts]
    in_short = [host for host in possible if short(host.hostname) in map(key, parts)]
    return exact or in_short or possible


def _template_in_the_way(setting: Setting, wanted: DesiredConfig, hosts: Sequence[Host]) -> Iterator[Finding]:
    """A device_spec that is read or carried over beside ours, with devices that nobody knows before it is evaluated."""
    names = [host.hostname for host in hosts if wanted.computes.get(host.hostname)]
    if names:
        listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        why = (
            f" on {listed}, and is a Jinja expression: if the same cards match, Nova goes by the first entry that fits"
        )
        yield finding(Code.FOREIGN_LINE_IN_FORCE, place=setting.place, line=_named(setting), why=why)


def _alias_in_the_way(setting: Setting, wanted: DesiredConfig) -> Iterator[Finding]:
    if setting.is_template:
        return
    try:
        alias = alias_of(setting.value)
    except EntryError as error:
        yield finding(
            Code.VALUE_NOT_JSON, place=setting.place, option="alias", error=error, hint=quotes_hint(setting.value)
        )
        return
    for own_alias in wanted.aliases:
        if str(alias.get("name", "")).strip() != own_alias.name:
            continue
        same = {**alias, "name": own_alias.name} == own_alias.to_dict()
        if same and wanted.placement != "schedule":
            yield finding(
                Code.FOREIGN_LINE_IN_FORCE, place=setting.place, line=_named(setting), why=": the same alias twice"
            )
        else:
            why = "" if same else ", and not the same"
            yield finding(
                Code.ALIAS_DEFINED_ELSEWHERE, place=setting.place, line=_named(setting), alias=own_alias.name, why=why
            )
        return


def _device_in_the_way(setting: Setting, wanted: DesiredConfig, host: Host) -> Iterator[Finding]:
    try:
        specs = parse_line(setting.value)
    except EntryError as error:
        hint = quotes_hint(setting.value)
        yield finding(Code.VALUE_NOT_JSON, place=setting.place, option="device_spec", error=error, hint=hint)
        return
    shared = sorted(offered(specs, host) & _reach(wanted, host))
    if shared:
        yield finding(
            Code.FOREIGN_LINE_IN_FORCE,
            place=setting.place,
            line=_named(setting),
            why=f": it matches {', '.join(shared)} on {host.hostname} too, and Nova goes by the first entry that fits",
        )


def _later(existing: Existing, wanted: DesiredConfig, own_file: str, *, drop_in: bool) -> Iterator[Finding]:
    """Files that are read after our drop-in and decide against it, or may be.

    Of files that are named on a service's command line, nobody can tell from their names: drop-ins come before those,
    and after ``nova.conf`` where it is not named.
    """
    for source in existing.sources:
        for option in _of_one_value(wanted):
            if not source.serves(option):
                continue
            for setting in foreign(source.configuration.effective(option)):
                if not _right(setting, option, wanted) and _read_later(setting.file, own_file):
                    yield finding(Code.OVERRIDDEN_BY_LATER_FILE, place=setting.place, line=_named(setting))
            if not drop_in or source.with_files is False:
                continue
            for setting in foreign(source.configuration.named_last().effective(option)):
                if not _right(setting, option, wanted) and not in_drop_in(setting.file):
                    value = ",".join(_kept_filters(source, setting, wanted)) if option.kind == "list" else "true"
                    grave = Severity.ERROR if source.with_files else None
                    yield finding(
                        Code.LINE_DECIDES_WITH_CONFIG_FILE,
                        place=setting.place,
                        severity=grave,
                        line=_named(setting),
                        value=value,
                    )


def _of_one_value(wanted: DesiredConfig) -> Iterator[Option]:
    """The rendered options of which the last line decides."""
    yield FILTERS.of(wanted.release)
    if wanted.placement != "off":
        yield releases.option("pci/report_in_placement")
    if wanted.placement == "schedule":
        yield releases.option("filter_scheduler/pci_in_placement")


def _right(setting: Setting, option: Option, wanted: DesiredConfig) -> bool:
    if option.kind == "list":
        return set(wanted.filters) <= set(values(setting.value))
    return setting.value.strip().lower() in releases.TRUE


def _read_later(file: str, own_file: str) -> bool:
    path = PurePath(file)
    return in_drop_in(file) and (path.parent.name != "nova.conf.d" or path.name > own_file)


def _available(existing: Existing, wanted: DesiredConfig) -> Iterator[Finding]:
    option = AVAILABLE.of(wanted.release)
    for source in existing.sources:
        settings = source.configuration.effective(option) if source.serves(option) else ()
        if settings and not makes_available([s.value for s in settings], wanted.release):
            yield finding(Code.PCI_FILTER_UNAVAILABLE, place=settings[-1].place)


def makes_available(lines: Sequence[str], release: Release) -> bool:
    """Whether lines of available_filters let PciPassthroughFilter be enabled, or may."""
    names = available(lines, release)
    return names is None or PCI_FILTER in names


def _reach(wanted: DesiredConfig, host: Host) -> frozenset[str]:
    return offered([DeviceSpec.parse(e.to_dict()) for e in wanted.computes.get(host.hostname, ())], host)


def _alias_name(setting: Setting) -> str | None:
    try:
        return str(alias_of(setting.value).get("name", "")).strip()
    except EntryError:
        return None


def _one_line(text: str) -> str:
    return " ".join(part.strip() for part in text.splitlines())


def _named(setting: Setting) -> str:
    return f"[{setting.group}] {setting.name}"
