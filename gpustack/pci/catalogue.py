"""The catalogue of cards: names, families and quirks by PCI id (``gpustack/data/cards.toml``, ``drivers.toml``).

A card does not have to be in the catalogue: an unknown one is described by its PCI class. The ``dev_type`` that Nova
reports for a card is derived from the SR-IOV capability on the host (``Function.dev_type``), not from the catalogue.

``requirements.toml`` has what a guest needs to use a card: driver branches, kernel modules, compute targets. An absent
fact is unknown, and never means that nothing is needed.
"""

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.base.files import data_dir, data_table
from gpustack.pci import classes

_SELECTORS = ("family", "kind", "cards")


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """The requirement of a card; None is unknown or does not apply to the vendor.

    :ivar first: the first NVIDIA driver branch that lists the card: 535.
    :ivar first_release: the first release of that branch, if it is not the first one: ``580.142``.
    :ivar last: the last NVIDIA driver branch that supports the card; None if support continues.
    :ivar modules: the NVIDIA kernel modules that support it: ``open``, ``proprietary``, ``either``.
    :ivar first_open: the first branch whose open kernel modules support it without an option.
    :ivar compute: CUDA compute capability: ``8.0``.
    :ivar mig: the most MIG instances; 0 if the architecture has no MIG.
    :ivar gfx: AMD's compute target: ``gfx942``.
    :ivar module: the driver in Linux: ``amdgpu``, ``i915``, ``xe``.
    :ivar kernel: the first release of Linux whose driver supports it: ``6.12``. Of AMD's cards, the first of the
        releases from which ``driver_tables.jsonl`` is made.
    :ivar force_probe: whether the driver ignores the card without its option ``force_probe``.
    :ivar releases: NVIDIA: the first release of each branch that lists the card; None before Turing.
    :ivar functions: product ids of its virtual functions, if they differ from the card's.
    :ivar sources: the source of each fact, by the fact's name.
    """

    first: int | None = None
    first_release: str | None = None
    last: int | None = None
    modules: str | None = None
    first_open: int | None = None
    compute: str | None = None
    mig: int | None = None
    gfx: str | None = None
    module: str | None = None
    kernel: str | None = None
    force_probe: bool = False
    releases: Mapping[str, str] | None = None
    functions: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)


def read(vendor: str, product: str, family: str, kind: str) -> Requirement:
    """The requirement of a card with these ids, family and kind."""
    data, facts, sources = data_table("requirements.toml"), {}, {}
    selected = {"family": family, "kind": kind, "cards": product}
    for entry in data["facts"].get(vendor, ()):
        if all(selected[key] in entry[key] for key in _SELECTORS if key in entry):
            new = {key: value for key, value in entry.items() if key not in (*_SELECTORS, "source")}
            facts.update(new)
            sources.update(dict.fromkeys(new, data["sources"][entry["source"]]))
    if listed := _tables().get((vendor, product)):
        facts = {**listed, **facts}
        sources = {**dict.fromkeys(listed, "driver_tables.jsonl, from the drivers' sources"), **sources}
    facts["functions"] = tuple(facts.get("functions", ()))
    return Requirement(**facts, sources=sources)


def implied_quirks(requirement: Requirement) -> tuple[str, ...]:
    """The keys of the implied_quirks that follow from a requirement."""
    last = (f"driver-r{requirement.last}",) if requirement.last else ()
    return (*last, *(("open-modules",) if requirement.modules == "open" else ()))


@functools.cache
def _tables() -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """The facts that are generated from the drivers' sources, by vendor and product."""
    lines = data_dir("driver_tables.jsonl").read_text(encoding="utf-8").splitlines()
    return {(row.pop("vendor"), row.pop("product")): row for row in map(json.loads, lines)}


_LABEL = 63  # characters of a label's value in Kubernetes


@dataclass(frozen=True, kw_only=True)
class Quirk:
    """A known problem or requirement of a card that is passed through.

    :ivar key: its key in ``[quirks]`` of ``cards.toml``.
    :ivar source: the public document that describes it.
    """

    key: str
    title: str
    explanation: str
    remedy: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Card:
    """A card in the catalogue. All ids are four lower-case hexadecimal digits.

    :ivar vendor: PCI vendor id.
    :ivar product: PCI device id.
    :ivar subsystems: (vendor, product) subsystem ids that distinguish cards with the same product id; empty for the
        default card of that product id.
    :ivar name: the vendor's product name, without the vendor.
    :ivar family: the GPU architecture: ``Kepler``.
    :ivar kind: ``datacenter``, ``workstation``, ``consumer`` or ``integrated``.
    :ivar memory_gib: memory of one GPU in GiB, as the vendor specifies it; several values if one id covers several
        sizes; empty if the memory is shared with the host or unknown.
    :ivar gpus: number of GPUs on one board; each is a separate PCI function.
    :ivar functions: the usual functions of the slot: ``display`` (the GPU itself, of any class), ``audio``, ``usb``,
        ``ucsi``. A board may lack the last three, so decisions use the host's facts.
    :ivar dev_type: the documented Nova ``dev_type`` (``type-PCI``, ``type-PF``); None if unknown. If the host's facts
        disagree, the facts decide.
    :ivar quirks: keys of the card's quirks.
    :ivar source: source of the id and name.
    """

    vendor: str
    product: str
    subsystems: tuple[tuple[str, str], ...] = ()
    name: str
    family: str
    kind: str
    memory_gib: tuple[int, ...] = ()
    gpus: int = 1
    functions: tuple[str, ...]
    dev_type: str | None = None
    quirks: tuple[str, ...] = ()
    source: str

    @functools.cached_property
    def full_name(self) -> str:
        """Vendor and name: ``NVIDIA Quadro K4200``."""
        return f"{vendor_name(self.vendor)} {self.name}"

    @property
    def memory(self) -> str | None:
        """The memory of one GPU for display: ``4 GiB``, ``8 or 16 GiB``; None if ``memory_gib`` is empty."""
        if not self.memory_gib:
            return None
        *smaller, largest = self.memory_gib
        return f"{', '.join(map(str, smaller))} or {largest} GiB" if smaller else f"{largest} GiB"


def lookup(
    vendor: str, product: str, subsystem_vendor: str | None = None, subsystem_product: str | None = None
) -> Card | None:
    """Return the card with these ids; None if it is not in the catalogue.

    If cards share a product id, the subsystem decides. The card without subsystems is the default.
    """
    known = _by_id().get((vendor.lower(), product.lower()), ())
    subsystem = (subsystem_vendor or "").lower(), (subsystem_product or "").lower()
    default = next((card for card in known if not card.subsystems), None)
    return next((card for card in known if subsystem in card.subsystems), default)


def card_of_function(vendor: str, product: str) -> Card | None:
    """Return the card that has virtual functions with these ids; None if it is not in the catalogue."""
    return _by_function().get((vendor.lower(), product.lower()))


@functools.cache
def cards() -> tuple[Card, ...]:
    """All cards of the catalogue, in the order of the file."""
    return tuple(_read_cards(data_table("cards.toml")))


def matching(text: str) -> tuple[Card, ...]:
    """Find cards by ids (``10de:20b5``), else by exact name, else by words of the full name.

    >>> [card.full_name for card in matching("quadro k4200")]
    ['NVIDIA Quadro K4200']
    """
    words = text.lower().split()
    vendor, _, product = text.lower().partition(":")
    if found := _by_id().get((vendor, product)):
        return found
    likely = _by_word().get(words[0], ()) if words else cards()
    named = [card for card in likely if " ".join(words) in (card.name.lower(), card.full_name.lower())]
    return tuple(named or (card for card in likely if set(words) <= set(card.full_name.lower().split())))


def products_called(name: str, vendor: str) -> Sequence[str]:
    """The product ids of a vendor's cards with a name, as :func:`matching` finds them."""
    return [*dict.fromkeys(card.product for card in matching(name) if card.vendor == vendor.lower())]


def requirement_of(card: Card) -> Requirement:
    """The requirement of a card of the catalogue."""
    return read(card.vendor, card.product, card.family, card.kind)


def label(card: Card) -> str:
    """The value of a label for the card, as Kubernetes accepts it: ``a100-pcie-40gb``."""
    return re.sub(r"[^a-z0-9]+", "-", card.name.lower())[:_LABEL].strip("-")


@functools.cache
def quirks() -> Mapping[str, Quirk]:
    """All quirks, by key."""
    return {key: Quirk(key=key, **entry) for key, entry in data_table("cards.toml")["quirks"].items()}


def quirks_of(card: Card) -> tuple[Quirk, ...]:
    """The quirks of a card."""
    return tuple(quirks()[key] for key in card.quirks)


def is_nvswitch(vendor: str, product: str, pci_class: str) -> bool:
    """Whether a function is an NVSwitch: a known id, or any NVIDIA function with the PCI class of NVSwitches.

    NVIDIA's own tools check the class only (go-nvlib, ``pkg/nvpci``), so switches newer than the catalogue are found
    too. NVIDIA's MCP chipsets (before 2010) have the same class, but such machines have no IOMMU.
    """
    return any(
        vendor.lower() == entry["vendor"]
        and (product.lower() in entry["products"] or pci_class.startswith(entry["class"]))
        for entry in data_table("cards.toml")["nvswitch"]
    )


def is_console(vendor: str, product: str, pci_class: str | None = None) -> bool:
    """Whether a display controller is the host's console adapter (BMC graphics, emulated adapters).

    :param pci_class: the function's class; if None, the class of catalogue entries is ignored.
    """
    return any(
        vendor.lower() == entry["vendor"]
        and product.lower() == entry.get("product", product.lower())
        and (pci_class is None or pci_class.startswith(entry.get("class", "")))
        for entry in data_table("cards.toml")["console"]
    )


def host_drivers(vendor: str) -> tuple[str, ...]:
    """Kernel modules that must not bind a GPU of this vendor before vfio-pci; empty for unknown vendors."""
    return tuple(_drivers().get(vendor.lower(), ()))


def vendor_name(vendor: str) -> str | None:
    """The short name of a GPU vendor: ``NVIDIA``; None if the catalogue has no cards of the vendor."""
    names: Mapping[str, str] = data_table("cards.toml")["vendors"]
    return names.get(vendor.lower())


def describe(
    vendor: str, product: str, pci_class: str, subsystem_vendor: str | None = None, subsystem_product: str | None = None
) -> str:
    """Describe a function: the full name of a known card, else class and ids.

    >>> describe("10de", "11b4", "030000")
    'NVIDIA Quadro K4200'
    >>> describe("10de", "ffff", "030200")
    'NVIDIA 3D controller [10de:ffff]'
    """
    if (card := lookup(vendor, product, subsystem_vendor, subsystem_product)) is not None:
        return card.full_name
    kind = classes.word(pci_class)
    maker = vendor_name(vendor)
    return f"{f'{maker} {kind}' if maker else kind} [{vendor.lower()}:{product.lower()}]"


@functools.cache
def _by_id() -> Mapping[tuple[str, str], tuple[Card, ...]]:
    pairs = by_key(((card.vendor, card.product), card) for card in cards())
    return {ids: tuple(same) for ids, same in pairs.items()}


@functools.cache
def _by_function() -> Mapping[tuple[str, str], Card]:
    first = reversed(cards())
    return {(card.vendor, product): card for card in first for product in requirement_of(card).functions}


@functools.cache
def _by_word() -> Mapping[str, Sequence[Card]]:
    return by_key((word, card) for card in cards() for word in {*card.full_name.lower().split()})


@functools.cache
def _drivers() -> Mapping[str, Sequence[str]]:
    return by_key((entry["vendor"], entry["name"]) for entry in data_table("drivers.toml")["driver"])


def _read_cards(data: Mapping[str, Any]) -> Iterator[Card]:
    dev_types = {ids: table["type"] for table in data["dev_type"] for ids in table["cards"]}
    for group in data["group"]:
        for entry in group["cards"]:
            try:
                yield _card(data, dev_types, group, entry)
            except (KeyError, TypeError) as error:
                message = f"cards.toml, {entry}: {error!r}; the head of the file explains the keys and their values"
                raise ValueError(message) from error


def _card(
    data: Mapping[str, Any], dev_types: Mapping[str, str], group: Mapping[str, Any], entry: Mapping[str, Any]
) -> Card:
    source = entry.get("source", group["source"])
    needs = read(group["vendor"], entry["product"], group["family"], group["kind"])
    return Card(
        vendor=group["vendor"],
        product=entry["product"],
        subsystems=tuple((ids[:4], ids[5:]) for ids in entry.get("subsystems", ())),
        name=entry["name"],
        family=group["family"],
        kind=group["kind"],
        memory_gib=tuple(entry.get("memory_gib", ())),
        gpus=entry.get("gpus", 1),
        functions=tuple(entry.get("functions", group["functions"])),
        dev_type=dev_types.get(f"{group['vendor']}:{entry['product']}"),
        quirks=(*implied_quirks(needs), *group.get("quirks", ()), *entry.get("quirks", ())),
        source=data["sources"].get(source, source),
    )
