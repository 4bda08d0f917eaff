"""The catalogue: what is known of cards by their ids (``gpustack/data/cards.toml``, ``drivers.toml``).

It names cards and tells of their quirks; nothing depends on it. A card that it doesn't know is described from its
PCI class, and how Nova lists a card is the host's to say, never the catalogue's.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpustack.files import data_dir
from gpustack.pci import classes


@dataclass(frozen=True, kw_only=True)
class Quirk:
    """What an operator has to know of a card before giving it to guests.

    :ivar source: the public document that says so.
    """

    key: str
    title: str
    explanation: str
    remedy: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Card:
    """A card that the catalogue knows.

    :ivar vendor: vendor id, four lower-case hexadecimal digits, as are all ids here.
    :ivar subsystems: the (vendor, product) subsystem ids it is told by from others with the same product id; empty
        for the card that stands for all the rest.
    :ivar name: what its maker calls it, without the maker.
    :ivar family: its architecture, ``Kepler``.
    :ivar kind: ``datacenter``, ``workstation``, ``consumer`` or ``integrated``.
    :ivar memory_gib: memory of one GPU in GiB, as its maker names it; several where one id covers several sizes,
        none where it is shared with the host or not known.
    :ivar gpus: how many GPUs, each a PCI function of its own, one board carries.
    :ivar functions: what its slot usually shows: ``display`` (the GPU itself, whatever its class), ``audio``, ``usb``,
        ``ucsi``. A board may lack the later ones: the host's facts decide.
    :ivar dev_type: how Nova is documented to list it (``type-PCI``, ``type-PF``); None where that is not known. The
        SR-IOV capability that the host shows goes before it.
    :ivar quirks: keys of its quirks.
    :ivar source: where its id and name come from.
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

    @property
    def full_name(self) -> str:
        """The name with its maker: ``NVIDIA Quadro K4200``."""
        return f"{vendor_name(self.vendor)} {self.name}"

    @property
    def memory(self) -> str | None:
        """The memory of one GPU for people: ``4 GiB``, ``8 or 16 GiB``; None when the catalogue has none."""
        if not self.memory_gib:
            return None
        *smaller, largest = self.memory_gib
        return f"{', '.join(map(str, smaller))} or {largest} GiB" if smaller else f"{largest} GiB"


def lookup(
    vendor: str, product: str, subsystem_vendor: str | None = None, subsystem_product: str | None = None
) -> Card | None:
    """The card with these ids; None for one that the catalogue doesn't know.

    Where cards share a product id, the subsystem decides, and the entry without one answers for every other.
    """
    known = _by_id().get((vendor.lower(), product.lower()), ())
    if subsystem_vendor is not None and subsystem_product is not None:
        subsystem = (subsystem_vendor.lower(), subsystem_product.lower())
        for card in known:
            if subsystem in card.subsystems:
                return card
    return next((card for card in known if not card.subsystems), None)


@functools.cache
def cards() -> tuple[Card, ...]:
    """Every card of the catalogue, in the order of the file."""
    return tuple(_read_cards(_data()))


def matching(text: str) -> tuple[Card, ...]:
    """The cards with these ids (``10de:20b5``), with this name, or else all whose full name has these words.

    >>> [card.full_name for card in matching("quadro k4200")]
    ['NVIDIA Quadro K4200']
    """
    words = text.lower().split()
    vendor, _, product = text.lower().partition(":")
    if found := _by_id().get((vendor, product)):
        return found
    named = [card for card in cards() if " ".join(words) in (card.name.lower(), card.full_name.lower())]
    return tuple(named or (card for card in cards() if set(words) <= set(card.full_name.lower().split())))


@functools.cache
def quirks() -> Mapping[str, Quirk]:
    """Every quirk by its key."""
    data = _data()
    return {key: Quirk(key=key, **entry) for key, entry in data["quirks"].items()}


def quirks_of(card: Card) -> tuple[Quirk, ...]:
    """The quirks of a card."""
    return tuple(quirks()[key] for key in card.quirks)


def is_nvswitch(vendor: str, product: str, pci_class: str) -> bool:
    """Whether a function is an NVSwitch: a known id, or any function of NVIDIA's with the switches' class.

    The class alone is what NVIDIA's own tools go by (go-nvlib, ``pkg/nvpci``), and so covers switches newer than
    the catalogue. The MCP chipsets of old (before 2010) used it too; they have no IOMMU.
    """
    return any(
        vendor.lower() == entry["vendor"]
        and (product.lower() in entry["products"] or pci_class.startswith(entry["class"]))
        for entry in _data()["nvswitch"]
    )


def is_console(vendor: str, product: str, pci_class: str | None = None) -> bool:
    """Whether a display controller serves the host's own console (management controllers, emulated adapters).

    :param pci_class: the function's class; without one, an entry for one class fits all.
    """
    return any(
        vendor.lower() == entry["vendor"]
        and product.lower() == entry.get("product", product.lower())
        and (pci_class is None or pci_class.startswith(entry.get("class", "")))
        for entry in _data()["console"]
    )


def host_drivers(vendor: str) -> tuple[str, ...]:
    """The host drivers that must not get a GPU of this vendor before vfio does; none for other vendors."""
    return _drivers().get(vendor.lower(), ())


def vendor_name(vendor: str) -> str | None:
    """The short name of a GPU vendor: ``NVIDIA``; None for vendors without cards here."""
    names: Mapping[str, str] = _data()["vendors"]
    return names.get(vendor.lower())


def describe(
    vendor: str,
    product: str,
    pci_class: str,
    subsystem_vendor: str | None = None,
    subsystem_product: str | None = None,
) -> str:
    """What to call a function: a known card's full name, else its class and ids.

    >>> describe("10de", "11b4", "030000")
    'NVIDIA Quadro K4200'
    >>> describe("10de", "ffff", "030200")
    'NVIDIA 3D controller [10de:ffff]'
    """
    card = lookup(vendor, product, subsystem_vendor, subsystem_product)
    if card is not None:
        return card.full_name
    kind = classes.word(pci_class)
    maker = vendor_name(vendor)
    return f"{f'{maker} {kind}' if maker else kind} [{vendor.lower()}:{product.lower()}]"


@functools.cache
def _data() -> Mapping[str, Any]:
    return _read_toml("cards.toml")


def _read_toml(name: str) -> Mapping[str, Any]:
    import tomllib

    return tomllib.loads(data_dir(name).read_text(encoding="utf-8"))


@functools.cache
def _by_id() -> Mapping[tuple[str, str], tuple[Card, ...]]:
    cards_by_id: dict[tuple[str, str], tuple[Card, ...]] = {}
    for card in cards():
        ids = (card.vendor, card.product)
        cards_by_id[ids] = (*cards_by_id.get(ids, ()), card)
    return cards_by_id


@functools.cache
def _drivers() -> Mapping[str, tuple[str, ...]]:
    drivers: dict[str, tuple[str, ...]] = {}
    for entry in _read_toml("drivers.toml")["driver"]:
        drivers[entry["vendor"]] = (*drivers.get(entry["vendor"], ()), entry["name"])
    return drivers


def _read_cards(data: Mapping[str, Any]) -> Iterator[Card]:
    dev_types = {ids: table["type"] for table in data["dev_type"] for ids in table["cards"]}
    for group in data["group"]:
        for entry in group["cards"]:
            source = entry.get("source", group["source"])
            yield Card(
                vendor=group["vendor"],
                product=entry["product"],
                subsystems=tuple(_pair(ids) for ids in entry.get("subsystems", ())),
                name=entry["name"],
                family=group["family"],
                kind=group["kind"],
                memory_gib=tuple(entry.get("memory_gib", ())),
                gpus=entry.get("gpus", 1),
                functions=tuple(entry.get("functions", group["functions"])),
                dev_type=dev_types.get(f"{group['vendor']}:{entry['product']}"),
                quirks=(*group.get("quirks", ()), *entry.get("quirks", ())),
                source=data["sources"].get(source, source),
            )


def _pair(ids: str) -> tuple[str, str]:
    vendor, _, product = ids.partition(":")
    return vendor, product
