"""Signs of a kernel log as events of a guest's facts."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.hosts.facts.collector.signs import Event as Sign
from gpustack.offer.guest.inside import messages

ADDRESS = "0000:00:05.0"


def sign(kind: str = "sign", address: str | None = ADDRESS, **fields: Any) -> Sign:
    return Sign(**{"sign": "s", "address": address, "message": "text", "code": "GPU100", "kind": kind, **fields})


@pytest.mark.parametrize(
    ("found", "values"),
    [
        (sign("no-gsp"), {}),
        (sign("bar-unplaced", values={"bar": "1", "other": "x"}), {"bar": "1"}),
        (
            sign("legacy", values={"card": "K80", "branch": "470"}),
            {"card": "K80", "branch": "470", "driver": "(version unknown)"},
        ),
        (sign("legacy", values={"driver": "580"}), {"card": "", "branch": "", "driver": "580"}),
        (sign("unsupported"), {"driver": "(version unknown)"}),
        (sign("probe-failed", values={"error": "-1"}), {"driver": "", "error": "-1"}),
        (sign("force-probe", values={"driver": "i915", "product": "56C0"}), {"driver": "i915", "product": "56c0"}),
        (sign("unsigned", message="x" * 300), {"text": "x" * 200}),
        (
            sign(severity="error", count=3),
            {"sign": "s", "code": "GPU100", "severity": "error", "text": "text", "buses": "", "count": "3"},
        ),
        (
            sign("of-health"),  # kinds that only hosts have are signs of guests
            {"sign": "s", "code": "GPU100", "severity": "", "text": "text", "buses": "", "count": "1"},
        ),
    ],
)
def test_each_kind_of_event_has_its_values(found: Sign, values: dict[str, str]) -> None:
    (event,) = messages.of_signs([found])
    kind = event.pop("kind")
    assert (kind, event.pop("address")) == (found.kind if found.kind in messages.VALUES else "sign", ADDRESS)
    assert event == values
    assert frozenset(event) == messages.VALUES[kind]


@pytest.mark.parametrize(
    ("found", "counts"),
    [
        (sign(), True),
        (sign(earlier=True), False),  # before the last boot
        (sign(code=None), False),
        (sign("initialized", code=None), True),
        (sign("boot", code=None), False),
        (sign("bridge", code=None, values={"bus": "05"}), False),
    ],
)
def test_facts_of_the_boot_and_harmless_signs_are_no_events(found: Sign, counts: bool) -> None:
    assert len(messages.of_signs([found])) == counts


def test_signs_of_a_port_have_the_buses_below_it() -> None:
    bridge = sign("bridge", code=None, values={"bus": "05-07"})
    (event,) = messages.of_signs([bridge, sign()])
    (other,) = messages.of_signs([bridge, sign(address="0000:00:06.0")])
    (none,) = messages.of_signs([bridge._replace(earlier=True), sign()])
    assert (event["buses"], other["buses"], none["buses"]) == ("05-07", "", "")


def test_only_the_first_events_are_kept() -> None:
    many = [sign(message=str(number)) for number in range(messages.MOST_EVENTS + 1)]
    assert [event["text"] for event in messages.of_signs(many)] == [str(n) for n in range(messages.MOST_EVENTS)]
