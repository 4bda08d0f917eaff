"""The problems of a guest from its facts alone: each cause once, and nothing that a driver has outdated since."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.offer.guest.inside import messages
from gpustack.offer.guest.inside.compare import problems

FIRST, SECOND = "0000:00:05.0", "0000:00:06.0"


def gpu(address: str = FIRST, driver: str | None = "nvidia", **more: Any) -> dict[str, Any]:
    known = {"address": address, "vendor": "10de", "product": "20b5", "driver": driver, "modules": ["nvidia"]}
    return {**known, "unplaced": [], **more}


def event(kind: str, address: str | None = FIRST, **values: str) -> dict[str, Any]:
    return {"kind": kind, "address": address, **dict.fromkeys(messages.VALUES[kind], ""), **values}


def sign(address: str | None = FIRST, **values: str) -> dict[str, Any]:
    known = {"code": "GPU100", "severity": "warning", "text": "Xid 79", "count": "1"}
    return event(messages.SIGN, address, **{**known, **values})


def found(*gpus: dict[str, Any], events: Any = (), expected: Any = None, **facts: Any) -> list[str]:
    """Each problem: its kind and its place."""
    known = {"source": "guest", "gpus": list(gpus), "events": events if events is None else list(events)}
    listed = problems({**known, "complete": True, "kernel": "6.12", "drm": True, **facts}, expected)
    return [f"{problem['kind']} {problem['place']}" for problem in listed]


ONE = {"count": 1, "ids": ["10de:20b5"]}


@pytest.mark.parametrize(
    ("gpus", "expected", "kinds"),
    [
        ([gpu()], ONE, []),
        ([], ONE, ["gpus-missing PCI"]),
        ([gpu(), gpu(SECOND)], ONE, ["gpus-differ PCI"]),
        ([gpu(product="1eb8")], ONE, ["gpus-differ PCI"]),
        ([gpu(product="1eb8")], {"count": 1, "ids": []}, []),
        ([gpu(), gpu(SECOND, product="1eb8")], {"count": 2, "ids": ["10de:20b5", "10de:1eb8"]}, []),
        ([gpu(), gpu(SECOND, product="1eb8")], {"count": 2, "ids": ["10de:20b5"]}, ["gpus-differ PCI"]),
        ([], {"count": 0, "ids": []}, []),
        ([gpu()], None, []),
    ],
)
def test_the_gpus_are_those_of_the_flavor(gpus: list[Any], expected: Any, kinds: list[str]) -> None:
    assert found(*gpus, expected=expected) == kinds


def test_gpus_that_nobody_read_are_not_missing() -> None:
    facts = {"source": "console", "gpus": None, "events": [], "complete": True, "kernel": None, "drm": None}
    (problem,) = problems({**facts, "problem": "no python"}, ONE)
    assert (problem["kind"], problem["values"]) == ("unknown", {"missing": "the GPUs", "report": "no python"})


def test_the_difference_is_shown_with_both_sides() -> None:
    known = {"source": "guest", "gpus": [gpu(), gpu(SECOND)], "events": [], "complete": True, "kernel": "", "drm": True}
    shown = [
        problems(known, {"count": count, "ids": ids})[0]["values"]
        for count, ids in ((1, ["10de:20b5", "10de:20b7"]), (1, []), (3, []))
    ]
    both = f"{FIRST} 10de:20b5, {SECOND} 10de:20b5"
    assert shown == [
        {"found": both, "expected": "1 of 10de:20b5 or 10de:20b7"},
        {"found": both, "expected": "1"},
        {"count": 2, "expected": 3},
    ]


@pytest.mark.parametrize(
    ("one", "drm", "expected"),
    [
        (gpu(), True, []),
        (gpu(driver=""), True, ["driver-unbound"]),
        (gpu(driver="", modules=[]), True, ["driver-missing"]),
        (gpu(driver="", modules=["nouveau", "nvidiafb"]), True, ["driver-missing"]),
        (gpu(driver="", modules=None), True, ["driver-unknown"]),
        (gpu(driver=None), True, ["unknown"]),
        (gpu(driver="nouveau"), True, ["nouveau"]),
        (gpu(driver="vfio-pci"), True, ["driver-other"]),
        (gpu(driver="pci-stub"), True, ["driver-other"]),
        (gpu(unplaced=[1, 3]), True, ["bar-unplaced"]),
        (gpu(driver="", unplaced=[1]), True, ["bar-unplaced"]),  # the cause, not its consequence
        (gpu(driver=""), False, ["driver-unbound"]),  # NVIDIA's driver needs no DRM
        (gpu(driver="", vendor="1002"), False, ["no-drm"]),
        (gpu(driver="", vendor="1002"), None, ["driver-unbound"]),
        (gpu(driver="amdgpu", vendor="1002"), False, []),
    ],
)
def test_a_gpu_that_no_driver_uses_has_one_reason(one: dict[str, Any], drm: bool | None, expected: list[str]) -> None:
    assert [text.split()[0] for text in found(one, drm=drm)] == expected


def test_kernels_without_drm_are_reported_by_vendor() -> None:
    gpus = [gpu(driver="", vendor="8086"), gpu(SECOND, driver="", vendor="1002"), gpu("0000:00:07.0", driver="")]
    assert found(*gpus, drm=False) == ["no-drm kernel", "no-drm kernel", "driver-unbound 0000:00:07.0"]


NVRM = {"driver": "580.95", "branch": "470"}
OLD = {"driver": "nvidia"}


@pytest.mark.parametrize(
    ("events", "one", "expected"),
    [
        # Refusals explain why nothing is bound, until a driver is
        ([event(messages.NO_GSP)], gpu(driver=""), ["no-gsp"]),
        ([event(messages.NO_GSP)], gpu(), []),
        ([event(messages.NO_GSP)], gpu(driver="nouveau"), ["no-gsp", "nouveau"]),
        ([event(messages.NO_GSP)], gpu(driver="vfio-pci"), ["no-gsp", "driver-other"]),
        ([event(messages.NO_GSP)], gpu(driver=None), ["no-gsp"]),
        ([event(messages.NO_GSP, SECOND)], gpu(driver=""), ["no-gsp", "driver-unbound"]),
        ([event(messages.LEGACY, None)], gpu(driver=""), ["legacy"]),
        ([event(messages.LEGACY, None)], gpu(), []),
        ([event(messages.LEGACY, None)], gpu(driver="", vendor="1002"), ["legacy", "driver-unbound"]),
        ([event(messages.OPEN_REQUIRED)], gpu(), ["open-required"]),
        ([event(messages.MISMATCH, None)], gpu(), ["mismatch"]),
        ([event(messages.MISMATCH, None)], gpu(driver=""), ["mismatch", "driver-unbound"]),
        # Firmware: a bound driver outdates it, unless the start failed
        ([event(messages.FIRMWARE)], gpu(), []),
        ([event(messages.FIRMWARE), event(messages.INIT_FAILED)], gpu(), ["firmware"]),
        # Probes and starts
        ([event(messages.PROBE_FAILED, **OLD)], gpu(driver=""), ["probe-failed"]),
        ([event(messages.PROBE_FAILED, **OLD)], gpu(), []),
        ([event(messages.PROBE_FAILED, driver="nouveau")], gpu(driver=""), ["driver-unbound"]),
        ([event(messages.PROBE_FAILED, SECOND, driver="e1000")], gpu(), []),
        ([event(messages.PROBE_FAILED, SECOND, driver="amdgpu")], gpu(), ["probe-failed"]),
        ([event(messages.PROBE_FAILED, driver="e1000")], gpu(driver=""), ["probe-failed"]),
        ([event(messages.INIT_FAILED)], gpu(), ["init-failed"]),
        ([event(messages.INIT_FAILED)] * 2, gpu(), ["init-failed"]),
        ([event(messages.INIT_FAILED), event(messages.PROBE_FAILED, **OLD)], gpu(driver=""), ["init-failed"]),
        ([event(messages.INIT_FAILED), event(messages.OPEN_REQUIRED)], gpu(), ["open-required"]),
        # BARs of GPUs only
        ([event(messages.BAR_UNPLACED, bar="1")], gpu(driver=""), ["bar-unplaced"]),
        ([event(messages.BAR_UNPLACED, SECOND, bar="1")], gpu(), []),
        # nouveau: outdated by any later driver, and if it was unbound
        ([event(messages.NOUVEAU)], gpu(), []),
        ([event(messages.NOUVEAU)], gpu(driver=""), ["driver-unbound"]),
        ([event(messages.NOUVEAU)], gpu(driver=None), ["nouveau"]),
        ([event(messages.NOUVEAU, None)], gpu(driver="vfio-pci"), ["driver-other"]),
        ([event(messages.NOUVEAU)], gpu(driver="nouveau"), ["nouveau"]),
        # Unsigned modules matter if something is not bound
        ([event(messages.UNSIGNED, None, text="a")], gpu(driver=""), ["unsigned"]),
        ([event(messages.UNSIGNED, None, text="a")], gpu(), []),
        ([event(messages.UNSIGNED, None, text="a")], gpu(driver=None), ["unsigned", "unknown"]),
        ([event(messages.UNSIGNED, None), event(messages.NO_GSP)], gpu(driver=""), ["no-gsp"]),
        # Signs of errors explain an unbound driver, warnings don't
        ([sign(severity="error")], gpu(driver=""), ["GPU100"]),
        ([sign()], gpu(driver=""), ["GPU100", "driver-unbound"]),
        ([sign(severity="error")], gpu(driver=None), ["GPU100"]),
        ([sign()], gpu(driver=None), ["GPU100", "unknown"]),
        # A lost GPU explains that its driver cannot start it
        ([sign(severity="error", sign="xid-79"), event(messages.INIT_FAILED)], gpu(), ["GPU100"]),
        ([sign(severity="error", sign="power-state"), event(messages.PROBE_FAILED, **OLD)], gpu(driver=""), ["GPU100"]),
        ([sign(sign="xid-31"), event(messages.INIT_FAILED)], gpu(), ["GPU100", "init-failed"]),
        ([sign(None, severity="error", sign="xid-79"), event(messages.INIT_FAILED)], gpu(), ["GPU100", "init-failed"]),
        # Missing firmware explains that a controller of the GPU does not start
        ([event(messages.FIRMWARE), sign(severity="error", sign="firmware-failed")], gpu(driver=""), ["firmware"]),
        ([event(messages.FIRMWARE), sign(None, sign="firmware-failed")], gpu(driver="", vendor="1002"), ["firmware"]),
        ([sign(severity="error", sign="firmware-failed")], gpu(driver=""), ["GPU100"]),
    ],
)
def test_messages_of_the_kernel_explain_the_state(
    events: list[dict[str, Any]], one: dict[str, Any], expected: list[str]
) -> None:
    assert [text.split()[0] for text in found(one, events=events)] == expected


def test_a_driver_that_serves_one_of_two_gpus_outdates_messages_about_it_only() -> None:
    both = [gpu(), gpu(SECOND, driver="")]
    assert found(*both, events=[event(messages.NO_GSP), event(messages.NO_GSP, SECOND)]) == [f"no-gsp {SECOND}"]
    assert found(*both, events=[event(messages.LEGACY, None)]) == ["legacy kernel"]


def test_without_gpus_unsigned_modules_are_reported() -> None:
    assert found(events=[event(messages.UNSIGNED, None, text="a")]) == ["unsigned kernel"]


@pytest.mark.parametrize(
    ("address", "buses", "text", "expected"),
    [
        (FIRST, "", "Xid 79", f"GPU100 {FIRST}"),
        (None, "", "anything", "GPU100 kernel"),
        ("0000:00:02.0", "", "Xid 79", ""),  # another device
        ("0000:00:02.0", "05", "AER", "GPU100 0000:05:00.0"),  # the port above a GPU
        ("0000:00:02.0", "03-05", "AER", "GPU100 0000:05:00.0"),
        ("0000:00:02.0", "05-07", "AER", "GPU100 0000:05:00.0"),
        ("0000:00:02.0", "06-07", "AER", ""),
        ("0000:00:02.0", "03-04", "AER", ""),
        ("0001:00:02.0", "03-07", "AER", ""),
    ],
)
def test_signs_belong_to_the_gpu_or_to_the_port_above_it(
    address: str | None, buses: str, text: str, expected: str
) -> None:
    gpus = [gpu("0000:05:00.0"), gpu(FIRST)]
    assert found(*gpus, events=[sign(address, buses=buses, text=text)]) == [expected] * bool(expected)


@pytest.mark.parametrize(("text", "expected"), [("NVRM: x", ["GPU100"]), ("amdgpu: x", ["GPU100"]), ("e1000: x", [])])
def test_without_a_list_of_gpus_the_driver_of_a_message_decides(text: str, expected: list[str]) -> None:
    facts = {"source": "c", "gpus": None, "events": [sign("0000:00:09.0", text=text)], "complete": True}
    listed = problems({**facts, "kernel": None, "drm": None})
    assert [problem["kind"] for problem in listed] == [*expected, "unknown"]


def test_signs_of_one_code_are_one_problem_with_the_last_message() -> None:
    events = [sign(count="2", text="Xid 1"), sign(count="x", text="Xid 2"), sign(count="3", text="Xid 3"), sign(None)]
    known = {"source": "guest", "gpus": [gpu()], "complete": True, "kernel": "", "drm": True}
    first, second = problems({**known, "events": events})
    assert (first["place"], first["values"]["count"], first["values"]["message"]) == (FIRST, 5, "Xid 3")
    assert (second["place"], second["values"]["address"]) == ("kernel", "ADDRESS")


def test_bars_of_sysfs_and_of_messages_are_listed_together() -> None:
    known = {"source": "guest", "complete": True, "kernel": "", "drm": True}
    events = [event(messages.BAR_UNPLACED, bar="3"), event(messages.BAR_UNPLACED, bar="1")]
    (problem,) = problems({**known, "gpus": [gpu(unplaced=[1])], "events": events})
    assert problem["values"] == {"bars": "1, 3"}


@pytest.mark.parametrize(
    ("facts", "missing"),
    [
        ({}, ""),
        ({"events": None}, "the kernel's messages"),
        ({"complete": False}, "the kernel's messages from the start of the guest"),
        ({"events": None, "complete": False}, "the kernel's messages"),
    ],
)
def test_facts_that_are_missing_are_named(facts: dict[str, Any], missing: str) -> None:
    known = {"source": "guest", "gpus": [gpu()], "events": [], "complete": True, "kernel": "", "drm": True}
    listed = problems({**known, **facts})
    assert [problem["values"] for problem in listed] == [{"missing": missing, "report": "none"}] * bool(missing)


@pytest.mark.parametrize(
    ("bus", "buses", "below"),
    [
        ("10", "10-1f", True),
        ("1f", "10-1f", True),
        ("20", "10-1f", False),
        ("11", "03-10", False),
        ("0f", "10-1f", False),
    ],
)
def test_buses_are_hexadecimal(bus: str, buses: str, below: bool) -> None:
    events = [sign("0000:00:02.0", buses=buses, text="AER")]
    assert found(gpu(f"0000:{bus}:00.0"), events=events) == [f"GPU100 0000:{bus}:00.0"] * below


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([gpu(unplaced=[1])], [f"bar-unplaced {FIRST}"]),  # the only GPU that it can be about
        ([gpu(unplaced=[1]), gpu(SECOND)], [f"bar-unplaced {FIRST}"]),
        ([gpu(unplaced=[1]), gpu(SECOND, "amdgpu", vendor="1002")], [f"bar-unplaced {FIRST}"]),
        ([gpu()], ["init-failed kernel"]),
    ],
)
def test_a_failure_without_address_is_explained_by_the_cause_at_one_gpu(
    gpus: list[dict[str, Any]], expected: list[str]
) -> None:
    assert found(*gpus, events=[event(messages.INIT_FAILED, None)]) == expected


@pytest.mark.parametrize(
    ("count", "events", "expected"),
    [
        (1, [event(messages.NO_GSP)], [f"no-gsp {FIRST}"]),
        (2, [event(messages.NO_GSP)], [f"no-gsp {FIRST}", "init-failed kernel"]),
        (2, [event(messages.NO_GSP), event(messages.NO_GSP, SECOND)], [f"no-gsp {FIRST}", f"no-gsp {SECOND}"]),
        (
            2,
            [event(messages.NO_GSP), event(messages.PROBE_FAILED, SECOND, **OLD)],
            [f"no-gsp {FIRST}", f"probe-failed {SECOND}"],
        ),
        (1, [], ["init-failed kernel"]),
    ],
)
def test_nvidias_number_of_failed_gpus_is_compared_with_those_that_have_a_cause(
    count: int, events: list[dict[str, Any]], expected: list[str]
) -> None:
    failed = event(messages.INIT_FAILED, None, text=f"NVRM: The NVIDIA probe routine failed for {count} device(s).")
    both = [gpu(driver=None), gpu(SECOND, driver=None)]
    listed = [text for text in found(*both, events=[*events, failed]) if not text.startswith("unknown")]
    assert listed == expected


def test_unplaced_bars_are_listed_by_address() -> None:
    assert found(gpu(SECOND, unplaced=[1]), gpu(unplaced=[3])) == [f"bar-unplaced {FIRST}", f"bar-unplaced {SECOND}"]


@pytest.mark.parametrize(
    ("one", "drm"),
    [
        (gpu(driver="", modules=None), True),
        (gpu(driver="", modules=[]), True),
        (gpu(driver="", vendor="1002"), False),
    ],
)
@pytest.mark.parametrize(("kernel", "shown"), [("6.12", "6.12"), (None, "the kernel")])
def test_the_kernel_is_named_if_it_is_known(one: dict[str, Any], drm: bool, kernel: str | None, shown: str) -> None:
    known = {"source": "guest", "gpus": [one], "events": [], "complete": True, "kernel": kernel, "drm": drm}
    (problem,) = problems(known)
    assert problem["values"]["kernel"] == shown
