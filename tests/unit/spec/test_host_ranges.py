"""Folding host names into ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.spec.host_ranges import fold, natural
from gpustack.spec.hosts import expand


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
    expanded = [name for pattern in patterns for name in expand(pattern)]
    assert sorted(expanded) == sorted(set(names))
    assert patterns == sorted(patterns, key=natural)


def test_a_thousand_rows_are_folded_to_one_pattern_each() -> None:
    names = [f"rack{rack}-gpu{number:02d}" for rack in range(100) for number in range(1, 100)]
    assert len(fold(names)) == 100
