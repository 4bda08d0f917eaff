"""Carry operations out one after another: their order keeps an interruption harmless."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gpustack.base.errors import ApplyError, CloudError
from gpustack.offer.tenancy.operations import (
    AddHost,
    AddTrait,
    CreateAggregate,
    DeleteAggregate,
    RemoveHost,
    RemoveTrait,
    SetMetadata,
    TenancyOperation,
)

if TYPE_CHECKING:
    from gpustack.offer.tenancy.cloud import TenancyCloud


def apply(
    api: TenancyCloud,
    operations: Sequence[TenancyOperation],
    ids: Mapping[str, int],
    done: Callable[[TenancyOperation], None] = lambda operation: None,
) -> None:
    """Carry operations out in order, until one fails.

    :param ids: the ids of the present aggregates, by name.
    :param done: is called with each operation that was carried out.
    :raises ApplyError: if an operation failed; the message has the number of those that were carried out.
    """
    known = dict(ids)
    for number, operation in enumerate(operations):
        try:
            _carry_out(api, operation, known)
        except CloudError as error:
            raise ApplyError(
                f"{operation.describe()}: {error.what}; {number} of {len(operations)} operations were carried out",
                where=error.where,
                remedy=error.remedy or "run the command again: it plans the rest",
            ) from error
        done(operation)


def _carry_out(api: TenancyCloud, operation: TenancyOperation, ids: dict[str, int]) -> None:
    match operation:
        case CreateAggregate():
            ids[operation.aggregate] = api.create(operation.aggregate)
        case SetMetadata():
            api.set_metadata(ids[operation.aggregate], operation.values)
        case AddHost():
            api.add_host(ids[operation.aggregate], operation.host)
        case RemoveHost():
            api.remove_host(ids[operation.aggregate], operation.host)
        case DeleteAggregate():
            api.delete(ids[operation.aggregate])
        case AddTrait():
            api.add_trait(operation.provider, operation.trait)
        case RemoveTrait():
            api.remove_trait(operation.provider, operation.trait)
