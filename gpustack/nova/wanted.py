"""What Nova's services need to know, from the spec and the facts of the hosts: aliases, device_specs, switches.

Facts decide, not memory. How Nova will list a card (``device_type``) is what the hosts' cards are; a device_spec is
written by vendor and product where every function with these ids on the host goes to guests, and by address where
the host keeps one. Companions (a GPU's audio or USB functions) are bound with it and never named: Nova gives out the
main function alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpustack.facts.gpus import Gpu, gpus
from gpustack.facts.model import Host
from gpustack.findings import Finding, finding
from gpustack.nova import releases
from gpustack.nova.devspec import DeviceSpec, matched
from gpustack.nova.releases import Release
from gpustack.spec.hosts import models_for
from gpustack.spec.match import model_of
from gpustack.spec.model import Model, Spec

Placement = Literal["off", "report", "schedule"]
_PLACEMENT_SINCE = {"report": "pci/report_in_placement", "schedule": "filter_scheduler/pci_in_placement"}
_MANY = 8
"""More devices of one resource class than this, and Placement's allocation candidates need tuning (Nova's
``doc/source/admin/pci-passthrough.rst``)."""


@dataclass(frozen=True, kw_only=True)
class Alias:
    """One line of ``[pci] alias``."""

    name: str
    vendor_id: str | None = None
    product_id: str | None = None
    device_type: str
    numa_policy: str | None = None
    resource_class: str | None = None
    traits: tuple[str, ...] = ()
    live_migratable: bool | None = None

    def to_dict(self) -> dict[str, str]:
        """As Nova reads it, in the order of its documentation."""
        return _given(
            name=self.name,
            vendor_id=self.vendor_id,
            product_id=self.product_id,
            device_type=self.device_type,
            numa_policy=self.numa_policy,
            resource_class=self.resource_class,
            traits=",".join(self.traits) or None,
            live_migratable=_word(self.live_migratable),
        )

    def __str__(self) -> str:
        return json.dumps(self.to_dict())


@dataclass(frozen=True, kw_only=True)
class DeviceEntry:
    """One line of ``[pci] device_spec``."""

    vendor_id: str
    product_id: str
    address: str | None = None
    resource_class: str | None = None
    traits: tuple[str, ...] = ()
    managed: bool | None = None
    live_migratable: bool | None = None

    def to_dict(self) -> dict[str, str]:
        """As Nova reads it."""
        return _given(
            vendor_id=self.vendor_id,
            product_id=self.product_id,
            address=self.address,
            resource_class=self.resource_class,
            traits=",".join(self.traits) or None,
            managed=_word(self.managed),
            live_migratable=_word(self.live_migratable),
        )

    def __str__(self) -> str:
        return json.dumps(self.to_dict())


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a whole deployment needs.

    :ivar aliases: for the API and every compute host.
    :ivar computes: the entries of ``device_spec`` of each compute host with facts, by its name.
    :ivar without_ids: whether an alias carries no ids, so that even nova-compute must know that
        ``pci_in_placement`` is on (Nova 2025.2 refuses such an alias otherwise).
    """

    release: Release
    placement: Placement
    aliases: tuple[Alias, ...]
    computes: Mapping[str, tuple[DeviceEntry, ...]]
    findings: tuple[Finding, ...]

    @property
    def without_ids(self) -> bool:
        return any(alias.vendor_id is None for alias in self.aliases)


@dataclass(frozen=True, kw_only=True)
class _Target:
    host: Host
    gpu: Gpu
    model: str


def alias_of(spec: Spec, model: str) -> str:
    """The alias by which flavors ask for a model."""
    return spec.models[model].alias or model


def wanted(spec: Spec, hosts: Sequence[Host], *, release: Release, placement: Placement | None = None) -> Wanted:
    """What Nova needs for ``spec`` on ``hosts``, and every finding that stands against it.

    :param hosts: the facts of all hosts of the spec: the API needs the aliases of all of them.
    :param placement: instead of the spec's own.
    """
    asked: Placement = placement or (spec.nova.placement if spec.nova else "off")
    ordered = sorted(hosts, key=lambda h: h.hostname)
    of_host = {host.hostname: tuple(_targets(spec, host)) for host in ordered}
    targets = [target for found in of_host.values() for target in found]
    computes = {name: _entries(spec, found, asked) for name, found in of_host.items()}
    findings = [
        *_release_findings(spec, release, asked),
        *_fact_findings(spec, hosts, targets),
        *_alias_findings(spec, targets, asked),
        *_placement_findings(targets, asked, spec),
    ]
    for host in ordered:
        findings += _proof(host, computes[host.hostname], of_host[host.hostname])
    return Wanted(
        release=release,
        placement=asked,
        aliases=_aliases(spec, targets, asked),
        computes=computes,
        findings=tuple(findings),
    )


def _targets(spec: Spec, host: Host) -> Iterator[_Target]:
    given = models_for(spec, host.hostname)
    for gpu in gpus(host) if given else ():
        name = model_of(spec.models, gpu.main)
        if name in given:
            yield _Target(host=host, gpu=gpu, model=name)


def _aliases(spec: Spec, targets: Sequence[_Target], placement: Placement) -> tuple[Alias, ...]:
    """The aliases in the order of the spec's models.

    PCI in Placement allows one line for each name: models that share one are then asked for by their resource class.
    """
    kinds = {t.model: t.gpu.dev_type for t in targets}
    made: dict[str, list[Alias]] = {}
    for name, model in spec.models.items():
        if name not in kinds:
            continue
        alias = alias_of(spec, name)
        scheduled = placement == "schedule"
        made.setdefault(alias, []).append(
            Alias(
                name=alias,
                vendor_id=model.match.vendor,
                product_id=model.match.product,
                device_type=kinds[name],
                numa_policy=model.numa_policy,
                resource_class=model.resource_class if scheduled else None,
                traits=model.traits if scheduled else (),
                live_migratable=model.live_migratable,
            )
        )
    lines: list[Alias] = []
    for several in made.values():
        different = list(dict.fromkeys(several))
        if placement == "schedule" and len(different) > 1:
            different = [_by_class(different[0])]
        lines += different
    return tuple(lines)


def _by_class(alias: Alias) -> Alias:
    return Alias(
        name=alias.name,
        device_type=alias.device_type,
        numa_policy=alias.numa_policy,
        resource_class=alias.resource_class,
        traits=alias.traits,
        live_migratable=alias.live_migratable,
    )


def _entries(spec: Spec, targets: Sequence[_Target], placement: Placement) -> tuple[DeviceEntry, ...]:
    """The device_spec of one host: by ids where all functions with them are given out alike, else by address."""
    entries: list[DeviceEntry] = []
    for name, model in spec.models.items():
        mine = [t for t in targets if t.model == name]
        if not mine:
            continue
        ids = (model.match.vendor, model.match.product)
        with_ids = {f.address for f in mine[0].host.pci if (f.vendor, f.product) == ids}
        if with_ids == {t.gpu.main.address for t in mine}:
            entries.append(_entry(model, None, placement))
        else:
            entries += [_entry(model, t.gpu.main.address, placement) for t in mine]
    return tuple(entries)


def _entry(model: Model, address: str | None, placement: Placement) -> DeviceEntry:
    placed = placement != "off"
    return DeviceEntry(
        vendor_id=model.match.vendor,
        product_id=model.match.product,
        address=address,
        resource_class=model.resource_class if placed else None,
        traits=model.traits if placed else (),
        managed=model.managed,
        live_migratable=model.live_migratable,
    )


def _proof(host: Host, entries: Sequence[DeviceEntry], targets: Sequence[_Target]) -> Iterator[Finding]:
    """That the device_spec matches the main functions of the targets, and nothing else on this host."""
    wanted_addresses = {t.gpu.main.address for t in targets}
    specs = [DeviceSpec.parse(entry.to_dict()) for entry in entries]
    for target in targets:
        if not target.gpu.main.bdf.fits_nova:
            yield finding("GPU309", place=f"{host.hostname} {target.gpu.main.address}")
    reached = matched(specs, host)
    for address, index in reached.items():
        if address not in wanted_addresses:
            yield finding(
                "GPU306", place=f"{host.hostname} {address}", entry=entries[index], what=what_is(host, address)
            )
    for address in sorted(wanted_addresses - reached.keys()):
        yield finding("GPU319", place=f"{host.hostname} {address}")


def what_is(host: Host, address: str) -> str:
    """What a function is, for a message: a GPU's companion, a network controller in use as eth0, …"""
    from gpustack.pci import catalogue

    function = host.functions[address]
    text = catalogue.describe(
        function.vendor,
        function.product,
        function.pci_class,
        function.subsystem_vendor,
        function.subsystem_product,
    )
    if function.physical_function is not None:
        return f"{text}, a virtual function of {function.physical_function}"
    names = [net.name for net in function.uses.net] or list(function.uses.block)
    if names:
        return f"{text}, in use as {', '.join(names)}"
    for gpu in gpus(host):
        if any(companion.address == address for companion in gpu.companions):
            return f"{text}, a companion of {gpu.main.address}"
    return text


def _release_findings(spec: Spec, release: Release, placement: Placement) -> Iterator[Finding]:
    """What the spec asks for and the release has not got."""

    def missing(place: str, what: str, since: int) -> Finding:
        first = next(known for known in releases.releases() if known.major == since)
        return finding("GPU305", place=place, what=what, release=release, since=first)

    if placement != "off":
        option = releases.option(_PLACEMENT_SINCE[placement])
        if not option.known_to(release):
            yield missing("nova.placement", f"placement: {placement} ([{option.group}] {option.name})", option.since)
    of_alias, of_spec = releases.keys("alias"), releases.keys("device_spec")
    for name, model in spec.models.items():
        place = f"models.{name}"
        policy = of_alias["numa_policy"]
        if model.numa_policy is not None and model.numa_policy not in (
            policy.values_in(release) if policy.known_to(release) else ()
        ):
            since = max(policy.since, dict(policy.values_since).get(model.numa_policy, 0))
            yield missing(f"{place}.numa_policy", f"numa_policy: {model.numa_policy}", since)
        for field, key in (("live_migratable", of_spec["live_migratable"]), ("managed", of_spec["managed"])):
            if getattr(model, field) is not None and not key.known_to(release):
                yield missing(f"{place}.{field}", field, key.since)
        if placement == "off" and (model.resource_class or model.traits):
            yield finding("GPU315", place=place)


def _fact_findings(spec: Spec, hosts: Sequence[Host], targets: Sequence[_Target]) -> Iterator[Finding]:
    """Models without a card to judge by, hosts without facts, GPUs that are not bound yet."""
    asked = {name for entry in spec.hosts.values() for name in entry.models}
    for name in spec.models:
        if name in asked and all(t.model != name for t in targets):
            yield finding("GPU300", place=f"models.{name}", model=name)
    unseen = sorted(spec.plain_hosts - {host.hostname for host in hosts})
    if unseen:
        shown = ", ".join(unseen[:5]) + (f" and {len(unseen) - 5} more" if len(unseen) > 5 else "")
        yield finding("GPU308", place="spec", hosts=shown)
    unbound: dict[tuple[str, str], list[str]] = {}
    for target in targets:
        driver = target.gpu.main.driver
        if driver != spec.models[target.model].driver and not _is_variant(driver):
            unbound.setdefault((target.host.hostname, driver or "no driver"), []).append(target.gpu.main.address)
    for (host, holder), addresses in unbound.items():
        yield finding("GPU307", place=host, addresses=", ".join(addresses), driver=holder)


def _is_variant(driver: str | None) -> bool:
    """Whether a driver is one of the kernel's variants of vfio-pci (``mlx5_vfio_pci``, ``nvgrace_gpu_vfio_pci``)."""
    return driver is not None and driver.endswith("vfio_pci")


def _alias_findings(spec: Spec, targets: Sequence[_Target], placement: Placement) -> Iterator[Finding]:
    """What one alias can't say: two device types, two policies; and what two aliases can't tell apart."""
    by_alias: dict[str, list[str]] = {}
    for name in spec.models:
        if any(t.model == name for t in targets):
            by_alias.setdefault(alias_of(spec, name), []).append(name)
    for alias, names in by_alias.items():
        place = f"alias {alias}"
        kinds: dict[str, list[str]] = {}
        for target in targets:
            if target.model in names:
                kinds.setdefault(target.gpu.dev_type, []).append(target.host.hostname)
        if len(kinds) > 1:
            said = "; ".join(f"{kind} on {', '.join(dict.fromkeys(where))}" for kind, where in sorted(kinds.items()))
            yield finding("GPU301", place=place, kinds=said)
        if len(names) > 1:
            yield from _shared(spec, place, names, placement)
    yield from _alike(spec, by_alias, placement)


def _shared(spec: Spec, place: str, names: Sequence[str], placement: Placement) -> Iterator[Finding]:
    models = [spec.models[name] for name in names]
    fields = ["numa_policy"] + (["live_migratable"] if any(m.live_migratable is not None for m in models) else [])
    if placement == "schedule":
        fields += ["traits"]
        classes = {model.resource_class for model in models}
        ids = {(model.match.vendor, model.match.product) for model in models}
        if (None in classes and len(ids) > 1) or len(classes) > 1:
            yield finding("GPU303", place=place, models=", ".join(names))
    for field in fields:
        if len({getattr(model, field) for model in models}) > 1:
            yield finding("GPU304", place=place, models=", ".join(names), field=field)


def _alike(spec: Spec, by_alias: Mapping[str, Sequence[str]], placement: Placement) -> Iterator[Finding]:
    """Aliases that ask for the same ids: each would be given the other's cards."""
    asked: dict[tuple[Any, ...], tuple[str, str]] = {}
    for alias, names in by_alias.items():
        for name in names:
            model = spec.models[name]
            key: tuple[Any, ...] = (model.match.vendor, model.match.product)
            if placement == "schedule":
                key = (*key, model.resource_class, frozenset(model.traits))
            other_alias, other = asked.setdefault(key, (alias, name))
            if other_alias != alias:
                yield finding(
                    "GPU302",
                    place=f"alias {alias}",
                    ids=f"{model.match.vendor}:{model.match.product}",
                    models=f"{other} and {name}",
                    other=other_alias,
                )


def _placement_findings(targets: Sequence[_Target], placement: Placement, spec: Spec) -> Iterator[Finding]:
    """What PCI in Placement asks of whoever rolls it out."""
    if placement == "off":
        return
    yield finding("GPU310", place="[pci] report_in_placement")
    if placement == "schedule":
        yield finding("GPU311", place="[filter_scheduler] pci_in_placement")
    counts: dict[tuple[str, str], int] = {}
    for target in targets:
        model = spec.models[target.model]
        name = model.resource_class or f"CUSTOM_PCI_{model.match.vendor}_{model.match.product}".upper()
        counts[target.host.hostname, name] = counts.get((target.host.hostname, name), 0) + 1
    for (host, name), count in counts.items():
        if count > _MANY and placement == "schedule":
            yield finding("GPU316", place=host, count=count, resource_class=name)


def _given(**values: str | None) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}


def _word(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"
