"""Silent sources share one total; the first one has its own limit."""

import pytest

from gpustack.base import silence


@pytest.mark.parametrize("limits", [[30.0] * 4, [15.0] * 6, [15.0, *[30.0] * 4], [60.0, 15.0]])
def test_silent_sources_keep_the_total(limits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "_waited", 0.0)
    given = []
    for usual in limits:
        given.append(silence.left(usual))
        silence.waited(given[-1])
    assert given[0] == limits[0]
    assert sum(given) <= silence.TOTAL + silence.LAST
    assert min(given) >= silence.LAST
    silence.forget()
    assert silence.left(30.0) == 30.0
