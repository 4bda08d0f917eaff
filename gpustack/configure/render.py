"""Render a deployment's files that configure Nova for GPUs: drop-ins, kolla-ansible overrides, variables, values."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from gpustack.base.codes import Code
from gpustack.base.findings import Finding, finding
from gpustack.configure import providers
from gpustack.configure.conflicts import in_the_way
from gpustack.configure.deployed import Existing
from gpustack.configure.deployed_filters import filter_findings, filters
from gpustack.configure.deployment import drop_in, kolla, openstack_ansible, openstack_helm, rhoso
from gpustack.configure.desired import DesiredConfig
from gpustack.configure.rendered import Job, RenderedFile, Rendering
from gpustack.configure.retained import retained, retained_finding
from gpustack.configure.sources import PLACEMENT, SERVICES
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.nova_options.config import Setting
from gpustack.nova_options.markers import DROP_IN

Deployment = Literal["drop-in", "kolla", "kayobe", "openstack-ansible", "rhoso", "openstack-helm"]
DIRECTORIES: dict[Deployment, str] = {
    "drop-in": drop_in.DIRECTORY,
    "kolla": kolla.DIRECTORY,
    "kayobe": kolla.KAYOBE_DIRECTORY,
    "openstack-ansible": openstack_ansible.DIRECTORY,
    "rhoso": rhoso.DIRECTORY,
    "openstack-helm": openstack_helm.DIRECTORY,
}
"""The default directory of the files for each kind of deployment."""
_OVERRIDES = ("kolla", "kayobe")
_REPLACED = {
    "rhoso": "the customServiceConfig of Nova's services in OpenStackControlPlane",
    "openstack-helm": "conf.nova.pci.alias, enabled_filters and conf.overrides.nova_compute.hosts of other values",
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
    existing = existing or Existing()
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
        directory=directory or DIRECTORIES[deployment],
        default_filters=chosen is None,
        root=root,
    )
    findings = [
        *wanted.findings,
        *existing.findings,
        *of_operator,
        *_filter_findings(job, deployment, chosen),
        *_deployment_findings(job, deployment),
        *_conflicts(job, deployment, hosts, appended=appended),
    ]
    if deployment == "drop-in":
        files = tuple(drop_in.files(job, names, together=together, everywhere=only is None))
    else:
        files = tuple(_tool_files(job, deployment, names))
    if any(wanted.markers.values()) and not providers.is_written(deployment, wanted.release):
        findings.append(providers.not_written(deployment, deployment))
    if deployment == "openstack-ansible":
        findings += openstack_ansible.findings(job, names)
    files = tuple(replace(file, mode=existing.mode) for file in files)
    return Rendering(files=files, findings=tuple(dict.fromkeys(findings)))


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
    overrides = deployment in _OVERRIDES
    return in_the_way(
        job.existing,
        job.wanted,
        hosts,
        replaces=overrides or deployment == "openstack-helm",
        own_file=DROP_IN if deployment in ("drop-in", "openstack-ansible") and not appended else None,
        drop_in=deployment == "drop-in",
        overrides=job.into(job.directory) if overrides else None,
        own_key=rhoso.KEY if deployment == "rhoso" else None,
    )


def _filter_findings(job: Job, deployment: Deployment, chosen: Setting | None) -> Iterator[Finding]:
    """Findings about the scheduler's filters: the configured list, or the release's default."""
    if "scheduler" not in job.services or deployment == "openstack-ansible":
        return
    if chosen is not None:
        standard = kolla.FILTERS if deployment in _OVERRIDES else ()
        yield from filter_findings(job.existing, job.wanted, chosen, standard)
    elif deployment != "rhoso":
        added = " and ".join(job.wanted.filters)
        place = "[filter_scheduler] enabled_filters"
        yield finding(Code.FILTERS_OF_RELEASE, place=place, release=job.wanted.release, filters=added)


def _deployment_findings(job: Job, deployment: Deployment) -> Iterator[Finding]:
    """Findings about values that a deployment tool merges or replaces, and about releases that it does not install."""
    release, documents = job.wanted.release, job.existing.documents
    if deployment in _OVERRIDES and not job.existing.named:
        yield finding(Code.MERGED_CONFIGURATION_NOT_SHOWN, place=job.directory)
    if deployment == "rhoso" and release.major < rhoso.SINCE:
        setting = "deployment: rhoso (Red Hat OpenStack Services on OpenShift)"
        yield finding(
            Code.SETTING_NOT_IN_RELEASE,
            place="nova.release",
            what=setting,
            release=release,
            since=releases.first_with(rhoso.SINCE),
        )
    if deployment in _REPLACED and not any(deployment != "rhoso" or rhoso.has_services(d) for d in documents):
        yield finding(Code.REPLACED_VALUES_NOT_SHOWN, place=job.directory, what=_REPLACED[deployment])
    if deployment == "rhoso" and job.of_placement() and not any(map(rhoso.has_placement, documents)):
        what = "the customServiceConfig of Placement in OpenStackControlPlane"
        yield finding(Code.REPLACED_VALUES_NOT_SHOWN, place=job.directory, what=what)
    if deployment == "openstack-helm" and any(map(openstack_helm.has_labels, documents)):
        yield finding(Code.LABEL_OVERRIDES_LOST, place="conf.overrides.nova_compute.labels")


def _tool_files(job: Job, deployment: Deployment, names: Sequence[str]) -> Iterable[RenderedFile]:
    """The files for a tool that distributes them to the hosts itself."""
    if deployment == "openstack-ansible":
        return openstack_ansible.files(job, names)
    if deployment == "rhoso":
        return rhoso.files(job, names)
    if deployment == "openstack-helm":
        return openstack_helm.files(job, names)
    return kolla.files(job, names, kayobe=deployment == "kayobe")


def places(deployment: Deployment, directory: str | None = None) -> tuple[str, ...]:
    """The :meth:`pathlib.Path.glob` patterns of the files that a rendering writes below an output directory."""
    below = (directory or DIRECTORIES[deployment]).strip("/")
    patterns: dict[str, tuple[str, ...]] = {
        "drop-in": (
            f"*/{below}/{DROP_IN}",
            f"*{drop_in.PLACEMENT_DIRECTORY}/{DROP_IN}",
            f"*{providers.PATH}",
        ),
        "openstack-ansible": (f"{below}/**/{openstack_ansible.FILE}",),
        "rhoso": (f"{below}/*plane.yaml",),
        "openstack-helm": (f"{below}/{openstack_helm.FILE}", f"{below}/{openstack_helm.PLACEMENT_FILE}"),
    }
    return patterns.get(deployment, (f"{below}/**/*.conf", kolla.placement_file(below)))


def usual_root(deployment: Deployment) -> Path:
    """The default parent of the deployment tool's directory: ``/`` for absolute paths, else the working directory."""
    return Path("/" if DIRECTORIES[deployment].startswith("/") else ".")
