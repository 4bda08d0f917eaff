"""Read the limits of a cloud, plan, and carry operations out one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gpustack.base.errors import CloudError, QuotaError
from gpustack.cloud.limits import LimitsCloud
from gpustack.offer.quota.compare import QuotaPlan, compare
from gpustack.offer.quota.desired import WantedLimits
from gpustack.offer.quota.operations import ChangeLimit, CreateLimit, LimitOperation
from gpustack.offer.quota.shares import description_of


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


def apply(
    api: LimitsCloud,
    operations: Sequence[LimitOperation],
    done: Callable[[LimitOperation], None] = lambda operation: None,
) -> None:
    """Carry operations out in order, until one fails.

    :param done: is called with each operation that was carried out.
    :raises QuotaError: if an operation failed; the message has the number of those that were carried out.
    """
    for number, operation in enumerate(operations):
        try:
            _carry_out(api, operation)
        except CloudError as error:
            raise QuotaError(
                f"{operation.name}: {error.what}; {number} of {len(operations)} operations were carried out",
                where=error.where,
                remedy=error.remedy or "run the command again: it plans the rest",
            ) from error
        done(operation)


def _carry_out(api: LimitsCloud, operation: LimitOperation) -> None:
    if isinstance(operation, CreateLimit):
        project = operation.project.id if operation.project else None
        api.create(operation.resource_class, project, operation.limit, description_of(operation.model))
    elif isinstance(operation, ChangeLimit):
        api.change(operation.before, operation.limit)
    else:
        api.delete(operation.before)
