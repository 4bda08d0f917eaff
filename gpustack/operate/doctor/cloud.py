"""Check the cloud: sign in with clouds.yaml, and test the rights that commands need. Read-only."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpustack.cloud import Connection
from gpustack.cloud import session as cloudapi
from gpustack.cloud.config_files import cloud_names
from gpustack.cloud.flavors import Flavor, FlavorCloud
from gpustack.cloud.placement import listed
from gpustack.cloud.server_actions import ServiceCloud
from gpustack.fleet.cards import models_of
from gpustack.fleet.join import join, unenforced
from gpustack.fleet.read import Detail, Given, read
from gpustack.nova_options.scheduler import scheduler
from gpustack.novadb.sources import Sources
from gpustack.operate.doctor.check import Check, made, not_configured, ok, warning
from gpustack.spec.model import Spec

_ADMIN = "admin"
_NAME_CLOUD = "name a cloud of clouds.yaml with --os-cloud or OS_CLOUD"
_OUT = "Out of service"


def checks(cloud: str | None, spec: Spec | None = None, paths: Sequence[Path] = ()) -> Iterator[Check]:
    """Sign in, and read the objects that commands read.

    :param cloud: a name in clouds.yaml; None for ``OS_CLOUD``, ``OS_*`` variables, or the only cloud in clouds.yaml.
    :param spec: its GPUs out of service are checked too.
    :param paths: nova.conf of nova-api, for this check.
    """
    return made("Cloud", lambda: _checks(cloud, spec, paths))


def _checks(cloud: str | None, spec: Spec | None, paths: Sequence[Path]) -> Iterator[Check]:
    entries = len(spec.out_of_service) if spec else 0
    if cloud is None and not os.environ.get("OS_CLOUD") and not os.environ.get("OS_AUTH_URL"):
        names = cloud_names()
        if len(names) != 1:
            seen = f"clouds.yaml has {', '.join(names)}" if names else "no clouds.yaml and no OS_* variables"
            yield not_configured("Cloud", seen, _NAME_CLOUD)
            if entries:
                yield not_configured(_OUT, f"{entries} in the spec; without a cloud, nothing checks them", _NAME_CLOUD)
            return
        cloud = names[0]
    connection = cloudapi.shared(cloud)
    yield _signed_in(connection)
    flavors = "Nova flavors"
    yield from made(flavors, lambda: [ok(flavors, f"{len(FlavorCloud(connection, Flavor).flavors())} readable")])
    yield from made("Nova services", lambda: _services(connection))
    yield from made("Placement", lambda: [ok("Placement", f"readable resource providers: {len(listed(connection))}")])
    if spec is not None and entries:
        yield from made(_OUT, lambda: out_of_service(connection, spec, paths))


def out_of_service(connection: Connection, spec: Spec, paths: Sequence[Path] = ()) -> Iterator[Check]:
    """Whether something keeps new instances off each GPU that a spec lists as out of service.

    :param paths: nova.conf of nova-api, whose databases have each GPU; empty for Placement only.
    """
    given = Given(models=models_of(spec, scheduler(paths) if paths else None), spec=spec)
    databases = (lambda: Sources.from_nova_conf(list(paths))) if paths else None
    fleet = join(read(lambda: connection, Detail.STATES, given, databases))
    found = unenforced(fleet)
    points = [f"{entry.place}: {entry.message} ({entry.code})" for entry in found]
    if points := [*points, *(f"unknown: {gap.reason}" for gap in fleet.partial)]:
        remedies = dict.fromkeys(entry.remedy for entry in found)
        yield warning(_OUT, "\n".join(points), "\n".join(remedies) or "gpustack gpu list --spec SPEC")
    else:
        yield ok(_OUT, f"{len(spec.out_of_service)} in the spec; Nova offers none of them")


def _signed_in(connection: Connection) -> Check:
    if (access := cloudapi.sign_in(connection)) is None:
        return ok("Cloud", "a token that is configured; its roles are unknown")
    names = f"{access.user} of project {access.project or 'none'}"
    roles = ", ".join(sorted(access.roles)) or "none"
    if _ADMIN in access.roles:
        return ok("Cloud", f"signed in as {names}; roles: {roles}")
    remedy = "use a cloud of clouds.yaml whose user has the role admin, unless the policy of Nova is your own"
    return warning("Cloud", f"signed in as {names} without the role admin; roles: {roles}", remedy)


def _services(connection: Connection) -> Iterator[Check]:
    """The reads of host maintenance: the services, and the instances of all projects."""
    api = ServiceCloud(connection)
    number = len(api.services())
    api.unconfirmed()
    yield ok("Nova services", f"{number} nova-compute; instances of all projects readable")
