"""YAML that grows, nests or counts without an end is refused before anything is built of it."""

from __future__ import annotations

import contextlib
import time

import pytest
import yaml

from gpustack.base.limited_yaml import (
    MOST_DIGITS,
    MOST_LEVELS,
    LimitedLoader,
    Limits,
    TextLoader,
    YamlLimitError,
    check_limits,
    load,
    load_all,
)

GROWING = ["&a0 [x]", *(f"&a{number} [{', '.join([f'*a{number - 1}'] * 9)}]" for number in range(1, 9))]
MERGES = ["l0: &l0 {a: 1}", *(f"l{n}: &l{n} {{<<: [*l{n - 1}, *l{n - 1}]}}" for n in range(1, 25))]
HALVES = f"[&a {'[' * 60}{']' * 60}, {'[' * 60}*a{']' * 60}]"
REFUSED = {
    "aliases": (f"[{', '.join(GROWING)}]", "line 1: more than 1000000 values"),
    "merged mappings": ("\n".join(MERGES), "line 18: more than 1000000 values"),
    "levels": ("\n" + "[" * (MOST_LEVELS + 1), f"line 2: nested more than {MOST_LEVELS} levels"),
    "levels of aliases": (HALVES, f"nested more than {MOST_LEVELS} levels"),
    "itself": ("- &a [*a]", "line 1: an alias refers to a value that contains it"),
    "base 60": ("a: " + "1:" * MOST_DIGITS + "1", f"a number with more than {MOST_DIGITS} digits"),
    "a tagged number": (f"a: !!int '{'1:' * MOST_DIGITS}1'", f"a number with more than {MOST_DIGITS} digits"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("loader", [LimitedLoader, TextLoader])
def test_a_text_beyond_the_limits_is_refused_at_once(name: str, loader: type[LimitedLoader | TextLoader]) -> None:
    text, message = REFUSED[name]
    start = time.process_time()
    with pytest.raises(YamlLimitError, match=message):
        load(text, loader)
    for parser in (yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        with pytest.raises(YamlLimitError, match=message):
            check_limits(text, parser, plain=False)
    assert time.process_time() - start < 5


def test_a_text_within_the_limits_is_read() -> None:
    assert load("[" * MOST_LEVELS + "]" * MOST_LEVELS)
    assert load("[&a 1, *a, &b [*a], *b, {<<: {c: 2}}]") == [1, 1, [1], [1], {"c": 2}]
    assert load(f"a: '{'1' * 9999}'") == {"a": "1" * 9999}
    assert load("a: 010", TextLoader) == {"a": "010"}
    assert load("") is None
    assert load_all("a: &a 1\n--- \n[]\n") == [{"a": 1}, []]


def test_values_count_without_aliases_unless_the_library_takes_them() -> None:
    events = list(yaml.parse("[a, b, c, d]"))
    for plain in (True, False):
        limits = Limits(values=4, plain=plain)
        with pytest.raises(YamlLimitError) if plain else contextlib.nullcontext():
            for event in events:
                limits.count(event)


def test_documents_share_the_limit_and_no_anchors() -> None:
    with pytest.raises(YamlLimitError, match="values"):
        load_all("".join(f"--- [{', '.join(GROWING[:7])}]\n" for _ in range(2)))
    with pytest.raises(yaml.YAMLError, match="undefined alias"):
        load_all("--- &a [1]\n--- *a\n")
    with pytest.raises(yaml.YAMLError, match="one document"):
        load("--- 1\n--- 2\n")


@pytest.mark.parametrize(
    "text", ["a: !!timestamp '1'", 'a: "\\Uffffffff"', "a: 2001-99-99", "%YAML " + "1" * 9999 + ".1\n--- 1", "\0", "*a"]
)
def test_values_that_are_impossible_are_no_yaml(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load(text)
    check_limits(text)  # left to the library
