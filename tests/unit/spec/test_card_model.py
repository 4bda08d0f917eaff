"""Which model a function is of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.hosts.facts.model import Function
from gpustack.spec.card_model import disjoint, matches, model_of, within
from gpustack.spec.models import Match, Model

IDS = {"vendor": "10de", "product": "11b4"}


def function(**values: Any) -> Function:
    base = {
        "address": "0000:88:00.0",
        "vendor": "10de",
        "product": "11b4",
        "subsystem_vendor": "10de",
        "subsystem_product": "1096",
        "class": "030000",
    }
    return Function.model_validate(base | values)


@pytest.mark.parametrize(
    ("conditions", "fits"),
    [
        ({}, True),
        ({"vendor": "10DE"}, True),
        ({"vendor": "1002"}, False),
        ({"product": "11b5"}, False),
        ({"subsystem_vendor": "10de", "subsystem_product": "1096"}, True),
        ({"subsystem_product": "1097"}, False),
        ({"subsystem_vendor": "103c"}, False),
        ({"class": "0300"}, True),
        ({"class": "0302"}, False),
        ({"addresses": ["88:00.0"]}, True),
        ({"addresses": ["0000:89:00.0", "0000:88:00.0"]}, True),
        ({"addresses": ["0000:89:00.0"]}, False),
    ],
)
def test_all_that_is_asked_must_fit(conditions: dict[str, Any], fits: bool) -> None:
    assert matches(Match.model_validate(IDS | conditions), function()) is fits


@pytest.mark.parametrize(
    ("conditions", "physical", "fits"),
    [
        ({}, "0000:88:00.0", False),
        ({"function": "virtual"}, None, False),
        ({"function": "virtual"}, "0000:88:00.0", True),
        ({"function": "virtual", "addresses": ["0000:88:00.0"]}, "0000:88:00.0", True),
        ({"function": "virtual", "addresses": ["0000:88:00.3"]}, "0000:88:00.0", False),
    ],
)
def test_virtual_functions_fit_only_models_of_their_own(
    conditions: dict[str, Any], physical: str | None, fits: bool
) -> None:
    part = function(address="0000:88:00.3", physical_function=physical)
    assert matches(Match.model_validate(IDS | conditions), part) is fits


def test_cards_and_virtual_functions_are_disjoint() -> None:
    card, part = Match.model_validate(IDS), Match.model_validate(IDS | {"function": "virtual"})
    assert disjoint(card, part)
    assert not within(card, part)
    assert not within(part, card)


def test_an_unknown_subsystem_fits_nothing_that_is_asked() -> None:
    unknown = function(subsystem_vendor=None, subsystem_product=None)
    assert not matches(Match.model_validate(IDS | {"subsystem_vendor": "10de"}), unknown)
    assert matches(Match.model_validate(IDS), unknown)


def test_a_card_is_of_the_model_that_asks_most_whatever_the_order() -> None:
    general = Model.model_validate({"match": IDS})
    board = Model.model_validate({"match": IDS | {"subsystem_product": "1096"}})
    addressed = Model.model_validate({"match": IDS | {"subsystem_product": "1096", "addresses": ["0000:88:00.0"]}})
    for models in (
        {"general": general, "board": board, "one": addressed},
        {"one": addressed, "board": board, "general": general},
    ):
        assert model_of(models, function()) == "one"
        assert model_of(models, function(address="0000:89:00.0")) == "board"
        assert model_of(models, function(subsystem_product="1234")) == "general"
        assert model_of(models, function(product="13f2")) is None


HEX = st.sampled_from(["10de", "1096", "103c"])
MATCHES = st.fixed_dictionaries(
    {"vendor": st.just("10de"), "product": st.just("11b4")},
    optional={
        "subsystem_vendor": HEX,
        "subsystem_product": HEX,
        "class": st.sampled_from(["0300", "0302"]),
        "addresses": st.lists(st.sampled_from(["0000:88:00.0", "0000:89:00.0"]), min_size=1, unique=True),
    },
).map(Match.model_validate)
FUNCTIONS = st.builds(
    function,
    address=st.sampled_from(["0000:88:00.0", "0000:89:00.0"]),
    subsystem_vendor=HEX,
    subsystem_product=HEX,
    **{"class": st.sampled_from(["030000", "030200"])},
)


@given(MATCHES, MATCHES, FUNCTIONS)
def test_disjoint_and_within_mean_what_they_say(first: Match, second: Match, card: Function) -> None:
    if disjoint(first, second):
        assert not (matches(first, card) and matches(second, card))
    if within(first, second):
        assert not within(second, first)
        assert matches(second, card) or not matches(first, card)
