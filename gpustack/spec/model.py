"""The schema of ``gpustack.yaml``, version 1, and the entries that apply to a host.

The JSON schema for editors and the reference in the docs are generated from these classes: a field's docstring is its
documentation, and a ``patternErrorMessage`` is the expectation that editors and ``gpustack spec check`` show.

A host is looked up by the exact, case-sensitive name under which it is reached: the name in the inventory, on the
command line, or in the snapshot. ``gpu01`` and ``gpu01.example.org`` are two names; only a pattern such as ``gpu01*``
matches both. Otherwise a short name could match a machine of another domain, and the wrong host would be prepared.
``nearby`` finds patterns for a hint.

A host that matches several patterns gets the models of all of them. Options are merged from general to specific: the
spec's own, then those of patterns in the order of the file, then those of the host's plain name.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool

from gpustack.base import hostnames
from gpustack.base.by_key import by_key
from gpustack.base.errors import SpecError, UsageError
from gpustack.base.findings import Code, Finding, finding
from gpustack.spec import attributes
from gpustack.spec.deployment import Deployment
from gpustack.spec.fields import BootChange, Hex4, Name, NumaPolicy, Pattern, SpecSection, matching
from gpustack.spec.flavors import THRESHOLDS, Attributes, Flavor, FlavorName
from gpustack.spec.models import Bdf, Model, Number
from gpustack.spec.patterns import GROUP, HostPattern, Patterns
from gpustack.spec.quotas import Quotas
from gpustack.spec.reclaim import Reclaim
from gpustack.spec.tenancy import Tenancy

RELEASE_PATTERN = r"^[A-Za-z0-9.]{1,32}$"
INTERFACE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}$"
HOST_NAME_PATTERN = r"^[A-Za-z0-9_]([A-Za-z0-9._-]{0,253})$"
SERIAL_PATTERN = r"^[0-9A-Fa-f]{2}(-[0-9A-Fa-f]{2}){7}$"
REASON_PATTERN = r"^[^\x00-\x1f\x7f]{1,200}$"
SINCE_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
PATH_PATTERN = r"^(/[A-Za-z0-9._-]+)+$"


def _long_form(entry: object) -> object:
    """The long form ``{models: [k4200]}`` of ``[k4200]``."""
    return {"models": entry} if isinstance(entry, list | tuple) else entry


Placement = Literal["off", "report", "schedule"]
"""The stage of the roll-out of PCI in Placement."""

Interface = Annotated[str, matching(INTERFACE_PATTERN, "the name of a network interface", "ens1f0")]
HostName = Annotated[str, matching(HOST_NAME_PATTERN, "the name of one host, without a pattern", "gpu-01.example.org")]
Serial = Annotated[
    str,
    matching(SERIAL_PATTERN, "a PCI serial number, as lspci prints it", "24-6e-96-ff-ff-0a-11-20"),
    AfterValidator(str.lower),
]
Reason = Annotated[str, matching(REASON_PATTERN, "text of 1 to 200 characters in one line", "fatal AER errors")]
Since = Annotated[str, matching(SINCE_PATTERN, "a date in quotes, as YYYY-MM-DD", "2026-11-22")]
ReleaseName = Annotated[str, matching(RELEASE_PATTERN, "a release's number in quotes, or its codename", "2025.2")]


class NetworkMatch(SpecSection):
    """Virtual functions of network cards: by `vendor` and `product`, or those of the cards with `addresses` or `interfaces`. All given keys must match."""  # noqa: E501

    vendor: Annotated[Hex4 | None, Field(examples=["15b3"])] = None
    """PCI vendor id of the virtual functions, four hexadecimal digits in quotes."""
    product: Annotated[Hex4 | None, Field(examples=["101e"])] = None
    """PCI product id of the virtual functions; it usually differs from that of the card."""
    addresses: tuple[Bdf, ...] = ()
    """Only the virtual functions of the cards at these PCI addresses (`"0000:1a:00.0"`)."""
    interfaces: tuple[Interface, ...] = ()
    """Only the virtual functions of the cards with these network interfaces on the host (`ens1f0`). Nova gets PCI addresses, because names can change."""  # noqa: E501


class Network(SpecSection):
    """Virtual functions of network cards that Neutron's ports get. gpustack never offers a card."""

    match: NetworkMatch
    """The virtual functions."""
    physical_network: Name
    """The physical network of Neutron that the cards are connected to."""
    hosts: tuple[Pattern, ...] = ()
    """The hosts, by name or pattern. Without this key, all hosts of the spec."""
    vfs: Number | None = None
    """The number of virtual functions of each card, which `match` must name by `addresses` or `interfaces`. They are created at each boot, before the network starts. Without this key, gpustack creates none."""  # noqa: E501
    numa_policy: NumaPolicy | None = None
    """The policy that you set on ports of this network (`numa_affinity_policy`). With `required`, gpustack reports flavors whose GPUs are on no host beside such a virtual function."""  # noqa: E501


class NvSwitch(enum.StrEnum):
    """The use of a host's NVSwitches."""

    FULL = "full"
    """One instance gets all GPUs and all NVSwitches of the host: the switches are bound too."""
    SHARED = "shared"
    """A service instance manages the fabric for the others: the switches are bound too."""
    ISOLATED = "isolated"
    """Every GPU works alone, without NVLink: the switches stay bound to the host's drivers."""


class Options(SpecSection):
    """Options of host preparation."""

    iommu_pt: StrictBool = True
    """Add `iommu=pt`: the host's own devices bypass DMA translation, for speed. Instances stay isolated."""
    allow_unsafe_interrupts: StrictBool = False
    """Add `vfio_iommu_type1.allow_unsafe_interrupts=1`, for machines without interrupt remapping. A guest can then inject interrupts into the host, so use it only for trusted guests."""  # noqa: E501
    nvswitch: NvSwitch | None = None
    """The use of NVSwitches; required for hosts that have them. `full`: one instance gets all GPUs and all switches of the host. `shared`: a service instance manages the fabric for the others. `isolated`: every GPU works alone, without NVLink, and the host keeps the switches."""  # noqa: E501
    blacklist_host_drivers: StrictBool = True
    """Blacklist the cards' host drivers if no other device of the host uses them."""
    boot_changes: tuple[BootChange, ...] = ()
    """Changes of kernel arguments of others that the next boot may make, each with its sign: `["-quiet", "+mitigations=off"]`. All other changes block the plan."""  # noqa: E501

    accept_tpm: StrictBool = False
    """Accept that the TPM does not unlock volumes at the next boot, because the plan changes what it measures. Add a recovery key first; enroll the TPM again afterwards."""  # noqa: E501

    def overlaid(self, other: Options) -> Options:
        """These options, with those that ``other`` sets explicitly replaced."""
        return self.model_copy(update={name: getattr(other, name) for name in other.model_fields_set})


_Names = Annotated[
    tuple[Name, ...],
    Field(min_length=1, json_schema_extra={"errorMessage": "expected a list of names of models, like [k4200]"}),
]


class HostEntry(SpecSection):
    """Hosts of one pattern: the models that they pass through, and their own options."""

    models: _Names
    """The models whose cards these hosts pass through."""
    options: Options = Options()
    """Options of these hosts. An option here replaces the one of the spec."""


_Entry = Annotated[HostEntry, BeforeValidator(_long_form, json_schema_input_type=_Names | HostEntry)]


class OutOfService(SpecSection):
    """A GPU that Nova does not offer, although its host passes its model through."""

    host: HostName
    """The host: its name in the inventory, without a pattern."""
    address: Bdf | None = None
    """The PCI address of the GPU. Give either `address` or `serial`."""
    serial: Serial | None = None
    """The PCI serial number of the GPU (`gpustack gpu show` prints it), which stays the same in another slot. Many cards have none, and only root can read it."""  # noqa: E501
    reason: Reason
    """Why the GPU is out of service."""
    since: Since | None = None
    """The date since which it is out of service, in quotes."""

    @property
    def card(self) -> str:
        """The address, else the serial number."""
        return self.address or f"serial number {self.serial}"

    @property
    def why(self) -> str:
        """The reason, with the date if there is one."""
        return f"{self.reason} (since {self.since})" if self.since else self.reason


class Nova(SpecSection):
    """The Nova deployment of the hosts."""

    release: ReleaseName
    """The running release: its number in quotes (`"2025.2"`) or its codename (`yoga`)."""
    deployment: Deployment = "drop-in"
    """The tool that deploys Nova's configuration. `drop-in`: files in `/etc/nova/nova.conf.d`. `kolla`: overrides for kolla-ansible. `kayobe`: the same in kayobe's configuration. `openstack-ansible`: variables of its role os_nova. `rhoso`: custom resources of Red Hat OpenStack Services on OpenShift. `openstack-helm`: values of its chart nova."""  # noqa: E501
    # YAML 1.1 reads off as a boolean.
    placement: Annotated[Placement, BeforeValidator(lambda given: "off" if given is False else given)] = "off"
    """PCI in Placement, in the order of its roll-out. `report` (Zed and later): every nova-compute reports its devices; it can't be switched off again. `schedule` (2023.1 and later): Nova schedules by the reported devices; set it only after every nova-compute reports."""  # noqa: E501
    class_by: Literal["model", "pool"] = "model"
    """With PCI in Placement: `model`, a resource class for each model; `pool`, the resource class `CUSTOM_GPU` for all GPUs, with traits for model, generation and memory. `pool` permits flavors by attribute. Nova can't change the resource class of a GPU in use."""  # noqa: E501
    vendordata: Annotated[str | None, matching(PATH_PATTERN, "an absolute path", "/etc/nova/vendordata.json")] = None
    """The path of the vendor data that `gpustack guest vendordata` renders, on the hosts of nova-compute and of the metadata service. Copy the file there before you render Nova's configuration."""  # noqa: E501


class Spec(SpecSection):
    """The desired state of hosts and their GPUs: `gpustack.yaml`, version 1."""

    version: Literal[1]
    """The version of this format; always 1."""
    models: Annotated[Mapping[Name, Model], Field(min_length=1)]
    """The kinds of GPU, by a name of your choice. If two models match a card, the more specific one applies."""
    hosts: Annotated[Mapping[Pattern, _Entry], Field(min_length=1)]
    """Hosts, by name or pattern (ranges as in Ansible inventories, `*` and `?`), and the models that they pass through: a list of names, or `models` with `options`. A host that matches several patterns passes through the models of all of them."""  # noqa: E501
    options: Options = Options()
    """Options of all hosts."""
    nova: Nova | None = None
    """The Nova deployment of the hosts; needed for its configuration and for flavors."""
    flavors: Mapping[FlavorName, Flavor] = {}
    """GPU flavors, by name; `{count}` in a name is replaced by the number of GPUs."""
    quotas: Quotas | None = None
    """How many GPUs of each model a project may have."""
    reclaim: Reclaim | None = None
    """When GPUs of idle instances are freed (`gpustack reclaim`)."""
    tenancy: Tenancy | None = None
    """Which instances the GPU hosts accept (`gpustack tenancy`)."""
    networks: Mapping[Name, Network] = {}
    """Virtual functions of network cards for Neutron's ports, by a name of your choice."""

    out_of_service: tuple[OutOfService, ...] = ()
    """GPUs that Nova does not offer: their host's `device_spec` lists the addresses of its other GPUs."""

    def changed(self, **parts: Any) -> Spec:  # noqa: ANN401 - the values of fields
        """A copy with other parts, and without the properties that were derived from the former ones."""
        copy = self.model_copy(update=parts)
        for name, attribute in vars(Spec).items():
            if isinstance(attribute, cached_property):
                copy.__dict__.pop(name, None)
        return copy

    def alias_of(self, model: str) -> str:
        """The alias by which flavors request a model; the alias of a selection is its own name."""
        entry = self.models.get(model)
        return (entry.alias if entry else None) or model

    @cached_property
    def selections(self) -> Mapping[str, Attributes]:
        """The attributes by which flavors request GPUs, by alias."""
        requested = (flavor.gpu for flavor in self.flavors.values() if flavor.gpu is not None)
        return {attributes.alias_name(selection): selection for selection in requested}

    @cached_property
    def selected(self) -> Mapping[str, tuple[str, ...]]:
        """The models with the attributes of each selection, by alias."""
        return {
            alias: tuple(
                name for name, model in self.models.items() if model.is_selectable and attributes.fits(selection, model)
            )
            for alias, selection in self.selections.items()
        }

    @cached_property
    def selecting(self) -> Mapping[str, list[str]]:
        """The aliases of selections, by the models that they select."""
        return by_key((model, alias) for alias, models in self.selected.items() for model in models)

    def aliases_of(self, model: str) -> tuple[str, ...]:
        """All aliases by which flavors request a model: its own, and those of selections."""
        return (self.alias_of(model), *self.selecting.get(model, ()))

    def requested_as(self, model: str) -> tuple[str, ...]:
        """The aliases by which flavors request a model, and the resource class of its vGPUs."""
        vgpu = self.models[model].vgpu
        return (*self.aliases_of(model), *((vgpu.resource_class,) if vgpu else ()))

    @cached_property
    def by_alias(self) -> Mapping[str, list[str]]:
        """The models that flavors request by an alias, in the order of the file."""
        return by_key((alias, name) for name in self.models for alias in dict.fromkeys(self.aliases_of(name)))

    def models_of(self, alias: str) -> tuple[str, ...]:
        """The models that flavors request by an alias."""
        return tuple(self.by_alias.get(alias, ()))

    @cached_property
    def vgpu_classes(self) -> Mapping[str, str]:
        """The resource classes of the models of vGPUs."""
        return {name: model.vgpu.resource_class for name, model in self.models.items() if model.vgpu}

    @property
    def pooled(self) -> bool:
        """Whether all GPUs have one resource class."""
        return self.nova is not None and self.nova.class_by == "pool"

    def resource_class_of(self, model: str) -> str | None:
        """The resource class of a model's cards; None for Nova's default."""
        entry = self.models[model]
        return entry.resource_class or (attributes.POOL_CLASS if self.pooled and entry.is_selectable else None)

    def traits_of(self, model: str) -> tuple[str, ...]:
        """The traits of a model's cards: those of the spec, and those of their attributes if a flavor may need them."""
        entry = self.models[model]
        by_attribute = (self.pooled or self.selections) and entry.is_selectable
        derived = attributes.traits_of(entry, self.alias_of(model), THRESHOLDS) if by_attribute else ()
        return tuple(dict.fromkeys((*entry.traits, *derived)))

    def required_traits_of(self, model: str) -> tuple[str, ...]:
        """The traits that the alias of a model requires."""
        entry = self.models[model]
        is_in_pool = self.pooled and entry.is_selectable
        own = (attributes.alias_trait(self.alias_of(model)),) if is_in_pool else ()
        return (*entry.traits, *own)

    @cached_property
    def plain_hosts(self) -> frozenset[str]:
        """The entries of ``hosts`` that are plain names, for lookup in constant time."""
        return frozenset(text for text in self.hosts if HostPattern.parse(text).is_name)

    @cached_property
    def host_patterns(self) -> Patterns:
        """The entries of ``hosts`` that are patterns, in the order of the file."""
        return Patterns(HostPattern.parse(text) for text in self.hosts if text not in self.plain_hosts)

    @cached_property
    def network_hosts(self) -> Mapping[str, Patterns]:
        """The hosts of each network."""
        return {name: Patterns(map(HostPattern.parse, network.hosts)) for name, network in self.networks.items()}

    @cached_property
    def of_twins(self) -> dict[object, Any]:
        """The specs for twins of hosts (:mod:`gpustack.spec.twins`), by the entries that apply."""
        return {}

    def out_of_service_on(self, host: str) -> tuple[OutOfService, ...]:
        """The entries of ``out_of_service`` for a host, in the order of the file; ignores case."""
        return tuple(self._out_of_service.get(hostnames.key(host), ()))

    @cached_property
    def _out_of_service(self) -> Mapping[str, list[OutOfService]]:
        return by_key((hostnames.key(entry.host), entry) for entry in self.out_of_service)


_OTHER_WAYS = "name hosts on the command line, --local, or an inventory with -i"


def patterns_for(spec: Spec, hostname: str) -> tuple[str, ...]:
    """The matching keys of the spec's ``hosts``: patterns in the order of the file, the plain name last.

    :raises SpecError: if the spec names a group whose hosts are not known.
    """
    if spec.host_patterns.has_groups:
        raise SpecError(
            "the spec names groups of an inventory, and their hosts are not known here",
            where=hostname,
            remedy="name the inventory with -i, or facts of `gpustack scan -i INVENTORY --save FILE` with --snapshot",
        )
    keys = [pattern.text for pattern in spec.host_patterns.matching(hostname)]
    if hostname in spec.plain_hosts:
        keys.append(hostname)
    return tuple(keys)


def left_out(spec: Spec, path: str, hostname: str, *, named: bool) -> str:
    """The text about a host that neither the spec nor the operator names; empty for another one.

    :param path: that of the spec.
    """
    return "" if named or patterns_for(spec, hostname) else f"{hostname}: not in {path}, left out"


def not_in_spec(spec: Spec, hostname: str) -> Finding:
    """The finding about a host that the operator names and the spec lacks."""
    patterns = nearby(spec, hostname)
    hint = f" ({', '.join(patterns)} would match with another domain or case)" if patterns else ""
    return finding(Code.HOST_NOT_IN_SPEC, place=hostname, hint=hint)


def with_groups(spec: Spec, groups: Mapping[str, Sequence[str] | None]) -> Spec:
    """The spec with hosts instead of the groups of Ansible's inventory that it names.

    Options of a group are more specific than those of patterns, and those of a plain name more specific than both.

    :param groups: the groups of each host; None if it was read without an inventory.
    :raises SpecError: if a host was read without an inventory.
    """
    texts = [*spec.hosts, *(name for network in spec.networks.values() for name in network.hosts)]
    texts += [name for entry in (spec.tenancy.aggregates.values() if spec.tenancy else ()) for name in entry.hosts]
    if not groups or not any(text.startswith(GROUP) for text in texts):
        return spec
    members: dict[str, list[str]] = {}
    for host, own_groups in groups.items():
        if own_groups is None:
            raise SpecError(
                "the spec names groups, and the facts of this host do not record its groups",
                where=host,
                remedy="read hosts with their inventory: -i INVENTORY, also for `gpustack scan --save`",
            )
        for group in own_groups:
            members.setdefault(f"{GROUP}{group}", []).append(host)

    def named(entry: Any) -> Any:  # noqa: ANN401 - a network or an aggregate; without hosts, it has all of them
        names = (name for text in entry.hosts for name in members.get(text, [text]))
        return entry.model_copy(update={"hosts": tuple(names)})

    entries: dict[str, Any] = {}
    for text in sorted(spec.hosts, key=lambda text: not text.startswith(GROUP)):
        for name in members.get(text, () if text.startswith(GROUP) else [text]):
            own, other = spec.hosts[text], entries.get(name)
            if other is not None:
                models = tuple(dict.fromkeys((*other.models, *own.models)))
                own = own.model_copy(update={"models": models, "options": other.options.overlaid(own.options)})
            entries[name] = own
    if (tenancy := spec.tenancy) is not None:
        aggregates = {name: named(entry) for name, entry in tenancy.aggregates.items()}
        tenancy = tenancy.model_copy(update={"aggregates": aggregates})
    networks = {name: named(network) for name, network in spec.networks.items()}
    return spec.changed(hosts=entries, networks=networks, tenancy=tenancy)


def models_for(spec: Spec, hostname: str) -> dict[str, Model]:
    """The models that a host passes through, by name in the order of the spec; empty when no pattern matches.

    :raises KeyError: when the spec was not checked and names an undefined model.
    """
    wanted = {name for text in patterns_for(spec, hostname) for name in spec.hosts[text].models}
    if missing := wanted - spec.models.keys():
        raise KeyError(", ".join(sorted(missing)))
    return {name: model for name, model in spec.models.items() if name in wanted}


def options_for(spec: Spec, hostname: str) -> Options:
    """The options of a host; the spec's own when no pattern matches."""
    options = spec.options
    for text in patterns_for(spec, hostname):
        options = options.overlaid(spec.hosts[text].options)
    return options


def hosts_of(spec: Spec, where: str | None) -> tuple[str, ...]:
    """All hosts that the spec names directly or by ranges, in the spec's order.

    :param where: the spec's file, for errors; None to skip groups and patterns that can't be listed.
    :raises UsageError: when a pattern is a group, or contains ``*`` or ``?``, or there is no host.
    """
    hosts: dict[str, None] = {}
    for pattern in spec.hosts:
        try:
            hosts.update(dict.fromkeys(HostPattern.parse(pattern).names()))
        except ValueError as error:
            if where is None:
                continue
            what = f"the hosts of {where} can't be listed: {pattern!r}: {error}"
            raise UsageError(what, remedy=_OTHER_WAYS) from error
    if not hosts and where is not None:
        raise UsageError(f"{where} names no host", remedy=_OTHER_WAYS)
    return tuple(hosts)


def nearby(spec: Spec, hostname: str) -> tuple[str, ...]:
    """Patterns that do not match a host only because of its domain or case, for a hint.

    They match the host's short name, or their own part before the first dot matches it.
    """
    shorts = _cases(hostnames.head(hostname))
    patterns = []
    for text in spec.hosts:
        head = hostnames.head(text)
        pattern = HostPattern.parse(text)
        if not pattern.matches(hostname) and (
            any(map(pattern.matches, (*_cases(hostname), *shorts)))
            or (head and any(map(HostPattern.parse(head).matches, shorts)))
        ):
            patterns.append(text)
    return tuple(patterns)


def _cases(name: str) -> tuple[str, ...]:
    return (name, name.lower(), name.upper())
