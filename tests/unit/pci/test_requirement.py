"""The requirements of the cards: complete where a source exists, consistent, and readable by Kubernetes."""

from __future__ import annotations

import re
import tomllib

import pytest

from gpustack.base.files import data_dir
from gpustack.pci import catalogue
from gpustack.pci.catalogue import Card, requirement_of

RAW = tomllib.loads(data_dir("requirements.toml").read_text(encoding="utf-8"))
NVIDIA = [card for card in catalogue.cards() if card.vendor == "10de"]
# Cards that no list of NVIDIA names: boards for vGPU, and boards that were sold in complete machines.
UNLISTED = {
    *("GRID K340", "GRID K1", "GRID K2", "Tesla M10", "Tesla V100 DGXS 16GB"),
    *("H100 SXM5 64GB", "H100 SXM5 96GB", "GH200 480GB"),
}


def card(text: str) -> Card:
    (found,) = catalogue.matching(text)
    return found


@pytest.mark.parametrize("vendor", RAW["facts"])
def test_every_fact_has_a_source_and_selects_a_card(vendor: str) -> None:
    cards = [card for card in catalogue.cards() if card.vendor == vendor]
    known = {"family": "family", "kind": "kind", "cards": "product"}
    for entry in RAW["facts"][vendor]:
        assert entry["source"] in RAW["sources"], entry
        assert set(entry) - {*known, "source"}, entry
        for key, name in known.items():
            assert set(entry.get(key, ())) <= {getattr(card, name) for card in cards}, entry
    assert set(RAW["sources"]) == {entry["source"] for facts in RAW["facts"].values() for entry in facts}


def test_no_product_has_two_values_of_the_same_kind() -> None:
    for vendor, facts in RAW["facts"].items():
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
