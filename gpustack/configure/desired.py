"""The settings that Nova's services need for a spec and the facts of the hosts: aliases, device_specs, switches.

All decisions are derived from facts. ``device_type`` of an alias is the type under which Nova lists the hosts' cards.
A device_spec uses vendor and product if every function with these ids on the host is available for passthrough, and
addresses if the host reserves one, or if one is out of service. Companions (a GPU's audio or USB functions) are bound
with the GPU but never listed: Nova passes through the main function alone.

An entry for ports matches virtual functions of network cards only: with ``physical_network``, Nova would give a card
itself to a port of the type ``direct-physical``. If cards are selected, the entry has the address of the card, which
stays the same if the number of virtual functions changes: Nova compares it with the virtual functions' card.
"""

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, Severity, errors, finding
from gpustack.base.text import listed
from gpustack.configure import preflight, vendordata, vgpus
from gpustack.configure.packing import Advised, Requested, advised, gpus_by_alias, requested
from gpustack.hosts.facts.model import Function, Host
from gpustack.nova_options import releases
from gpustack.nova_options.aggregates import BY_PROJECT
from gpustack.nova_options.device_spec import DeviceSpec, offered
from gpustack.nova_options.mediated import TypeSection, card_types
from gpustack.nova_options.options import Release
from gpustack.nova_options.scheduler import wanted_stage
from gpustack.spec import markers
from gpustack.spec.assignment import Assigned, mediated_cards
from gpustack.spec.attributes import required
from gpustack.spec.model import Placement, Spec
from gpustack.spec.models import Model
from gpustack.spec.network_functions import NetworkFunctions, network_functions
from gpustack.spec.twins import decided_by
from gpustack.spec.verdict import HostVerdicts, verdicts
from gpustack.spec.verdict import unknown as unknown_of
from gpustack.spec.vgpu_use import devices, names_of, offered_vgpus, types_in_use, with_memory

_SHOWN = 8
Selection = tuple[str, str, str | None]
"""Vendor, product and address of an entry."""
Ports = Mapping[str, tuple[str, str]]
"""The network of the spec and its physical network of each virtual function that ports get, by address."""


def ports(spec: Spec, host: Host) -> Ports:
    """The virtual functions that ports get on a host."""
    return {
        function.address: (name, spec.networks[name].physical_network)
        for name, functions in network_functions(spec, host).by_network.items()
        for function in functions
    }


def selections(spec: Spec, host: Host, functions: NetworkFunctions) -> Iterator[tuple[str, Selection]]:
    """The physical network and the selection of each entry."""
    for name, of_network in functions.by_network.items():
        network = spec.networks[name]
        for ids, members in by_key(((function.vendor, function.product), function) for function in of_network).items():
            selects_cards = bool(network.match.addresses or network.match.interfaces)
            for address in _addresses(host, ids, members, selects_cards=selects_cards):
                yield network.physical_network, (*ids, address)


def _addresses(
    host: Host, ids: tuple[str, str], members: Sequence[Function], *, selects_cards: bool
) -> Iterator[str | None]:
    """None for ids alone, addresses of cards, or of virtual functions: the first that matches these alone."""
    if not selects_cards and _reach(host, ids, None) == {function.address for function in members}:
        yield None
        return
    for card, parts in by_key((function.physical_function, function.address) for function in members).items():
        if _reach(host, ids, card) == {*parts}:
            yield card
        else:
            yield from (function.address for function in members if function.address in parts)


def _reach(host: Host, ids: tuple[str, str], address: str | None) -> frozenset[str]:
    entry = {"vendor_id": ids[0], "product_id": ids[1], **({"address": address} if address else {})}
    return offered([DeviceSpec.parse(entry)], host)


def network_doubts(host: Host, functions: NetworkFunctions) -> Iterator[Finding]:
    """Networks without virtual functions, and virtual functions of several networks or in use."""
    for name, found in functions.by_network.items():
        if not (found or name in functions.used or any(name in names for names in functions.disputed.values())):
            yield finding(Code.NETWORK_WITHOUT_FUNCTIONS, place=host.hostname, network=name)
    for name, used in functions.used.items():
        interfaces = [f"{f.address} ({', '.join(net.name for net in f.uses.net)})" for f in used]
        yield finding(
            Code.NETWORK_FUNCTIONS_IN_USE, place=host.hostname, network=name, functions=listed(interfaces, _SHOWN)
        )
    for names, addresses in by_key((names, address) for address, names in functions.disputed.items()).items():
        about: dict[str, Any] = {"functions": listed(addresses, _SHOWN), "networks": " and ".join(names)}
        yield finding(Code.FUNCTIONS_OF_SEVERAL_NETWORKS, place=host.hostname, **about)


PCI_FILTER = "PciPassthroughFilter"
NUMA_FILTER = "NUMATopologyFilter"
ISOLATION = Advised(
    option=releases.option("scheduler/enable_isolated_aggregate_filtering"),
    value="true",
    comment="Aggregates with the metadata trait:NAME = required refuse flavors that do not require the trait.",
)
"""How nova-scheduler reads the metadata of aggregates that reserve GPU hosts (``tenancy``)."""


class _Line:
    """A line of ``[pci]``, whose fields are the keys that Nova reads."""

    def to_dict(self) -> dict[str, str]:
        """The line as Nova reads it, in the key order of Nova's documentation, without keys that are not set."""
        words = {True: "yes", False: "no"}
        texts = {
            name: words[value] if isinstance(value, bool) else ",".join(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }
        return {name: text for name, text in texts.items() if text}

    def __str__(self) -> str:
        return json.dumps(self.to_dict())


@dataclass(frozen=True, kw_only=True)
class Alias(_Line):
    """One line of ``[pci] alias``."""

    name: str
    vendor_id: str | None = None
    product_id: str | None = None
    device_type: str | None = None
    numa_policy: str | None = None
    resource_class: str | None = None
    traits: tuple[str, ...] = ()
    live_migratable: bool | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceEntry(_Line):
    """One line of ``[pci] device_spec``."""

    vendor_id: str
    product_id: str
    address: str | None = None
    resource_class: str | None = None
    traits: tuple[str, ...] = ()
    managed: bool | None = None
    live_migratable: bool | None = None
    one_time_use: bool | None = None
    physical_network: str | None = None


@dataclass(frozen=True, kw_only=True)
class DesiredConfig:
    """The settings of a deployment.

    :ivar aliases: for the API and every compute host.
    :ivar filters: the filters that the scheduler must enable.
    :ivar computes: the ``device_spec`` entries of each compute host with facts, by its name.
    :ivar mediated: the types of mediated devices on each of these hosts, with the cards of each type.
    :ivar advised: options that keep requests for several GPUs possible.
    :ivar markers: the units of each marker class (quotas) on each compute host with facts, by its name.
    :ivar traits: the traits that providers of mediated devices need, by host and by the provider's name.
    :ivar unknown: errors about GPUs whose facts are incomplete, or that Nova can't offer, by host. The host is not in
        ``computes``: its present configuration must stay.
    :ivar without_ids: whether an alias carries not both ids. Nova 2025.2 refuses such an alias unless
        ``pci_in_placement`` is on, in nova-compute too.
    """

    release: Release
    placement: Placement
    aliases: tuple[Alias, ...]
    filters: tuple[str, ...] = (PCI_FILTER,)
    computes: Mapping[str, tuple[DeviceEntry, ...]]
    mediated: Mapping[str, tuple[TypeSection, ...]] = field(default_factory=dict)
    advised: tuple[Advised, ...] = ()
    markers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    traits: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    findings: tuple[Finding, ...]
    unknown: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)

    @functools.cached_property
    def alias_lines(self) -> tuple[str, ...]:
        """The values of ``[pci] alias``."""
        return tuple(map(str, self.aliases))

    @property
    def without_ids(self) -> bool:
        return any(alias.vendor_id is None or alias.product_id is None for alias in self.aliases)

    def has_devices(self, host: str) -> bool:
        """Whether a compute host offers GPUs: as PCI devices, or as mediated devices."""
        return bool(self.computes.get(host) or self.mediated.get(host))


def wanted(spec: Spec, hosts: Sequence[Host], *, release: Release) -> DesiredConfig:
    """The settings that Nova needs for ``spec`` on ``hosts``, with all findings.

    :param hosts: the facts of all hosts of the spec: the API needs the aliases of all of them.
    """
    mode: Placement = wanted_stage(spec)
    spec = with_memory(spec, hosts)
    of_host = {
        host.hostname: decided_by(spec, host, (_of_host, mode, release), functools.partial(_of_host, mode, release))
        for host in sorted(hosts, key=lambda h: h.hostname)
    }
    judged = [decided.judged for decided in of_host.values()]
    counts = requested(spec, [decided.gpus for decided in of_host.values()])
    aliases = _aliases(spec, [target for service in judged for target in service.assigned], mode, release)
    models = {model for decided in of_host.values() for model in decided.models}
    findings = list(preflight.doubts(spec, judged, release, mode, counts, mediated=models))
    several = [target for decided in of_host.values() if len(decided.gpus) > 1 for target in decided.judged.offered]
    for alias in aliases if mode == "schedule" else ():
        findings += preflight.moves(spec, alias.name, alias.vendor_id, alias.product_id, alias.device_type, several)
    findings += [found for decided in of_host.values() for found in decided.findings]
    return DesiredConfig(
        release=release,
        placement=mode,
        aliases=aliases,
        filters=required_filters(spec),
        computes={name: decided.entries for name, decided in of_host.items() if not decided.unknown},
        mediated={name: decided.types for name, decided in of_host.items() if not decided.unknown},
        advised=all_advised(spec, counts, release, mode),
        markers={name: decided.markers for name, decided in of_host.items()},
        traits={name: vgpus.of_providers(name, decided.traits) for name, decided in of_host.items()},
        findings=tuple(findings),
        unknown={name: decided.unknown for name, decided in of_host.items() if decided.unknown},
    )


@dataclass(frozen=True, kw_only=True)
class _HostConfig:
    """The settings of one host.

    :ivar gpus: the number of offered GPUs by alias.
    :ivar traits: the traits of providers of mediated devices, by the address of the card.
    :ivar unknown: errors about GPUs whose facts are incomplete, or that Nova can't offer; the host then has no entries.
    """

    judged: HostVerdicts
    gpus: Mapping[str, int]
    markers: Mapping[str, int]
    entries: tuple[DeviceEntry, ...]
    types: tuple[TypeSection, ...]
    traits: Mapping[str, tuple[str, ...]]
    models: frozenset[str]
    findings: tuple[Finding, ...]
    unknown: tuple[Finding, ...]


def _of_host(mode: Placement, release: Release, spec: Spec, host: Host) -> _HostConfig:
    judged, networks = verdicts(spec, host), network_functions(spec, host)
    cards = offered_vgpus(spec, host)
    types = vgpus.sections(cards)
    read = card_types(types, release)
    used = list(types_in_use(spec, host, lambda address: read.of(address)[0]))
    unknown = (*unknown_of(judged), *vgpus.faults(host, cards, read, release), *errors(used))
    entries, findings = tuple[DeviceEntry, ...](), [entry for entry in used if entry.severity is not Severity.ERROR]
    if not unknown:
        entries = (*_entries(spec, judged, mode, release), *_of_networks(spec, host, networks))
        written = [entry.to_dict() for entry in entries]
        findings += preflight.proof(host, written, judged.offered, networks.addresses)
        unknown = tuple(vgpus.of_one_card(host, written))
    return _HostConfig(
        judged=judged,
        gpus=gpus_by_alias(spec, judged),
        markers=markers_of(spec, host),
        entries=entries,
        types=types,
        traits=vgpus.traits(spec, cards),
        models=frozenset(card.model for card in mediated_cards(spec, host)),
        findings=(
            *preflight.of_host(spec, judged, mode),
            *findings,
            *network_doubts(host, networks),
            *_absent(spec, host, judged),
        ),
        unknown=unknown,
    )


def markers_of(spec: Spec, host: Host) -> dict[str, int]:
    """The units of each marker class on a host: one for each GPU, and for each mediated device, that it offers."""
    units = Counter(spec.alias_of(target.model) for target in verdicts(spec, host).offered)
    for card in offered_vgpus(spec, host):
        units[spec.alias_of(card.model)] += devices(card)
    return markers.units(spec, units)


def required_filters(spec: Spec) -> tuple[str, ...]:
    """The filters that the scheduler must enable.

    Instances with NUMA nodes need one more: without it, hosts without a fitting node use up retries.
    """
    with_nodes = any(flavor.has_numa_nodes for flavor in spec.flavors.values())
    for_projects = spec.tenancy is not None and spec.tenancy.restricts
    return (PCI_FILTER, *([NUMA_FILTER] if with_nodes else []), *([BY_PROJECT] if for_projects else []))


def all_advised(spec: Spec, counts: Requested, release: Release, placement: Placement) -> tuple[Advised, ...]:
    """The options beyond aliases, device_spec and filters."""
    isolation = [ISOLATION] if spec.tenancy is not None and spec.tenancy.isolates else []
    return (*advised(counts, release, placement), *isolation, *vendordata.advised(spec))


def _aliases(spec: Spec, targets: Sequence[Assigned], placement: Placement, release: Release) -> tuple[Alias, ...]:
    """The aliases in the order of the spec's models.

    PCI in Placement allows one line for each name. Models that share a name are requested by their resource class.
    """
    kinds = {t.model: t.gpu.dev_type for t in targets}
    unmovable = {t.model for t in targets if not vgpus.migrates(spec, t, release)}
    scheduled = placement == "schedule"
    of_models = (
        replace(
            _line(spec.alias_of(name), model, kinds[name]),
            resource_class=spec.resource_class_of(name) if scheduled else None,
            traits=spec.required_traits_of(name) if scheduled else (),
            live_migratable=model.live_migratable if name in unmovable else True,
        )
        for name, model in spec.models.items()
        if name in kinds
    )
    lines: list[Alias] = []
    for several in by_key((line.name, line) for line in of_models).values():
        different = list(dict.fromkeys(several))
        if scheduled and len(different) > 1:
            different = [replace(different[0], vendor_id=None, product_id=None)]
        lines += different
    return (*lines, *_selections(spec, kinds, placement))


def _line(name: str, model: Model, kind: str) -> Alias:
    vendor, product = model.ids
    return Alias(
        name=name,
        vendor_id=vendor,
        product_id=product,
        device_type=kind,
        numa_policy=model.numa_policy,
        live_migratable=model.live_migratable,
    )


def _selections(spec: Spec, kinds: Mapping[str, str], placement: Placement) -> Iterator[Alias]:
    """The aliases of GPUs selected by attribute.

    Without PCI in Placement, one line for each pair of ids. With it, one line with the traits; the ids that all models
    share stay in it: Nova's claim of a move compares ids, and no traits.
    """
    for name, attributes in spec.selections.items():
        lines = [_line(name, spec.models[model], kinds[model]) for model in spec.selected[name] if model in kinds]
        if placement != "schedule" or not lines:
            yield from dict.fromkeys(lines)
            continue
        vendors, products = {line.vendor_id for line in lines}, {line.product_id for line in lines}
        yield replace(
            lines[0],
            vendor_id=lines[0].vendor_id if len(vendors) == 1 else None,
            product_id=lines[0].product_id if len(vendors) == len(products) == 1 else None,
            resource_class=spec.resource_class_of(spec.selected[name][0]),
            traits=required(attributes),
        )


def _absent(spec: Spec, host: Host, service: HostVerdicts) -> Iterator[Finding]:
    """GPUs out of service that the facts of the host do not show, so that nothing proves that they are left out."""
    mediated = {name for card in mediated_cards(spec, host) for name in names_of(host, card)}
    for entry in service.absent:
        if mediated.isdisjoint((entry.address, entry.serial)):
            yield finding(Code.OUT_OF_SERVICE_ABSENT, place=f"{host.hostname} {entry.card}", host=host.hostname)
    for entry in service.unknown:
        yield finding(Code.SERIAL_NUMBERS_UNKNOWN, place=f"{host.hostname} {entry.card}", host=host.hostname)


def _entries(spec: Spec, service: HostVerdicts, placement: Placement, release: Release) -> tuple[DeviceEntry, ...]:
    """The device_spec of one host: by ids if all functions with these ids are offered alike, else by address."""
    entries: list[DeviceEntry] = []
    for name, model in spec.models.items():
        if not (assigned := [t for t in service.offered if t.model == name]):
            continue
        ids = model.ids
        with_ids = {f.address for f in assigned[0].host.pci if (f.vendor, f.product) == ids}
        if service.complete and with_ids == {t.gpu.main.address for t in assigned}:
            entries.append(_entry(spec, assigned[0], None, placement, release))
        else:
            entries += [_entry(spec, t, t.gpu.main.address, placement, release) for t in assigned]
    return tuple(entries)


def _of_networks(spec: Spec, host: Host, functions: NetworkFunctions) -> Iterator[DeviceEntry]:
    """The device_spec of virtual functions for ports, which PCI in Placement does not report."""
    for physical_network, (vendor, product, address) in selections(spec, host, functions):
        yield DeviceEntry(vendor_id=vendor, product_id=product, address=address, physical_network=physical_network)


def _managed(model: Model, target: Assigned, release: Release) -> bool | None:
    """The tag ``managed`` of a card: the spec's value, else ``no`` if a VFIO variant driver is assigned."""
    if model.managed is not None or target.variant is None:
        return model.managed
    return False if releases.keys("device_spec")["managed"].known_to(release) else None


def _entry(spec: Spec, target: Assigned, address: str | None, placement: Placement, release: Release) -> DeviceEntry:
    name, placed = target.model, placement != "off"
    model = spec.models[name]
    return DeviceEntry(
        vendor_id=model.ids[0],
        product_id=model.ids[1],
        address=address,
        resource_class=spec.resource_class_of(name) if placed else None,
        traits=spec.traits_of(name) if placed else (),
        managed=_managed(model, target, release),
        live_migratable=vgpus.migrates(spec, target, release),
        one_time_use=None if target.is_virtual else model.one_time_use,  # Nova refuses even false on virtual functions
    )
