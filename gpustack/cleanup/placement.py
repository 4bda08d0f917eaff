"""Class Q: Placement holds an allocation of a device for somebody to whom the device does not belong.

With PCI in Placement each device is a resource provider, ``<node>_<ADDRESS>``
(``nova/compute/pci_placement_translator.py``). Nova adds and changes allocations of those, and never takes one away:
what stays after a row was freed keeps the device from being booted. It is told with the command that takes it away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from gpustack.cleanup import tables
from gpustack.cleanup.facts import TERMINAL, Clock, HostState
from gpustack.cleanup.verdict import Status, Verdict
from gpustack.errors import CloudError

if TYPE_CHECKING:
    from openstack.connection import Connection

CLASS = "Q"
TITLE = "allocated in Placement to somebody who has not got it"
VERSION = "1.28"

_PROVIDER = re.compile(r"(.+)_([0-9A-F]{4}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7])\Z")
_BUSY = ("resized", "building")


def allocations(cloud: Connection) -> Iterator[tuple[str, str, str, str]]:
    """Node, address, provider's uuid and consumer of every allocation of a device.

    :raises CloudError: when Placement can't be asked.
    """
    for provider in _get(cloud, "/resource_providers")["resource_providers"]:
        found = _PROVIDER.match(provider["name"])
        if found is None:
            continue
        held = _get(cloud, f"/resource_providers/{provider['uuid']}/allocations")["allocations"]
        for consumer in held:
            yield found[1], found[2].lower(), provider["uuid"], consumer


def _get(cloud: Connection, path: str) -> Any:  # noqa: ANN401 - JSON
    from keystoneauth1.exceptions import ClientException

    try:
        answer = cloud.placement.get(path, microversion=VERSION)
        answer.raise_for_status()
        return answer.json()
    except (ClientException, OSError, ValueError) as error:
        raise CloudError(f"Placement can't be asked: {error}", remedy="check --os-cloud and its credentials") from error


def leftovers(
    connection: sa.Connection, cell: str, clock: Clock, held: list[tuple[str, str, str, str]]
) -> Iterator[Verdict]:
    """The allocations of a cell's devices that fit no row.

    A consumer is an instance, or a migration that holds what its instance leaves.
    """
    rows, nodes = tables.pci_devices.c, tables.compute_nodes.c
    for node, address, provider, consumer in held:
        query = (
            sa.select(rows.status, rows.instance_uuid, nodes.host)
            .join(tables.compute_nodes, nodes.id == rows.compute_node_id)
            .where(nodes.hypervisor_hostname == node, nodes.deleted == 0, rows.deleted == 0, rows.address == address)
        )
        row = connection.execute(query).first()
        if row is None or (row.instance_uuid == consumer and row.status in ("claimed", "allocated")):
            continue
        reasons, words = _consumer(connection, clock, consumer)
        if words is None:
            continue  # it is neither of this cell: another may know it
        owner = f"belongs to {row.instance_uuid}" if row.instance_uuid else f"is {row.status}"
        yield Verdict(
            klass=CLASS,
            title=TITLE,
            status=Status.PROTECTED if reasons else Status.REPORT,
            cell=cell,
            host=row.host or "",
            node=node,
            host_state=HostState.UP,
            rows=(),
            owner=consumer,
            evidence=(f"provider {provider} ({node}, {address}) is allocated to {words}", f"the row {owner}"),
            because="; ".join(reasons) or "Nova never takes an allocation of a device away: this one stays for ever",
            advice=""
            if reasons
            else f"openstack --os-placement-api-version {VERSION} resource provider allocation unset "
            f"--provider {provider} {consumer}",
        )


def _consumer(connection: sa.Connection, clock: Clock, uuid: str) -> tuple[list[str], str | None]:
    """Why a consumer must be left alone, and what it is; None for one that this cell has not got."""
    instances, moves = tables.instances.c, tables.migrations.c
    move = connection.execute(
        sa.select(moves.id, moves.status).where(moves.uuid == uuid).order_by(moves.id.desc())
    ).first()
    if move is not None:
        going = [] if move.status in TERMINAL else [f"migration {move.id} is {move.status}"]
        return going, f"migration {move.id}"
    instance = connection.execute(
        sa.select(instances.task_state, instances.vm_state, instances.updated_at, instances.deleted).where(
            instances.uuid == uuid
        )
    ).first()
    if instance is None:
        return [], None
    reasons = []
    if instance.task_state is not None:
        reasons.append(f"instance {uuid} has a task under way ({instance.task_state})")
    if instance.vm_state in _BUSY and not instance.deleted:
        reasons.append(f"instance {uuid} is {instance.vm_state}")
    if clock.recent(instance.updated_at):
        reasons.append(f"instance {uuid} was written within the grace time")
    unfinished = sa.or_(moves.status.is_(None), moves.status.not_in((*sorted(TERMINAL), "error")))
    if connection.execute(
        sa.select(moves.id).where(moves.instance_uuid == uuid, moves.deleted == 0, unfinished)
    ).first():
        reasons.append(f"instance {uuid} is being moved")
    return reasons, f"instance {uuid}"
