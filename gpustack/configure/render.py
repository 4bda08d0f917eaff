"""Render a deployment's files that configure Nova for GPUs: drop-ins, kolla-ansible overrides, variables, values."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gpustack.base.findings import Code, Finding, finding
from gpustack.configure import providers
from gpustack.configure.conflicts import in_the_way
from gpustack.configure.deployed import Existing
from gpustack.configure.deployed_filters import filter_findings, filters
from gpustack.configure.deployment import drop_in, kolla, openstack_ansible, openstack_helm, rhoso
from gpustack.configure.desired import DesiredConfig
from gpustack.configure.rendered import Job, Rendering, Tool
from gpustack.configure.retained import retained, retained_finding
from gpustack.configure.sources import PLACEMENT, SERVICES
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.config import Setting
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
) -> Rendering:
    """Render Nova's configuration.

    :param services: the services to render for.
    :param existing: the deployment's current configuration.
    :param hosts: the facts behind ``wanted``, to check ``existing`` for conflicts.
    :param only: the compute hosts to render for; all of ``wanted`` when None.
    :param together: whether the compute hosts also run the other services: one file for each host.
    :param root: the directory below which the files are written; None when unknown.
    :param directory: the directory of the deployment tool, instead of its default.
    :param appended: whether the settings are appended to ``nova.conf`` itself instead of written as a drop-in.
    """
    existing, tool = existing or Existing(), TOOLS[deployment]
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
    findings = [
        *wanted.findings,
        *existing.findings,
        *of_operator,
        *_filter_findings(job, tool, chosen),
        *tool.findings(job, names),
        *_conflicts(job, deployment, hosts, appended=appended),
    ]
    if any(wanted.markers.values()) and not providers.is_written(deployment, wanted.release):
        findings.append(providers.not_written(deployment, deployment))
    files = tuple(replace(file, mode=existing.mode) for file in tool.files(job, names))
    unknown = [entry for name, of_host in wanted.unknown.items() if only is None or name in only for entry in of_host]
    if not (deployment == "drop-in" or tool.overrides):  # one file has the settings of all hosts
        findings, unknown = [*findings, *unknown], []
    return Rendering(files=files, findings=tuple(dict.fromkeys(findings)), unknown=tuple(dict.fromkeys(unknown)))


def _without_retained(
    wanted: DesiredConfig, existing: Existing, services: Collection[str]
) -> tuple[DesiredConfig, list[Finding]]:
    """Leave out the options for which the operator has another value, and report them."""
    settings = [(advice, retained(existing, advice)) for advice in wanted.advised]
    findings = [
        retained_finding(setting, advice)
        for advice, setting in settings
        if setting is not None and set(advice.option.services) & set(services)
    ]
    return replace(wanted, advised=tuple(advice for advice, setting in settings if setting is None)), findings


def _conflicts(job: Job, deployment: Deployment, hosts: Sequence[Host], *, appended: bool) -> Iterable[Finding]:
    """Findings about existing settings that prevent those of the rendering from taking effect."""
    tool = TOOLS[deployment]
    return in_the_way(
        job.existing,
        job.wanted,
        hosts,
        replaces=tool.replaces,
        own_file=None if appended else tool.own_file,
        drop_in=deployment == "drop-in",
        overrides=job.into(job.directory) if tool.overrides else None,
        own_key=tool.own_key,
    )


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
