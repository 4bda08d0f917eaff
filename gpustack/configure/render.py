"""Render a deployment's files that configure Nova for GPUs: drop-ins, kolla-ansible overrides, variables, values.

Existing lines that Nova reads in addition to the rendered ones, or that override them.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.host_groups import pattern
from gpustack.base.text import listed
from gpustack.configure import providers
from gpustack.configure.deployment import drop_in, kolla, openstack_ansible, openstack_helm, rhoso
from gpustack.configure.desired import DesiredConfig
from gpustack.configure.rendered import Job, Rendering, Tool
from gpustack.configure.sources import (
    ALIAS,
    AVAILABLE,
    FILTERS,
    PLACEMENT,
    SERVICES,
    Existing,
    HostNames,
    filter_findings,
    filters,
    is_faulty,
    kept,
    makes_available,
    rendered_devices,
    values,
)
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import mediated, releases
from gpustack.nova_options.config import Setting, foreign, in_drop_in
from gpustack.nova_options.device_spec import offered, parse_line
from gpustack.nova_options.options import Option
from gpustack.nova_options.pci_values import EntryError, alias_of
from gpustack.nova_options.scheduler import SWITCHES, beyond
from gpustack.spec.deployment import Deployment as Deployment

TOOLS: dict[Deployment, Tool] = {
    "drop-in": drop_in.TOOL,
    "kolla": kolla.TOOL,
    "kayobe": kolla.KAYOBE,
    "openstack-ansible": openstack_ansible.TOOL,
    "rhoso": rhoso.TOOL,
    "openstack-helm": openstack_helm.TOOL,
}


def render(
    wanted: DesiredConfig,
    *,
    deployment: Deployment = "drop-in",
    services: Sequence[str] = (*SERVICES, PLACEMENT),
    existing: Existing | None = None,
    hosts: Sequence[Host] = (),
    only: Collection[str] | None = None,
    together: bool = False,
    root: Path | None = None,
    directory: str | None = None,
    appended: bool = False,
    stays: Callable[[str], object] = lambda host: False,
) -> Rendering:
    """Render Nova's configuration.

    :param services: the services to render for; those that share a file with one of them are added.
    :param existing: the deployment's current configuration.
    :param hosts: the facts behind ``wanted``, to check ``existing`` for conflicts.
    :param only: the compute hosts to render for; all of ``wanted`` when None.
    :param together: whether the compute hosts also run the other services: one file for each host.
    :param root: the directory below which the files are written; None when unknown.
    :param directory: the directory of the deployment tool, instead of its default.
    :param appended: whether the settings are appended to ``nova.conf`` itself instead of written as a drop-in.
    :param stays: whether the earlier part of a host that is not rendered stays in a file of all hosts.
    """
    existing, tool = existing or Existing(), TOOLS[deployment]
    added = tool.together if {*tool.together} & {*services} else ()
    services = [service for service in (*SERVICES, PLACEMENT) if service in (*services, *added)]
    wanted, of_operator = _without_retained(wanted, existing, services)
    names = [name for name in wanted.computes if only is None or name in only] if "compute" in services else []
    filter_list, chosen = filters(existing, wanted)
    job = Job(
        wanted=wanted,
        existing=existing,
        filters=filter_list,
        hosts={host.hostname: host for host in hosts},
        services=tuple(service for service in services if service in SERVICES),
        placement=PLACEMENT in services,
        directory=directory or tool.directory,
        default_filters=chosen is None,
        root=root,
        together=together,
        everywhere=only is None,
    )
    parts = tool.parts(job) if "compute" in services else {}
    others = {name: bool(stays(name)) for name in parts if not (name in names and job.of_host(name, ""))}
    job = replace(job, others={name: part for name, part in parts.items() if others.get(name)})
    findings = [
        *wanted.findings,
        *existing.findings,
        *of_operator,
        *_filter_findings(job, tool, chosen),
        *tool.findings(job, names),
        *_in_the_way(job, tool, deployment, hosts, appended=appended),
    ]
    if any((*wanted.markers.values(), *wanted.traits.values())) and not providers.is_written(
        deployment, wanted.release
    ):
        findings.append(providers.not_written(deployment, deployment))
    files = tuple(replace(file, mode=existing.mode) for file in tool.files(job, names))
    unknown = [entry for name, of_host in wanted.unknown.items() if only is None or name in only for entry in of_host]
    if not (deployment == "drop-in" or tool.overrides):  # one file has the settings of all hosts
        findings, unknown = [*findings, *unknown], []
    findings, unknown = [*dict.fromkeys(findings)], [*dict.fromkeys(unknown)]
    return Rendering(files=files, findings=tuple(findings), unknown=tuple(unknown), others=others)


def _without_retained(
    wanted: DesiredConfig, existing: Existing, services: Collection[str]
) -> tuple[DesiredConfig, list[Finding]]:
    """Leave out the options for which the operator has another value, and report them."""
    settings = [(advice, existing.retained(advice)) for advice in wanted.advised]
    findings = []
    for advice, setting in settings:
        if setting is not None and set(advice.option.services) & set(services):
            about: dict[str, Any] = {"value": " ".join(setting.value.split()), "advised": advice.value}
            code = Code.SETTING_RETAINED
            findings.append(finding(code, place=setting.place, group=setting.group, name=setting.name, **about))
    return replace(wanted, advised=tuple(advice for advice, setting in settings if setting is None)), findings


def _filter_findings(job: Job, tool: Tool, chosen: Setting | None) -> Iterator[Finding]:
    """Findings about the scheduler's filters: the configured list, or the release's default."""
    if "scheduler" not in job.services or tool.filter_list == "never":
        return
    if chosen is not None:
        yield from filter_findings(job.existing, job.wanted, chosen, tool.filters)
    elif tool.filter_list == "always":
        added = " and ".join(job.wanted.filters)
        place = "[filter_scheduler] enabled_filters"
        yield finding(Code.FILTERS_OF_RELEASE, place=place, release=job.wanted.release, filters=added)


def places(deployment: Deployment, directory: str | None = None) -> tuple[str, ...]:
    """The :meth:`pathlib.Path.glob` patterns of the files that a rendering writes below an output directory."""
    tool = TOOLS[deployment]
    return tool.places((directory or tool.directory).strip("/"))


def usual_root(deployment: Deployment) -> Path:
    """The default parent of the deployment tool's directory: ``/`` for absolute paths, else the working directory."""
    return Path("/" if TOOLS[deployment].directory.startswith("/") else ".")


def _in_the_way(
    job: Job, tool: Tool, deployment: Deployment, hosts: Sequence[Host], *, appended: bool
) -> Iterator[Finding]:
    """Report existing lines that stay in force beside the rendered ones, or that override them.

    If the deployment tool replaces all lines of an option, only lines under other names, and lines in files that the
    rendered lines are merged into, stay in force.
    """
    existing, wanted = job.existing, job.wanted
    overrides = job.into(job.directory) if tool.overrides else None
    directories = (overrides.resolve(), *existing.joined) if overrides else ()
    yield from _aliases(existing, wanted, directories, replaces=tool.replaces)
    yield from _devices(existing, wanted, hosts, directories, replaces=tool.replaces)
    if tool.own_file is not None and not appended:
        yield from _later(existing, wanted, tool.own_file, drop_in=deployment == "drop-in")
    if tool.own_key is not None:
        yield from _in_later_keys(existing, wanted, tool.own_key)
    # Single-valued options that an override for one host sets to a conflicting value.
    for option in _of_one_value(wanted) if directories else ():
        for _, setting in existing.effective(option):
            if _of_one_host(setting, directories) and not _right(setting, option, wanted):
                yield _about(setting, Code.OVERRIDDEN_BY_LATER_FILE)
    yield from _available(existing, wanted)
    yield from _types_replaced(existing, wanted, HostNames(hosts))
    yield from _stages(existing, wanted)


def _stages(existing: Existing, wanted: DesiredConfig) -> Iterator[Finding]:
    """Switches of PCI in Placement that are on beyond the stage of the spec."""
    for stage, option in beyond(wanted.placement).items():
        for _, setting in existing.effective(option):
            if setting.value.lower() in releases.TRUE:
                yield _about(setting, Code.PLACEMENT_STAGE_DIFFERS, wanted=wanted.placement, stage=stage)


def _aliases(
    existing: Existing, wanted: DesiredConfig, directories: Collection[Path], *, replaces: bool
) -> Iterator[Finding]:
    for _, setting in existing.effective(ALIAS):
        if not replaces or setting.path != ALIAS.path or is_faulty(setting):
            yield from _alias_in_the_way(setting, wanted)
        elif _of_one_host(setting, directories):
            yield _about(setting, Code.OVERRIDDEN_BY_LATER_FILE)
        elif _beside(setting, directories):
            yield from _alias_in_the_way(setting, wanted)


def _devices(
    existing: Existing, wanted: DesiredConfig, hosts: Sequence[Host], directories: Collection[Path], *, replaces: bool
) -> Iterator[Finding]:
    option = releases.device_spec_option(wanted.release)
    names = HostNames(hosts)
    for source, setting in existing.effective(option):
        # kolla-ansible merges HOST/SERVICE.conf after HOST/nova.conf.
        is_later = _of_one_host(setting, directories) and Path(setting.file).name != "nova.conf"
        if is_later and setting.path == option.path:
            yield _about(setting, Code.OVERRIDDEN_BY_LATER_FILE)
        elif setting.is_template:
            yield from _template_in_the_way(setting, wanted, names.having(source))
        else:
            stays = not replaces or setting.path != option.path or is_faulty(setting) or _beside(setting, directories)
            # Else a line that matches only rendered devices is replaced; any other one is carried over.
            yield from _device_in_the_way(setting, wanted, names.having(source), only_more=not stays)


def _of_one_host(setting: Setting, directories: Collection[Path]) -> bool:
    """Whether a line is in a kolla-ansible override for one host, which is merged after those for a service."""
    return Path(setting.file).resolve().parent.parent in directories


def _beside(setting: Setting, directories: Collection[Path]) -> bool:
    """Whether a line is in a file that gpustack also writes to: kolla-ansible keeps all lines of one file."""
    file = Path(setting.file).resolve()
    of_service = file.parent in directories and file.name.startswith("nova-")
    return of_service or _of_one_host(setting, directories)


def _template_in_the_way(setting: Setting, wanted: DesiredConfig, hosts: Sequence[Host]) -> Iterator[Finding]:
    """A device_spec beside the rendered ones whose devices are unknown until the template is evaluated."""
    if names := [host.hostname for host in hosts if wanted.has_devices(host.hostname)]:
        conflict = "if the same cards match, Nova goes by the first entry that fits"
        why = f" on {listed(names, 5)}, and is a Jinja expression: {conflict}"
        yield _about(setting, Code.FOREIGN_LINE_IN_FORCE, why=why)


def _alias_in_the_way(setting: Setting, wanted: DesiredConfig) -> Iterator[Finding]:
    if setting.is_template:
        return
    try:
        alias = alias_of(setting.value)
    except EntryError as error:
        yield error.finding(setting.place, "alias")
        return
    own = [entry for entry in wanted.aliases if entry.name == str(alias.get("name", "")).strip()]
    same = any({**alias, "name": entry.name} == entry.to_dict() for entry in own)
    if same and wanted.placement != "schedule":
        yield _about(setting, Code.FOREIGN_LINE_IN_FORCE, why=": the same alias twice")
    elif own:
        yield _about(setting, Code.ALIAS_DEFINED_ELSEWHERE, alias=own[0].name, why=", and not the same" * (not same))


def _device_in_the_way(
    setting: Setting, wanted: DesiredConfig, hosts: Sequence[Host], *, only_more: bool
) -> Iterator[Finding]:
    """A device_spec that matches rendered devices of hosts; with ``only_more``, only of hosts where it matches more."""
    try:
        specs = parse_line(setting.value)
    except EntryError as error:
        yield error.finding(setting.place, "device_spec")
        return
    for devname in (spec.devname for spec in specs if spec.devname and wanted.placement != "off"):
        yield finding(Code.DEVNAME_UNDER_PLACEMENT, place=setting.place, devname=devname)
    twice, shared = [], []
    for host in hosts:
        matched, rendered, name = offered(specs, host), rendered_devices(wanted, host), host.hostname
        if not only_more or not matched <= rendered:
            mediated = {address for section in wanted.mediated.get(name, ()) for address in section.addresses}
            twice += [(address, name) for address in sorted(matched & mediated)]
            shared += [(", ".join(sorted(both)), name) for both in [matched & rendered] if both]
    for address, names in by_key(twice).items():
        other, grave = f"the rendered device_addresses of {pattern(names)}", Severity.ERROR
        yield finding(Code.CARD_OFFERED_TWICE, place=setting.place, severity=grave, address=address, other=other)
    for addresses, names in by_key(shared).items():
        why = f": it matches {addresses} on {pattern(names)} too, and Nova goes by the first entry that fits"
        yield _about(setting, Code.FOREIGN_LINE_IN_FORCE, why=why)


def _types_replaced(existing: Existing, wanted: DesiredConfig, names: HostNames) -> Iterator[Finding]:
    """Types of mediated devices that the operator offers on other cards: the rendered list replaces theirs."""
    option, table = mediated.list_option(wanted.release), releases.table(wanted.release)
    lines = [(source, setting) for source, setting in existing.effective(option) if not setting.unknown]
    for source, setting, host in ((*line, host) for line in lines for host in names.having(line[0])):
        rendered = wanted.mediated.get(host.hostname, ())
        shared = {address for section in rendered for address in section.addresses}
        types = dict.fromkeys(values(setting.value)).keys() - {section.type for section in rendered}
        for type_ in sorted(types) if rendered else ():
            of_type = table.find(mediated.group_of(type_.lower(), wanted.release), "device_addresses")
            line = source.configuration.last(of_type) if of_type else None
            able = (f.address for f in host.pci if any(kind.number == type_ for kind in f.vgpu_types))
            if cards := sorted({*(values(line.value) if line else able)} - shared):
                about: dict[str, Any] = {"type": type_, "host": host.hostname, "cards": listed(cards, 5)}
                yield finding(Code.VGPU_TYPE_REPLACED, place=setting.place, **about)


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
                    yield _about(setting, Code.OVERRIDDEN_BY_LATER_FILE)
            if not drop_in or source.with_files is False:
                continue
            for setting in foreign(source.configuration.named_last().effective(option)):
                if not _right(setting, option, wanted) and not in_drop_in(setting.file):
                    lists = [kept(source, setting, wanted)] if option.name == FILTERS.name else _types(wanted)
                    value = " or ".join(map(",".join, lists)) if option.kind == "list" else "true"
                    grave = Severity.ERROR if source.with_files else None
                    yield _about(setting, Code.LINE_DECIDES_WITH_CONFIG_FILE, severity=grave, value=value)


def _in_later_keys(existing: Existing, wanted: DesiredConfig, own_key: str) -> Iterator[Finding]:
    """Lines in a ConfigMap whose key sorts after gpustack's: each key becomes a drop-in."""
    for option in _of_one_value(wanted):
        for source, setting in existing.effective(option):
            _, of_resource, key = PurePath(setting.file).name.rpartition(":")
            later = of_resource and key > own_key
            if source.services == ("compute",) and later and not _right(setting, option, wanted):
                yield _about(setting, Code.OVERRIDDEN_BY_LATER_FILE)


def _of_one_value(wanted: DesiredConfig) -> Iterator[Option]:
    """The single-valued options that are rendered: the last line decides."""
    yield FILTERS.of(wanted.release)
    yield from (option for stage, option in SWITCHES.items() if stage not in beyond(wanted.placement))
    if any(wanted.mediated.values()):
        yield mediated.list_option(wanted.release)


def _types(wanted: DesiredConfig) -> list[tuple[str, ...]]:
    """The lists of types that hosts get."""
    return list(dict.fromkeys(tuple(s.type for s in types) for types in wanted.mediated.values() if types))


def _right(setting: Setting, option: Option, wanted: DesiredConfig) -> bool:
    if option.group == "devices":
        return values(setting.value) in _types(wanted)
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


def _about(setting: Setting, code: Code, *, severity: Severity | None = None, **values: str) -> Finding:
    """A finding about a line, which it names."""
    line = f"[{setting.group}] {setting.name}"
    return finding(code, place=setting.place, severity=severity, line=line, **values)
