"""The functions that the Ansible plugins call on the controller: plain data in, plain data out.

``overall`` runs once for all hosts, since aliases depend on the facts of every host. ``for_host`` then renders the
file of one host and checks it against the host's current configuration.

The result of the module ``gpustack_nova_config``. A host may be hostile, so size and content are validated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self, TypedDict, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from gpustack.base.by_key import by_key
from gpustack.base.errors import NovaConfigError, SnapshotError
from gpustack.base.findings import Code, Finding, errors, finding
from gpustack.base.task_results import TaskResult, reported
from gpustack.base.text import LAYOUT, counted, listed, printable
from gpustack.base.validation import problem
from gpustack.configure import providers
from gpustack.configure.deployment.drop_in import DIRECTORY
from gpustack.configure.deployment.kolla import NAMES
from gpustack.configure.desired import Alias, DesiredConfig, DeviceEntry, all_advised, required_filters, wanted
from gpustack.configure.packing import requested
from gpustack.configure.render import render
from gpustack.configure.rendered import RenderedFile
from gpustack.configure.sources import Existing, Source
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import load_snapshot, parse_host
from gpustack.nova_options import releases
from gpustack.nova_options.config import parse_files, selected
from gpustack.nova_options.markers import BEGIN, END
from gpustack.nova_options.mediated import TypeSection
from gpustack.nova_options.options import Release
from gpustack.nova_options.scheduler import wanted_stage
from gpustack.spec.load import load_spec
from gpustack.spec.markers import markers
from gpustack.spec.model import Spec, hosts_of, left_out, not_in_spec, patterns_for

UNITS = {
    "compute": ("nova-compute.service", "openstack-nova-compute.service"),
    "api": ("nova-api.service", "openstack-nova-api.service", "nova-api-os-compute.service"),
    "scheduler": ("nova-scheduler.service", "openstack-nova-scheduler.service"),
    "conductor": ("nova-conductor.service", "openstack-nova-conductor.service"),
}
"""The systemd units of each service: on Debian and Ubuntu, on RHEL and derivatives, and in OpenStack-Ansible."""
_SHOWN = 5
_Line = TypeVar("_Line", Alias, DeviceEntry, TypeSection)


class NovaNeeds(TaskResult):
    """The alias lines for all hosts, and by host the device_spec lines, the types of mediated devices, the units of
    marker classes (quotas), and the traits of providers.

    ``unknown``: the errors about hosts whose facts are incomplete; these hosts keep their files.
    """

    aliases: list[dict[str, object]]
    computes: dict[str, list[dict[str, object]]]
    mediated: dict[str, list[dict[str, object]]]
    markers: dict[str, dict[str, int]]
    traits: dict[str, dict[str, tuple[str, ...]]]
    unknown: dict[str, str]


class NovaFile(TypedDict):
    """A file with its new content."""

    path: str
    content: str
    mode: str


class NovaBlock(TypedDict):
    """The block that gpustack writes into a file of kolla-ansible."""

    path: str
    text: str


class NovaHostResult(TaskResult):
    """The files or blocks of one host, and the commands that restart the affected services."""

    write: list[NovaFile]
    blocks: list[NovaBlock]
    restart: list[list[str]]
    services: list[str]


_NOTHING: NovaHostResult = {"write": [], "blocks": [], "restart": [], "services": []}


def overall(
    spec_path: str, facts: Mapping[str, Any], *, snapshot: Sequence[str] = (), absent: Iterable[str] = ()
) -> NovaNeeds:
    """The aliases and device_specs of all hosts together.

    :param facts: the facts that the collector read, by the host's name in the spec.
    :param snapshot: files or directories with the facts of hosts that are not part of this run.
    :param absent: hosts of the spec that need no facts.
    :raises NovaConfigError: when the facts of a host are malformed or missing. This stops all hosts: without the cards
        of one host, aliases of the others may be wrong or missing.
    """
    hosts, warnings = _hosts(facts), list[str]()
    others = load_snapshot([Path(path) for path in snapshot if path], warnings.append)
    hosts += [host for host in others if host.hostname not in facts]
    spec = load_spec(Path(spec_path), hosts)
    known = {*(host.hostname for host in hosts), *absent}
    if unknown := [name for name in hosts_of(spec, None) if name not in known]:
        raise NovaConfigError(
            f"no facts of {counted(len(unknown), 'host')} of {spec_path}: {listed(unknown, _SHOWN)}. No host is"
            " changed, since every host gets the aliases of all compute hosts",
            remedy="add them to the run as compute hosts (gpustack_nova_services), or their facts with"
            " -e gpustack_nova_snapshot=PATH, from `gpustack scan --save` or the playbook facts.yml;"
            " gpustack_nova_absent lists hosts that do not exist",
        )
    needs = wanted(spec, [host for host in hosts if patterns_for(spec, host.hostname)], release=_release(spec))
    return {
        "aliases": [asdict(alias) for alias in needs.aliases],
        "computes": {name: [asdict(entry) for entry in entries] for name, entries in needs.computes.items()},
        "mediated": {name: [asdict(section) for section in types] for name, types in needs.mediated.items() if types},
        "traits": {name: dict(of_host) for name, of_host in needs.traits.items() if of_host},
        "markers": {name: dict(units) for name, units in needs.markers.items() if units},
        "unknown": {name: printable("\n".join(map(str, found)), keep=LAYOUT) for name, found in needs.unknown.items()},
        "warnings": warnings,
        **reported(needs.findings),
    }


def for_host(
    spec_path: str,
    decided: Mapping[str, Any],
    hostname: str,
    *,
    services: Sequence[str],
    facts: object | None,
    module_answer: object,
    kolla: bool = False,
    restart: str = "changed",
    named: bool = False,
) -> NovaHostResult:
    """The file of one host, and the commands that restart the services that read it.

    :param decided: the result of :func:`overall`.
    :param facts: the facts of this host; None if it has none.
    :param module_answer: the result of the module ``gpustack_nova_config``
        (:class:`gpustack.configure.plugin_api.Answer`).
    :param kolla: whether the services run in containers of kolla-ansible.
    :param restart: ``changed``, ``always`` or ``never``.
    :param named: whether the operator names the host; a compute host that the spec lacks too is left out.
    :raises NovaConfigError: when the result of the module is malformed.
    """
    if unknown := decided.get("unknown", {}).get(hostname):
        return {**_NOTHING, "failed": True, "text": "", "msg": unknown}
    hosts = [_host(hostname, facts)] if facts else []
    spec = load_spec(Path(spec_path), hosts)
    if hosts and list(services) == ["compute"] and not patterns_for(spec, hostname):
        text = left_out(spec, spec_path, hostname, named=named)
        about: TaskResult = {"text": text} if text else reported([not_in_spec(spec, hostname)])
        return {**_NOTHING, **about}
    config = _decided_config(spec, decided, hostname, services)
    answer = Answer.parse(module_answer, hostname)
    containers = _containers(services, answer)
    groups = [((service,), name) for name, service in containers.items()] if kolla else [(tuple(services), None)]
    files = [_file_of(config, group, answer, hosts, hostname, container) for group, container in groups]
    findings = list(dict.fromkeys(finding for file in files for finding in file.findings))
    if kolla and (markers(spec) or decided.get("traits", {}).get(hostname)) and "compute" in services:
        findings.append(providers.not_written(hostname, "kolla"))
    written: list[NovaFile] = [{"path": file.path, "content": file.text, "mode": "0644"} for file in files if not kolla]
    resources = None if kolla or "compute" not in services else _resources(decided, hostname)
    changed = {service for file in files for service in file.affected} | set(answer.pending)
    if resources is not None and resources["content"] != answer.texts.get(providers.PATH):
        changed.add("compute")
    chosen = {"always": list(services), "never": []}.get(restart, [s for s in services if s in changed])
    return {
        "write": [*written, *([resources] if resources else [])],
        # Without the first line, which marks the file as gpustack's.
        "blocks": [{"path": file.path, "text": file.text.partition("\n")[2].strip("\n")} for file in files if kolla],
        "restart": [] if errors(findings) else _commands(chosen, answer, kolla=kolla),
        "services": chosen,
        **reported(findings),
    }


def _resources(decided: Mapping[str, Any], hostname: str) -> NovaFile | None:
    """provider.yaml of a host with markers, or with traits of providers."""
    text = providers.text(*(decided.get(key, {}).get(hostname, {}) for key in ("markers", "traits")))
    return None if text is None else {"path": providers.PATH, "content": text, "mode": "0644"}


@dataclass(frozen=True, kw_only=True)
class _ServiceFile:
    """The file that some services of a host read together.

    :ivar affected: the services that read a changed option.
    """

    path: str
    text: str
    affected: list[str]
    findings: tuple[Finding, ...]


def _file_of(
    config: DesiredConfig,
    services: tuple[str, ...],
    answer: Answer,
    hosts: Sequence[Host],
    hostname: str,
    container: str | None,
) -> _ServiceFile:
    """The file of some services, or the part of it in the file of a container of kolla-ansible."""
    existing = Existing(named=tuple(_sources(hostname, services, answer, container)))
    rendering = render(
        config,
        services=services,
        existing=existing,
        hosts=hosts,
        only=[hostname] if "compute" in services else None,
        together="compute" in services,
        appended=container is not None,
    )
    (file,) = rendering.files
    path = _of_kolla(container) if container else file.path
    text = answer.texts.get(path)
    return _ServiceFile(
        path=path,
        text=file.text if container else file.onto(text, f"{hostname}:{path}"),
        affected=_affected(file, _block(text or "") if container else text, f"{hostname}:{path}", services),
        findings=(*rendering.findings, *_unread(services, {} if container else answer.started, hostname)),
    )


def _decided_config(spec: Spec, decided: Mapping[str, Any], hostname: str, services: Sequence[str]) -> DesiredConfig:
    """The configuration of one host from the result of :func:`overall`."""
    entries = tuple(_of_plain(DeviceEntry, entry) for entry in decided["computes"].get(hostname, ()))
    types = tuple(_of_plain(TypeSection, section) for section in decided.get("mediated", {}).get(hostname, ()))
    release, placement = _release(spec), wanted_stage(spec)
    return DesiredConfig(
        release=release,
        placement=placement,
        aliases=tuple(_of_plain(Alias, alias) for alias in decided["aliases"]),
        filters=required_filters(spec),
        advised=all_advised(spec, requested(spec), release, placement),
        computes={hostname: entries} if "compute" in services else {},
        mediated={hostname: types},
        findings=(),
    )


def _release(spec: Spec) -> Release:
    if spec.nova is None:
        raise NovaConfigError("the spec has no section `nova`", remedy='add nova: {release: "2025.2"}')
    return releases.release(spec.nova.release)


def _hosts(facts: Mapping[str, Any]) -> list[Host]:
    """Parse the facts of every host; malformed facts are reported together."""
    hosts, failures = [], []
    for name, raw in sorted(facts.items()):
        try:
            hosts.append(_host(name, raw))
        except SnapshotError as error:
            failures.append(error)
    if failures:
        listed = failures[:_SHOWN]
        limit = ":".join(f"!{error.where}" for error in listed)
        raise NovaConfigError(
            f"the facts of {len(failures)} of {counted(len(facts), 'host')} are malformed. No host is changed,"
            " since every host gets the aliases of all compute hosts: "
            + "; ".join(f"{error.where}: {error.what}" for error in listed),
            remedy=f"repair the hosts, or leave them out: --limit 'all:{limit}' -e gpustack_nova_snapshot=FILE,"
            " with their facts from `gpustack scan HOST --save FILE`",
        )
    return hosts


def _host(name: str, raw: object) -> Host:
    plain = {**raw, "hostname": name} if isinstance(raw, dict) else raw
    return parse_host(plain, name)


def _of_plain(kind: type[_Line], plain: Mapping[str, Any]) -> _Line:
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
    return kind(**plain)


def _unread(services: Sequence[str], started: Mapping[str, Sequence[str]], hostname: str) -> Iterable[Finding]:
    """Services that do not read gpustack's drop-in directory because their command line names another one."""
    for service in services:
        arguments = [argument for argument in started.get(service, ()) if argument.startswith("--config-dir=")]
        if arguments and f"--config-dir={DIRECTORY}" not in [argument.rstrip("/") for argument in arguments]:
            place, words = f"{hostname} nova-{service}", " ".join(arguments)
            yield finding(Code.DROP_INS_NOT_READ, place=place, words=words, directory=DIRECTORY)


def _sources(hostname: str, services: Sequence[str], answer: Answer, container: str | None) -> Iterable[Source]:
    """The configuration of each service on the host, parsed in memory; nothing is written to the controller's disk."""
    for service in services:
        if paths := _read_by(service, answer.texts, container):
            arguments = None if container else answer.started.get(service)
            with_files = None if arguments is None else any(word.startswith("--config-file=") for word in arguments)
            yield Source(
                label=f"{hostname}:{paths[0]}",
                services=(service,),
                configuration=parse_files({f"{hostname}:{path}": answer.texts[path] for path in paths}),
                named=True,
                with_files=with_files,
            )


def _read_by(service: str, files: Mapping[str, str], container: str | None) -> list[str]:
    """The files of the host that a service reads."""
    if container:
        return [path for path in files if path == _of_kolla(container)]
    paths = [PurePosixPath(path) for path in files]
    return [str(path) for path in selected(paths, PurePosixPath("/etc/nova"), service=service)]


def _affected(file: RenderedFile, before: str | None, place: str, services: Sequence[str]) -> list[str]:
    """The services that read a changed option. A changed comment restarts no service."""
    read = (parse_files({place: text or ""}).settings for text in (before, file.text))
    old, new = (by_key((setting.path, setting.value) for setting in settings) for settings in read)
    different = {path for path in {*old, *new} if old.get(path) != new.get(path)}
    readers = {service for option in releases.all_options() if option.path in different for service in option.services}
    if any(path.startswith(("mdev_", "vgpu_", "devices/")) for path in different):
        readers.add("compute")  # the sections of types have no names of their own
    if "filter_scheduler/pci_in_placement" in different and "api" not in services:
        readers.add("compute")  # rendered for nova-compute only when an alias has no ids
    return [service for service in services if service in readers]


def _block(text: str) -> str:
    """The part of a file between gpustack's markers."""
    _, _, after = text.partition(BEGIN)
    return after.partition("\n")[2].partition(END)[0]


def _of_kolla(container: str) -> str:
    return f"/etc/kolla/{container}/nova.conf"


def _containers(services: Sequence[str], answer: Answer) -> dict[str, str]:
    """The service of each container; that of the conductor above the cells is not on every host with a conductor."""
    names = ((name, service) for service in services for name in NAMES[service])
    return {n: service for n, service in names if n == NAMES[service][0] or _of_kolla(n) in answer.texts}


def _commands(services: Sequence[str], answer: Answer, *, kolla: bool) -> list[list[str]]:
    if kolla:
        containers = [name.replace("-", "_") for name in _containers(services, answer)]
        return [[answer.engine or "docker", "restart", name] for name in containers]
    units = [unit for service in services for unit in UNITS[service] if unit in answer.units]
    return [["systemctl", "restart", unit] for unit in units]


_MAX_FILES = 256
_MAX_CHARACTERS = 4 << 20
_PATH = (
    r"^/etc/(nova/nova[^/\x00-\x1f]*(\.conf\.d/[^/\x00-\x1f]+)?\.conf|kolla/nova-[^/\x00-\x1f]+/nova\.conf"
    r"|nova/provider_config/gpustack\.yaml)$"
)
"""The only files that the module reads."""
_Word = Annotated[str, StringConstraints(max_length=4096)]
_Words = Annotated[list[_Word], Field(max_length=256)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    path: Annotated[str, StringConstraints(max_length=4096, pattern=_PATH)]
    text: Annotated[str, StringConstraints(max_length=_MAX_CHARACTERS)]


class Answer(BaseModel):
    """What one host has of Nova.

    :ivar files: the files that services read, of which only the lines about PCI devices and filters are left.
    :ivar units: the systemd units of Nova.
    :ivar engine: the container engine; empty when there is none.
    :ivar started: for each service that runs, the words of its command line that name files and directories.
    :ivar pending: the services whose restart an interrupted run still owes.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    files: Annotated[list[_File], Field(max_length=_MAX_FILES)]
    units: _Words = []
    engine: Literal["", "docker", "podman"] = ""
    started: Annotated[dict[_Word, _Words], Field(max_length=16)] = {}
    pending: _Words = []

    @property
    def texts(self) -> dict[str, str]:
        """The text of each file by its path."""
        return {file.path: file.text for file in self.files}

    @classmethod
    def parse(cls, raw: object, hostname: str) -> Self:
        """Validate a result of the module.

        :raises NovaConfigError: when the result is malformed or too large.
        """
        try:
            answer = cls.model_validate(raw)
        except ValidationError as error:
            raise _refused(hostname, problem(error.errors()[0])) from None
        if sum(len(file.text) for file in answer.files) > _MAX_CHARACTERS:
            raise _refused(hostname, f"the files have more than {_MAX_CHARACTERS} characters")
        return answer


def _refused(hostname: str, why: str) -> NovaConfigError:
    remedy = "check the host before you trust it: the module answers with Nova's own files only"
    return NovaConfigError(f"unexpected answer of gpustack_nova_config: {why}", where=hostname, remedy=remedy)
