"""Variables of OpenStack-Ansible's roles os_nova and os_placement: for each service, and for each compute host.

Ansible reads ``group_vars/NAME`` (a file or all files of a directory), else ``NAME.yml``, ``NAME.yaml`` or
``NAME.json``: the first that exists, and no other (``ansible/parsing/dataloader.py``, ``find_vars_files``). A new
directory would therefore disable the variables of a file of the same name.
"""

import json
import re
from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.base.errors import NovaConfigError
from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.text import quoted
from gpustack.configure import providers
from gpustack.configure.rendered import ENCRYPTED, Job, RenderedFile, Tool, documents, dumped, typed
from gpustack.configure.sections import sections
from gpustack.configure.sources import PLACEMENT, READERS, SERVICES, Source, assigned, carried, kinds
from gpustack.nova_options import releases
from gpustack.nova_options.markers import DROP_IN
from gpustack.nova_options.pci_values import specs_of
from gpustack.spec.document import entries, mapping

DIRECTORY = "/etc/openstack_deploy"
FILE = "gpustack.yml"
_GROUP, _PLACEMENT_GROUP = "group_vars/nova_all", "group_vars/placement_all"
_ALIAS, _MDEV_TYPES = "nova_pci_alias", "nova_enabled_mdev_types"
_FILTERS, _OVERRIDES = "nova_scheduler_extra_filters", "nova_nova_conf_overrides"
_FILTERS_OF_ROLE = "nova_scheduler_default_filters"
_DEFAULT_FILTERS = (
    "ComputeFilter,AggregateNumInstancesFilter,AggregateIoOpsFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,"
    "ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,NUMATopologyFilter"
)
"""os_nova's ``nova_scheduler_default_filters`` from Yoga to 2026.1 (``defaults/main.yml``)."""
_PROVIDERS = "nova_provider_overrides"
_PLACEMENT_OVERRIDES = "placement_placement_conf_overrides"
_OTHER_NAMES = ("", ".yml", ".yaml", ".json")
_REPLACING = (
    ("alias", _ALIAS),
    ("device_spec", "nova_device_spec"),
    ("passthrough_whitelist", "nova_pci_passthrough_whitelist"),
)
"""Options of [pci] in overrides, and the variables whose lines config_template replaces with them."""
_OF_FILE = "the value of this file"
_Written = tuple[Path, str, str, str, str]
_LISTS_SINCE = 27
"""The release (2023.1) from which os_nova's template takes a list of device_specs; before, it takes a string."""


def files(job: Job, names: Sequence[str]) -> Iterator[RenderedFile]:
    """The group's variables, and those of each compute host."""
    for path, variables in _variables(job, names):
        services = {_GROUP: job.services, _PLACEMENT_GROUP: (PLACEMENT,)}.get(path, ("compute",))
        yield job.yaml(f"{path}/{FILE}", services, dumped([variables]))


def _variables(job: Job, names: Sequence[str]) -> Iterator[tuple[str, dict[str, object]]]:
    if rendered := job.of_placement():
        yield _PLACEMENT_GROUP, {_PLACEMENT_OVERRIDES: typed(rendered)}
    if not job.services:
        return
    wanted = job.wanted
    retained = carried(job.existing, wanted, "api")
    # The group has all services, so a rendering for one of them must not lose the settings of the others.
    aliases = [*retained.aliases, *map(str, wanted.aliases)]
    common: dict[str, object] = {_ALIAS: aliases, _FILTERS: list(wanted.filters)}
    if switches := typed(sections(wanted, SERVICES, parts={"switches"})):
        common[_OVERRIDES] = switches
    yield _GROUP, common
    modern = releases.device_spec_option(wanted.release).name == "device_spec"
    variable = "nova_device_spec" if modern else "nova_pci_passthrough_whitelist"
    for host in names:
        path = f"host_vars/{host}"
        lines = [*job.kept(host, f"{job.directory}/{path}/{FILE}").devices, *map(str, wanted.computes[host])]
        of_host: dict[str, object] = {}
        if lines and wanted.release.major >= _LISTS_SINCE:
            of_host[variable] = lines
        elif any(map(_is_jinja, lines)):
            raise NovaConfigError("one line can't join expressions", where=path, remedy="name values with --from")
        elif lines:  # an older role writes its variable into one line
            of_host[variable] = json.dumps([entry for line in lines for entry in specs_of(line)])
        # The role's own variable has no mdev_class; a host's value replaces it all.
        if types := wanted.mediated.get(host):
            of_types = sections(wanted, ("compute",), types=types, parts={"devices"})
            of_host[_OVERRIDES] = {**switches, **typed(of_types)}
        content = providers.content(wanted.markers.get(host, {}), wanted.traits.get(host, {}))
        if content and providers.is_written("openstack-ansible", wanted.release):
            of_host[_PROVIDERS] = [{"name": "gpustack", "content": content}]
        if of_host:
            yield path, of_host


def findings(job: Job, names: Sequence[str]) -> Iterator[Finding]:
    """Report variables files that gpustack's directory would hide, and variables that are set twice."""
    if (below := job.into(job.directory)) is None:
        return
    for path, variables in _variables(job, names):
        for ending in _OTHER_NAMES:
            file = below / f"{path}{ending}"
            if file.is_file():
                yield _hidden(file, below / path)
        yield from _set_twice(below, path, variables)


def _hidden(file: Path, directory: Path) -> Finding:
    if file == directory:
        aside = quoted(f"{file}.tmp")
        move = f"mv {quoted(file)} {aside} && mkdir {quoted(directory)} && mv {aside} {quoted(directory / 'main.yml')}"
    else:
        move = f"mkdir -p {quoted(directory)} && mv {quoted(file)} {quoted(directory / f'main{file.suffix}')}"
    return finding(Code.VARIABLES_FILE_HIDDEN, place=str(file), directory=directory, command=move)


def _set_twice(below: Path, path: str, variables: dict[str, object]) -> Iterator[Finding]:
    """Other files that set a variable that gpustack sets: Ansible uses one of the two values and drops the other."""
    for file in sorted((*below.glob("user_*.y*ml"), *below.glob("*_vars/**/*"))):
        winner = _winner(file.relative_to(below), path) if _is_read(file) else None
        if winner is None:
            continue
        try:
            assigned = dict(ChainMap(*documents(file, base_60=True)))
        except NovaConfigError as error:
            grave = Severity.INFO if error.what == ENCRYPTED else None
            what = {"error": error.what, "names": " or ".join(dict.fromkeys((*variables, _OVERRIDES)))}
            yield finding(Code.VARIABLES_NOT_INSPECTED, place=str(file), severity=grave, **what)
            continue
        shared = " and ".join(sorted(assigned.keys() & variables.keys()))
        twice = [(shared, winner)] if shared else []
        twice += [(names, _OF_FILE) for names in _replaced(assigned, variables)]
        for names, used in twice:
            place, ours = str(file), f"{path}/{FILE}"
            yield finding(Code.VARIABLE_SET_TWICE, place=place, names=names, ours=ours, winner=used)


def _is_read(file: Path) -> bool:
    """Whether Ansible reads a variables file, by its name; false for gpustack's own file."""
    hidden = file.name.startswith(".") or file.name.endswith("~")
    return file.name != FILE and not hidden and file.suffix in _OTHER_NAMES and file.is_file()


def _replaced(assigned: Mapping[str, Any], variables: Mapping[str, Any]) -> Iterator[str]:
    """Overrides that replace the lines that the role derives from gpustack's variables.

    config_template 2.1.1 removes an option and writes the override's value (``_option_write``): nothing is merged.
    """
    for option, variable in _REPLACING:
        if variable in variables and option in mapping(assigned, _OVERRIDES, "pci"):
            yield f"[pci] {option} ({variable}, {_OVERRIDES})"
    if _replaces_filters(mapping(assigned, _OVERRIDES, "filter_scheduler"), variables.get(_FILTERS, ())):
        yield f"enabled_filters ({_FILTERS}, {_OVERRIDES})"


def _replaces_filters(section: Mapping[str, Any], needed: Collection[str]) -> bool:
    """Whether overrides set the scheduler's list without the required filters, replacing the list of the role."""
    if (value := section.get("enabled_filters")) is None:
        return False
    listed = value if isinstance(value, list) else str(value).split(",")
    return not set(needed) <= {str(name).strip() for name in listed}


def _winner(other: Path, path: str) -> str | None:
    """The file whose value Ansible uses, for a message; None if no host reads both files."""
    kind, name = other.parts[0], other.parts[1].partition(".")[0] if len(other.parts) > 1 else ""
    if kind not in ("group_vars", "host_vars"):
        return _OF_FILE  # extra variables of every run
    if f"{kind}/{name}" == path:
        return _OF_FILE if other.name > FILE else "gpustack's value, and this one is lost"
    if path in (_GROUP, _PLACEMENT_GROUP):
        if kind == "host_vars":
            return "the value of this file on that host"
        return "gpustack's value" if name == "all" else "the value of the more specific group"
    return "gpustack's value, and this one is lost on that host" if kind == "group_vars" else None


def sources(files: Mapping[Path, Mapping[str, Any]], services: tuple[str, ...] = ()) -> Iterator[Source]:
    """The settings that os_nova (``templates/nova.conf.j2``, 2023.1 to 2026.1) and os_placement make of variables.

    :param files: the variables of each file; a later file replaces those of the same name.
    :param services: the services, if the operator names them. Else variables of devices alone are for nova-compute.
    """
    variables = {name: (path, value) for path, of_file in files.items() for name, value in of_file.items()}
    label = ":".join(map(str, files))
    options = list(_nova_options(variables))
    only_devices = {group for _, (_, group, *_) in options} == {"pci"} and _ALIAS not in variables
    readers = [name for name in services or (("compute",) if only_devices else READERS) if name != PLACEMENT]
    by_options = by_key((tuple(option for of, option in options if of in ("", name)), name) for name in readers)
    for read, own in by_options.items():
        configuration, named = assigned(read), bool(services)
        yield Source(label=label, services=kinds(own), configuration=configuration, named=named, readers=tuple(own))
    overrides = list(_overrides(variables, _PLACEMENT_OVERRIDES))
    if overrides and set(services) <= {PLACEMENT}:
        yield Source(label=label, services=(PLACEMENT,), configuration=assigned(overrides), named=True)


def arguments(directory: Path) -> Iterator[str]:
    """The rendered files of a directory as configurations of a command line: of the group, and of each host."""
    group, hosts = directory / _GROUP / FILE, sorted(directory.glob(f"host_vars/*/{FILE}"))
    if group.is_file():
        yield f"api,scheduler,conductor={group}"
        yield from (f"compute={group}:{host}" for host in hosts)
    if (directory / _PLACEMENT_GROUP / FILE).is_file():
        yield f"{PLACEMENT}={directory / _PLACEMENT_GROUP / FILE}"


def unknown(files: Mapping[Path, Mapping[str, Any]]) -> Iterator[Finding]:
    """Text instead of a list of filters, and overrides that are unknown because a part is a Jinja expression."""
    for path, variables in files.items():
        for name in (_FILTERS, _FILTERS_OF_ROLE):
            if (value := variables.get(name)) and not (isinstance(value, list) or _is_jinja(value)):
                yield finding(Code.FILTERS_NOT_A_LIST, place=str(path), name=name, listed=_joined(value))
        for name in (_OVERRIDES, _PLACEMENT_OVERRIDES):
            value = variables.get(name)
            if any(map(_is_jinja, value.values() if isinstance(value, dict) else [value])):
                yield finding(Code.JINJA_TEMPLATE, place=f"{path}:{name}", what=f"{name} is a Jinja expression")


def _is_jinja(value: object) -> bool:
    return isinstance(value, str) and "{{" in value


def _nova_options(variables: Mapping[str, tuple[Path, Any]]) -> Iterator[tuple[str, _Written]]:
    """The options, each with the only service for which the role writes it, or "" for all."""
    overrides = variables.get(_OVERRIDES, (Path(), {}))[1]
    for reader, group, name, variable, values in _role_lines({name: value for name, (_, value) in variables.items()}):
        for number, value in enumerate(values if name not in mapping(overrides, group) else ()):
            text = re.sub(r"\n\s*", "\n", value)  # config_template knows no continuation of lines
            yield reader, (variables[variable][0], group, name, text, variable + f"[{number}]" * (group == "pci"))
    yield from (("", option) for option in _overrides(variables, _OVERRIDES))


def _role_lines(variables: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str, list[str]]]:
    """Service, group, option, variable and values of the options that the role itself writes."""
    for name, variable in _REPLACING:
        value = variables.get(variable) or []
        if variable == _ALIAS and not _is_jinja(value):  # The template loops over it: each character of a text.
            values = [str(item) for item in (value if isinstance(value, list | dict) else str(value)[:1])]
        else:
            items = value if isinstance(value, list) else [value]
            values = [item if isinstance(item, str) else json.dumps(item, default=str) for item in items]
        if name != "passthrough_whitelist" or "nova_device_spec" not in variables:  # the default of this one
            yield "", "pci", name, variable, values
    lists = variables.get(_FILTERS_OF_ROLE, _DEFAULT_FILTERS), variables.get(_FILTERS) or []
    if given := [name for name in (_FILTERS, _FILTERS_OF_ROLE) if name in variables]:
        listed = "{{ … }}" if any(map(_is_jinja, lists)) else ",".join(filter(None, map(_joined, lists)))
        yield "scheduler", "filter_scheduler", "enabled_filters", given[0], [listed]
    variable = _MDEV_TYPES if _MDEV_TYPES in variables else "nova_enabled_vgpu_types"
    if types := [entry for entry in entries(variables, variable) if isinstance(entry, dict)]:
        listed = ",".join(dict.fromkeys(str(entry.get("type")) for entry in types))
        yield "compute", "devices", "enabled_mdev_types", variable, [listed]
    for entry in types:
        if address := entry.get("address"):
            yield "compute", f"mdev_{entry.get('type')}", "device_addresses", variable, [_joined(address)]


def _overrides(variables: Mapping[str, tuple[Path, Any]], name: str) -> Iterator[_Written]:
    """The options of overrides as config_template writes them: a mapping without values is one line for each key."""
    path, sections = variables.get(name, (Path(), {}))
    for key, value in sections.items() if isinstance(sections, dict) else ():
        group, options = (str(key), value) if isinstance(value, dict) else ("DEFAULT", {key: value})
        for option, lines in options.items() if not _is_jinja(value) else ():
            for line in lines if isinstance(lines, dict) and not any(lines.values()) else [lines]:
                yield path, group, str(option), _joined(line).replace("\n", "\n  "), f"{name}.{key}.{option}"


def _joined(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


TOOL = Tool(
    directory=DIRECTORY,
    files=files,
    places=lambda below: (f"{below}/**/{FILE}",),
    findings=findings,
    own_file=DROP_IN,
    filter_list="never",
)
