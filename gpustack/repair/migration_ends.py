"""The devices on both hosts of the migrations that a repair sets to ``failed``: in the journal, compared by undo.

Nova then frees the instance's devices on the source and on the destination, not only those of the verdict. A migration
that gets its old status again does not return them.
"""

from collections.abc import Iterable, Iterator, Mapping

from gpustack.base.hostnames import extends
from gpustack.novadb.model import PciRow
from gpustack.novadb.view import NodeView
from gpustack.repair.guards import COMPARED
from gpustack.repair.verdict import HeldDevice, Seen, Verdict


def held_devices(verdict: Verdict, view: NodeView) -> tuple[HeldDevice, ...]:
    """Return the devices of the owner on both hosts of the migrations that the repair sets to ``failed``."""
    owner = view.owners.get(verdict.owner or "")
    if owner is None or not verdict.migrations:
        return ()
    ends = [host for move in owner.migrations if move.id in verdict.migrations for host in move.ends]
    here = [(verdict.host, row) for row in view.held.get(owner.uuid, ())]
    others = [
        (host, row)
        for host, row in view.elsewhere.get(owner.uuid, ())
        if row.live and any(extends(host, end) for end in ends)
    ]
    return tuple(
        HeldDevice.model_construct(host=host, id=row.id, **{name: getattr(row, name) for name in COMPARED})
        for host, row in (*here, *others)
    )


def facts(devices: Iterable[HeldDevice]) -> Iterator[Seen]:
    """Yield the facts that must hold while the migrations get their old status: the rows are as recorded."""
    for device in devices:
        yield Seen.of("pci_devices", {name: getattr(device, name) for name in ("id", *COMPARED)})


def objections(devices: Iterable[HeldDevice], rows: Mapping[int, PciRow]) -> Iterator[str]:
    """Yield an objection for each device whose row is not as recorded.

    :param rows: the present rows, by id.
    """
    for device in devices:
        if change := _change(device, rows.get(device.id)):
            yield f"{device.address} on {device.host}, which the migration held, {change} by now"


def _change(device: HeldDevice, row: PciRow | None) -> str:
    if row is None or not row.live:
        return "has no row"
    changed = [name for name in COMPARED if getattr(device, name) != getattr(row, name)]
    if "instance_uuid" in changed:
        return f"belongs to instance {row.instance_uuid}" if row.instance_uuid else f"is {row.status}"
    return " and ".join(f"has {name} {getattr(row, name)} (not {getattr(device, name)})" for name in changed)
