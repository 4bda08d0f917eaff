"""Join the rows of all cells with their owners and with what clean-up finds wrong with them.

Each cell is read in one read-only snapshot. Which rows are stale is decided by clean-up's rules only.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from sys import intern

from gpustack.base.errors import CloudError, DatabaseError
from gpustack.cloud import Connection
from gpustack.cloud import placement as allocations
from gpustack.cloud.servers import Server
from gpustack.fleet.index import Answers, Row, RowVerdict
from gpustack.fleet.model import Gap, Source
from gpustack.hosts.facts.model import Host
from gpustack.novadb import hardware
from gpustack.novadb.databases import reusing_connections
from gpustack.novadb.nodes import numa_nodes
from gpustack.novadb.other_cells import surveyed
from gpustack.novadb.owners import InstanceRecord, records
from gpustack.novadb.read import CellReader, reading
from gpustack.novadb.sources import Cell, Sources
from gpustack.repair import plan, rules
from gpustack.repair.classes import label
from gpustack.repair.rules import q_allocation_drift
from gpustack.repair.verdict import Status
from gpustack.repair.verdict import Verdict as CleanupVerdict
from gpustack.spec.extra_specs import ALIAS, parse_alias

_WRONG = frozenset({Status.STALE, Status.HEALS, Status.REPORT, Status.STUCK})
_DOUBT = Status.UNDECIDED
_AS_STORED = ("vendor_id", "product_id", "dev_type", "status")
_MOVING = frozenset({"resized", "building"})


def with_facts(sources: Sources, hosts: Sequence[Host]) -> Sources:
    """The sources with the facts of hosts, for class O."""
    return replace(sources, hardware=hardware.hardware(hosts)) if hosts else sources


@reusing_connections()
def cells(sources: Sources) -> tuple[Answers, Sequence[Cell]]:
    """Read the rows, their owners and the verdicts of all cells; a cell that cannot be read becomes a gap.

    :returns: the answers, and the cells that could be read.
    :raises DatabaseError: if no cell can be read.
    """
    sources = surveyed(sources)
    rows: list[Row] = []
    servers: dict[str, Server] = {}
    verdicts: list[RowVerdict] = []
    gaps: list[Gap] = []
    read: list[Cell] = []
    nodes: set[str] = set()
    failure: DatabaseError | None = None
    selection = plan.Selection(service_down_time=sources.service_down_time)
    hardware_of = hardware.finder(sources.hardware)
    for cell in sources.with_hosts:
        try:
            with reading(sources, cell, selection) as (reader, clock):
                of_cell: list[Row] = []
                numa = numa_nodes(reader.connection)
                for view in reader.views(names=sources.hardware):
                    if view.unread:
                        gaps.append(Gap(source=Source.DATABASE, reason=f"{view.node.name}: {view.unread}"))
                        continue
                    known = hardware_of(view.node.host, view.node.hypervisor_hostname)
                    judged = view if known is None else replace(view, hardware=known)
                    verdicts += _found(rules.judge(judged, clock), gone=bool(view.node.deleted))
                    if not view.node.deleted:
                        nodes.add(view.node.uuid or "")
                        of_cell += [
                            Row(
                                cell=cell.name,
                                host=view.node.host or "",
                                node=view.node.hypervisor_hostname or view.node.host or "",
                                address=intern(row.address.lower()),
                                **{name: intern(getattr(row, name)) for name in _AS_STORED},
                                numa_node=numa.get(row.id),
                                parent=(row.parent_addr or "").lower(),
                                owner=row.instance_uuid or "",
                            )
                            for row in view.rows
                            if row.live
                        ]
                servers |= _owners(reader, {row.owner for row in of_cell if row.owner} - servers.keys())
                rows += of_cell
                read.append(cell)
        except DatabaseError as error:
            failure = error
            gaps.append(Gap(source=Source.DATABASE, reason=f"the rows of cell {cell.name} are missing: {error.what}"))
    if failure is not None and not read:
        raise failure
    answers = Answers(rows=tuple(rows), servers=tuple(servers.values()), verdicts=tuple(verdicts), gaps=tuple(gaps))
    disabled = frozenset(cell.name for cell in read if cell.disabled)
    return replace(answers, nodes=frozenset(nodes - {""}), everything=not gaps, disabled_cells=disabled), read


def _found(verdicts: Iterable[CleanupVerdict], *, gone: bool) -> Iterator[RowVerdict]:
    """The verdicts on wrong rows; those on a deleted compute node say nothing about the GPU of the host."""
    for verdict in verdicts:
        if verdict.status not in (*_WRONG, _DOUBT):
            continue
        of_rows = {row.address.lower() for row in verdict.rows}
        of_provider = verdict.allocation.addresses.split() if verdict.allocation else ()
        klass, doubt = label(verdict.klass), gone or verdict.status is _DOUBT
        for address in sorted({*of_rows, *of_provider}) or [""]:
            yield RowVerdict(klass=klass, host=verdict.host, address=address, because=verdict.because, doubt=doubt)


def _owners(reader: CellReader, uuids: Iterable[str]) -> dict[str, Server]:
    """The owners with project, user and flavor. One in another cell has only what clean-up knows of it."""
    wanted = set(uuids)
    servers = {record.uuid: _server(record) for record in records(reader.connection, wanted)}
    for uuid in wanted - servers.keys():
        instance = reader.owner(uuid).instance
        if instance is not None and not instance.deleted:
            servers[uuid] = Server(
                id=uuid, name=instance.display_name or "", host=instance.host or "", node=instance.node or ""
            )
    return servers


def _server(record: InstanceRecord) -> Server:
    return Server(
        id=record.uuid,
        **{name: getattr(record, name) for name in ("name", "project", "user", "host", "node", "flavor")},
        status=record.vm_state,
        devices=parse_alias(str(record.extra_specs.get(ALIAS) or "")),
        since=record.launched_at,
        placed=bool(record.host),
        moving=record.task_state is not None or record.vm_state in _MOVING,
    )


@reusing_connections()
def allocation_verdicts(
    sources: Sources, read: Sequence[Cell], devices: Sequence[allocations.Provider], cloud: Connection
) -> tuple[tuple[RowVerdict, ...], tuple[Gap, ...]]:
    """What classes Q and S find: allocations that contradict the rows. The cells are read again, after Placement."""
    verdicts: list[RowVerdict] = []
    gaps: list[Gap] = []
    known = allocations.Known(devices=devices, cloud=cloud)
    selection = plan.Selection(service_down_time=sources.service_down_time)
    for cell in read:
        try:
            verdicts += _found(plan.witnessed(sources, cell, selection, q_allocation_drift, known), gone=False)
        except (DatabaseError, CloudError) as error:
            source = Source.DATABASE if isinstance(error, DatabaseError) else Source.PLACEMENT
            gaps.append(Gap(source=source, reason=f"allocations in cell {cell.name} were not checked: {error.what}"))
    return tuple(verdicts), tuple(gaps)
