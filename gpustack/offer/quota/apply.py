"""Read the limits of a cloud, and plan."""

from collections.abc import Mapping
from dataclasses import replace

from gpustack.cloud.limits import LimitsCloud
from gpustack.offer.quota.compare import QuotaPlan, compare
from gpustack.offer.quota.desired import WantedLimits


def plan(
    api: LimitsCloud, wanted: WantedLimits, *, prune: bool = False, totals: Mapping[str, int] | None = None
) -> QuotaPlan:
    """Read the cloud's limits, projects and use, and plan.

    :raises CloudError: if an API cannot be read.
    """
    present = api.present()
    projects = {name: api.projects(name) for name in wanted.projects}
    used = {found[0].id: api.used(found[0].id) for found in projects.values() if len(found) == 1}
    return compare(wanted, replace(present, used=used), projects, prune=prune, totals=totals)
