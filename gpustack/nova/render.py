"""The files of a deployment that make Nova give out the GPUs: drop-ins, overrides of kolla-ansible, variables."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpustack.facts.model import Host
from gpustack.files import share_dir
from gpustack.findings import Finding, finding
from gpustack.nova.existing import BEGIN, END, MARK, Existing, carried, filters, in_the_way
from gpustack.nova.sections import CONTROL, Carried, Section, sections
from gpustack.nova.sources import SERVICES
from gpustack.nova.wanted import Wanted
from gpustack.novaconf import releases

if TYPE_CHECKING:
    import jinja2

Deployment = Literal["drop-in", "kolla", "kayobe", "openstack-ansible"]
DROP_IN = "300-gpustack.conf"
DIRECTORY = "/etc/nova/nova.conf.d"
_KOLLA = "/etc/kolla/config/nova"
_KAYOBE = "etc/kayobe/kolla/config/nova"
_OSA = "/etc/openstack_deploy"
_KOLLA_NAMES = {
    "api": ("nova-api",),
    "scheduler": ("nova-scheduler",),
    "conductor": ("nova-conductor", "nova-super-conductor"),
    "compute": ("nova-compute",),
}


@dataclass(frozen=True, kw_only=True)
class RenderedFile:
    """One file.

    :ivar target: the host that it is for, ``control`` or ``compute`` for all hosts of that kind; empty where the
        deployment's own tool distributes it.
    :ivar path: where it belongs.
    :ivar services: the services that read it.
    :ivar shared: the file may hold settings of others: only the part between the marks is gpustack's.
    """

    target: str
    path: str
    text: str
    services: tuple[str, ...]
    shared: bool = False

    def onto(self, before: str | None) -> str:
        """The whole new content of the file, given what is there now."""
        if not self.shared or before is None:
            return self.text
        kept = without_block(before)
        return f"{kept.rstrip()}\n\n{self.text}" if kept.strip() else self.text

    def to_dict(self) -> dict[str, Any]:
        """The file as plain data."""
        return {"target": self.target, "path": self.path, "services": list(self.services), "text": self.text}


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """All files, and what there is to say of them; with an error among the findings, nothing should be written."""

    files: tuple[RenderedFile, ...]
    findings: tuple[Finding, ...] = field(default=())


def render(
    wanted: Wanted,
    *,
    deployment: Deployment = "drop-in",
    services: Sequence[str] = SERVICES,
    existing: Existing | None = None,
    hosts: Sequence[Host] = (),
    only: Collection[str] | None = None,
    together: bool = False,
    root: Path | None = None,
    appended: bool = False,
) -> Rendering:
    """Render what Nova needs.

    :param services: the services to render for.
    :param existing: the configuration that is there.
    :param hosts: the facts behind ``wanted``, to judge what is there.
    :param only: the compute hosts to render for; all of ``wanted`` when None.
    :param together: the compute hosts run the other services too: one file for all of them.
    :param appended: the settings go to the end of ``nova.conf`` itself, and into no drop-in.
    :param root: the directory below which the files are put, where they join what others wrote.
    """
    existing = existing or Existing()
    by_name = {host.hostname: host for host in hosts}
    names = [name for name in wanted.computes if only is None or name in only] if "compute" in services else []
    whole, chosen = filters(existing, wanted)
    found = list(wanted.findings)
    if "scheduler" in services and chosen is None and deployment != "openstack-ansible":
        added = " and ".join(wanted.filters)
        place = "[filter_scheduler] enabled_filters"
        found.append(finding("GPU317", place=place, release=wanted.release, filters=added))
    overrides = {"kolla": _KOLLA, "kayobe": _KAYOBE}.get(deployment)
    if overrides and not existing.sources:
        found.append(finding("GPU322", place=overrides))
    below = root / overrides.lstrip("/") if root and overrides else None
    found += in_the_way(
        existing,
        wanted,
        hosts,
        whole=overrides is not None,
        own=None if overrides or appended else DROP_IN,
        drop_in=deployment == "drop-in",
        overrides=below,
    )
    job = _Job(wanted=wanted, existing=existing, filters=whole, hosts=by_name, services=tuple(services), root=root)
    if deployment == "drop-in":
        files = tuple(_drop_ins(job, names, together=together, everywhere=only is None))
    elif deployment == "openstack-ansible":
        files = tuple(_variables(job, names))
    else:
        files = tuple(_overrides(job, names, kayobe=deployment == "kayobe"))
    return Rendering(files=files, findings=tuple(dict.fromkeys(found)))


def without_block(text: str) -> str:
    """A file without the part that gpustack wrote into it."""
    kept, inside = [], False
    for line in text.splitlines(keepends=True):
        if line.startswith(BEGIN):
            inside = True
        if not inside:
            kept.append(line)
        if line.startswith(END):
            inside = False
    return "".join(kept)


def places(deployment: Deployment) -> str:
    """The paths below an output directory where a rendering puts files, as a pattern of :meth:`pathlib.Path.glob`."""
    return {
        "drop-in": f"*{DIRECTORY}/{DROP_IN}",
        "kolla": f"{_KOLLA[1:]}/**/*.conf",
        "kayobe": f"{_KAYOBE}/**/*.conf",
        "openstack-ansible": f"{_OSA[1:]}/**/gpustack.yml",
    }[deployment]


def without_ours(text: str) -> str:
    """What is left of a file without what a rendering put there: nothing, of one that is gpustack's as a whole."""
    return "" if text.startswith(MARK) else without_block(text)


@dataclass(frozen=True, kw_only=True)
class _Job:
    wanted: Wanted
    existing: Existing
    filters: tuple[str, ...]
    hosts: dict[str, Host]
    services: tuple[str, ...]
    root: Path | None

    def into(self, path: str) -> Path | None:
        """Where a file is put."""
        return self.root / path.lstrip("/") if self.root else None

    def sections(self, services: Collection[str], host: str | None = None) -> tuple[Section, ...]:
        devices = self.wanted.computes[host] if host else ()
        return sections(self.wanted, services, filters=self.filters, devices=devices)

    def kept(self, host: str, path: str) -> Carried:
        """The device_specs of a compute host that are not ours, and don't stand in the file itself."""
        everybody = tuple(self.hosts.values())
        into = self.into(path)
        return carried(self.existing, self.wanted, "compute", self.hosts.get(host), everybody, into=into)


def _drop_ins(job: _Job, names: Sequence[str], *, together: bool, everywhere: bool) -> Iterator[RenderedFile]:
    """One file for each compute host, one for those without GPUs, and one for the hosts of the other services."""
    control = tuple(service for service in CONTROL if service in job.services)
    if together:
        for name in names:
            yield _drop_in(job, name, job.services, name)
        return
    if control:
        yield _drop_in(job, "control", control, None)
    if "compute" in job.services:
        if everywhere:
            yield _drop_in(job, "compute", ("compute",), None)
        for name in names:
            yield _drop_in(job, name, ("compute",), name)


def _drop_in(job: _Job, target: str, services: tuple[str, ...], host: str | None) -> RenderedFile:
    text = _template("drop-in.conf.j2").render(
        mark=MARK, release=job.wanted.release, sections=job.sections(services, host)
    )
    return RenderedFile(target=target, path=f"{DIRECTORY}/{DROP_IN}", text=text, services=services)


def _overrides(job: _Job, names: Sequence[str], *, kayobe: bool) -> Iterator[RenderedFile]:
    """kolla-ansible's files: one for each service, and one with the device_spec for each compute host.

    What nova-compute has in common stands in ``nova-compute.conf``, which every compute host gets.
    """
    root = _KAYOBE if kayobe else _KOLLA
    for service in SERVICES:
        if service not in job.services:
            continue
        for name in _KOLLA_NAMES[service]:
            path = f"{root}/{name}.conf"
            made = sections(
                job.wanted,
                (service,),
                filters=job.filters,
                carried=carried(job.existing, job.wanted, service, into=job.into(path)),
                parts={"alias", "switches", "filters"},
            )
            if made:
                yield _override(job, path, (service,), made, kayobe=kayobe)
    for host in names:
        path = f"{root}/{host}/nova.conf"
        kept = job.kept(host, path)
        made = sections(job.wanted, ("compute",), devices=job.wanted.computes[host], carried=kept, parts={"devices"})
        if made:
            yield _override(job, path, ("compute",), made, kayobe=kayobe)


def _override(
    job: _Job, path: str, services: tuple[str, ...], made: Sequence[Section], *, kayobe: bool
) -> RenderedFile:
    text = _template("block.conf.j2").render(
        begin=BEGIN, end=END, release=job.wanted.release, sections=made, raw=kayobe
    )
    return RenderedFile(target="", path=path, text=text, services=services, shared=True)


def _variables(job: _Job, names: Sequence[str]) -> Iterator[RenderedFile]:
    """Variables of OpenStack-Ansible's os_nova role: for all of Nova, and for each compute host."""
    wanted = job.wanted
    kept = carried(job.existing, wanted, "api")
    common: dict[str, Any] = {"nova_pci_alias": [*kept.aliases, *map(str, wanted.aliases)]}
    if "scheduler" in job.services:
        common["nova_scheduler_extra_filters"] = list(wanted.filters)
    overrides: dict[str, dict[str, bool]] = {}
    if wanted.placement != "off":
        overrides["pci"] = {"report_in_placement": True}
    if wanted.placement == "schedule":
        overrides["filter_scheduler"] = {"pci_in_placement": True}
    if overrides:
        common["nova_nova_conf_overrides"] = overrides
    yield _yaml(wanted, f"{_OSA}/group_vars/nova_all/gpustack.yml", job.services, common)
    modern = releases.device_spec_option(wanted.release).name == "device_spec"
    for host in names:
        entries = [str(entry) for entry in wanted.computes[host]]
        path = f"{_OSA}/host_vars/{host}/gpustack.yml"
        theirs = job.kept(host, path).devices
        if entries or theirs:
            yield _yaml(
                wanted,
                path,
                ("compute",),
                {"nova_device_spec": [*theirs, *entries]}
                if modern
                else {"nova_pci_passthrough_whitelist": _as_list([*theirs, *entries])},
            )


def _as_list(lines: Sequence[str]) -> str:
    """Several device_specs as the one JSON list that an older role writes into one line."""
    import json

    from gpustack.novaconf.entries import specs_of

    return json.dumps([entry for line in lines for entry in specs_of(line)])


def _yaml(wanted: Wanted, path: str, services: tuple[str, ...], variables: dict[str, Any]) -> RenderedFile:
    import yaml

    dumped = yaml.safe_dump(variables, sort_keys=False, width=2**20, allow_unicode=True)
    text = _template("variables.yml.j2").render(mark=MARK, release=wanted.release, variables=dumped)
    return RenderedFile(target="", path=path, text=text, services=services)


def _template(name: str) -> jinja2.Template:
    return _environment().get_template(name)


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(share_dir("templates") / "nova"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  (no web pages; every value comes from the spec's patterns or is JSON)
    )
