"""Host patterns: what they stand for, what they match, and what is refused."""

from __future__ import annotations

import fnmatch

import pytest
from ansible.errors import AnsibleError
from ansible.plugins.inventory import expand_hostname_range
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gpustack.spec.patterns import MAX_HOSTS, HostPattern, Patterns

WORDS = st.from_regex(r"[a-z0-9_.-]{0,4}", fullmatch=True)
BOUNDS = st.one_of(st.from_regex(r"[0-9]{1,3}", fullmatch=True), st.from_regex(r"[A-Za-z]", fullmatch=True))
RANGES = st.builds(
    lambda first, last, step: f"[{first}:{last}{step}]",
    BOUNDS,
    BOUNDS,
    st.one_of(st.just(""), st.integers(1, 40).map(lambda n: f":{n}")),
)
WITH_RANGES = st.lists(st.one_of(WORDS, RANGES), max_size=4).map(lambda pieces: "g" + "".join(pieces))


def refusal(text: str) -> str | None:
    """What is said against a pattern, or None when it is taken."""
    try:
        HostPattern.parse(text)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("gpu01.example.org", ["gpu01.example.org"]),
        ("gpu-[08:11]", ["gpu-08", "gpu-09", "gpu-10", "gpu-11"]),
        ("gpu-[8:11]", ["gpu-8", "gpu-9", "gpu-10", "gpu-11"]),
        ("gpu-[01:09:4].x", ["gpu-01.x", "gpu-05.x", "gpu-09.x"]),
        ("r[a:c]", ["ra", "rb", "rc"]),
        ("r[a:b]n[1:2]", ["ran1", "ran2", "rbn1", "rbn2"]),
        ("[1:2]gpu", ["1gpu", "2gpu"]),
        ("gpu[:2]", ["gpu0", "gpu1", "gpu2"]),
        ("gpu[1:03]", ["gpu1", "gpu2", "gpu3"]),
    ],
)
def test_names_that_a_pattern_stands_for(pattern: str, names: list[str]) -> None:
    assert list(HostPattern.parse(pattern).names()) == names
    assert HostPattern.parse(pattern).count == len(names)
    assert all(HostPattern.parse(pattern).matches(name) for name in names)


@given(WITH_RANGES)
def test_ranges_stand_for_what_ansible_makes_of_them(text: str) -> None:
    try:
        pattern = HostPattern.parse(text)
    except ValueError:
        return
    assume(pattern.count <= 2000)
    expanded = expand_hostname_range(text) if "[" in text else [text]
    assert list(pattern.names()) == expanded


@given(WITH_RANGES)
def test_what_ansible_refuses_is_refused(text: str) -> None:
    try:
        expanded = expand_hostname_range(text) if "[" in text else [text]
    except (AnsibleError, ValueError):
        assert refusal(text)
    else:
        if expanded and len(expanded) <= MAX_HOSTS:
            HostPattern.parse(text)


@given(WITH_RANGES, st.from_regex(r"g[a-z0-9_.-]{0,6}", fullmatch=True))
def test_matching_and_expanding_agree(text: str, name: str) -> None:
    try:
        pattern = HostPattern.parse(text)
    except ValueError:
        return
    assume(pattern.count <= 2000)
    names = list(pattern.names())
    assert pattern.matches(name) == (name in names)
    assert all(pattern.matches(name) for name in names)


@given(st.from_regex(r"[ab*?][ab*?.]{0,12}", fullmatch=True), st.from_regex(r"[ab.]{0,12}", fullmatch=True))
def test_wildcards_match_as_in_ansible_patterns(text: str, name: str) -> None:
    assert HostPattern.parse(text).matches(name) == fnmatch.fnmatchcase(name, text)


@given(st.one_of(st.text(), st.text("g[]:*?1a\n\u202e;")))
def test_any_text_is_a_pattern_or_a_value_error(text: str) -> None:
    message = refusal(text)
    if message is None:
        assert HostPattern.parse(text).text == text
    else:
        assert message.isascii()
        assert message.isprintable()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "1 to 254 characters"),
        ("g" * 255, "1 to 254 characters"),
        ("-gpu", "begins with a letter"),
        ("gpu 01", "' ' is not used"),
        ("gpu;reboot", "';' is not used"),
        ("gpu\n01", r"'\\n' is not used"),
        ("gpü01", r"U\+00FC is not used"),
        ("gpu[01:16", "don't pair up"),
        ("gpu01:16]", "':' is not used"),
        ("gpu01]", "don't pair up"),
        ("gpu[[1:2]]", "don't pair up"),
        ("gpu[]", r"\[\] is not a range"),
        ("gpu[1-3]", r"\[1-3\] is not a range; expected \[first:last\]"),
        ("gpu[1:2:3:4]", "is not a range"),
        ("gpu[16:01]", "ends before it begins"),
        ("gpu[f:a]", "ends before it begins"),
        ("gpu[01:]", "has no end"),
        ("gpu[01:100]", r"did you mean \[001:100\]"),
        ("gpu[1:9:0]", "step must be 1 or more"),
        ("gpu[1:9:-1]", "step must be an integer"),
        ("gpu[aa:zz]", "two numbers or two single letters"),
        ("gpu[a:9]", "two numbers or two single letters"),
        ("gpu[1:9999999]", "expands to 9999999 hosts"),
        ("gpu[1:99999999999999999999]", "two numbers or two single letters"),
        ("r[1:999]n[1:999]", "expands to 998001 hosts"),
    ],
)
def test_invalid_patterns_name_their_problem(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HostPattern.parse(pattern)


def test_an_open_pattern_has_no_list_of_names() -> None:
    with pytest.raises(ValueError, match="can't be listed"):
        list(HostPattern.parse("gpu-*").names())


def test_a_hostile_pattern_is_matched_without_backtracking() -> None:
    """Exponential matching of this pair would take longer than the universe has; no clock is needed to see it."""
    pattern = HostPattern.parse("*a" * 127)
    assert not pattern.matches("a" * 126 + "b" * 126)
    assert pattern.matches("a" * 254)


def test_ranges_side_by_side_find_every_split() -> None:
    pattern = HostPattern.parse("gpu[1:20][1:5]")
    assert pattern.matches("gpu11")
    assert pattern.matches("gpu205")
    assert not pattern.matches("gpu1")
    assert not pattern.matches("gpu215")


NAMES = st.one_of(
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,12}", fullmatch=True),
    st.integers(0, 200).map(lambda n: f"gpu{n:02d}"),
)
TEXTS = ("gpu*", "gpu[01:40]", "*", "gpu0?", "gpu01", "?pu*", "rack[a:c]-gpu1", "gpu01.*", "GPU*")


@example(["gpu01.*", "gpu*"], "gpu")
@given(st.lists(st.sampled_from(TEXTS), max_size=9), NAMES)
def test_patterns_are_looked_up_by_their_start(texts: list[str], name: str) -> None:
    patterns = [HostPattern.parse(text) for text in texts]
    assert Patterns(patterns).matching(name) == tuple(pattern for pattern in patterns if pattern.matches(name))
