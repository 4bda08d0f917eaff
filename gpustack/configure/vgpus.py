"""The types of mediated devices (vGPU) that nova-compute of a host gets, and why a release can't offer them as wanted.

Virtual functions with a type are PCI devices for Nova: :mod:`gpustack.configure.desired` lists them in device_spec.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.hostnames import short
from gpustack.base.text import listed
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.nova_options.mediated import CardTypes, Problem, TypeSection, custom_traits, is_address, required_traits
from gpustack.nova_options.options import Release
from gpustack.nova_options.pci_values import differing
from gpustack.spec.assignment import Assigned, MediatedCard
from gpustack.spec.model import Spec
from gpustack.spec.vgpu_use import devices

_SHOWN = 5
_MIGRATING, _DRIVER = {"ubuntu": 24, "rhel": 10}, 580


def sections(cards: Sequence[MediatedCard]) -> tuple[TypeSection, ...]:
    """The types of a host with the addresses of their cards.

    ``max_instances`` counts the devices of a type on the host.
    """
    made = []
    for number, of_type in by_key((card.type.number, card) for card in cards).items():
        counts = [card.count for card in of_type if card.count is not None]
        made.append(
            TypeSection(
                type=number,
                addresses=tuple(card.function.address for card in of_type),
                resource_class=of_type[0].resource_class,
                limit=sum(counts) if len(counts) == len(of_type) else None,
            )
        )
    return tuple(made)


def faults(host: Host, cards: Sequence[MediatedCard], read: CardTypes, release: Release) -> Iterator[Finding]:
    """The reasons why Nova offers other vGPUs of a host than the spec wants.

    :param read: the types that Nova reads from its configuration.
    """
    for card in cards:
        address, number = card.function.address, card.type.number
        place, (type_, class_) = f"{host.hostname} {address}", read.of(address)
        if type_ != number:
            found = type_ or "no type"
            yield finding(Code.VGPU_TYPE_NOT_OFFERED, place=place, release=release, found=found, wanted=number)
        elif class_ != card.resource_class:
            values = {"type": type_, "found": class_, "wanted": card.resource_class}
            yield finding(Code.VGPU_CLASS_IGNORED, place=place, severity=None, release=release, **values)
        if card.count is not None and (total := devices(card)) > card.count:
            yield finding(Code.VGPU_COUNT_NOT_IN_NOVA, place=place, type=number, count=card.count, total=total)
    own, parents = {c.function.address for c in cards}, Counter(c.function.physical_function for c in cards)
    full = {p for card in cards if (p := card.function.physical_function) and parents[p] == card.type.of_card}
    able = [f for f in host.pci if f.physical_function not in full and read.default in [t.number for t in f.vgpu_types]]
    others = [f.address for f in able if f.address not in own]
    if cards and others:
        text = listed(others, _SHOWN)
        yield finding(Code.VGPU_OF_OTHER_CARDS, place=host.hostname, release=release, type=read.default, cards=text)


def unsupported(hosts: Sequence[Host], read: CardTypes) -> Iterator[Problem]:
    """The types that Nova reads and no card supports, or not the function at their address; none without facts."""
    able = {(function.address, kind.number) for host in hosts for function in host.pci for kind in function.vgpu_types}
    names = listed([host.hostname for host in hosts], _SHOWN)
    if hosts and read.default and read.default not in {number for _, number in able}:
        yield Problem(type=read.default, at="list", what=f"no card of {names} supports {read.default}")
    absent = {(a, t) for a, t in read.types.items() if hosts and is_address(a) and (a.lower(), t) not in able}
    for address, type_ in sorted(absent):
        yield Problem(type=type_, at="device_addresses", what=f"{address} of {names} does not support {type_}")


def left_out(hosts: Sequence[Host], sections: Iterable[TypeSection], read: CardTypes) -> Iterator[Problem]:
    """The limits that Nova undercuts: it leaves out a card whose devices exceed the rest (``_get_gpu_inventories``)."""
    for section, host in product((section for section in sections if section.limit), hosts):
        cards = [
            (kind.available or 0) + sum(device.type == kind.number for device in function.mediated_devices)
            for function in host.pci
            for kind in function.vgpu_types
            if kind.number == section.type == read.of(function.address)[0]
        ]
        most, offered = section.limit or 0, 0
        for count in cards:
            offered += count if offered + count <= most else 0
        if offered < min(most, sum(cards)):
            what = f"of {sum(cards)} on the cards of {host.hostname}, Nova offers {offered}, without a part of a card"
            yield Problem(type=section.type, at="max_instances", what=f"{section.type}: max_instances = {most}; {what}")


def of_one_card(host: Host, entries: Iterable[Mapping[str, str]]) -> Iterator[Finding]:
    """Cards whose virtual functions have types of models that Placement must tell apart: Nova can't report them."""
    pairs = ((host.functions.get(entry.get("address", "")), entry) for entry in entries)
    parts = ((part, entry) for part, entry in pairs if part is not None and part.physical_function)
    by_card = by_key((part.physical_function, (part, entry)) for part, entry in parts)
    for card, of_card in by_card.items():
        place, by_address = f"{host.hostname} {card}", {part.address: entry for part, entry in of_card}
        yield from different_traits(place, host.hostname, str(card), by_address)


def different_traits(
    place: str, hostname: str, card: str, entries: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """A finding if entries for functions of one card, by their addresses, differ in resource class or traits."""
    if keys := " and ".join(differing(entries.values())):
        about: dict[str, Any] = {"host": hostname, "functions": ", ".join(entries), "address": card, "keys": keys}
        yield finding(Code.FUNCTIONS_WITH_DIFFERENT_TRAITS, place=place, **about)


def migrates(spec: Spec, target: Assigned, release: Release) -> bool | None:
    """Whether a PCI device can be live-migrated: as the spec has it, else True for vGPUs whose host can do it.

    With the tag, nova-compute does not start before libvirt 10.0 and QEMU 8.2.2 (``_check_pci_whitelist``), which the
    systems have for which NVIDIA lists migration (NVIDIA AI Enterprise 7, Live Migration Platform Support).
    """
    model, host = spec.models[target.model], target.host
    if model.live_migratable is not None or model.vgpu is None:
        return model.live_migratable
    first = _MIGRATING.get(host.os_release.get("ID", ""))
    known = releases.keys("device_spec")["live_migratable"].known_to(release)
    system, driver = host.os_release.get("VERSION_ID", ""), host.kernel.nvidia_driver or ""
    return True if known and first and _major(system) >= first and _major(driver) >= _DRIVER else None


def _major(version: str) -> int:
    major = version.partition(".")[0]
    return int(major) if major.isdecimal() else 0


def traits(spec: Spec, cards: Sequence[MediatedCard]) -> dict[str, tuple[str, ...]]:
    """The traits that the providers of mediated devices need, by the addresses of their cards."""
    needed = {name: required_traits(spec, name) for name in {card.model for card in cards}}
    needed = {name: tuple(dict.fromkeys((*own, *custom_traits(spec.traits_of(name))))) for name, own in needed.items()}
    return {card.function.address: needed[card.model] for card in cards if needed[card.model]}


def of_providers(hostname: str, needed: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The traits by the names of providers: that of the compute node, and the card's in libvirt.

    The compute node has the host's name in full or in short form. Nova ignores names that no provider has.
    """
    return {
        f"{node}_pci_{address.replace(':', '_').replace('.', '_')}": names
        for address, names in needed.items()
        for node in dict.fromkeys((hostname, short(hostname)))
    }
