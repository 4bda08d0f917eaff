"""Groups of equal hosts, and the patterns that name them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.base.host_groups import fold, host_groups, natural, patterns_of, total
from gpustack.spec.patterns import HostPattern

UUID = "6f8ab2c1-0000-4000-8000-0000000000{:02}"


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        ([], []),
        (["gpu01"], ["gpu01"]),
        (["gpu01", "gpu02"], ["gpu[01:02]"]),
        (["gpu08", "gpu09", "gpu10", "gpu11"], ["gpu[08:11]"]),
        (["gpu8", "gpu9", "gpu10", "gpu11"], ["gpu[8:11]"]),
        (["gpu98", "gpu99", "gpu100"], ["gpu[98:100]"]),
        (["gpu01", "gpu03", "gpu04", "gpu05", "gpu7"], ["gpu01", "gpu[03:05]", "gpu7"]),
        (["gpu0", "gpu1", "gpu00", "gpu01"], ["gpu[00:01]", "gpu[0:1]"]),
        (["r1-gpu01", "r1-gpu02", "r2-gpu01"], ["r1-gpu[01:02]", "r2-gpu01"]),
        (["gpu1.dc2.example.org", "gpu2.dc2.example.org"], ["gpu[1:2].dc2.example.org"]),
        (["gpu1.dc1", "gpu2.dc2"], ["gpu1.dc1", "gpu2.dc2"]),
        (["gpu01a", "gpu02a"], ["gpu[01:02]a"]),
        (["01", "02", "3"], ["[01:02]", "3"]),
        (["gpu9", "gpu10", "storage", "gpu9"], ["gpu[9:10]", "storage"]),
        (["n1234567890", "n1234567891"], ["n1[234567890:234567891]"]),
    ],
)
def test_consecutive_names_become_ranges(names: list[str], patterns: list[str]) -> None:
    assert fold(names) == patterns
    assert fold(reversed(names)) == patterns


NAMES = st.one_of(
    st.from_regex(r"[a-z]{0,2}[0-9]{1,3}(\.x[0-9])?", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,12}", fullmatch=True),
    st.integers(0, 200).map(lambda n: f"gpu{n:02d}"),
)


@given(st.lists(NAMES, max_size=40))
def test_patterns_stand_for_exactly_the_names(names: list[str]) -> None:
    patterns = fold(names)
    expanded = [name for pattern in patterns for name in HostPattern.parse(pattern).names()]
    assert sorted(expanded) == sorted(set(names))
    assert patterns == sorted(patterns, key=natural)


def test_a_thousand_rows_are_folded_to_one_pattern_each() -> None:
    names = [f"rack{rack}-gpu{number:02d}" for rack in range(100) for number in range(1, 100)]
    assert len(fold(names)) == 100


@pytest.mark.parametrize("each", [False, True])
def test_texts_of_no_host_are_shown_as_they_are(each: bool) -> None:
    texts = [("", "../a.conf: x y"), ("gpu01", "gpu01: x"), ("", "../b.conf: x y")]
    assert [group.text for group in host_groups(texts, each=each)] == [text for _, text in texts]


def test_hosts_that_differ_in_their_names_are_one_group() -> None:
    (group,) = host_groups((f"gpu{n:02}", f"gpu{n:02}: 1 file\n  root=/dev/vg_gpu{n:02}/root") for n in range(1, 41))
    assert group.pattern == "gpu[01:40]"
    assert group.text == "gpu[01:40] (40 hosts): 1 file\n  root=/dev/vg_gpu[01:40]/root"


def test_another_word_splits_a_group() -> None:
    groups = host_groups([("a1", "a1: 1 file"), ("a2", "a2: 2 files"), ("a3", "a3: 1 file"), ("b", "a1: 1 file")])
    assert [(group.pattern, group.text) for group in groups] == [
        ("a1,a3", "a1,a3 (2 hosts): 1 file"),
        ("a2", "a2: 2 files"),
        ("b", "a1: 1 file"),
    ]
    assert patterns_of(groups) == {"a1": "a1,a3", "a3": "a1,a3", "a2": "a2", "b": "b"}


def test_a_name_inside_another_name_is_not_its_own() -> None:
    assert len(host_groups([("gpu1", "gpu1 like gpu12"), ("gpu2", "gpu2 like gpu22")])) == 2


def test_identifiers_do_not_split_a_group_and_are_named() -> None:
    texts = [(f"gpu{n}", f"gpu{n}: root=UUID={UUID.format(n)}, boot=UUID={UUID.format(9)}") for n in (1, 2)]
    (group,) = host_groups(texts)
    assert group.text.endswith(f"\n\n  different on each host, shown of gpu1: {UUID.format(1)}")


def test_longer_texts_are_compared_and_not_shown() -> None:
    texts = [("gpu1", "gpu1: 1 file"), ("gpu2", "gpu2: 1 file")]
    (group,) = host_groups(texts, ["gpu1: +a", "gpu2: +a"])
    assert group.text == "gpu[1:2] (2 hosts): 1 file"
    assert len(host_groups(texts, ["gpu1: +a", "gpu2: +b"])) == len(host_groups(texts, each=True)) == 2


@given(st.dictionaries(NAMES, st.text("ab1 -.", max_size=8), max_size=12))
def test_each_host_is_in_one_group_with_its_own_text(texts: dict[str, str]) -> None:
    named = {host: f"{host}: {text}" for host, text in texts.items()}
    groups = host_groups(named.items())
    assert sorted(host for group in groups for host in group.hosts) == sorted(texts)
    assert all(group.text == named[group.hosts[0]] for group in groups if len(group.hosts) == 1)


def test_totals_name_hosts_first() -> None:
    assert total({"host": 40, "GPU": 1}, {"blocked": 0}) == "Total: 40 hosts, 1 GPU; 0 blocked"
    assert total({"host": 2}, {}) == "Total: 2 hosts"
