"""Everything that the sources answered, as the input of the comparison."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpustack.cloud.compute import Service
from gpustack.cloud.servers import Server
from gpustack.fleet.cards import Models
from gpustack.fleet.model import Gap
from gpustack.fleet.placement import Consumer, Device
from gpustack.hosts.facts.model import Host
from gpustack.spec.model import Spec


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A clean-up verdict on a row or a compute node.

    :ivar klass: the class with its name: ``B (migration-pinned)``.
    :ivar address: the address of the row; empty if it is about the compute node.
    :ivar doubt: whether clean-up could not decide, so that the state of the GPU stays as its row has it.
    """

    klass: str
    host: str
    address: str
    because: str
    doubt: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """A live row of ``pci_devices``.

    :ivar parent: the address of the physical function; empty for other devices.
    :ivar owner: the uuid of the owner; empty if there is none.
    """

    cell: str
    host: str
    node: str
    address: str
    vendor_id: str
    product_id: str
    dev_type: str
    status: str
    numa_node: int | None = None
    parent: str = ""
    owner: str = ""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The answers of all sources; None for a source that was not asked, or that did not answer.

    :ivar servers: the instances that request devices, from Nova or the databases.
    :ivar everything: whether ``servers`` has the instances of all projects and cells.
    :ivar services: the nova-compute services.
    :ivar devices: the PCI devices in Placement; None also if Nova does not report them.
    :ivar consumers: what instances have allocated, by uuid; None if owners were not asked for.
    :ivar migrations: the instances of consumers that are migrations.
    :ivar strangers: by device, the consumers that are neither instance nor migration here.
    :ivar rows: the rows of all cells that could be read.
    :ivar verdicts: what clean-up finds wrong with the rows.
    :ivar disabled_cells: the cells of rows that nova-scheduler leaves out.
    :ivar hosts: the facts of hosts.
    :ivar spec: what the operator wants of the GPUs; None without a spec.
    :ivar deleted: projects that Keystone does not have any more.
    """

    servers: tuple[Server, ...] | None = None
    everything: bool = True
    services: tuple[Service, ...] | None = None
    devices: tuple[Device, ...] | None = None
    consumers: Mapping[str, Consumer] | None = None
    migrations: Mapping[str, str] = field(default_factory=dict)
    strangers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rows: tuple[Row, ...] | None = None
    verdicts: tuple[Verdict, ...] = ()
    disabled_cells: frozenset[str] = frozenset()
    hosts: tuple[Host, ...] = ()
    models: Models = field(default_factory=Models)
    projects: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)
    deleted: frozenset[str] = frozenset()
    spec: Spec | None = None
    gaps: tuple[Gap, ...] = ()

    @property
    def has_all_rows(self) -> bool:
        """Whether the rows of all cells were read: only then a missing row shows that Nova does not have the GPU."""
        return self.rows is not None and self.everything
