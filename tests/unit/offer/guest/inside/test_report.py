"""The facts that a guest's report may hold: a guest can write any text to its console."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.offer.guest.inside.report import START, checked, line, reported, summary

KEYS = ("kernel", "flavor", "driver_version")


def document(**more: Any) -> dict[str, Any]:
    return {"gpus": [], "events": None, "complete": True, "drm": None, **dict.fromkeys(KEYS, "x"), **more}


def test_a_complete_report_is_taken() -> None:
    assert checked(document()) == document()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", ["x" * 255, None])
def test_texts_of_255_characters_are_taken(key: str, value: str | None) -> None:
    facts = checked(document(**{key: value}))
    assert facts is not None
    assert facts[key] == value


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", ["x" * 256, 5, ["x"], True])
def test_longer_texts_and_other_types_are_no_report(key: str, value: object) -> None:
    assert checked(document(**{key: value})) is None


@pytest.mark.parametrize("key", ["complete", "drm"])
def test_flags_that_are_none_are_no_report(key: str) -> None:
    assert checked(document(**{key: "yes"})) is None


@pytest.mark.parametrize("gpus", [None, {}, [5]])
def test_gpus_of_another_form_are_no_report(gpus: object) -> None:
    assert checked(document(gpus=gpus)) is None


GPU: dict[str, Any] = {
    "address": "0000:00:05.0",
    "vendor": "10de",
    "product": "20b5",
    "class": "030200",
    "driver": "nvidia",
    "modules": ["nvidia"],
    "unplaced": [1],
}
EVENT: dict[str, Any] = {"kind": "no-gsp", "address": "0000:00:05.0"}
SIGN: dict[str, Any] = {"kind": "sign", "address": None, "sign": "x", "code": "GPU100", "severity": "error"}
SIGN |= {"text": "t", "buses": "", "count": "1"}


def gpus(*drivers: str | None) -> dict[str, Any]:
    return {"gpus": [{**GPU, "driver": driver} for driver in drivers], "driver_version": "580.95"}


@pytest.mark.parametrize(
    ("facts", "expected", "text"),
    [
        ({"gpus": None}, None, "number of GPUs unknown"),
        ({"gpus": None, "problem": "no python"}, 2, "no python"),
        (gpus(), None, "0 GPUs"),
        (gpus(), 1, "0 of 1 GPU"),
        (gpus(), 0, "0 GPUs"),
        (gpus("nvidia"), None, "1 GPU, driver bound (nvidia 580.95)"),
        (gpus("nvidia"), 1, "1 GPU, driver bound (nvidia 580.95)"),
        (gpus("nvidia"), 2, "1 of 2 GPUs, driver bound (nvidia 580.95)"),
        (gpus("nvidia", "nvidia"), 1, "2 GPUs, driver bound (nvidia 580.95)"),
        (gpus("nvidia", ""), None, "2 GPUs, driver bound to 1 of 2 (nvidia 580.95)"),
        (gpus("nvidia", "amdgpu"), None, "2 GPUs, driver bound (amdgpu, nvidia 580.95)"),
        ({**gpus("nvidia"), "driver_version": None}, None, "1 GPU, driver bound (nvidia)"),
        (gpus("", ""), None, "2 GPUs, no driver bound"),
        (gpus("nvidia", None), None, "2 GPUs, driver unknown"),
    ],
)
def test_the_summary_counts_gpus_and_drivers(facts: dict[str, Any], expected: int | None, text: str) -> None:
    assert summary(facts, expected) == text
    if facts["gpus"] is not None:
        assert summary(facts, expected, ["GPU845", "GPU847"]) == f"{text}; GPU845 GPU847"


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("address", ["00000000:ff:1f.7"], ["0000:00:05", "0000:00:25.0", "0000:00:05.8", "x", 5, None]),
        ("vendor", ["10de"], ["10DE", "10de1", "", None]),
        ("product", ["ffff"], ["fff", 5]),
        ("class", ["", "030200", "x" * 128], ["x" * 129, None, "a b"]),
        ("driver", [None, "", "vfio-pci"], ["a b", 5]),
        ("modules", [None, [], ["a", "b"]], ["nvidia", ["a b"], [None]]),
        ("unplaced", [[], [0, 5]], [None, "1", ["1"], [True]]),
    ],
)
def test_each_value_of_a_gpu_has_its_form(key: str, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if checked(document(gpus=[{**GPU, key: value}])) is None] == []
    assert [value for value in bad if checked(document(gpus=[{**GPU, key: value}])) is not None] == []


@pytest.mark.parametrize("gpu", [None, [], {}, {**GPU, "more": 1}, {key: GPU[key] for key in GPU if key != "class"}])
def test_a_gpu_has_these_keys(gpu: Any) -> None:
    assert checked(document(gpus=[GPU, gpu])) is None


@pytest.mark.parametrize(
    ("event", "taken"),
    [
        (EVENT, True),
        (SIGN, True),
        ({**EVENT, "address": None}, True),
        ({**EVENT, "address": "x"}, False),
        ({**EVENT, "kind": "unheard-of"}, False),
        ({**EVENT, "driver": "x"}, False),
        ({**SIGN, "code": "GPU1"}, False),
        ({**SIGN, "code": None}, False),
        ({**SIGN, "text": "x" * 299}, True),
        ({**SIGN, "text": "x" * 300}, False),
        ({**SIGN, "text": None}, True),
        ({**SIGN, "text": 5}, False),
        ({**SIGN, "buses": "00-ff"}, True),
        *(({**SIGN, "buses": buses}, False) for buses in (None, "zz", "1", "00-ff-ff", "00\n")),
        *(({**SIGN, "count": count}, False) for count in (None, "", "²", "9" * 10, "1\n")),
        ({"kind": "bar-unplaced", "address": None, "bar": "5"}, True),
        *(({"kind": "bar-unplaced", "address": None, "bar": bar}, False) for bar in (None, "", "12")),
        ("no-gsp", False),
    ],
)
def test_events_have_the_values_of_their_kind(event: Any, taken: bool) -> None:
    assert (checked(document(events=[EVENT, event])) is not None) is taken


@pytest.mark.parametrize(
    ("facts", "taken"),
    [
        (document(gpus=[GPU] * 64), True),
        (document(gpus=[GPU] * 65), False),
        (document(events=[EVENT] * 256), True),
        (document(events=[EVENT] * 257), False),
        (document(events={}), False),
        (document(gpus=None), False),
        (document(complete=None, drm=True), True),
        ({"gpus": []}, True),
        ([], False),
        (None, False),
    ],
)
def test_a_report_has_a_bounded_size(facts: Any, taken: bool) -> None:
    assert (checked(facts) is not None) is taken


def test_the_last_readable_report_counts() -> None:
    first, last = document(kernel="a"), document(kernel="b", gpus=[GPU])
    lines = [f"[ 1.0] {line(first, 'one')} behind", line(last, "two"), f"{START}cut {{", "other"]
    assert reported(lines) == {**last, "events": []}
    assert reported([f"{START}two; GPU845 {{[1.0]", f"{START}  three {{"]) == {"gpus": None, "problem": "three"}
    assert reported([f"{START}only text"]) == {"gpus": None, "problem": "only text"}
    assert reported(["other", ""]) is None


@pytest.mark.parametrize(("length", "events", "kept"), [(1, 30, 24), (290, 30, 4), (290, 3, 3)])
def test_a_line_is_short_for_a_serial_port(length: int, events: int, kept: int) -> None:
    facts = document(gpus=[GPU], events=[{**SIGN, "text": "x" * length}] * events)
    read_back = reported([line(facts, "s")])
    assert read_back is not None
    assert len(read_back["events"]) == kept
    many = reported([line(document(gpus=[GPU] * 64, events=[SIGN] * 9), "s")])
    assert many is not None
    assert (many["events"], len(many["gpus"])) == ([], 64)
