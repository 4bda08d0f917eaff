"""Values for openstack-helm's chart of Nova.

The chart renders one ``nova.conf`` for all services from ``conf.nova``. Values of
``conf.overrides.nova_compute.hosts`` are merged into it for nova-compute on one host (helm-toolkit,
``daemonset_overrides``). An option with several lines is a ``multistring`` (``to_oslo_conf``). Helm merges maps of
several values files but replaces lists, so gpustack renders all lines of an option.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.rendered import Job, RenderedFile, Tool, dumped, typed, typed_value
from gpustack.configure.sections import ConfigSection, sections
from gpustack.configure.sources import PLACEMENT, SERVICES, Source, assigned, carried
from gpustack.spec.document import entries, mapping

DIRECTORY = "openstack-helm"
FILE, PLACEMENT_FILE = "gpustack-nova.yaml", "gpustack-placement.yaml"
_MULTI = ("alias", "device_spec", "passthrough_whitelist")


def files(job: Job, names: Sequence[str]) -> Iterator[RenderedFile]:
    """One file of values for each chart."""
    if of_placement := job.of_placement():
        yield _file(job, PLACEMENT_FILE, (PLACEMENT,), {PLACEMENT: typed(of_placement)})
    if not job.services:
        return
    aliases = carried(job.existing, job.wanted, "api")
    rendered = sections(
        job.wanted, job.services, filters=job.filters, carried=aliases, parts={"alias", "switches", "filters"}
    )
    conf: dict[str, Any] = {"nova": _values(rendered)}
    if hosts := _hosts(job, names):
        conf["overrides"] = {"nova_compute": {"hosts": hosts}}
    yield _file(job, FILE, job.services, conf)


def _file(job: Job, name: str, services: tuple[str, ...], conf: Mapping[str, Any]) -> RenderedFile:
    return job.yaml(name, services, dumped([{"conf": conf}]))


def _hosts(job: Job, names: Sequence[str]) -> list[dict[str, Any]]:
    """The overrides of all hosts with gpustack's devices; existing ones are repeated, since Helm replaces lists."""
    by_name: dict[str, dict[str, Any]] = {}
    for document in job.existing.documents:
        for entry in _entries(document):
            by_name[str(entry.get("name"))] = copy.deepcopy(dict(entry))
    by_name |= job.others
    for host in names:
        if rendered := job.of_host(host, ""):
            entry = by_name.setdefault(host, {"name": host})
            nova = dict(mapping(entry, "conf", "nova"))
            for group, values in _values(rendered).items():
                nova[group] = {**mapping(nova, group), **values}
            entry["conf"] = {**mapping(entry, "conf"), "nova": nova}
    return [by_name[name] for name in sorted(by_name)]


def _parts(job: Job) -> dict[str, dict[str, Any]]:
    return {str(entry.get("name")): dict(entry) for document in job.earlier(FILE) for entry in _entries(document)}


def _findings(job: Job, names: Sequence[str]) -> Iterator[Finding]:
    """Findings about values that are replaced unseen, and about overrides for labels.

    The chart ignores the latter for a host with an override of its own.
    """
    if not job.existing.documents:
        what = "conf.nova.pci.alias, enabled_filters and conf.overrides.nova_compute.hosts of other values"
        yield finding(Code.REPLACED_VALUES_NOT_SHOWN, place=job.directory, what=what)
    if any(_overrides(document).get("labels") for document in job.existing.documents):
        yield finding(Code.LABEL_OVERRIDES_LOST, place="conf.overrides.nova_compute.labels")


def _values(rendered: Sequence[ConfigSection]) -> dict[str, dict[str, Any]]:
    values: dict[str, dict[str, Any]] = {}
    for section in rendered:
        group = values.setdefault(section.group, {})
        for line in section.lines:
            if line.name in _MULTI:
                group.setdefault(line.name, {"type": "multistring", "values": []})["values"].append(line.value)
            elif line.name == "enabled_filters":
                group[line.name] = line.value.split(",")
            else:
                group[line.name] = typed_value(line.value)
    return values


def sources(path: Path, document: Mapping[str, Any]) -> Iterator[Source]:
    """The settings in a values file: for all services, and for nova-compute on single hosts and those of a label."""
    nova = mapping(document, "conf", "nova")
    hosts = tuple(str(entry.get("name")) for entry in _entries(document))
    if of_placement := mapping(document, "conf", PLACEMENT):
        place = f"{path}:conf.{PLACEMENT}"
        configuration = assigned(_options(path, of_placement, {}, "", root=f"conf.{PLACEMENT}"))
        yield Source(label=place, services=(PLACEMENT,), configuration=configuration, named=True)
    place = f"{path}:conf.nova"
    common = assigned(_options(path, nova, {}, ""))
    others = tuple(service for service in SERVICES if service != "compute")
    yield Source(label=place, services=others, configuration=common, named=True)
    yield Source(label=place, services=("compute",), configuration=common, named=True, but=hosts)
    overrides = [(f"hosts[{host}]", entry) for host, entry in zip(hosts, _entries(document), strict=True)]
    for entry in _entries(document, "labels"):
        label = mapping(entry, "label")
        overrides.append((f"labels[{label.get('key')}={','.join(_texts(label.get('values')))}]", entry))
    for number, (name, entry) in enumerate(overrides):
        place = f"conf.overrides.nova_compute.{name}.conf.nova"
        configuration = assigned(_options(path, nova, mapping(entry, "conf", "nova"), place))
        one = hosts[number : number + 1]  # none for a label: which hosts have it is not known
        yield Source(label=f"{path}:{place}", services=("compute",), configuration=configuration, named=True, hosts=one)


def _options(
    path: Path, nova: Mapping[str, Any], over: Mapping[str, Any], place: str, *, root: str = "conf.nova"
) -> Iterator[tuple[Path, str, str, str, str]]:
    """The options as the chart writes them: ``conf.nova`` with an override merged into it.

    :param place: the override's path in the values.
    :param root: the path of ``nova`` in the values.
    """
    for group in dict.fromkeys((*nova, *over)):
        override = mapping(over, group)
        for name, value in {**mapping(nova, group), **override}.items():
            key = f"{place if name in override else root}.{group}.{name}"
            for ending, text in _lines(value):
                yield path, str(group), str(name), text, key + ending


def _lines(value: object) -> Iterator[tuple[str, str]]:
    """The lines that the chart writes for an option's value, each with the rest of its path in the values."""
    if isinstance(value, dict) and value.get("type") == "multistring":
        yield from ((f".values[{number}]", text) for number, text in enumerate(_texts(value.get("values"))))
    elif isinstance(value, dict | list):
        yield "", ",".join(_texts(value if isinstance(value, list) else value.get("values")))
    elif value is not None:
        yield "", str(value)


def _texts(values: object) -> list[str]:
    """The values of a list. Nested values are abbreviated: Nova can't use them, and YAML aliases can make them huge."""
    listed = values if isinstance(values, list) else []
    return ["{…}" if isinstance(value, dict | list) else str(value) for value in listed]


def _entries(document: Mapping[str, Any], kind: str = "hosts") -> list[Mapping[str, Any]]:
    return [entry for entry in entries(_overrides(document), kind) if isinstance(entry, dict)]


def _overrides(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(document, "conf", "overrides", "nova_compute")


TOOL = Tool(
    directory=DIRECTORY,
    files=files,
    places=lambda below: (f"{below}/{FILE}", f"{below}/{PLACEMENT_FILE}"),
    findings=_findings,
    sources=sources,
    parts=_parts,
    together=SERVICES,
    replaces=True,
)
