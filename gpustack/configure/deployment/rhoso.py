"""Custom resources for Red Hat OpenStack Services on OpenShift (openstack-k8s-operators).

Compute hosts: for each set of hosts with the same devices, a ConfigMap with a drop-in and an
OpenStackDataPlaneService that references it. A node set lists that service instead of ``nova``. Control plane: a
patch of OpenStackControlPlane whose ``customServiceConfig`` nova-operator mounts as a drop-in of each service.
"""

import base64
import contextlib
import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.base.errors import NovaConfigError
from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.rendered import Job, RenderedFile, Tool, dumped, template
from gpustack.configure.sections import CONTROL, ConfigSection, sections
from gpustack.configure.sources import PLACEMENT, SUPER_CONDUCTOR, Source
from gpustack.nova_options import releases
from gpustack.nova_options.config import parse_files
from gpustack.nova_options.markers import BEGIN, END, without_block
from gpustack.spec.document import mapping

DIRECTORY = "rhoso"
SINCE = 27
"""The first release of Nova that RHOSO runs: 2023.1, in RHOSO 18.0."""
PATTERN = "*nova*.conf"
"""The only keys that edpm-ansible turns into drop-ins (``roles/edpm_nova``, ``kolla_config/nova_compute.yaml``)."""
KEY = "35-gpustack-nova.conf"
"""The drop-in's name in the ConfigMap: files are read in the order of their names, after those of the operator."""
PROVIDER_KEY = "provider-gpustack.yaml"
"""edpm-ansible copies the keys ``provider*.yaml`` to ``/etc/nova/provider_config``."""
FILTERS = frozenset(("PciPassthroughFilter", "NUMATopologyFilter"))
"""The filters required by gpustack that nova-operator enables by default (``templates/nova/nova.conf``)."""
_TEMPLATES = {"api": "apiServiceTemplate", "scheduler": "schedulerServiceTemplate"}
_CONDUCTOR = "conductorServiceTemplate"
_SERVICE = "nova-gpu"
_DATA_PLANE = "dataplane.yaml"
_PLACEMENT = ("spec", "placement", "template")
_MAX_NAME = 63


def files(job: Job, names: Sequence[str]) -> Iterator[RenderedFile]:
    """The data plane's resources, and the control plane's patch."""
    if "compute" in job.services:
        documents = [document for name, data in _computes(job, names) for document in _service(name, data)]
        yield job.yaml(_DATA_PLANE, ("compute",), dumped(documents))
    control = tuple(service for service in CONTROL if service in job.services)
    if patch := _patch(job, control):
        readers = (*control, PLACEMENT) if job.placement else control
        yield job.yaml("controlplane.yaml", readers, dumped([patch]))


def _computes(job: Job, names: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The name and the files of each service: for hosts without GPUs, and for each set of devices."""
    yield f"{_SERVICE}-none", {KEY: _text(job.sections(("compute",)))}
    with_devices = filter(job.wanted.has_devices, names)
    texts = {host: (_text(job.sections(("compute",), host)), job.provider_text(host)) for host in with_devices}
    by_text = by_key((of_host[:2], host) for host, of_host in {**texts, **job.others}.items())
    used = {f"{_SERVICE}-none"}
    for (text, provider), hosts in by_text.items():
        ids = [f"{entry.vendor_id}-{entry.product_id}" for entry in job.wanted.computes.get(hosts[0], ())]
        types = [section.type for section in job.wanted.mediated.get(hosts[0], ())]
        numbered = (_name(_SERVICE, str(number), *hosts[:1]) for number in range(2, len(used) + 3))
        kept = job.others.get(hosts[0])
        usual = kept[2] if kept else _name(_SERVICE, *dict.fromkeys([*ids, *types]))
        names_for = (usual, _name(_SERVICE, hosts[0]), *numbered)
        name = next(name for name in names_for if name not in used)
        used.add(name)
        data = {KEY: f"# {', '.join(sorted(hosts))}\n{text}"}
        yield name, data if provider is None else {**data, PROVIDER_KEY: provider}


def _parts(job: Job) -> dict[str, tuple[str, str | None, str]]:
    """The text with the aliases of today, the provider file and the name of each host's service in an earlier one."""
    found: dict[str, tuple[str, str | None, str]] = {}
    aliases = "".join(f"alias = {line}\n" for line in job.wanted.alias_lines)
    for document in job.earlier(_DATA_PLANE):
        name, data = mapping(document, "metadata").get("name"), dict(_data(Path(_DATA_PLANE), document))
        head, _, text = data.get(KEY, "").partition("\n")
        text = re.sub(r"(^alias = .*\n)+", lambda _: aliases, text, flags=re.MULTILINE)  # all hosts have the same
        found |= dict.fromkeys(_hosts(head), (text, data.get(PROVIDER_KEY), str(name)))
    return found


def _hosts(head: str) -> tuple[str, ...]:
    """The hosts in the first line of a drop-in."""
    return tuple(head[2:].split(", ")) if head.startswith("# ") else ()


def _name(*parts: str) -> str:
    """A name that is valid by RFC 1123."""
    return re.sub("[^a-z0-9-]+", "-", "-".join(parts).lower())[:_MAX_NAME].strip("-")


def _service(name: str, data: Mapping[str, str]) -> Iterator[dict[str, object]]:
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data)}
    yield {
        "apiVersion": "dataplane.openstack.org/v1beta1",
        "kind": "OpenStackDataPlaneService",
        "metadata": {"name": name},
        "spec": {
            "dataSources": [
                {"secretRef": {"name": "nova-cell1-compute-config"}},
                {"secretRef": {"name": "nova-migration-ssh-key"}},
                {"configMapRef": {"name": "nova-extra-config", "optional": True}},
                {"configMapRef": {"name": name}},
            ],
            "playbook": "osp.edpm.nova",
            "caCerts": "combined-ca-bundle",
            "edpmServiceType": "nova",
            "containerImageFields": ["NovaComputeImage"],
        },
    }


def _patch(job: Job, services: Sequence[str]) -> dict[str, object] | None:
    """The control plane's patch; None if no service needs a setting."""
    templates = [_template_of(document) for document in job.existing.documents]
    cells = tuple(dict.fromkeys(cell for template in templates for cell in _cells(template))) or ("cell0", "cell1")
    patch: dict[str, Any] = {}
    for service in services:
        filters = job.filters if not job.default_filters or not set(job.wanted.filters) <= FILTERS else ()
        parts = {"alias", "switches", *(("filters",) if filters else ())}
        # customServiceConfig is a drop-in: its aliases are added to those of other files.
        text = _text(sections(job.wanted, (service,), filters=filters, parts=parts))
        for keys in _keys(service, cells):
            before = _custom(templates, keys)
            # A patch leaves a text that it does not name, so an earlier block needs one to be removed.
            if text or BEGIN in before:
                _set(patch, keys, _onto(before, text, ".".join(keys)))
    spec = {"nova": {"template": patch}} if patch else {}
    before = _custom(job.existing.documents, _PLACEMENT)
    text = _text(job.of_placement())
    if job.placement and (text or BEGIN in before):
        spec["placement"] = {"template": {}}
        _set(spec["placement"]["template"], (), _onto(before, text, ".".join(_PLACEMENT)))
    return {"spec": spec} if spec else None


def _keys(service: str, cells: Iterable[str]) -> list[tuple[str, ...]]:
    """The service templates of a service: nova-operator has one for the conductors of each cell.

    No other template matters here. The metadata and noVNC services read none of gpustack's options, and
    ``novaComputeTemplates`` are for the drivers of Ironic and for tests, which have no PCI devices.
    """
    if service == "conductor":
        return [("cellTemplates", cell, _CONDUCTOR) for cell in cells]
    return [(_TEMPLATES[service],)]


def _set(patch: dict[str, Any], keys: Sequence[str], text: str) -> None:
    for key in keys:
        patch = patch.setdefault(key, {})
    patch["customServiceConfig"] = text


def _onto(before: str, text: str, place: str) -> str:
    """A service's existing text with gpustack's block at its end; without a block if there is nothing to set."""
    foreign = without_block(before, place).rstrip()
    block = f"{BEGIN}\n{text}{END}\n" if text else ""
    return "\n\n".join(part for part in (foreign, block) if part)


def _template_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The templates of Nova's services in an OpenStackControlPlane, or in the Nova resource that is made from it."""
    keys = ("spec",) if document.get("kind") == "Nova" else ("spec", "nova", "template")
    return mapping(document, *keys)


def _cells(template: Mapping[str, Any]) -> list[str]:
    return [str(cell) for cell in mapping(template, "cellTemplates")]


def _custom(templates: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> str:
    """The text of a service template; empty if no resource has one."""
    texts = (mapping(template, *keys).get("customServiceConfig") for template in templates)
    return next((text for text in texts if isinstance(text, str)), "")


def _findings(job: Job, names: Sequence[str]) -> Iterator[Finding]:
    """Findings about a release that RHOSO lacks, and about templates whose text the patch replaces unseen."""
    release, documents = job.wanted.release, job.existing.documents
    if release.major < SINCE:
        what, since = "deployment: rhoso (Red Hat OpenStack Services on OpenShift)", releases.first_with(SINCE)
        yield finding(Code.SETTING_NOT_IN_RELEASE, place="nova.release", what=what, release=release, since=since)
    unseen = [] if any(map(_template_of, documents)) else ["Nova's services"]
    of_placement = [mapping(document, *_PLACEMENT[:-1]).get(_PLACEMENT[-1]) for document in documents]
    if job.of_placement() and not any(isinstance(found, dict) for found in of_placement):
        unseen.append("Placement")
    for services in unseen:
        what = f"the customServiceConfig of {services} in OpenStackControlPlane"
        yield finding(Code.REPLACED_VALUES_NOT_SHOWN, place=job.directory, what=what)


def sources(path: Path, document: Mapping[str, Any], *, own: bool = False) -> Iterator[Source]:
    """The settings for Nova's services in an OpenStackControlPlane, or in a ConfigMap or Secret for nova-compute.

    :param own: whether to read gpustack's drop-in too, whose first line lists its hosts.
    """
    data = sorted(_data(path, document))
    texts = {key: text for key, text in data if fnmatch.fnmatch(key, PATTERN) and (own or key != KEY)}
    if texts:  # nova-compute gets all of them
        resource = f"{path}:{mapping(document, 'metadata').get('name')}" if KEY in texts else path
        source = _source("compute", {f"{resource}:{key}": text for key, text in texts.items()})
        yield replace(source, hosts=_hosts(texts[KEY].partition("\n")[0])) if KEY in texts else source
    if text := _custom([document], _PLACEMENT):
        yield _source(PLACEMENT, {f"{path}:{'.'.join(_PLACEMENT)}": text})
    template = _template_of(document)
    for service in CONTROL:
        for keys in _keys(service, _cells(template)):
            if text := _custom([template], keys):
                # The conductor of cell0 is the one above the cells (nova-operator, NovaConductorSpec).
                reader = SUPER_CONDUCTOR if "cell0" in keys else service
                yield _source(service, {f"{path}:{'.'.join(keys)}": text}, reader)


def ignored(path: Path, document: Mapping[str, Any]) -> Iterator[Finding]:
    """Keys with options for GPUs under names that edpm-ansible does not copy to nova-compute."""
    for key, text in _data(path, document):
        if not fnmatch.fnmatch(key, PATTERN) and any(option.name in text for option in releases.all_options()):
            with contextlib.suppress(NovaConfigError):
                settings = parse_files({f"{path}:{key}": text}).settings
                if lines := [setting for setting in settings if setting.path in releases.names()]:
                    new = f"30-nova-{Path(key).stem}.conf"
                    yield finding(Code.KEY_IGNORED, place=lines[0].place, key=key, pattern=PATTERN, name=new)


def _data(path: Path, document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys of a ConfigMap or Secret, with their texts."""
    plain, encoded = {"ConfigMap": ("data", "binaryData"), "Secret": ("stringData", "data")}.get(
        str(document.get("kind")), ("", "")
    )
    for field in (plain, encoded):
        for key, value in mapping(document, field).items():
            if isinstance(value, str):
                yield str(key), value if field == plain else _decoded(value, path, str(key))


def _decoded(text: str, path: Path, key: str) -> str:
    try:
        return base64.b64decode(text, validate=False).decode()
    except ValueError as error:
        if not fnmatch.fnmatch(key, PATTERN):
            return ""  # a key store, for example
        what, remedy = "the value is not text in Base64", "correct the value"
        raise NovaConfigError(what, where=f"{path}:{key}", remedy=remedy) from error


def _source(service: str, texts: Mapping[str, str], reader: str = "") -> Source:
    """The configuration of a service.

    :param texts: the texts of its drop-ins by their places.
    """
    label, configuration, readers = ", ".join(texts), parse_files(texts), (reader or service,)
    return Source(
        label=label, services=(service,), configuration=configuration, named=True, readers=readers, filters=FILTERS
    )


def _text(rendered: Sequence[ConfigSection]) -> str:
    return template("sections.conf.j2").render(sections=rendered).lstrip("\n") if rendered else ""


TOOL = Tool(
    directory=DIRECTORY,
    files=files,
    places=lambda below: (f"{below}/*plane.yaml",),
    findings=_findings,
    sources=sources,
    parts=_parts,
    together=(*CONTROL, PLACEMENT),
    own_key=KEY,
    filter_list="needed",
)
