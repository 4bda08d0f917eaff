"""Checks of a spec beyond its schema: references between its parts, and exactly one model for each card.

The checks read plain data, so that they also run if the schema has found errors. Malformed parts are skipped: the
schema reports them.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import Any, TypeVar

from pydantic import ValidationError

from gpustack.base.findings import Severity
from gpustack.linux.drivers import STUB
from gpustack.pci.address import Address
from gpustack.pci.catalogue import lookup, products_called
from gpustack.pci.classes import is_gpu_class
from gpustack.spec.card_model import alike
from gpustack.spec.check_flavors import check_flavors
from gpustack.spec.check_quotas import check_quotas, check_tenancy
from gpustack.spec.document import Document, Path, Problem, entries, mapping, quoted
from gpustack.spec.model import OutOfService
from gpustack.spec.models import Match, Vgpu, apart, slices
from gpustack.spec.patterns import HostPattern, Patterns

_Section = TypeVar("_Section", Match, Vgpu)
MAX_COMPARED = 1000
"""The number of hosts of a range that are compared with other patterns."""
MAX_MODELS_OF_A_CARD = 100
"""The largest number of models with the same vendor and product: the comparison takes quadratic time."""


def check(document: Document) -> Iterator[Problem]:
    """The problems between the parts of a spec, in no particular order."""
    models, hosts = mapping(document.data, "models"), mapping(document.data, "hosts")
    yield from _names(document, models, hosts)
    yield from _contradictions(document, models)
    matches = _valid(models, "match", Match)
    shared = {name for name in matches if models[name].get("vfs") or models[name].get("vgpu")}
    yield from _ambiguous(document, matches, shared)
    yield from _of_one_host(document, matches, shared, hosts)
    for name, match in matches.items():
        yield from _doubtful(document, ("models", name, "match"), match)
    yield from check_flavors(document)
    yield from check_tenancy(document)
    yield from _networks(document, mapping(document.data, "networks"), hosts)
    yield from _out_of_service(document, hosts)
    yield from check_quotas(document)


def _names(document: Document, models: Mapping[str, Any], hosts: Mapping[str, Any]) -> Iterator[Problem]:
    """Hosts must name existing models, every model must be used, and none must be repeated for the same hosts."""
    used: set[str] = set()
    for named in _named(hosts):
        of_pattern: set[str] = set()
        for path, name in named:
            if name not in models and models:
                yield document.unknown_model(path, name, models)
            elif name in of_pattern:
                yield _warning(document, path, f"{quoted(name)} is named twice")
            of_pattern.add(name)
        used |= of_pattern
    for name in models:
        if name not in used and hosts:
            yield _warning(document, ("models", name), "no host passes this model through", at_key=True)


def _named(hosts: Mapping[str, Any]) -> Iterator[list[tuple[Path, str]]]:
    """The names of models of each pattern, with their places."""
    for pattern, entry in hosts.items():
        path: Path = ("hosts", pattern)
        if isinstance(entry, dict):
            path, entry = (*path, "models"), entry.get("models")
        names = enumerate(entry if isinstance(entry, list) else ())
        yield [((*path, index), name) for index, name in names if isinstance(name, str)]


def _contradictions(document: Document, models: Mapping[str, Any]) -> Iterator[Problem]:
    """Keys of a model that exclude each other.

    No instance starts with a card on pci-stub that libvirt must not bind. Virtual functions have no virtual functions;
    a vGPU has one type, and a profile only if the type needs it.
    """
    for name, model in models.items():
        if not isinstance(model, dict):
            continue
        if model.get("driver") == STUB and model.get("managed") is False:
            message = "instances need the card on a VFIO driver: with pci-stub, libvirt must bind it (managed: true)"
            yield document.problem(("models", name, "managed"), message)
        for key in ("vfs", "vgpu"):
            if model.get(key) and mapping(model, "match").get("function") == "virtual":
                message = "creates virtual functions of cards: match the card, without function: virtual"
                yield document.problem(("models", name, key), message)
        vgpu, vfs = mapping(model, "vgpu"), model.get("vfs")
        total = vfs.get("count") if isinstance(vfs, dict) else vfs
        if vgpu and isinstance(vfs, dict) and "vgpu_type" in vfs:
            yield document.problem(("models", name, "vfs", "vgpu_type"), "vgpu.type names the type: remove the number")
        if isinstance(total, int) and isinstance(vgpu.get("count"), int) and vgpu["count"] > total:
            message = f"more vGPUs than virtual functions ({total})"
            yield document.problem(("models", name, "vgpu", "count"), message)
        if not isinstance(kind := vgpu.get("type"), str) or not isinstance(profile := vgpu.get("mig", ""), str):
            continue
        needed = slices(kind)
        if needed is None and profile:
            yield document.problem(("models", name, "vgpu", "mig"), f"{quoted(kind)} needs no GPU instances")
        elif needed is not None and not profile.startswith(f"{needed}g."):
            message = f"{quoted(kind)} needs GPU instances: set mig to a profile {needed}g.…"
            yield document.problem(("models", name, "vgpu", "mig" if profile else "type"), message)


def _valid(models: Mapping[str, Any], key: str, section: type[_Section]) -> dict[str, _Section]:
    """The valid sections under a key of models, by the name of the model."""
    valid = {}
    for name, model in models.items():
        with contextlib.suppress(ValidationError):
            valid[name] = section.model_validate(mapping(model, key))
    return valid


def _ambiguous(document: Document, matches: Mapping[str, Match], shared: Set[str]) -> Iterator[Problem]:
    """Models that match the same card although neither is more specific.

    If one of them shares cards, different hosts can have them.
    """
    by_ids: dict[tuple[str, str], list[str]] = {}
    for name, match in matches.items():
        others = by_ids.setdefault((match.vendor, match.product), [])
        path = ("models", name, "match")
        ids = f"{match.vendor}:{match.product}"
        if len(others) == MAX_MODELS_OF_A_CARD:
            yield document.problem(path, f"more than {MAX_MODELS_OF_A_CARD} models share {ids}", at_key=True)
            continue
        for other in others:
            if alike(match, matches[other]) and shared.isdisjoint((name, other)):
                yield document.problem(
                    path,
                    f"matches the same cards ({ids}) as the model {quoted(other)}, and neither is more specific "
                    "than the other: distinguish them by subsystem_vendor, subsystem_product, class or addresses",
                    at_key=True,
                )
                break
        others.append(name)


def _of_one_host(
    document: Document, matches: Mapping[str, Match], shared: Set[str], hosts: Mapping[str, Any]
) -> Iterator[Problem]:
    """Hosts that share cards and pass the same ones through, or share them twice."""
    vgpus = _valid(mapping(document.data, "models"), "vgpu", Vgpu)
    for named in _named(hosts):
        by_ids: dict[tuple[str, str], list[str]] = {}
        for path, name in named:
            if name not in matches:
                continue
            match = matches[name]
            others = by_ids.setdefault((match.vendor, match.product), [])
            clashing = [other for other in others if other != name and alike(match, matches[other])]
            other = next((other for other in clashing if not shared.isdisjoint((name, other))), None)
            if other is not None and (reason := apart(vgpus.get(its) for its in (*clashing, name))):
                yield document.problem(path, f"matches the same cards as {quoted(other)}: {reason}")
            if len(others) < MAX_MODELS_OF_A_CARD:
                others.append(name)


def _networks(document: Document, networks: Mapping[str, Any], hosts: Mapping[str, Any]) -> Iterator[Problem]:
    """A network must select virtual functions by their ids, or their cards; its hosts must be in the spec."""
    patterns = list(_patterns(hosts))
    known = Patterns(patterns)
    for name, network in networks.items():
        if not isinstance(network, dict):
            continue
        match = mapping(network, "match")
        path: Path = ("networks", name, "match")
        if ("vendor" in match) != ("product" in match):
            yield document.problem(path, "vendor and product need each other", at_key=True)
        elif match and not any(match.get(key) for key in ("vendor", "addresses", "interfaces")):
            message = "expected vendor and product of virtual functions, or addresses or interfaces of their cards"
            yield document.problem(path, message, at_key=True)
        elif network.get("vfs") and not (match.get("addresses") or match.get("interfaces")):
            message = "creates virtual functions of cards: match the cards by addresses or interfaces"
            yield document.problem(("networks", name, "vfs"), message)
        for index, text in enumerate(entries(network, "hosts")):
            for pattern in _patterns((text,)):
                if patterns and not _meet(pattern, patterns, known):
                    yield _warning(document, ("networks", name, "hosts", index), "matches no host of the spec")


def _meet(pattern: HostPattern, others: Iterable[HostPattern], known: Patterns) -> bool:
    """Whether a host pattern and one of several others can match the same host."""
    if not pattern.is_open:
        return any(map(known.matching, islice(pattern.names(), MAX_COMPARED)))
    return any(other.is_open or any(map(pattern.matches, islice(other.names(), MAX_COMPARED))) for other in others)


def _out_of_service(document: Document, hosts: Mapping[str, Any]) -> Iterator[Problem]:
    """An entry must name a host of the spec, and one GPU, which no other entry names."""
    patterns = Patterns(_patterns(hosts))
    named: set[tuple[str, str]] = set()
    for index, entry in enumerate(entries(document.data, "out_of_service")):
        try:
            card = OutOfService.model_validate(entry)
        except ValidationError:
            continue
        path: Path = ("out_of_service", index)
        if (card.address is None) == (card.serial is None):
            yield document.problem(path, "expected either an address or a serial number")
        if not patterns.matching(card.host) and not patterns.has_groups:
            yield document.problem((*path, "host"), f"no pattern of hosts matches {quoted(card.host)}")
        if (card.host, card.card) in named:
            yield document.problem(path, f"{card.host} {card.card} is named twice")
        named.add((card.host, card.card))


def _patterns(hosts: Iterable[Any]) -> Iterator[HostPattern]:
    for text in hosts:
        with contextlib.suppress(ValueError, TypeError):
            yield HostPattern.parse(text)


def _doubtful(document: Document, path: Path, match: Match) -> Iterator[Problem]:
    """Valid entries that are probably mistakes."""
    if not lookup(match.vendor, match.product) and (ids := products_called(match.product, match.vendor)):
        message = f"no known card has this id, but cards have this name; their ids: {', '.join(map(quoted, ids))}"
        yield _warning(document, (*path, "product"), message)
    if match.subsystem_product is not None and match.subsystem_vendor is None:
        message = "a subsystem id has a meaning only with its vendor; set subsystem_vendor too"
        yield _warning(document, (*path, "subsystem_product"), message)
    if match.pci_class is not None and not is_gpu_class(match.pci_class):
        message = 'not the class of a GPU: those are display controllers ("03…") and accelerators ("1200")'
        yield _warning(document, (*path, "class"), message)
    for index, address in enumerate(match.addresses):
        if not Address.parse(address).fits_nova:
            message = "Nova does not support PCI domains above ffff"
            yield _warning(document, (*path, "addresses", index), message)


def _warning(document: Document, path: Path, message: str, *, at_key: bool = False) -> Problem:
    return document.problem(path, message, severity=Severity.WARNING, at_key=at_key)
