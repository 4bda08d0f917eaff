"""The reasons for a closed host: a set in 255 characters, which others edit too."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.base.errors import PlanError, UsageError
from gpustack.cloud.closed import MAINTENANCE, UNSTATED, Reasons, gpu_reason, parse, reasons_of, service_of
from gpustack.cloud.compute import Service

NAMES = st.one_of(
    st.just(MAINTENANCE),
    st.builds(
        lambda domain, bus, slot: gpu_reason(f"{domain:04x}:{bus:02x}:{slot >> 3:02x}.{slot & 7}"),
        st.sampled_from([0, 0, 0, 9, 0x10000]),
        st.integers(0, 255),
        st.integers(0, 255),
    ),
)
PIECES = st.sampled_from(
    ["gpustack: ", "maintenance", "GPU 81:00.0", "GPU 0000:82:00.0 out of service: x", "; ", " | ", "others", "(ECC)"]
)
TEXTS = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=6).map("".join))
SETS = st.builds(
    lambda own, other: (
        Reasons(other=other).plus("maintenance", "").minus("maintenance") if not own else _with(own, other)
    ),
    st.dictionaries(NAMES, TEXTS, max_size=5),
    TEXTS,
)


def _with(own: dict[str, str], other: str) -> Reasons:
    reasons = Reasons(other=other)
    for name, text in own.items():
        reasons = reasons.plus(name, text)
    return reasons


def stored(reasons: Reasons) -> Reasons | None:
    """The set as Nova gives it back; None if it does not fit."""
    try:
        return parse(reasons.to_text())
    except PlanError:
        return None


def assert_the_same(back: Reasons | None, reasons: Reasons) -> None:
    """The same reasons and the same text of others; gpustack's own texts may be shortened."""
    assert back is not None
    assert (back.own.keys(), back.other) == (reasons.own.keys(), reasons.other)
    for name, text in back.own.items():
        assert text == reasons.own[name] or reasons.own[name].startswith(text.removesuffix("..."))


@given(SETS)
def test_no_reason_and_no_text_of_others_is_lost(reasons: Reasons) -> None:
    back = stored(reasons)
    if back is None:
        assert reasons.other
        return
    assert len(reasons.to_text()) <= 255
    assert_the_same(back, reasons)
    assert stored(back) == back


@given(TEXTS, NAMES, TEXTS)
def test_a_text_of_others_keeps_the_host_closed_when_the_reason_ends(other: str, name: str, text: str) -> None:
    before = parse(other)
    added = stored(before.plus(name, text))
    if added is not None and name not in before.own:
        assert bool(added.minus(name)) == bool(before)
        if before:
            assert_the_same(stored(added.minus(name)), before)


@given(st.lists(NAMES, unique=True, max_size=4), st.text(max_size=20))
def test_the_order_of_ends_does_not_matter(names: list[str], other: str) -> None:
    start = _with(dict.fromkeys(names, "why"), other)
    for order in itertools.permutations(names):
        reasons: Reasons | None = start
        for number, name in enumerate(order):
            assert reasons is not None
            assert reasons, f"open with {len(order) - number} reasons left"
            reasons = stored(reasons.minus(name))
        assert reasons == Reasons(other=other)


def test_sixteen_gpus_maintenance_and_sixty_characters_fit() -> None:
    reasons = Reasons(other="ä" * 60).plus(MAINTENANCE, "kernel arguments " * 30)
    for bus in range(16):
        reasons = reasons.plus(gpu_reason(f"0000:{0x81 + bus:02x}:00.0"), f"fatal errors of GPU {bus}")
    back = stored(reasons)
    assert back is not None
    assert (len(back.own), back.other) == (17, "ä" * 60)
    assert reasons.to_text().startswith("gpustack: maintenance; GPU 81:00.0, 82:00.0")


def test_a_set_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(PlanError, match="do not fit in Nova's 255 characters"):
        Reasons(other="x" * 255).plus(MAINTENANCE, "").to_text()
    assert Reasons(other="x" * 255).to_text() == "x" * 255


@pytest.mark.parametrize(
    ("text", "own", "other"),
    [
        (
            "gpustack: gpu1 is rebooted: without iommu (yet) (since 2026-11-21T09:00:00Z)",
            {MAINTENANCE: "gpu1 is rebooted: without iommu [yet]"},
            "",
        ),
        ("gpustack: gpu1 has failed: no (since 2026-11-21T09:00:00Z)", {MAINTENANCE: "gpu1 has failed: no"}, ""),
        ("GPU 0000:81:00.0 out of service: no reset", {"GPU 0000:81:00.0": "no reset"}, ""),
        (
            "gpustack: maintenance; GPU 81:00.0, 9:82:00.0",
            {"maintenance": "", "GPU 0000:81:00.0": "", "GPU 0009:82:00.0": ""},
            "",
        ),
        # Edited by hand, or an imitation: text of others.
        ("gpustack: gpu1 is rebooted: x (since 2026-11-21T09:00:00Z), Bob", {}, None),
        ("gpustack: please leave it", {}, None),
        ("gpustack: please leave it | Bob", {}, None),
        ("gpustack: others | Bob", {}, "Bob"),
        ("gpustack: others", {}, None),
        ("gpustack:maintenance", {}, None),
        ("gpustack: maintenance GPU 81:00.0", {}, None),
        ("gpustack: ", {}, None),
        ("Bob; gpustack: maintenance", {}, None),
        (
            "gpustack: maintenance; Bob tests it; GPU 81:00.0 | memory",
            {"maintenance": "", "GPU 0000:81:00.0": ""},
            "Bob tests it | memory",
        ),
        ("AUTO: Connection to libvirt lost: 1", {}, None),
    ],
)
def test_reasons_of_the_release_and_of_hands(text: str, own: dict[str, str], other: str | None) -> None:
    assert parse(text) == Reasons(own=own, other=text if other is None else other)


def test_a_service_without_a_reason_has_one() -> None:
    closed = Service(id="s", host="gpu1", enabled=False)
    assert reasons_of(closed) == Reasons(other=UNSTATED)
    assert not reasons_of(Service(id="s", host="gpu1", reason="old"))
    text = str(Reasons(other="memory").plus(gpu_reason("0000:82:00.0"), "ECC errors"))
    assert text == "GPU 0000:82:00.0 out of service (ECC errors); reason of others: memory"


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("kernel arguments", "kernel arguments"),
        ("x" * 231, "x" * 231),  # 255 characters with the rest
        ("x" * 232, "x" * 117 + "..."),
        (f"{'x' * 116} {'y' * 200}", "x" * 116 + "..."),
        ("x" * 120, "x" * 120),
        ("bell\a and \U0001f600, \U00010000 or \uffee", "bell and , or \uffee"),
        ("(a; b) | c", "[a, b] / c"),
    ],
)
def test_a_text_is_stored_as_it_is_if_it_fits(text: str, stored: str) -> None:
    assert Reasons().plus(MAINTENANCE, text).to_text() == f"gpustack: maintenance ({stored})"


def test_texts_of_several_reasons_are_cut_at_one_length() -> None:
    reasons = Reasons().plus(MAINTENANCE, "x" * 120).plus(gpu_reason("0000:81:00.0"), "y" * 121)
    assert reasons.to_text() == f"gpustack: maintenance ({'x' * 57}...); GPU 81:00.0 ({'y' * 57}...)"


@pytest.mark.parametrize(
    ("count", "what", "step"),
    [(0, "has no nova-compute service on gpu1", "name the host"), (2, "has 2 nova-compute services", "delete that")],
)
def test_a_host_has_one_service(monkeypatch: pytest.MonkeyPatch, count: int, what: str, step: str) -> None:
    """Two cells may have a service of one name: which of them is that of the host is not known."""
    found = tuple(Service(id=str(number), host="gpu1") for number in range(count))
    monkeypatch.setattr("gpustack.cloud.compute.services", lambda cloud, host: found)
    with pytest.raises(UsageError, match=what) as raised:
        service_of(None, "gpu1")  # type: ignore[arg-type]
    assert (raised.value.remedy or "").startswith(step)
