"""Base address registers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpustack.hosts.facts.collector.resources import bars

FIELD = st.integers(min_value=0, max_value=2**64 - 1)


@given(st.lists(st.tuples(FIELD, FIELD, FIELD), max_size=8))
def test_bars_have_a_size_and_the_index_of_their_line(lines: list[tuple[int, int, int]]) -> None:
    regions = bars("".join("0x{:016x} 0x{:016x} 0x{:016x}\n".format(*line) for line in lines))
    for bar in regions:
        start, end, flags = lines[bar["index"]]
        assert bar["size"] == end - start + 1 > 0
        assert flags & 0x300
    assert len({bar["index"] for bar in regions}) == len(regions)
    assert all(bar["index"] < 6 for bar in regions)


@given(st.text(max_size=200))
def test_any_text_in_place_of_bars(text: str) -> None:
    assert isinstance(bars(text), list)
