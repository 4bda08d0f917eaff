"""The limits of projects and their use, for the web page and for metrics."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from gpustack.base.errors import CloudError
from gpustack.cloud.identity import Project
from gpustack.cloud.limits import LimitsCloud
from gpustack.cloud.session import each
from gpustack.offer.quota.desired import WantedLimits
from gpustack.offer.quota.shares import Share, shares


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The shares of projects with a limit of their own, or with GPUs.

    :ivar unregistered: the models of the spec for which Keystone has no default limit.
    :ivar gaps: what is unknown, and why.
    """

    shares: tuple[Share, ...] = ()
    unregistered: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()


def survey(api: LimitsCloud, wanted: WantedLimits, projects: Collection[str], *, with_use: bool = True) -> Survey:
    """Read the limits of a spec's models.

    :param projects: the ids of projects with GPUs.
    :param with_use: whether to read the use of each project, which takes one request each.
    :raises CloudError: if Keystone does not answer.
    """
    present = api.present()
    own = {limit.project for limit in present.limits if limit.resource_class in wanted.models}
    ids = sorted({project for project in (*projects, *own) if project})
    gaps = [] if present.complete else ["the limits of other projects may be missing; see GPU748"]
    used: dict[str, Mapping[str, int]] = {}
    try:
        used = dict(each(lambda project: (project, api.used(project)), ids if with_use else ()))
    except CloudError as error:
        gaps.append(f"{error.what}; the use of limits is unknown")
    defaults = {limit.resource_class for limit in present.defaults}
    return Survey(
        shares=tuple(shares(replace(present, used=used), list(_named(api, ids)), wanted.models)),
        unregistered=tuple(model for name, model in wanted.models.items() if name not in defaults),
        gaps=tuple(gaps),
    )


def _named(api: LimitsCloud, ids: Collection[str]) -> Iterator[Project]:
    """The projects with their names; the id replaces a name that is not known."""
    try:
        known = {project.id: project for project in api.projects()}
    except CloudError:
        known = {}
    for project in ids:
        yield known.get(project, Project(id=project, name=project))
