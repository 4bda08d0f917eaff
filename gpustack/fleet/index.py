"""Everything that the sources answered, by host, address and holder, as the input of the comparison. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.hostnames import key, may_be_of_one_machine, short
from gpustack.base.text import listed as names
from gpustack.cloud.closed import reasons_of
from gpustack.cloud.compute import Service
from gpustack.cloud.servers import Server
from gpustack.fleet.cards import Models, ids_of, is_listed
from gpustack.fleet.model import Gap, Holder, Source
from gpustack.fleet.placement import Consumer, Device
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.facts.vgpus import short_name
from gpustack.hosts.readiness.assessment import State
from gpustack.nova_options.mediated import TypeSection, card_types
from gpustack.nova_options.releases import release
from gpustack.pci import catalogue
from gpustack.spec.assignment import MediatedCard, mediated_cards
from gpustack.spec.model import Spec, models_for
from gpustack.spec.verdict import Verdict, verdicts


@dataclass(frozen=True, kw_only=True)
class RowVerdict:
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


@dataclass(frozen=True, kw_only=True, slots=True)
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
    :ivar nodes: the uuids of the compute nodes of the rows, or of Nova without rows; empty if unknown.
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
    verdicts: tuple[RowVerdict, ...] = ()
    nodes: frozenset[str] = frozenset()
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

    def is_elsewhere(self, nodes: frozenset[str]) -> bool:
        """Whether the rows have none of a cloud's compute nodes, whose hosts may have the same names."""
        return bool(self.nodes and nodes) and self.nodes.isdisjoint(nodes)


Spot = tuple[str, str]
"""A compute node, as the key of its name, and an address."""
_RANKS = {"available": 0, "claimed": 2, "allocated": 2}
"""How much the state of a row says against a new instance; that of the others is between them."""
_Named = TypeVar("_Named")


def named(hosts: Iterable[Host], names: Collection[str]) -> Host | None:
    """The host with one of these names: the exact name, else the only one that may be the same machine."""
    chosen = _alike(hosts, lambda host: host.hostname, names)
    return chosen[0] if len(chosen) == 1 else None


def _alike(entries: Iterable[_Named], name_of: Callable[[_Named], str], names: Collection[str]) -> list[_Named]:
    """The entries with exactly one of these names, else those that may be the same machine."""
    keys = {key(name) for name in names}
    alike = [entry for entry in entries if may_be_of_one_machine({name_of(entry)}, names)]
    return [entry for entry in alike if key(name_of(entry)) in keys] or alike


@dataclass(frozen=True, kw_only=True)
class VgpuTypes:
    """The names of the vGPU types of a card.

    :ivar present: of its mediated devices; empty without devices or facts.
    :ivar wanted: by the spec: that of the card with facts, else those of its host with the card's resource class.
    :ivar classes: the resource class that the spec wants, if there are facts.
    :ivar surplus: whether Nova offers a virtual function although the others have all devices of its card.
    """

    present: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    surplus: bool = False

    @property
    def name(self) -> str:
        """The only type; empty if it is unknown."""
        known = self.present or self.wanted
        return min(known) if len(known) == 1 else ""


class Index:
    """Look-ups in the answers. Names of nodes are compared as :func:`gpustack.base.hostnames.key` has them."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self._by_node: dict[str, Host | None] = {}
        self._mediated: dict[str, tuple[Mapping[str, list[MediatedCard]], Mapping[str, list[str]], bool]] = {}

    @cached_property
    def servers(self) -> Mapping[str, Server]:
        """The instances by uuid."""
        return {server.id: server for server in self.answers.servers or ()}

    @cached_property
    def devices(self) -> Mapping[Spot, Device]:
        """The devices of Placement."""
        ordered = sorted(self.answers.devices or (), key=lambda device: not device.mediated)  # PCI devices last
        return {(key(device.node), device.address): device for device in ordered}

    @cached_property
    def by_uuid(self) -> Mapping[str, Device]:
        """The devices of Placement by the uuid of their provider."""
        return {device.uuid: device for device in self.answers.devices or ()}

    @cached_property
    def reporting(self) -> Mapping[str, list[Device]]:
        """The devices of the compute nodes that report some to Placement, by the keys of their names."""
        return by_key((key(device.node), device) for device in self.answers.devices or ())

    @cached_property
    def rows(self) -> Mapping[Spot, Row]:
        """The rows; of several rows of one GPU, the one that says most against a new instance."""
        return {spot: max(rows, key=lambda row: _RANKS.get(row.status, 1)) for spot, rows in self.all_rows.items()}

    @cached_property
    def all_rows(self) -> Mapping[Spot, list[Row]]:
        """The rows of each GPU: several if several cells have a compute node of this name."""
        return by_key(((key(row.node), row.address), row) for row in self.answers.rows or ())

    @cached_property
    def parents(self) -> frozenset[Spot]:
        """The cards of which Nova offers virtual functions."""
        return frozenset((node, row.parent) for (node, _address), row in self.rows.items() if row.parent)

    @cached_property
    def owned(self) -> Counter[tuple[str, str]]:
        """The number of rows by owner and node."""
        return Counter((row.owner, key(row.node)) for row in self.answers.rows or () if row.owner)

    @cached_property
    def _hosts(self) -> Mapping[str, str]:
        pairs = [(server.place, server.host) for server in self.answers.servers or () if server.host]
        pairs += [(row.node, row.host) for row in self.answers.rows or ()]
        return {key(node): host for node, host in pairs}

    def host_of(self, node: str) -> str:
        """The host of a compute node; its own name if no source has another."""
        if (host := self._hosts.get(key(node))) is not None:
            return host
        services = self._services_of(node, node)
        return services[0].host if len(services) == 1 else node

    # --- services -------------------------------------------------------------------------------------------------

    @cached_property
    def _services(self) -> Mapping[str, list[Service]]:
        return by_key((short(service.host), service) for service in self.answers.services or ())

    def _services_of(self, *names: str) -> list[Service]:
        alike = [service for head in {short(name) for name in names} for service in self._services.get(head, ())]
        return _alike(alike, lambda service: service.host, names) if alike else []

    @cached_property
    def _disabled(self) -> frozenset[str]:
        """The compute nodes that Nova's trait in Placement shows as disabled."""
        return frozenset(key(device.node) for device in self.answers.devices or () if device.closed)

    def service(self, node: str) -> str:
        """The state of a compute node's service: as :class:`Service` has it; empty if unknown.

        If the names of several services may be that of the node, one that is not up counts.
        """
        states = {service.state for service in self._services_of(node, self.host_of(node))}
        if key(node) in self._disabled:
            states.add("disabled")
        return next((state for state in ("disabled", "down", "unmapped", "up") if state in states), "")

    def outages(self, node: str) -> Mapping[str, str]:
        """Why nova-compute of a node is disabled, by gpustack's reasons (:func:`gpustack.cloud.closed.gpu_reason`)."""
        return {r: t for s in self._services_of(node, self.host_of(node)) for r, t in reasons_of(s).own.items()}

    # --- facts of hosts -------------------------------------------------------------------------------------------

    @cached_property
    def _facts(self) -> Mapping[str, list[Host]]:
        return by_key((short(host.hostname), host) for host in self.answers.hosts)

    def facts(self, node: str) -> Host | None:
        """The facts of a compute node, by the name of its node or host, short or full; None if several match."""
        if not self.answers.hosts:
            return None
        if node not in self._by_node:
            names = {node, self.host_of(node)}
            alike = [host for head in {short(name) for name in names} for host in self._facts.get(head, ())]
            self._by_node[node] = named(alike, names)
        return self._by_node[node]

    def function(self, node: str, address: str) -> Function | None:
        """The function at an address in the facts of a host."""
        host = self.facts(node)
        return host.functions.get(address) if host else None

    def verdict(self, node: str, address: str) -> Verdict | None:
        """The verdict on a GPU by the facts of its host; None without them.

        A card that stands for its virtual functions, unless the spec assigns the card itself, has that of one of them
        if Nova should offer none of those that the spec assigns, else none.
        """
        if (host := self.facts(node)) is None:
            return None
        known = verdicts(self.answers.spec, host).by_address
        verdict, parts = known.get(address), host.virtual.get(address, ())
        if verdict is None or verdict.target is not None or not parts:
            return verdict
        assigned = [known[part.address] for part in parts if part.address in known and known[part.address].target]
        faulty = [part for part in assigned if part.state is not State.READY]
        return None if not faulty or any(part.is_offered for part in assigned) else faulty[0]

    def judged(self, node: str) -> tuple[Verdict, ...]:
        """The verdicts on the GPUs of a compute node by the facts of its host; none without them."""
        facts = self.facts(node)
        return verdicts(self.answers.spec, facts).all if facts else ()

    def vgpu_types(self, device: Device) -> VgpuTypes:
        """The vGPU types of a card: of its mediated devices, and as the spec wants them."""
        if device.node not in self._mediated:
            spec, host = self.answers.spec, self.facts(device.node)
            cards_here = mediated_cards(spec, host) if spec and host else ()
            wanted = by_key((card.function.address, card) for card in cards_here)
            models = models_for(spec, self.host_of(device.node)).values() if spec and not host else ()
            by_class = by_key((model.vgpu.resource_class, model.vgpu.type) for model in models if model.vgpu)
            places = by_key((card.type.number, card.function.address) for card in cards_here)
            sections = [TypeSection(type=number, addresses=tuple(of_type)) for number, of_type in places.items()]
            nova = spec.nova if spec else None
            ignored = nova is not None and card_types(sections, release(nova.release)).default is not None
            self._mediated[device.node] = (wanted, by_class, ignored)
        known, known_classes, everywhere = self._mediated[device.node]
        function, cards = self.function(device.node, device.address), known.get(device.address, ())
        names = {kind.number: short_name(kind) for kind in function.vgpu_types} if function else {}
        present = {entry.type for entry in function.mediated_devices if entry.type} if function else set()
        parents = {card.function.physical_function for of_function in known.values() for card in of_function}
        types = {short_name(card.type) for card in cards} or set(known_classes.get(device.resource_class, ()))
        return VgpuTypes(
            present=frozenset(names.get(number, number) for number in present),
            wanted=frozenset(types),
            classes=frozenset(card.resource_class for card in cards),
            surplus=everywhere and not cards and bool(function and function.physical_function in parents - {None}),
        )

    def vgpu_name(self, node: str, address: str) -> str:
        """The vGPU type of a virtual function, or the only one of those of a card; empty if there is none."""
        host, function = self.facts(node), self.function(node, address)
        if host is None or function is None:
            return ""
        card = host.functions.get(function.physical_function or "", function)
        known = {kind.number: short_name(kind) for kind in card.vgpu_types}
        numbers = {part.vgpu_type for part in host.virtual.get(address) or (function,) if part.vgpu_type}
        return known.get(min(numbers), min(numbers)) if len(numbers) == 1 else ""

    def ids(self, device: Device) -> tuple[str, str]:
        """Vendor and product of a device of Placement; empty if unknown."""
        return ids_of(device.resource_class, self.answers.models, device.traits)

    # --- which devices are GPUs -----------------------------------------------------------------------------------

    @cached_property
    def _known(self) -> Mapping[str, set[str]]:
        """The addresses of cards of the catalogue, by node."""
        known: dict[str, set[str]] = {}
        ids = [(key(row.node), row.address, row.vendor_id, row.product_id) for row in self.answers.rows or ()]
        ids += [(key(device.node), device.address, *self.ids(device)) for device in self.answers.devices or ()]
        for node, address, vendor, product in ids:
            if vendor and catalogue.lookup(vendor, product) is not None:
                known.setdefault(node, set()).add(address)
        return known

    def is_gpu(self, node: str, address: str, ids: tuple[str, str], *, virtual: bool = False) -> bool:
        """Whether a device is a GPU."""
        siblings = self._known.get(key(node), set())
        return is_listed(*ids, address, siblings, self.function(node, address), virtual=virtual)

    def is_gpu_row(self, row: Row) -> bool:
        """Whether the device of a row is a GPU."""
        ids = (row.vendor_id, row.product_id)
        return self.is_gpu(row.node, row.address, ids, virtual=row.dev_type == "type-VF")

    # --- holders --------------------------------------------------------------------------------------------------

    @cached_property
    def _held(self) -> Mapping[str, dict[str, int]]:
        """The amount by consumer, by provider."""
        consumers = (self.answers.consumers or {}).values()
        known = ((device, (c.uuid, amount)) for c in consumers for device, amount in c.devices.items())
        strangers = ((device, (uuid, 1)) for device, uuids in self.answers.strangers.items() for uuid in uuids)
        return {device: dict(amounts) for device, amounts in by_key((*strangers, *known)).items()}

    def holders(self, device: Device | None) -> tuple[Holder, ...]:
        """Who holds a device in Placement; instances first."""
        held = self._held.get(device.uuid, {}) if device else {}
        holders = [self.holder(consumer, amount) for consumer, amount in sorted(held.items())]
        return tuple(sorted(holders, key=lambda holder: (holder.server is None, holder.migration)))

    def holder(self, consumer: str, amount: int = 1) -> Holder:
        """A holder by its uuid."""
        instance = self.answers.migrations.get(consumer)
        server = self.servers.get(instance or consumer)
        known = (self.answers.consumers or {}).get(consumer)
        return Holder(
            consumer=consumer,
            server=server,
            project=server.project if server else known.project if known else "",
            user=server.user if server else known.user if known else "",
            migration=instance is not None,
            amount=amount,
        )


def is_missing(index: Index, row: Row) -> bool:
    """Whether Placement has devices of the row's compute node, but not this one."""
    reporting = index.answers.models.scheduled is not False and key(row.node) in index.reporting
    return reporting and (key(row.node), row.parent or row.address) not in index.devices


def is_unreported(index: Index, row: Row) -> bool:
    """Whether the scheduler takes only devices of Placement, and the row's compute node reports none."""
    answers = index.answers
    answered = answers.devices is not None or all(gap.source is not Source.PLACEMENT for gap in answers.gaps)
    return bool(answers.models.scheduled) and answered and key(row.node) not in index.reporting


def unscheduled(index: Index) -> Iterator[Finding]:
    """One finding for each free GPU that Placement lacks, and one for each host that reports none.

    If Nova schedules by Placement's devices (``[filter_scheduler] pci_in_placement``), no new instance gets such a GPU.
    """
    unreported: dict[str, int] = {}
    for row in free_rows(index):
        if is_missing(index, row):
            yield finding(Code.ROW_WITHOUT_DEVICE, place=f"{row.host} {row.address}", host=row.host)
        elif is_unreported(index, row):
            unreported[row.host] = unreported.get(row.host, 0) + 1
    for host, count in unreported.items():
        yield finding(Code.HOST_WITHOUT_REPORT, place=host, count=count, host=host)


def unscheduled_note(index: Index) -> Iterator[str]:
    """A note on hosts that report no devices while others do, if it is unknown how Nova schedules."""
    if index.answers.models.scheduled is not None or not index.reporting:
        return
    if hosts := sorted({row.host for row in free_rows(index) if key(row.node) not in index.reporting}):
        yield (
            f"free by their rows, though their hosts report no devices to Placement: GPUs of {names(hosts, 8)};"
            " with [filter_scheduler] pci_in_placement, no new instance gets them"
        )


def free_rows(index: Index) -> Iterator[Row]:
    """The rows of GPUs that Nova has as free. A physical function with virtual functions is not one of them."""
    for spot, row in index.rows.items():
        if row.status == "available" and spot not in index.parents and index.is_gpu_row(row):
            yield row
