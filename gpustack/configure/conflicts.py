"""Existing lines that Nova reads in addition to the rendered ones, or that override them."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePath

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.text import listed
from gpustack.configure.deployed import ALIAS, Existing, HostNames, is_faulty, rendered_devices
from gpustack.configure.deployed_filters import AVAILABLE, FILTERS, kept, makes_available, values
from gpustack.configure.desired import DesiredConfig
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.nova_options.config import Setting, foreign, in_drop_in
from gpustack.nova_options.device_spec import offered, parse_line
from gpustack.nova_options.pci_values import EntryError, alias_of, quotes_hint
from gpustack.nova_options.releases import Option


def in_the_way(
    existing: Existing,
    wanted: DesiredConfig,
    hosts: Sequence[Host],
    *,
    replaces: bool,
    own_file: str | None,
    drop_in: bool = True,
    overrides: Path | None = None,
    own_key: str | None = None,
) -> list[Finding]:
    """Report existing lines that stay in force beside the rendered ones, or that override them.

    :param replaces: the deployment tool replaces all lines of an option (kolla-ansible, openstack-helm). Then only
        lines under other names, and lines in files that the rendered lines are merged into, stay in force.
    :param own_file: the file name of gpustack's drop-in, to find files that are read after it; None without a drop-in.
    :param drop_in: whether the settings go into that file and not into ``nova.conf``.
    :param overrides: the directory of kolla-ansible's overrides for Nova that the rendered files go into.
    :param own_key: the key of gpustack's ConfigMap for nova-compute, to find keys that are read after it.
    """
    directories = (overrides.resolve(), *existing.joined) if overrides else ()
    findings = (
        *_aliases(existing, wanted, directories, replaces=replaces),
        *_devices(existing, wanted, hosts, directories, replaces=replaces),
        *(_later(existing, wanted, own_file, drop_in=drop_in) if own_file is not None else ()),
        *(_in_later_keys(existing, wanted, own_key) if own_key is not None else ()),
        *_decided_for_one_host(existing, wanted, directories),
        *_available(existing, wanted),
    )
    return list(dict.fromkeys(findings))


def _aliases(
    existing: Existing, wanted: DesiredConfig, directories: Collection[Path], *, replaces: bool
) -> Iterator[Finding]:
    for _, setting in existing.effective(ALIAS):
        if not replaces or setting.path != ALIAS.path or is_faulty(setting):
            yield from _alias_in_the_way(setting, wanted)
        elif _of_one_host(setting, directories):
            yield finding(Code.OVERRIDDEN_BY_LATER_FILE, place=setting.place, line=_named(setting))
        elif _beside(setting, directories):
            yield from _alias_in_the_way(setting, wanted)


def _devices(
    existing: Existing,
    wanted: DesiredConfig,
    hosts: Sequence[Host],
    directories: Collection[Path],
    *,
    replaces: bool,
) -> Iterator[Finding]:
    option = releases.device_spec_option(wanted.release)
    names = HostNames(hosts)
    for source, setting in existing.effective(option):
        if _after_ours(setting, directories) and setting.path == option.path:
            yield finding(Code.OVERRIDDEN_BY_LATER_FILE, place=setting.place, line=_named(setting))
        elif setting.is_template:
            yield from _template_in_the_way(setting, wanted, names.having(source))
        elif not replaces or setting.path != option.path or is_faulty(setting) or _beside(setting, directories):
            for host in names.having(source):
                yield from _device_in_the_way(setting, wanted, host)
        else:
            for host in names.having(source):
                # A line that matches only rendered devices is replaced; any other one is carried over.
                if not offered(parse_line(setting.value), host) <= rendered_devices(wanted, host):
                    yield from _device_in_the_way(setting, wanted, host)


def _of_one_host(setting: Setting, directories: Collection[Path]) -> bool:
    """Whether a line is in a kolla-ansible override for one host, which is merged after those for a service."""
    return Path(setting.file).resolve().parent.parent in directories


def _after_ours(setting: Setting, directories: Collection[Path]) -> bool:
    """Whether a line is in ``HOST/SERVICE.conf``, which kolla-ansible merges after ``HOST/nova.conf``."""
    return _of_one_host(setting, directories) and Path(setting.file).name != "nova.conf"


def _beside(setting: Setting, directories: Collection[Path]) -> bool:
    """Whether a line is in a file that gpustack also writes to: kolla-ansible keeps all lines of one file."""
    file = Path(setting.file).resolve()
    of_service = file.parent in directories and file.name.startswith("nova-")
    return of_service or _of_one_host(setting, directories)


def _decided_for_one_host(
    existing: Existing, wanted: DesiredConfig, directories: Collection[Path]
) -> Iterator[Finding]:
    """Single-valued options that an override for one host sets to a conflicting value."""
    for option in _of_one_value(wanted) if directories else ():
        for _, setting in existing.effective(option):
            if _of_one_host(setting, directories) and not _right(setting, option, wanted):
                yield finding(Code.OVERRIDDEN_BY_LATER_FILE, place=setting.place, line=_named(setting))


def _template_in_the_way(setting: Setting, wanted: DesiredConfig, hosts: Sequence[Host]) -> Iterator[Finding]:
    """A device_spec beside the rendered ones whose devices are unknown until the template is evaluated."""
    names = [host.hostname for host in hosts if wanted.computes.get(host.hostname)]
    if names:
        conflict = "if the same cards match, Nova goes by the first entry that fits"
        why = f" on {listed(names, 5)}, and is a Jinja expression: {conflict}"
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
    shared = sorted(offered(specs, host) & rendered_devices(wanted, host))
    if shared:
        yield finding(
            Code.FOREIGN_LINE_IN_FORCE,
            place=setting.place,
            line=_named(setting),
            why=f": it matches {', '.join(shared)} on {host.hostname} too, and Nova goes by the first entry that fits",
        )


def _later(existing: Existing, wanted: DesiredConfig, own_file: str, *, drop_in: bool) -> Iterator[Finding]:
    """Files that are read after gpustack's drop-in and override it, or may do so.

    Whether a file is named on a service's command line does not show in its name. oslo.config reads drop-ins before
    the files of ``--config-file``, but after the ``nova.conf`` that it finds by default.
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
                    value = ",".join(kept(source, setting, wanted)) if option.kind == "list" else "true"
                    grave = Severity.ERROR if source.with_files else None
                    yield finding(
                        Code.LINE_DECIDES_WITH_CONFIG_FILE,
                        place=setting.place,
                        severity=grave,
                        line=_named(setting),
                        value=value,
                    )


def _in_later_keys(existing: Existing, wanted: DesiredConfig, own_key: str) -> Iterator[Finding]:
    """Lines in a ConfigMap whose key sorts after gpustack's: each key becomes a drop-in."""
    for option in _of_one_value(wanted):
        for source, setting in existing.effective(option):
            _, of_resource, key = PurePath(setting.file).name.rpartition(":")
            later = of_resource and key > own_key
            if source.services == ("compute",) and later and not _right(setting, option, wanted):
                yield finding(Code.OVERRIDDEN_BY_LATER_FILE, place=setting.place, line=_named(setting))


def _of_one_value(wanted: DesiredConfig) -> Iterator[Option]:
    """The single-valued options that are rendered: the last line decides."""
    yield FILTERS.of(wanted.release)
    if wanted.placement != "off":
        yield releases.option("pci/report_in_placement")
    if wanted.placement == "schedule":
        yield releases.option("filter_scheduler/pci_in_placement")


def _right(setting: Setting, option: Option, wanted: DesiredConfig) -> bool:
    if option.kind == "list":
        return set(wanted.filters) <= set(values(setting.value))
    return setting.value.lower() in releases.TRUE


def _read_later(file: str, own_file: str) -> bool:
    path = PurePath(file)
    return in_drop_in(file) and (path.parent.name != "nova.conf.d" or path.name > own_file)


def _available(existing: Existing, wanted: DesiredConfig) -> Iterator[Finding]:
    option = AVAILABLE.of(wanted.release)
    for source in existing.sources:
        settings = source.configuration.effective(option) if source.serves(option) else ()
        if settings and not makes_available([s.value for s in settings], wanted.release):
            yield finding(Code.PCI_FILTER_UNAVAILABLE, place=settings[-1].place)


def _named(setting: Setting) -> str:
    return f"[{setting.group}] {setting.name}"
