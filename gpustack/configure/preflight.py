"""Checks before rendering: of a spec (settings, facts, aliases, GPUs by attribute), and of the device_spec for it."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.host_groups import fold
from gpustack.base.text import counted, listed
from gpustack.configure.packing import CANDIDATES, Requested
from gpustack.hosts.facts.gpus import gpus, nvswitches
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.nova_options.device_spec import DeviceSpec, matched
from gpustack.nova_options.options import Release
from gpustack.nova_options.pci_values import reported_class
from gpustack.nova_options.scheduler import SWITCHES
from gpustack.pci import catalogue
from gpustack.spec.assignment import Assigned
from gpustack.spec.attributes import alias_trait, memory_of
from gpustack.spec.model import NvSwitch, Placement, Spec, hosts_of, options_for
from gpustack.spec.verdict import HostVerdicts, obstacles

_ByModel = Mapping[str, Sequence[Assigned]]
_MANY = 8
"""Above this number of devices of one resource class, Placement's allocation candidates need tuning (Nova's
``doc/source/admin/pci-passthrough.rst``).
"""


def doubts(
    spec: Spec,
    judged: Collection[HostVerdicts],
    release: Release,
    placement: Placement,
    counts: Requested,
    mediated: Collection[str] = (),
) -> Iterator[Finding]:
    """All findings about a spec on these hosts, without :func:`of_host`.

    :param mediated: the models of which the hosts offer mediated devices.
    """
    hosts = [service.host for service in judged]
    targets = by_key((target.model, target) for service in judged for target in service.assigned)
    yield from _release_findings(spec, targets, release, placement)
    yield from _fact_findings(spec, hosts, {*mediated, *targets})
    yield from _alias_findings(spec, targets, placement)
    yield from _selection_findings(spec, targets, mediated, placement)
    if placement != "off":
        yield finding(Code.PLACEMENT_REPORT_IRREVERSIBLE, place="[pci] report_in_placement")
    if placement == "schedule":
        yield finding(Code.PCI_IN_PLACEMENT_LAST, place="[filter_scheduler] pci_in_placement")
    yield from _candidate_findings(counts, release, placement)


def of_host(spec: Spec, judged: HostVerdicts, placement: Placement) -> Iterator[Finding]:
    """All findings about a spec on one host, except :func:`gpustack.spec.verdict.unknown`."""
    yield from obstacles(judged)
    yield from _switch_findings(spec, judged.host)
    if placement == "schedule" and not spec.flavors:
        ids = ((spec.resource_class_of(target.model), *spec.models[target.model].ids) for target in judged.assigned)
        for name, count in Counter(str(reported_class(*each)) for each in ids).items():
            if count > _MANY:
                place = judged.host.hostname
                yield finding(Code.MANY_DEVICES_OF_CLASS, place=place, count=count, resource_class=name)


def _release_findings(spec: Spec, targets: _ByModel, release: Release, placement: Placement) -> Iterator[Finding]:
    """Settings of the spec that the release does not have."""

    def missing(place: str, setting: str, since: int) -> Finding:
        first = releases.first_with(since)
        return finding(Code.SETTING_NOT_IN_RELEASE, place=place, what=setting, release=release, since=first)

    if placement != "off":
        option = SWITCHES[placement]
        if not option.known_to(release):
            yield missing("nova.placement", f"placement: {placement} ([{option.group}] {option.name})", option.since)
    isolation = releases.option("scheduler/enable_isolated_aggregate_filtering")
    if spec.tenancy is not None and spec.tenancy.isolates and not isolation.known_to(release):
        yield missing("tenancy", f"isolated: true ([scheduler] {isolation.name})", isolation.since)
    of_alias, of_spec = releases.keys("alias"), releases.keys("device_spec")
    for name, model in spec.models.items():
        place = f"models.{name}"
        policy = of_alias["numa_policy"]
        if model.numa_policy is not None and model.numa_policy not in (
            policy.values_in(release) if policy.known_to(release) else ()
        ):
            since = max(policy.since, dict(policy.values_since).get(model.numa_policy, 0))
            yield missing(f"{place}.numa_policy", f"numa_policy: {model.numa_policy}", since)
        if model.one_time_use and placement == "off":
            yield finding(Code.ONE_TIME_USE_WITHOUT_PLACEMENT, place=f"{place}.one_time_use")
        own = targets.get(name, ())
        virtual = sorted({t.host.hostname for t in own if t.is_virtual})
        if model.one_time_use and virtual:
            yield finding(
                Code.ONE_TIME_USE_ON_VIRTUAL_MODEL, place=f"{place}.one_time_use", model=name, hosts=listed(virtual, 5)
            )
        for field in ("live_migratable", "managed", "one_time_use"):
            key = of_spec[field]
            if getattr(model, field) is not None and not key.known_to(release):
                yield missing(f"{place}.{field}", field, key.since)
        variants = () if of_spec["managed"].known_to(release) else (t.variant for t in own if t.variant is not None)
        if model.managed is None and (variant := next(iter(variants), None)):
            yield finding(Code.VARIANT_DRIVER_UNMANAGEABLE, place=place, driver=variant, release=release)
        if placement == "off" and (model.resource_class or model.traits):
            yield finding(Code.PLACEMENT_KEYS_LEFT_OUT, place=place)


def _switch_findings(spec: Spec, host: Host) -> Iterator[Finding]:
    """NVSwitches that host preparation binds for instances: the spec does not define the instance that gets them."""
    switches = nvswitches(host)
    mode = options_for(spec, host.hostname).nvswitch if switches else None
    if mode in (NvSwitch.FULL, NvSwitch.SHARED):
        ids = ", ".join(sorted({f"{switch.vendor}:{switch.product}" for switch in switches}))
        count = counted(len(switches), "NVSwitch") if len(switches) > 1 else "NVSwitch"
        yield finding(Code.NVSWITCHES_WITHOUT_ALIAS, place=host.hostname, count=count, ids=ids, mode=mode.value)


def _fact_findings(spec: Spec, hosts: Sequence[Host], present: Collection[str]) -> Iterator[Finding]:
    """Models without a card on any host, hosts without facts."""
    requested = {name for entry in spec.hosts.values() for name in entry.models}
    for name in spec.models:
        if name in requested and name not in present:
            what = "working virtual function or vGPU" if spec.models[name].is_virtual else "card"
            yield finding(Code.NO_CARD_OF_MODEL, place=f"models.{name}", model=name, what=what)
    if unseen := fold({*hosts_of(spec, None)} - {host.hostname for host in hosts}):
        yield finding(Code.HOSTS_WITHOUT_FACTS, place="spec", hosts=listed(unseen, 5))


def _alias_findings(spec: Spec, targets: _ByModel, placement: Placement) -> Iterator[Finding]:
    """Aliases that mix device types or policies, and aliases that match the same cards."""
    by_alias = by_key((spec.alias_of(name), name) for name in spec.models if name in targets)
    selected = {alias: [name for name in names if name in targets] for alias, names in spec.selected.items()}
    for alias, names in (by_alias | selected).items():
        place = f"alias {alias}"
        kinds = by_key((t.gpu.dev_type, t.host.hostname) for name in names for t in targets[name])
        if len(kinds) > 1:
            hosts_by_kind = "; ".join(
                f"{kind} on {', '.join(sorted(set(hostnames)))}" for kind, hostnames in sorted(kinds.items())
            )
            yield finding(Code.ALIAS_DEVICE_TYPES_DIFFER, place=place, kinds=hosts_by_kind)
        if len(names) > 1:
            yield from _shared(spec, place, names, placement, selected=alias in selected)
    yield from _alike(spec, by_alias, placement)


def _shared(spec: Spec, place: str, names: Sequence[str], placement: Placement, *, selected: bool) -> Iterator[Finding]:
    models = [spec.models[name] for name in names]
    fields = ["numa_policy"] + (["live_migratable"] if any(m.live_migratable is not None for m in models) else [])
    if placement == "schedule" and not selected:
        fields += ["traits"]
        classes = {spec.resource_class_of(name) for name in names}
        ids = {model.ids for model in models}
        if (None in classes and len(ids) > 1) or len(classes) > 1:
            yield finding(Code.SHARED_ALIAS_WITHOUT_RESOURCE_CLASS, place=place, models=", ".join(names))
    for field in fields:
        if len({getattr(model, field) for model in models}) > 1:
            yield finding(Code.SHARED_ALIAS_DIFFERS, place=place, models=", ".join(names), field=field)


def _alike(spec: Spec, by_alias: Mapping[str, Sequence[str]], placement: Placement) -> Iterator[Finding]:
    """Aliases that request the same ids: Nova may give either one the other's cards."""
    first_with: dict[tuple[Any, ...], tuple[str, str]] = {}
    for alias, names in by_alias.items():
        for name in names:
            model = spec.models[name]
            of_class = (spec.resource_class_of(name), frozenset(spec.required_traits_of(name)))
            key = (*model.ids, *(of_class if placement == "schedule" else (model.is_virtual,)))
            other_alias, other = first_with.setdefault(key, (alias, name))
            if other_alias != alias:
                place, ids, pair = f"alias {alias}", ":".join(model.ids), f"{other} and {name}"
                yield finding(Code.ALIASES_WITH_SAME_CARDS, place=place, ids=ids, models=pair, other=other_alias)


def _candidate_findings(counts: Requested, release: Release, placement: Placement) -> Iterator[Finding]:
    """The options of Placement that flavors with several GPUs need."""
    if placement != "schedule" or not counts.explodes:
        return
    if known := [advice.option for advice in CANDIDATES if advice.option.known_to(release)]:
        names = ", ".join(f"[{option.group}] {option.name}" for option in known)
        yield finding(Code.PLACEMENT_NEEDS_LIMIT, place="placement.conf", count=counts.largest, options=names)
    else:
        since = releases.first_with(min(advice.option.since for advice in CANDIDATES))
        place = "placement.conf"
        yield finding(Code.PLACEMENT_WITHOUT_LIMIT, place=place, count=counts.largest, release=release, since=since)


def _selection_findings(
    spec: Spec, present: Collection[str], mediated: Collection[str], placement: Placement
) -> Iterator[Finding]:
    """Findings about selections, and about one resource class for all GPUs.

    :param present: the models of which hosts have GPUs that Nova passes through.
    :param mediated: those of mediated devices, which flavors request without an alias.
    """
    for alias, attributes in spec.selections.items():
        place = f"alias {alias}"
        if attributes.min_memory is not None:
            for name in spec.models:
                if memory_of(spec.models[name]) is None:
                    yield finding(Code.MEMORY_UNKNOWN, place=f"models.{name}", model=name, alias=alias)
        if not (models := [name for name in spec.selected[alias] if name in present]):
            if not set(mediated).intersection(spec.selected[alias]):
                yield finding(Code.SELECTION_WITHOUT_CARD, place=place)
            continue
        ids = ((spec.resource_class_of(name), *spec.models[name].ids) for name in models)
        if placement == "schedule" and len(classes := {str(reported_class(*each)) for each in ids}) > 1:
            yield finding(
                Code.SELECTION_WITHOUT_CLASS, place=place, models=", ".join(models), classes=", ".join(sorted(classes))
            )
        if placement != "schedule":
            yield from _indistinct(spec, place, models, present)
        sizes = {name: memory_of(spec.models[name]) for name in models}
        if len(set(sizes.values())) > 1:
            cards = [f"{name} ({memory} GiB)" if memory else name for name, memory in sizes.items()]
            yield finding(Code.SELECTION_TAKES_LARGER, place=place, cards=listed(cards, 5))
    if placement != "off" and spec.pooled:
        yield finding(Code.CLASS_OF_GPU_IN_USE, place="nova.class_by")
        yield from _same_traits(spec)


def moves(
    spec: Spec, alias: str, vendor: str | None, product: str | None, kind: str | None, targets: Sequence[Assigned]
) -> Iterator[Finding]:
    """Yield the hosts on which a move may claim a GPU that an alias does not request.

    Nova's claim of a move compares ids and device type, and leaves out resource class and traits
    (``nova/compute/resource_tracker.py``, ``_move_claim``; ``nova/pci/stats.py``, ``ignored_spec_tags``).
    """
    models = frozenset(spec.models_of(alias))
    hosts = {target.host.hostname for target in targets if target.model in models}
    others: dict[str, list[str]] = {}
    for target in (target for target in targets if target.host.hostname in hosts and target.model not in models):
        compared = (vendor, target.gpu.main.vendor), (product, target.gpu.main.product), (kind, target.gpu.dev_type)
        if all(requested in (None, own) for requested, own in compared):
            others.setdefault(target.host.hostname, []).append(f"{target.address} ({target.model})")
    for host, cards in others.items():
        yield finding(Code.MOVE_CLAIMS_OTHER_KIND, place=host, alias=alias, others=listed(cards, 5))


def _indistinct(spec: Spec, place: str, models: Sequence[str], present: Collection[str]) -> Iterator[Finding]:
    """Models that are not selected, and that Nova can't tell from a selected one: it compares ids and device type."""
    kinds = {(spec.models[name].ids, spec.models[name].is_virtual): name for name in models}
    for other in (name for name in spec.models if name in present and name not in models):
        ids = spec.models[other].ids
        if (name := kinds.get((ids, spec.models[other].is_virtual))) is not None:
            pair, alias = f"{name} and {other}", spec.alias_of(other)
            yield finding(Code.ALIASES_WITH_SAME_CARDS, place=place, ids=":".join(ids), models=pair, other=alias)


def _same_traits(spec: Spec) -> Iterator[Finding]:
    """Aliases whose names differ only in case or signs: their cards have the same trait."""
    by_trait: dict[str, str] = {}
    for name in spec.models:
        alias = spec.alias_of(name)
        other = by_trait.setdefault(alias_trait(alias), alias)
        if other != alias:
            yield finding(Code.ALIASES_WITH_SAME_TRAIT, place=f"alias {alias}", other=other, trait=alias_trait(alias))


def proof(
    host: Host, entries: Sequence[Mapping[str, str]], targets: Sequence[Assigned], others: Collection[str] = ()
) -> Iterator[Finding]:
    """Report prepared GPUs that the device_spec misses, and other functions that it matches.

    :param entries: the device_spec of the host, as Nova reads it.
    :param targets: the GPUs that host preparation assigns to passthrough.
    :param others: the addresses of other functions that are offered, for ports of Neutron.
    """
    wanted_addresses = {*(t.gpu.main.address for t in targets), *others}
    specs = [DeviceSpec.parse(entry) for entry in entries]
    for target in targets:
        if not target.gpu.main.bdf.fits_nova:
            yield finding(Code.PREPARED_CARD_DOMAIN_TOO_WIDE, place=f"{host.hostname} {target.gpu.main.address}")
    reached = matched(specs, host)
    for address in reached:
        parts = host.virtual.get(address, ())
        if parts and not any(part.address in reached for part in parts):
            functions = ", ".join(part.address for part in parts)
            yield finding(Code.PHYSICAL_FUNCTION_OFFERED, place=f"{host.hostname} {address}", functions=functions)
    for address, index in reached.items():
        if address not in wanted_addresses:
            place, entry, what = f"{host.hostname} {address}", json.dumps(entries[index]), what_is(host, address)
            yield finding(Code.DEVICE_SPEC_OFFERS_TOO_MUCH, place=place, entry=entry, what=what)
    for address in sorted(wanted_addresses - reached.keys()):
        yield finding(Code.DEVICE_SPEC_MISSES_CARD, place=f"{host.hostname} {address}")


def what_is(host: Host, address: str) -> str:
    """Describe a PCI function for a message: a companion of a GPU, a network controller in use as eth0, …"""
    function = host.functions[address]
    text = catalogue.describe(
        function.vendor, function.product, function.pci_class, function.subsystem_vendor, function.subsystem_product
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
