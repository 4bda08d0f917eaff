"""The catalogue: its data holds together, its ids are real, and it answers as its users need."""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from gpustack.base.files import data_dir
from gpustack.pci import catalogue
from gpustack.pci.catalogue import Card, requirement_of

REQUIREMENTS = tomllib.loads(data_dir("requirements.toml").read_text(encoding="utf-8"))
NVIDIA = [card for card in catalogue.cards() if card.vendor == "10de"]
# Cards that no list of NVIDIA names: boards for vGPU, and boards that were sold in complete machines.
UNLISTED = {
    *("GRID K340", "GRID K1", "GRID K2", "Tesla M10", "Tesla V100 DGXS 16GB"),
    *("H100 SXM5 64GB", "H100 SXM5 96GB", "GH200 480GB"),
}


def card(text: str) -> Card:
    (found,) = catalogue.matching(text)
    return found


@pytest.mark.parametrize("vendor", REQUIREMENTS["facts"])
def test_every_fact_has_a_source_and_selects_a_card(vendor: str) -> None:
    cards = [card for card in catalogue.cards() if card.vendor == vendor]
    known = {"family": "family", "kind": "kind", "cards": "product"}
    for entry in REQUIREMENTS["facts"][vendor]:
        assert entry["source"] in REQUIREMENTS["sources"], entry
        assert set(entry) - {*known, "source"}, entry
        for key, name in known.items():
            assert set(entry.get(key, ())) <= {getattr(card, name) for card in cards}, entry
    assert set(REQUIREMENTS["sources"]) == {
        entry["source"] for facts in REQUIREMENTS["facts"].values() for entry in facts
    }


def test_no_product_has_two_values_of_the_same_kind() -> None:
    for vendor, facts in REQUIREMENTS["facts"].items():
        for name in ("first", "compute", "mig", "gfx"):
            ids = [product for entry in facts if name in entry for product in entry.get("cards", ())]
            assert len(ids) == len(set(ids)), (vendor, name)


@pytest.mark.parametrize("card", NVIDIA, ids=lambda card: f"{card.product} {card.name}")
def test_nvidia_cards_have_a_consistent_requirement(card: Card) -> None:
    needs = requirement_of(card)
    assert needs.modules in ("open", "proprietary", "either")
    assert (needs.first is None) == (card.name in UNLISTED)
    assert needs.first is None or needs.last is None or needs.first <= needs.last
    assert (needs.first_open is None) == (needs.modules == "proprietary" or card.family == "Blackwell")
    assert (needs.modules == "proprietary") == (needs.last is not None)
    assert needs.mig in (None, 0, 2, 4, 7)
    assert set(needs.sources) >= {name for name in ("first", "last", "modules", "compute") if getattr(needs, name)}


def test_discrete_amd_and_intel_cards_name_their_driver() -> None:
    for each in catalogue.cards():
        needs = requirement_of(each)
        if each.vendor == "1002":
            assert needs.module == "amdgpu"
        elif each.vendor == "8086" and needs.kernel:
            assert needs.module in ("i915", "xe")


def test_architecture_decides_last_branch_and_modules() -> None:
    assert (requirement_of(card("k4200")).last, requirement_of(card("k4200")).modules) == (470, "proprietary")
    assert (requirement_of(card("10de:15f8")).last, requirement_of(card("10de:15f8")).modules) == (580, "proprietary")
    assert (requirement_of(card("tesla t4")).first, requirement_of(card("tesla t4")).modules) == (418, "either")
    assert (requirement_of(card("b200")).first, requirement_of(card("b200")).modules) == (570, "open")
    assert requirement_of(card("10de:2342")).modules == "open"


def test_driver_quirks_follow_from_the_requirement() -> None:
    assert "driver-r470" in card("k4200").quirks
    assert "driver-r580" in card("tesla p40").quirks
    assert "open-modules" in card("b200").quirks
    assert not {"driver-r470", "driver-r580", "open-modules"} & set(card("tesla t4").quirks)


def test_virtual_functions_of_amd_have_their_own_ids() -> None:
    assert requirement_of(card("1002:74a1")).functions == ("74b5",)
    assert requirement_of(card("tesla t4")).functions == ()


@pytest.mark.parametrize("product", ["7410", "74b6", "74bd", "75b0", "75b3", "7461"])
def test_virtual_functions_lead_to_their_card(product: str) -> None:
    found = catalogue.card_of_function("1002", product)
    assert found is not None
    assert requirement_of(found).gfx
    assert catalogue.lookup("1002", product) is None


def test_labels_are_values_that_kubernetes_accepts() -> None:
    valid = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
    assert all(valid.fullmatch(catalogue.label(each)) for each in catalogue.cards())
    assert catalogue.label(card("10de:20f1")) == "a100-pcie-40gb"


ID = re.compile(r"[0-9a-f]{4}", re.ASCII)
MODULE = re.compile(r"[a-z0-9_]+", re.ASCII)
COPIES = (os.environ.get("PCI_IDS", ""), "/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
PCI_IDS = next((Path(path) for path in COPIES if path and Path(path).exists()), None)
RAW = tomllib.loads(data_dir("cards.toml").read_text(encoding="utf-8"))
RAW_DRIVERS = tomllib.loads(data_dir("drivers.toml").read_text(encoding="utf-8"))
GROUP_KEYS = {"vendor", "family", "kind", "functions", "quirks", "source", "cards"}
CARD_KEYS = {"product", "subsystems", "name", "memory_gib", "gpus", "functions", "quirks", "source"}
KINDS = {"datacenter", "workstation", "consumer", "integrated"}
FUNCTIONS = ("display", "audio", "usb", "ucsi")


def test_it_knows_the_cards_of_three_makers() -> None:
    assert len(catalogue.cards()) >= 300
    for vendor, least in (("10de", 200), ("1002", 60), ("8086", 40)):
        assert len([card for card in catalogue.cards() if card.vendor == vendor]) >= least
    assert {card.kind for card in catalogue.cards()} == KINDS


@pytest.mark.parametrize("table", RAW["group"], ids=lambda group: f"{group['vendor']}-{group['family']}")
def test_groups_have_no_stray_keys(table: dict[str, object]) -> None:
    assert set(table) <= GROUP_KEYS
    for card in table["cards"]:  # type: ignore[attr-defined]
        assert set(card) <= CARD_KEYS, card


@pytest.mark.parametrize("card", catalogue.cards(), ids=lambda card: f"{card.vendor}:{card.product} {card.name}")
def test_every_card_is_well_formed(card: Card) -> None:
    assert ID.fullmatch(card.vendor)
    assert ID.fullmatch(card.product)
    assert all(ID.fullmatch(part) for subsystem in card.subsystems for part in subsystem)
    assert catalogue.vendor_name(card.vendor)
    assert card.name == card.name.strip() != ""
    assert card.family.strip()
    assert card.source.strip()
    assert card.kind in KINDS
    assert card.functions[0] == "display"
    assert [f for f in FUNCTIONS if f in card.functions] == list(card.functions)
    assert list(card.memory_gib) == sorted(set(card.memory_gib))
    assert all(memory > 0 for memory in card.memory_gib)
    assert card.dev_type in (None, "type-PCI", "type-PF")
    assert set(card.quirks) <= set(catalogue.quirks())
    assert len(set(card.quirks)) == len(card.quirks)
    assert (card.gpus > 1) == ("multi-gpu-board" in card.quirks)
    assert not (card.kind == "integrated" and card.memory_gib)


def test_ids_are_unique() -> None:
    """One card a product id, or one card a subsystem and one that stands for every other."""
    generic = Counter((c.vendor, c.product) for c in catalogue.cards() if not c.subsystems)
    assert set(generic.values()) == {1}
    specific = Counter((c.vendor, c.product, s) for c in catalogue.cards() for s in c.subsystems)
    assert not specific or set(specific.values()) == {1}
    assert {(vendor, product) for vendor, product, _ in specific} <= set(generic)


def test_sources_named_by_key_are_defined() -> None:
    """A source is a key of [sources] or text that a reader can follow; a lone word is a misspelt key."""
    sources = [entry["source"] for name in ("group", "dev_type", "nvswitch", "console") for entry in RAW[name]]
    sources += [card["source"] for group in RAW["group"] for card in group["cards"] if "source" in card]
    for source in sources:
        assert source in RAW["sources"] or " " in source, source
    assert all(text.strip() for text in RAW["sources"].values())
    assert set(RAW["sources"]) == {source for source in sources if source in RAW["sources"]}, "an unused source"


@pytest.mark.parametrize("quirk", catalogue.quirks().values(), ids=lambda quirk: quirk.key)
def test_every_quirk_says_what_why_and_what_to_do(quirk: catalogue.Quirk) -> None:
    assert quirk.title.strip()
    assert not quirk.title.endswith(".")
    assert quirk.explanation.endswith((".", ")."))
    assert quirk.remedy.endswith(".")
    assert "  " not in quirk.explanation + quirk.remedy
    assert "\n" not in quirk.explanation + quirk.remedy
    assert quirk.source.strip()
    assert any(quirk.key in card.quirks for card in catalogue.cards()), "no card has it"


def test_documented_device_types_are_of_known_cards() -> None:
    ids = [card for table in RAW["dev_type"] for card in table["cards"]]
    assert len(set(ids)) == len(ids)
    for text in ids:
        assert catalogue.lookup(*text.split(":")) is not None, text


# Cards that the repository, or an older copy of it, calls by a word that their makers don't.
OTHERWISE_NAMED = {
    "10de:2321",  # H100L 94GB; NVIDIA: H100 NVL
    "10de:233a",  # H800L 94GB; NVIDIA: H800 NVL
    "10de:2345",  # GH100-88K-A1; Linux: GH200 480GB
    "1002:7480",  # in copies of 2023 only the laptop cards
}

needs_pci_ids = pytest.mark.skipif(PCI_IDS is None, reason="no pci.ids on this machine")


COMPLETE = {
    "2020": {"Kepler", "Maxwell", "Pascal", "Volta", "Turing", "GCN 4 (Polaris)", "GCN 5 (Vega)", "RDNA 1"},
    "2023.04.10": {"GCN 3 (Tonga)", "RDNA 2", "CDNA 1", "CDNA 2", "Xe-LP (SG1)"},  # Debian 12
    "2025.06.09": {  # Debian 13
        *("Ampere", "Ada Lovelace", "Hopper", "APU", "CDNA 3", "CDNA 3 APU", "Integrated graphics"),
        *("Xe-HPG (Arctic Sound)", "Xe-HPC (Ponte Vecchio)", "Xe-HPG (Alchemist)", "Xe2-HPG (Battlemage)"),
    },
}
"""The families of which every card is listed, by the first copy of which that is true."""


@needs_pci_ids
def test_ids_are_in_the_pci_id_repository() -> None:
    """The copy that the catalogue was made with, or a later one, lists every id; older copies lack newer families."""
    made_with = re.search(r"snapshot ([0-9.]+)", RAW["sources"]["pci-ids"])
    assert made_with
    listed, version = _pci_ids()
    families = {card.family for card in catalogue.cards()}
    assert families > set().union(*COMPLETE.values())
    if version < made_with[1]:
        families = set().union(*(names for copy, names in COMPLETE.items() if copy <= version))
    cards = [card for card in catalogue.cards() if card.family in families]
    assert len(cards) > 100
    assert not [_label(card) for card in cards if (card.vendor, card.product) not in listed]


@needs_pci_ids
def test_names_agree_with_the_pci_id_repository() -> None:
    """An id that is listed has a word of the card's name there: a slip of a digit names another card."""
    listed, _ = _pci_ids()
    compared = 0
    strangers = []
    for card in catalogue.cards():
        listed_name = listed.get((card.vendor, card.product), "")
        if "[" not in listed_name or "[Intel Graphics]" in listed_name:
            continue  # not listed, or by its chip alone
        if f"{card.vendor}:{card.product}" in OTHERWISE_NAMED:
            continue
        compared += 1
        if not _telling_words(card.name) & _words(listed_name):
            strangers.append(f"{_label(card)} is listed as {listed_name}")
    assert compared > 200
    assert strangers == []


def _label(card: Card) -> str:
    return f"{card.vendor}:{card.product} {card.name}"


def _telling_words(name: str) -> set[str]:
    """The words of a name that tell one card from the next: its model numbers, else the longer words."""
    words = _words(name)
    models = {word for word in words if re.search("[0-9]", word) and not re.fullmatch("[0-9]{1,2}|[0-9]+gb", word)}
    return models or {word for word in words if len(word) >= 3}


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))


def _pci_ids() -> tuple[dict[tuple[str, str], str], str]:
    """Names by (vendor, product), and the version of the file (``2026.08.22``)."""
    assert PCI_IDS is not None
    names: dict[tuple[str, str], str] = {}
    vendor = version = ""
    for line in PCI_IDS.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("C "):
            break
        if match := re.match(r"#\s+Version: ([0-9.]+)", line):
            version = match[1]
        elif match := re.match(r"([0-9a-f]{4})  ", line):
            vendor = match[1]
        elif match := re.match(r"\t([0-9a-f]{4})  (.*)", line):
            names[vendor, match[1]] = match[2]
    return names, version


@pytest.mark.parametrize(
    ("product", "name", "memory", "gpus", "family"),
    [
        ("11bf", "NVIDIA GRID K2", "4 GiB", 2, "Kepler"),
        ("118f", "NVIDIA Tesla K10", "4 GiB", 2, "Kepler"),
        ("11b4", "NVIDIA Quadro K4200", "4 GiB", 1, "Kepler"),
        ("13f2", "NVIDIA Tesla M60", "8 GiB", 2, "Maxwell"),
        ("15f8", "NVIDIA Tesla P100 PCIe 16GB", "16 GiB", 1, "Pascal"),
        ("2330", "NVIDIA H100 SXM5 80GB", "80 GiB", 1, "Hopper"),
        ("2bb3", "NVIDIA RTX PRO 5000 Blackwell", "48 or 72 GiB", 1, "Blackwell"),
    ],
)
def test_cards_people_have(product: str, name: str, memory: str, gpus: int, family: str) -> None:
    card = catalogue.lookup("10de", product)
    assert card is not None
    assert (card.full_name, card.memory, card.gpus, card.family) == (name, memory, gpus, family)


def test_three_sizes_and_no_size_of_memory() -> None:
    navi31 = catalogue.lookup("1002", "744c")
    assert navi31 is not None
    assert navi31.memory == "16, 20 or 24 GiB"
    integrated = catalogue.lookup("8086", "3e92")
    assert integrated is not None
    assert integrated.memory is None


@pytest.mark.parametrize(
    ("subsystem", "name", "gpus"),
    [
        (("10de", "157e"), "A2", 1),
        (("10de", "14a9"), "A16", 4),
        (("10DE", "14A9"), "A16", 4),
        (("1028", "0000"), "A2 / A16", 1),
        ((None, None), "A2 / A16", 1),
        (("10de", None), "A2 / A16", 1),
    ],
)
def test_the_subsystem_tells_cards_with_one_id_apart(
    subsystem: tuple[str | None, str | None], name: str, gpus: int
) -> None:
    card = catalogue.lookup("10de", "25b6", *subsystem)
    assert card is not None
    assert (card.name, card.gpus) == (name, gpus)


def test_unknown_cards_are_none() -> None:
    assert catalogue.lookup("10de", "ffff") is None
    assert catalogue.lookup("abcd", "11b4") is None
    assert catalogue.lookup("10DE", "11B4") == catalogue.lookup("10de", "11b4") is not None


@pytest.mark.parametrize(
    ("ids", "pci_class", "text"),
    [
        (("10de", "11b4"), "030000", "NVIDIA Quadro K4200"),
        (("10de", "ffff"), "030200", "NVIDIA 3D controller [10de:ffff]"),
        (("1002", "ffff"), "120000", "AMD processing accelerator [1002:ffff]"),
        (("8086", "FFFE"), "038000", "Intel display controller [8086:fffe]"),
        (("1ed5", "0300"), "030000", "VGA controller [1ed5:0300]"),
    ],
)
def test_describe(ids: tuple[str, str], pci_class: str, text: str) -> None:
    assert catalogue.describe(*ids, pci_class) == text


def test_describe_goes_by_the_subsystem() -> None:
    assert catalogue.describe("10de", "25b6", "030200", "10de", "14a9") == "NVIDIA A16"


@pytest.mark.parametrize(
    ("vendor", "product", "keys"),
    [
        ("10de", "2330", {"nvswitch", "large-bar"}),
        ("10de", "2901", {"nvswitch", "nvlink5-bridge"}),
        ("10de", "2342", {"coherent-memory", "no-bus-reset"}),
        ("10de", "2941", {"coherent-memory"}),
        ("10de", "1eb8", {"no-bus-reset"}),
        ("10de", "1b06", {"error-43"}),
        ("10de", "118f", {"multi-gpu-board"}),
        ("1002", "74a1", {"instinct-reset"}),
        ("1002", "687f", {"amd-reset"}),
        ("8086", "56a0", {"audio-elsewhere"}),
    ],
)
def test_quirks_of_cards(vendor: str, product: str, keys: set[str]) -> None:
    card = catalogue.lookup(vendor, product)
    assert card is not None
    assert keys <= {quirk.key for quirk in catalogue.quirks_of(card)}


def test_cards_without_a_fabric_are_not_said_to_have_one() -> None:
    for product in ("2331", "2321", "20b5", "20f1", "233b", "2684"):
        card = catalogue.lookup("10de", product)
        assert card is not None
        assert "nvswitch" not in card.quirks


@pytest.mark.parametrize(
    ("product", "dev_type"), [("2330", "type-PF"), ("11b4", "type-PCI"), ("1db6", "type-PCI"), ("2684", None)]
)
def test_documented_device_types(product: str, dev_type: str | None) -> None:
    card = catalogue.lookup("10de", product)
    assert card is not None
    assert card.dev_type == dev_type


def test_nvswitches() -> None:
    assert catalogue.is_nvswitch("10de", "1af1", "068000")
    assert catalogue.is_nvswitch("10de", "22a3", "068000")
    assert catalogue.is_nvswitch("10DE", "22A3", "068000")
    assert catalogue.is_nvswitch("10de", "ffff", "068000"), "a switch newer than the catalogue"
    assert not catalogue.is_nvswitch("10de", "2330", "030200"), "a GPU beside it"
    assert not catalogue.is_nvswitch("10de", "22ce", "060400"), "a bridge of NVIDIA's that forwards"
    assert not catalogue.is_nvswitch("8086", "a323", "068000"), "another vendor's bridge"


def test_nvswitch_ids_are_no_cards() -> None:
    for entry in RAW["nvswitch"]:
        assert ID.fullmatch(entry["vendor"])
        assert ID.fullmatch(entry["class"])
        for product in entry["products"]:
            assert ID.fullmatch(product)
            assert catalogue.lookup(entry["vendor"], product) is None


def test_consoles() -> None:
    assert catalogue.is_console("1a03", "2000"), "ASPEED"
    assert catalogue.is_console("102b", "0536"), "Matrox G200eW3"
    assert catalogue.is_console("102B", "0536")
    assert catalogue.is_console("1002", "515e"), "ES1000, one product of a maker of GPUs"
    assert not catalogue.is_console("1002", "74a1")
    assert not catalogue.is_console("10de", "11b4")
    assert catalogue.is_console("1234", "1111", "030000")
    assert not catalogue.is_console("1234", "1111", "038000"), "without VGA it stands for GPUs in tests"
    assert catalogue.is_console("1234", "1111"), "in some class"


def test_no_card_is_a_console() -> None:
    assert not [card for card in catalogue.cards() if catalogue.is_console(card.vendor, card.product)]
    for entry in RAW["console"]:
        assert ID.fullmatch(entry["vendor"])
        assert ID.fullmatch(entry.get("product", "0000"))
        assert entry["name"].strip()


def test_host_drivers() -> None:
    assert set(catalogue.host_drivers("10de")) >= {
        "nouveau",
        "nvidia",
        "nvidia_drm",
        "nvidia_modeset",
        "nvidia_uvm",
        "nvidiafb",
        "nova_core",
        "nova_drm",
    }
    assert catalogue.host_drivers("1002") == ("amdgpu", "radeon")
    assert catalogue.host_drivers("8086") == ("i915", "xe")
    assert catalogue.host_drivers("10DE") == catalogue.host_drivers("10de")
    assert catalogue.host_drivers("1a03") == ()


def test_host_drivers_are_module_names_with_a_source() -> None:
    names = [entry["name"] for entry in RAW_DRIVERS["driver"]]
    assert len(set(names)) == len(names)
    for entry in RAW_DRIVERS["driver"]:
        assert set(entry) == {"vendor", "name", "source"}
        assert MODULE.fullmatch(entry["name"])
        assert entry["source"].strip()
        assert catalogue.vendor_name(entry["vendor"])


@pytest.mark.parametrize("change", [{"memory_gib": 8}, {"name": None}])
def test_an_entry_with_a_mistake_is_named(change: dict[str, object]) -> None:
    entry = {"product": "11b4", "name": "Quadro K4200", **change}
    entry = {key: value for key, value in entry.items() if value is not None}
    group = {"vendor": "10de", "family": "Kepler", "kind": "workstation", "functions": ["display"], "source": "pci-ids"}
    with pytest.raises(ValueError, match=r"cards.toml, .*'11b4'"):
        list(catalogue._read_cards({"dev_type": [], "sources": {}, "group": [{**group, "cards": [entry]}]}))


@pytest.mark.parametrize(
    ("name", "vendor", "products"),
    [
        ("A40", "10DE", ["2235"]),
        ("tesla t4", "10de", ["1eb8"]),
        ("A40", "1002", []),
        ("ffff", "10de", []),
        ("", "x", []),
    ],
)
def test_product_ids_of_a_name(name: str, vendor: str, products: list[str]) -> None:
    assert catalogue.products_called(name, vendor) == products
