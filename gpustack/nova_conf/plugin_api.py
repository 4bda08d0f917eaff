"""What the Ansible plugins call on the controller: plain data in, plain data out.

``overall`` looks at all hosts once: aliases need the facts of every host. ``for_host`` then makes one host's file,
with an eye on the configuration that is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from gpustack.codes import Code
from gpustack.errors import NovaConfigError, SnapshotError
from gpustack.facts.model import Host
from gpustack.facts.store import load_snapshot, parse_host
from gpustack.findings import Finding, Severity, errors, finding
from gpustack.nova_conf.deployed import Existing
from gpustack.nova_conf.deployment.drop_in import DIRECTORY
from gpustack.nova_conf.desired import Alias, DesiredConfig, DeviceEntry, wanted
from gpustack.nova_conf.module_answer import Answer
from gpustack.nova_conf.render import render
from gpustack.nova_conf.rendered import RenderedFile, Rendering
from gpustack.nova_conf.sources import Source
from gpustack.nova_options import releases
from gpustack.nova_options.config import parse_files, selected
from gpustack.nova_options.markers import BEGIN, END
from gpustack.nova_options.releases import Release
from gpustack.spec.hosts import patterns_for
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec
from gpustack.text import printable

UNITS = {
    "compute": ("nova-compute.service", "openstack-nova-compute.service"),
    "api": ("nova-api.service", "openstack-nova-api.service", "nova-api-os-compute.service"),
    "scheduler": ("nova-scheduler.service", "openstack-nova-scheduler.service"),
    "conductor": ("nova-conductor.service", "openstack-nova-conductor.service"),
}
"""The units of each service: Debian's and Ubuntu's name, that of RHEL's family, OpenStack-Ansible's."""
CONTAINERS = {
    "compute": ("nova_compute",),
    "api": ("nova_api",),
    "scheduler": ("nova_scheduler",),
    "conductor": ("nova_conductor", "nova_super_conductor"),
}
"""The containers of each service in kolla-ansible."""
_SHOWN = 5


def overall(spec_path: str, facts: Mapping[str, Any], *, snapshot: str | None = None) -> dict[str, Any]:
    """What all hosts together need.

    :param facts: by the name that the spec knows a host under, what the collector read.
    :param snapshot: a file with the facts of hosts that this run leaves out.
    :raises NovaConfigError: when the facts of a host are malformed. That stops all hosts: without the cards of one of
        them, aliases of the others may be wrong or missing.
    """
    spec = load_spec(Path(spec_path))
    release = _release(spec)
    hosts = _hosts(facts)
    if snapshot:
        hosts += [host for host in load_snapshot(Path(snapshot)) if host.hostname not in facts]
    needs = wanted(spec, [host for host in hosts if patterns_for(spec, host.hostname)], release=release)
    return {
        "aliases": [_plain(alias) for alias in needs.aliases],
        "computes": {name: [_plain(entry) for entry in entries] for name, entries in needs.computes.items()},
        **_findings_of(needs.findings),
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
) -> dict[str, Any]:
    """The file of one host, and the commands that make its services read it.

    :param decided: the result of :func:`overall`.
    :param module_answer: as :class:`gpustack.nova_conf.module_answer.Answer` has it.
    :param restart: ``changed``, ``always`` or ``never``.
    """
    spec = load_spec(Path(spec_path))
    config = _decided_config(spec, decided, hostname, services)
    hosts = [_host(hostname, facts)] if facts else []
    answer = Answer.parse(module_answer, hostname)
    files = answer.texts
    result: dict[str, Any] = {"write": [], "blocks": [], "restart": []}
    findings: list[Finding] = []
    changed: dict[str, None] = {}
    for group in [(s,) for s in services] if kolla else [tuple(services)]:
        started = {} if kolla else answer.started
        existing = Existing(named=tuple(_sources(hostname, group, files, started, kolla=kolla)))
        rendering = _rendered(config, group, existing, hosts, hostname, kolla=kolla)
        findings += (*rendering.findings, *_unread(group, started, hostname))
        (file,) = rendering.files
        path = f"/etc/kolla/nova-{group[0]}/nova.conf" if kolla else file.path
        before = _block(files.get(path, "")) if kolla else files.get(path)
        changed.update(dict.fromkeys(_affected(file, before, f"{hostname}:{path}", group)))
        if kolla:
            result["blocks"].append({"path": path, "text": _body(file.text)})
        else:
            result["write"].append({"path": path, "content": file.text, "mode": "0644"})
    chosen = {"always": list(services), "never": []}.get(
        restart, [service for service in services if service in changed or service in answer.pending]
    )
    findings = list(dict.fromkeys(findings))
    result["restart"] = _commands(chosen, answer, kolla=kolla) if not errors(findings) else []
    return {**result, "services": chosen, **_findings_of(findings)}


def _decided_config(spec: Spec, decided: Mapping[str, Any], hostname: str, services: Sequence[str]) -> DesiredConfig:
    """The configuration of one host, as :func:`overall` decided it."""
    entries = tuple(_entry(entry) for entry in decided["computes"].get(hostname, ()))
    return DesiredConfig(
        release=_release(spec),
        placement=spec.nova.placement if spec.nova else "off",
        aliases=tuple(_alias(alias) for alias in decided["aliases"]),
        computes={hostname: entries} if "compute" in services else {},
        findings=(),
    )


def _rendered(
    config: DesiredConfig,
    services: Sequence[str],
    existing: Existing,
    hosts: Sequence[Host],
    hostname: str,
    *,
    kolla: bool,
) -> Rendering:
    """The one file that these services of the host read together."""
    return render(
        config,
        services=services,
        existing=existing,
        hosts=hosts,
        only=[hostname] if "compute" in services else None,
        together="compute" in services,
        appended=kolla,
    )


def _release(spec: Spec) -> Release:
    if spec.nova is None:
        raise NovaConfigError("the spec has no section `nova`", remedy='add nova: {release: "2025.2"}')
    return releases.release(spec.nova.release)


def _hosts(facts: Mapping[str, Any]) -> list[Host]:
    """Every host of the run; those with malformed facts are reported together."""
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
            f"the facts of {len(failures)} of {len(facts)} hosts are malformed. No host is changed,"
            " since every host gets the aliases of all compute hosts: "
            + "; ".join(f"{error.where}: {error.what}" for error in listed),
            remedy=f"repair the hosts, or leave them out: --limit 'all:{limit}' -e gpustack_nova_snapshot=FILE,"
            " with their facts from `gpustack scan HOST --save FILE`",
        )
    return hosts


def _host(name: str, raw: object) -> Host:
    plain = {**raw, "hostname": name} if isinstance(raw, dict) else raw
    return parse_host(plain, name)


def _plain(value: Alias | DeviceEntry) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(value)


def _alias(plain: Mapping[str, Any]) -> Alias:
    return Alias(**{**plain, "traits": tuple(plain["traits"])})


def _entry(plain: Mapping[str, Any]) -> DeviceEntry:
    return DeviceEntry(**{**plain, "traits": tuple(plain["traits"])})


def _findings_of(findings: Iterable[Finding]) -> dict[str, Any]:
    """Findings as text, and whether they stand against going on."""
    reported = [f for f in findings if f.severity is not Severity.INFO]
    text = printable("\n".join(str(f) for f in sorted(reported, key=lambda f: (-f.severity.rank, f.code))))
    stopped = errors(reported)
    return {"text": text, "failed": True, "msg": text} if stopped else {"text": text}


def _unread(services: Sequence[str], started: Mapping[str, Sequence[str]], hostname: str) -> Iterable[Finding]:
    """Services that do not read the directory that ours is put into, since their command line names another."""
    for service in services:
        arguments = [argument for argument in started.get(service, ()) if argument.startswith("--config-dir=")]
        if arguments and f"--config-dir={DIRECTORY}" not in [argument.rstrip("/") for argument in arguments]:
            yield finding(
                Code.DROP_INS_NOT_READ,
                place=f"{hostname} nova-{service}",
                words=" ".join(arguments),
                directory=DIRECTORY,
            )


def _sources(
    hostname: str,
    services: Sequence[str],
    files: Mapping[str, str],
    started: Mapping[str, Sequence[str]],
    *,
    kolla: bool,
) -> Iterable[Source]:
    """The configuration of each service on the host, parsed in memory: nothing of it touches this machine's disk."""
    for service in services:
        paths = _read_by(service, files, kolla=kolla)
        if paths:
            arguments = started.get(service)
            yield Source(
                label=f"{hostname}:{paths[0]}",
                services=(service,),
                configuration=parse_files({f"{hostname}:{path}": files[path] for path in paths}),
                named=True,
                with_files=None
                if arguments is None
                else any(argument.startswith("--config-file=") for argument in arguments),
            )


def _read_by(service: str, files: Mapping[str, str], *, kolla: bool) -> list[str]:
    """Those of the host's files that a service reads."""
    if kolla:
        return [path for path in files if path == f"/etc/kolla/nova-{service}/nova.conf"]
    paths = [PurePosixPath(path) for path in files]
    return [str(path) for path in selected(paths, PurePosixPath("/etc/nova"), service=service)]


def _affected(file: RenderedFile, before: str | None, place: str, services: Sequence[str]) -> list[str]:
    """The services that read an option which changes: a new comment restarts nobody."""
    old, new = (_settings(text, place) for text in (before, file.text))
    different = {path for path in {*old, *new} if old.get(path) != new.get(path)}
    readers = {service for path in different for service in _readers(path)}
    if "filter_scheduler/pci_in_placement" in different and "api" not in services:
        readers.add("compute")  # it is written for nova-compute only when its aliases need it
    return [service for service in services if service in readers]


def _readers(path: str) -> tuple[str, ...]:
    return next((option.services for option in releases.all_options() if option.path == path), ())


def _settings(text: str | None, place: str) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for setting in parse_files({place: text or ""}).settings:
        values.setdefault(setting.path, []).append(setting.value)
    return values


def _block(text: str) -> str:
    """The part of a file that gpustack wrote."""
    _, _, after = text.partition(BEGIN)
    return after.partition("\n")[2].partition(END)[0]


def _body(text: str) -> str:
    """The settings without the head of a file of our own."""
    return text.partition("\n")[2].strip("\n")


def _commands(services: Sequence[str], answer: Answer, *, kolla: bool) -> list[list[str]]:
    if kolla:
        return [[answer.engine or "docker", "restart", name] for service in services for name in CONTAINERS[service]]
    units = [unit for service in services for unit in UNITS[service] if unit in answer.units]
    return [["systemctl", "restart", unit] for unit in units]
