"""Values of changes: differences for people, and values between two others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpustack.changes.change import difference, is_between, reversed_order
from gpustack.offer.flavor.changes import AccessChange, FlavorChange
from gpustack.offer.tenancy.changes import AggregateChange
from support.change_store import change


@pytest.mark.parametrize(
    ("seen", "wanted", "lines"),
    [
        ({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 4, "d": True}, ["~ b = 4 (was 2)", "- c (was 3)", "+ d = yes"]),
        (None, {"a": "x"}, ["+ a = x"]),
        ({"a": ["x", "y"]}, None, ["- a (was x, y)"]),
        ({"specs": {"x": 1}}, {}, ["- x (was 1)"]),
        ({}, {"specs": {"x": 1}}, ["+ x = 1"]),
        (4, None, ["~ absent (was 4)"]),
        (False, True, ["~ yes (was no)"]),
    ],
)
def test_a_difference_in_lines(seen: Any, wanted: Any, lines: list[str]) -> None:
    assert difference(seen, wanted) == lines


def test_a_difference_with_both_values() -> None:
    before, after = {"specs": {"a": "x", "b": 1}}, {"specs": {"b": 2, "c": True}}
    assert difference(before, after, both=True) == ["~ a = absent (was x)", "~ b = 2 (was 1)", "~ c = yes (was absent)"]


@pytest.mark.parametrize(
    ("present", "seen", "wanted", "between"),
    [
        ({"a": 2, "b": 1}, {"a": 1, "b": 1}, {"a": 2, "b": 2}, True),
        ({"a": 3, "b": 1}, {"a": 1, "b": 1}, {"a": 2, "b": 2}, False),
        ({"size": 1, "specs": {}}, None, {"size": 1, "specs": {"x": "y"}}, True),
        ({"size": 2, "specs": {}}, None, {"size": 1, "specs": {"x": "y"}}, False),
        ({"size": 1, "specs": {}, "more": 1}, None, {"size": 1, "specs": {}}, False),
        ({"access": ["p"]}, None, {"access": ["p", "q"]}, True),
        ({"access": ["p", "r"]}, None, {"access": ["p", "q"]}, False),
        (["p"], ["p", "q"], ["q"], False),
        (None, {"a": 1}, {"a": 2}, False),
        (5, 4, 6, False),
    ],
)
def test_a_value_between_two_others(present: Any, seen: Any, wanted: Any, between: bool) -> None:
    assert is_between(present, seen, wanted) is between


def test_reversed_changes_need_what_needed_them() -> None:
    first, second = reversed_order([change("a", None, 1), change("b", 1, 2, "a", "elsewhere")])
    assert (first.name, first.seen, first.wanted, first.needs) == ("b", 2, 1, ())
    assert (second.name, second.needs) == ("a", ("value:b",))
    later = [replace(made, needs=(), after=made.needs) for made in (change("a", None, 1), change("b", 1, 2, "a"))]
    assert [(back.needs, back.after) for back in reversed_order(later)] == [((), ()), ((), ("value:b",))]


def test_a_record_holds_the_complete_change() -> None:
    made = change("a", {"x": 1}, None, "b")
    assert type(made).from_record(made.to_record()).to_record() == made.to_record()


def test_objects_of_one_name_are_two() -> None:
    """The id of a flavor may be the name of an aggregate; the access to a flavor is a part of it."""
    flavor = FlavorChange(why="", id="gpu-1", name="g", seen={}, wanted=None)
    access = AccessChange(why="", id="gpu-1", name="g", seen={"p": True}, wanted={"p": False})
    aggregate = AggregateChange(why="", name="gpu-1", seen={}, wanted=None)
    assert flavor.place == access.place != aggregate.place
    assert access.made_to({"public": False, "access": ["p", "q"]}) == {"public": False, "access": ["q"]}
