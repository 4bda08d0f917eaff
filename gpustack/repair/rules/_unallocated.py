"""Class Q, the opposite case: an instance uses a device of its host, and Placement offers the device.

nova-compute adds the allocation in each periodic task, but only for an instance with another allocation of the same
host (``nova/compute/pci_placement_translator.py``, ``update_allocations``). An instance that lost them all is never
repaired. The row still protects the device from a second instance. The effect is that Placement selects this host for
requests that find no device there.

Report only. Without PCI in Placement the device has no provider, and there is nothing to report.
"""

from collections.abc import Iterator, Mapping

from gpustack.base.text import quoted
from gpustack.cloud import Connection, placement
from gpustack.cloud.placement import Provider
from gpustack.novadb.model import PciRow
from gpustack.novadb.view import Clock, HostState, NodeView, Owner
from gpustack.repair.evidence import about, node_words, overdue, owner_words, protection, stale_since, young
from gpustack.repair.verdict import Status, Verdict, words

TITLE = "taken, and not allocated in Placement"


def family(view: NodeView, address: str) -> list[PciRow]:
    """Return the live rows of a provider: the function itself, and its virtual functions."""
    return [row for row in view.rows if row.live and address in (row.address.lower(), (row.parent_addr or "").lower())]


def candidates(view: NodeView, provider: Provider) -> dict[str, list[PciRow]]:
    """Return taken rows of the provider by owner, if Placement has allocated fewer than the owner holds."""
    by_owner: dict[str, list[PciRow]] = {}
    for row in family(view, provider.address):
        owner = view.owners.get(row.instance_uuid or "")
        if row.taken and owner is not None and owner.on(view.node) and not _of_a_port(owner, row):
            by_owner.setdefault(owner.uuid, []).append(row)
    return {uuid: rows for uuid, rows in by_owner.items() if len(rows) > provider.held.get(uuid, 0)}


def _of_a_port(owner: Owner, row: PciRow) -> bool:
    """Whether the row was claimed for a Neutron port; such devices have no provider."""
    return any(request.request_id == row.request_id and request.alias_name is None for request in owner.requests or ())


def judge(
    view: NodeView, clock: Clock, provider: Provider, moved: Mapping[str, str], cloud: Connection
) -> Iterator[Verdict]:
    """Yield verdicts on devices of one provider that are taken while Placement offers them.

    :param moved: the instance of each consumer that is a migration: it holds what the instance had before the move.
    """
    for uuid, rows in candidates(view, provider).items():
        if uuid in moved.values() or not _left(provider, cloud):
            continue
        owner = view.owners[uuid]
        held = placement.allocations_of(cloud, uuid)["allocations"]
        if len(rows) <= sum(held.get(provider.uuid, {}).get("resources", {}).values()):
            continue  # allocated meanwhile
        status, because, advice = _word(view, clock, owner, rows, provider.root, frozenset(held))
        yield Verdict(
            **about("Q", TITLE, view, clock),
            status=status,
            rows=tuple(rows),
            owner=uuid,
            evidence=(
                f"of provider {provider.uuid} ({provider.name}), {provider.held.get(uuid, 0)} are allocated to {uuid}",
                *(words(row) for row in rows),
                owner_words(owner),
                node_words(view, clock),
            ),
            because=because,
            advice=advice,
        )


def _left(provider: Provider, cloud: Connection) -> bool:
    """Whether the provider has anything left to allocate. A one-time-use device is reserved, so it has not."""
    stock = placement.inventory(cloud, provider.uuid)
    return stock is not None and sum(stock.unreserved.values()) > sum(provider.held.values())


def _word(
    view: NodeView, clock: Clock, owner: Owner, rows: list[PciRow], root: str, held: frozenset[str]
) -> tuple[Status, str, str]:
    reasons = [reason for row in rows for reason in protection(view, row, clock)] + young((), owner, clock)
    if reasons:
        return Status.PROTECTED, "; ".join(dict.fromkeys(reasons)), ""
    if root not in held:
        why = "the instance has no allocation of this host, so nova-compute adds none: who is sent here finds no device"
        return Status.REPORT, why, _heal_advice(owner.uuid, held)
    if view.host_state(clock) is not HostState.UP:
        why = "nova-compute adds the allocation when it starts again; until then nothing is sent here"
        return Status.HEALS, why, ""
    if all(overdue(stale_since(row, owner), clock) for row in rows):
        why = "nova-compute is up and adds the allocation in its next periodic (60 seconds); it may fail to"
        later = 'plan again in some minutes; if it is still so, look for "Error updating resources for node" in its log'
        return Status.REPORT, why, later
    return Status.HEALS, "nova-compute is up, and adds the allocation in its next periodic (60 seconds)", ""


def _heal_advice(instance: str, held: frozenset[str]) -> str:
    """Return the advice: Nova's tool creates allocations for an instance without any (``nova/cmd/manage.py``)."""
    heal = f"nova-manage placement heal_allocations --instance {quoted(instance)}"
    if not held:
        return f"run {heal}; the next periodic adds the device"
    others = ", ".join(sorted(held))
    return (
        f"it has allocations of {others} alone: find out why. {heal} does nothing while it has any; with --force "
        "it writes the host's processors, memory and disk in their stead, and the next periodic adds the device"
    )
