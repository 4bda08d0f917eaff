"""Read the sources of a question about a flavor, and answer it."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.base.errors import CloudError, UsageError
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.hostnames import key
from gpustack.base.text import listed
from gpustack.cloud import Connection, compute, identity
from gpustack.cloud.flavors import Flavor, FlavorCloud
from gpustack.cloud.image import Image, ImageCloud
from gpustack.cloud.limits import LimitsCloud
from gpustack.cloud.session import Progress, silent
from gpustack.fleet.read import Databases
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.device_spec import DeviceSpec
from gpustack.nova_options.scheduler import Scheduler
from gpustack.operate.capacity.aggregates import with_faults
from gpustack.operate.capacity.assess import State, accepted_by, state
from gpustack.operate.capacity.count import capacity
from gpustack.operate.capacity.flavors import demand_of_present
from gpustack.operate.capacity.model import Capacity, Demand, Step
from gpustack.operate.capacity.room import Room
from gpustack.operate.capacity.walk import walk
from gpustack.operate.why.flavor import Cause, causes
from gpustack.spec.extra_specs import ALIAS
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec
from gpustack.spec.requests import SLOW, candidates

if TYPE_CHECKING:
    from gpustack.repair.hypervisor import Ask

_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class FlavorQuestion:
    """A question about a flavor; texts are empty if not given."""

    name: str
    project: str = ""
    image: str = ""
    zone: str = ""
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class FlavorAnswer:
    """The answer.

    :ivar causes: why each host without room refuses.
    :ivar steps: every step of the host of the question; None without one.
    :ivar allowed: the instances that the quota of the project allows; None if unknown or unlimited.
    :ivar unified: whether Nova enforces the limits in Keystone instead of its own quotas; None if unknown.
    :ivar gaps: what could not be read.
    """

    capacity: Capacity
    causes: Sequence[Cause]
    steps: Sequence[Step] | None = None
    allowed: int | None = None
    unified: bool | None = None
    many: Sequence[Finding] = ()
    gaps: Sequence[str] = ()

    @property
    def findings(self) -> list[Finding]:
        """The causes with their fixes."""
        return [*(cause.finding for cause in self.causes), *self.many]

    @property
    def least(self) -> int:
        """The instances that certainly fit, and that the quota allows."""
        return self.capacity.least if self.allowed is None else min(self.capacity.least, self.allowed)


@dataclass(frozen=True, kw_only=True)
class WhySources:
    """Where to look.

    :ivar spec: the file with the models behind aliases.
    :ivar snapshot: reads the snapshot; None without one.
    :ivar databases: the cell databases; None without configuration files.
    :ivar scheduler: the options of nova-scheduler; None without configuration files.
    :ivar ask: asks a host for the devices of its domains; None to ask none.
    :ivar log: the lines of logs that :func:`gpustack.operate.why.instance.is_quoted` accepts; None without a log.
    :ivar scanned: facts of hosts that were asked.
    :ivar device_specs: those of nova-compute; empty if unknown.
    """

    spec: Path
    snapshot: Callable[[], Sequence[Host]] | None = None
    databases: Databases | None = None
    scheduler: Scheduler | None = None
    ask: Ask | None = None
    log: Sequence[str] | None = None
    scanned: Sequence[Host] = ()
    device_specs: Sequence[DeviceSpec] = ()
    progress: Progress = silent

    @functools.cached_property
    def facts(self) -> Sequence[Host]:
        """The hosts of the snapshot, or those that were asked."""
        return self.snapshot() if self.snapshot else self.scanned

    def state(self, cloud: Connection, spec: Spec, zone: str = "") -> State:
        """Read the hosts with their free resources, as :func:`gpustack.operate.capacity.assess.state`."""
        more = {"databases": self.databases, "scheduler": self.scheduler, "progress": self.progress}
        return state(cloud, spec, facts=self.facts, zone=zone, **more)  # type: ignore[arg-type]


def answer(cloud: Connection, question: FlavorQuestion, sources: WhySources) -> FlavorAnswer:
    """Answer a question about a flavor.

    :raises UsageError: if there is no such flavor, image or host.
    :raises CloudError: if Nova, Placement, Keystone or Glance does not answer.
    """
    spec = load_spec(sources.spec, sources.facts)
    known = sources.state(cloud, spec, question.zone)
    flavor = _flavor(known, question.name)
    image = _image(cloud, question.image) if question.image else None
    demand = demand_of_present(spec, flavor, sources.scheduler, image.properties if image else None)
    demand = replace(demand, refused=demand.refused or (_unfit(image, flavor) if image else ""))
    if not demand.gpus:
        alias = flavor.extra_specs.get(ALIAS)
        remedy = f"Nova reads NAME:COUNT, not {alias!r}" if alias else "name a flavor with it"
        raise UsageError(f"the flavor {flavor.name} requests no GPU", remedy=f"{ALIAS}: {remedy}")
    gaps = [*known.gaps]
    demand, allowed = _of_project(cloud, flavor, demand, question.project, known.scheduler, gaps)
    found = judged(cloud, known, demand, question.host, sources.progress)
    return replace(found, allowed=allowed, unified=known.scheduler.unified, many=list(_many(known, demand)), gaps=gaps)


def _many(known: State, demand: Demand) -> Iterator[Finding]:
    """Whether Placement makes so many candidates for a flavor that it takes long, and no limit is known.

    No request of this module makes them: GPUs are counted from the providers.
    """
    hosts = [{alias: host.count(frozenset({alias})) for alias in demand.gpus} for host in known.hosts]
    number = sum(candidates(demand.gpus, host) for host in hosts)
    if demand.classes and number > SLOW and not known.scheduler.candidates:
        yield finding(Code.WHY_MANY_CANDIDATES, place=demand.flavor, number=number)


def judged(
    cloud: Connection, known: State, demand: Demand, host: str = "", progress: Progress = silent
) -> FlavorAnswer:
    """Count the instances that fit, and find the first step that refuses each other host.

    :param host: the only host; empty for all.
    :raises UsageError: if there is no such host.
    :raises CloudError: if Placement does not answer.
    """
    demand = with_faults(demand, known.aggregates, known.scheduler)
    demand = replace(demand, confined=_confined(known, demand.project))
    accepted = accepted_by(cloud, known, demand, progress, full=True)
    hosts = known.hosts
    steps = None
    if host:
        if not (hosts := tuple(entry for entry in known.hosts if key(entry.name) == key(host))):
            raise unknown("host with GPUs of the spec", host, [entry.name for entry in known.hosts])
        steps = walk(Room(hosts[0]), demand, known.scheduler, accepted, every=True).steps
    return FlavorAnswer(
        capacity=capacity(hosts, demand, accepted, known.scheduler),
        causes=causes(hosts, demand, known.scheduler, accepted),
        steps=steps,
        gaps=known.gaps,
    )


def _confined(known: State, project: str) -> frozenset[str] | None:
    """The hosts of the aggregates that Nova's require_tenant_aggregate finds for a project; None if it finds none."""
    own = [entry for entry in known.aggregates if project and entry.projects and project in entry.metadata.values()]
    if not (own or (project and known.scheduler.required)):
        return None
    return frozenset(host.name for host in known.hosts if any(entry.has(host.name) for entry in own))


def _flavor(known: State, name: str) -> Flavor:
    flavors = known.flavors or {}
    found = flavors.get(name) or next((flavor for flavor in flavors.values() if flavor.id == name), None)
    if found is None:
        raise unknown("flavor", name, list(flavors))
    return found


def unknown(noun: str, name: str, names: Sequence[str]) -> UsageError:
    """The error about a name that does not exist, with the nearest ones."""
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or sorted(names)
    remedy = f"use one of: {listed(near, _SHOWN)}" if near else f"this user sees no {noun}: check --os-cloud"
    return UsageError(f"there is no {noun} {name!r}", remedy=remedy)


def _image(cloud: Connection, name: str) -> Image:
    """The image with a name or id."""
    images = ImageCloud(cloud).images([name])
    found = [image for image in images if name in (image.id, image.name)]
    if len(found) > 1:
        raise UsageError(f"{len(found)} images are named {name!r}", remedy=f"use an id, such as {found[0].id}")
    if not found:
        raise unknown("image", name, [image.name for image in images])
    return found[0]


def _unfit(image: Image, flavor: Flavor) -> str:
    """Why Nova's API refuses an image with a flavor (nova/compute/api.py, ``_validate_flavor_image_nostatus``)."""
    ram, disk, gib = flavor.sizes.ram, flavor.sizes.disk, 1 << 30
    if image.status != "active":
        return f"the image {image.name} is {image.status}"
    if image.min_ram > ram:
        return f"the image {image.name} needs {image.min_ram} MiB of RAM (min_ram), the flavor has {ram}"
    needed = max(image.min_disk * gib, image.size)
    if disk and needed > disk * gib:  # without a root disk in the flavor, the disk is as large as the image
        return f"the image {image.name} needs {-(-needed // gib)} GiB of disk, the flavor has {disk}"
    return ""


def _of_project(
    cloud: Connection, flavor: Flavor, demand: Demand, project: str, scheduler: Scheduler, gaps: list[str]
) -> tuple[Demand, int | None]:
    """The needs of an instance of a project, and how many its quota allows; None if unlimited or unknown.

    The API refuses a private flavor without access.
    """
    if not project:
        return demand, None
    demand = replace(demand, project=identity.project_id(cloud, project))
    try:
        if not flavor.public and demand.project not in FlavorCloud(cloud, Flavor).access(flavor.id):
            demand = replace(demand, refused=f"the project {project} has no access to the private flavor")
        quotas = compute.quotas(cloud, demand.project)
        if scheduler.unified:
            quotas = {**quotas, **_of_classes(LimitsCloud(cloud), demand.project)}
    except CloudError as error:
        gaps.append(error.what)
        return demand, None
    needs = {"instances": 1, "cores": demand.vcpus, "ram": demand.ram, **demand.amounts}
    if scheduler.unified:  # Nova counts what it requests from Placement: PCPU is not VCPU
        needs |= {"cores": demand.amounts.get("VCPU", 0), "ram": demand.amounts.get("MEMORY_MB", 0)}
    needs = {name: need for name, need in needs.items() if need}
    left = {name: limit - used for name, (limit, used) in quotas.items() if limit >= 0 and name in needs}
    over = (f"{name} needs {needs[name]}, {max(rest, 0)} left" for name, rest in left.items() if rest < needs[name])
    allowed = [max(rest, 0) // needs[name] for name, rest in left.items()]
    return replace(demand, quota="; ".join(over)), min(allowed, default=None)


def _of_classes(api: LimitsCloud, project: str) -> dict[str, tuple[int, int]]:
    """The limit of a project and its use of each resource class that has a limit in Keystone."""
    present, used = api.present(), api.used(project)
    known = [*present.defaults, *(limit for limit in present.limits if limit.project == project)]
    return {limit.resource_class: (limit.limit, used.get(limit.resource_class, 0)) for limit in known}
