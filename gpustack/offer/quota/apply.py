"""Plan the limits of a cloud."""

from collections.abc import Mapping
from dataclasses import replace

from gpustack.cloud.limits import LimitsCloud, Present
from gpustack.offer.quota.compare import QuotaPlan, compare
from gpustack.offer.quota.desired import WantedLimits


def plan(
    api: LimitsCloud,
    wanted: WantedLimits,
    present: Present,
    *,
    prune: bool = False,
    totals: Mapping[str, int] | None = None,
) -> QuotaPlan:
    """Read the projects and their use, and plan.

    :param present: the cloud's limits.
    :raises CloudError: if an API cannot be read.
    """
    projects = {name: api.projects(name) for name in wanted.projects}
    used = {found[0].id: api.used(found[0].id) for found in projects.values() if len(found) == 1}
    return compare(wanted, replace(present, used=used), projects, prune=prune, totals=totals)
