"""What flavors promise to guests, and the findings about a guest."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.base.errors import UsageError
from gpustack.hosts.health import kernel_log
from gpustack.hosts.health.check import sign_findings
from gpustack.hosts.health.kernel_log import rows as rows_of_signs
from gpustack.offer.guest.check import Promise, consoles, data, findings, promise, promises, rows
from gpustack.offer.guest.inside.messages import of_signs
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec

SPEC = """
version: 1
models:
  mi300x: {match: {vendor: "1002", product: "74a1"}}
  a100: {match: {vendor: "10de", product: "20f1"}, alias: shared}
  t4: {match: {vendor: "10de", product: "1eb8"}, alias: shared}
  odd: {match: {vendor: "10de", product: "ffff"}}
hosts: {gpu1: [mi300x, a100, t4, odd]}
"""
SIZES = "vcpus: 1, ram: 1, disk: 1"
FLAVORS = f"""
flavors:
  "amd.{{count}}": {{model: mi300x, count: [1, 2], {SIZES}}}
  shared: {{model: a100, {SIZES}, access: [research]}}
  nobodys: {{model: odd, {SIZES}, access: []}}
"""
AMD = ("1002:74a1", "1002:74b5")
"""The card and its virtual functions."""


def spec() -> Spec:
    return parse_spec(SPEC + FLAVORS, "spec")


def test_a_flavor_promises_all_cards_that_its_instances_can_get() -> None:
    assert promises(spec()) == {
        "amd.1": Promise(count=1, ids=AMD),
        "amd.2": Promise(count=2, ids=AMD),
        "shared": Promise(count=1, ids=("10de:20f1", "10de:1eb8")),
        "nobodys": Promise(count=1, ids=("10de:ffff",)),
    }
    assert list(promises(spec(), public=True)) == ["amd.1", "amd.2"]


def test_a_flavor_that_the_spec_lacks_is_refused() -> None:
    assert promise(spec(), "amd.2") == Promise(count=2, ids=AMD)
    with pytest.raises(UsageError, match=r"the spec has no flavor amd\n.*flavors: amd.1, amd.2, shared, nobodys"):
        promise(spec(), "amd")
    with pytest.raises(UsageError, match="flavors: none"):
        promise(parse_spec(SPEC, "spec"), "amd")


def gpu(**more: Any) -> dict[str, Any]:
    known = {"address": "0000:00:05.0", "vendor": "10de", "product": "20f1", "class": "030200", "driver": ""}
    return {**known, "modules": ["nvidia"], "unplaced": [], **more}


def facts(*gpus: dict[str, Any], **more: Any) -> dict[str, Any]:
    known = {"source": "guest", "gpus": list(gpus), "events": [], "complete": True, "kernel": "6.12", "drm": True}
    return {**known, **more}


def test_findings_have_the_guest_and_the_gpu_as_place() -> None:
    found = list(findings(facts(gpu()), Promise(count=2), "vm1"))
    assert [(entry.code.value, entry.place) for entry in found] == [
        ("GPU845", "vm1 PCI"),
        ("GPU847", "vm1 0000:00:05.0"),
    ]
    assert list(findings(facts(gpu(driver="nvidia")), None, "vm1")) == []


def test_remedies_for_the_host_do_not_have_the_address_in_the_guest() -> None:
    sign = {"kind": "sign", "address": "0000:00:05.0", "severity": "error", "text": "a", "buses": "", "count": "1"}
    (entry,) = findings(facts(gpu(driver="nvidia"), events=[{**sign, "code": "GPU915"}]), None, "vm1")
    assert entry.place == "vm1 0000:00:05.0"
    assert entry.remedy.startswith("run `gpustack gpu disable HOST ADDRESS --reason Xid`")


def test_codes_that_no_sign_has_are_ignored() -> None:
    """A guest can report anything."""
    sign = {"kind": "sign", "address": None, "sign": "x", "severity": "error", "text": "a", "buses": "", "count": "1"}
    reported = facts(gpu(driver="nvidia"), events=[{**sign, "code": "GPU999"}])
    assert list(findings(reported, None, "vm1")) == []


def test_a_table_has_each_gpu_with_its_own_findings() -> None:
    known = facts(gpu(), gpu(address="0000:00:06.0", driver="nvidia", unplaced=[1]))
    table = rows(known, list(findings(known, Promise(count=3), "vm1")), "vm1")
    assert [(row["guest"], row["address"], row["driver"], row["findings"]) for row in table] == [
        ("vm1", "0000:00:05.0", "", ["GPU847"]),
        ("vm1", "0000:00:06.0", "nvidia", ["GPU849"]),
    ]
    assert "A100" in table[0]["card"]
    assert rows(facts(gpus=None), [], "vm1") == []


def test_the_program_has_all_that_it_needs() -> None:
    found = data({"g": Promise(count=2, ids=AMD)})
    assert found["flavors"] == {"g": {"count": 2, "ids": AMD}}
    assert found["consoles"] == consoles()
    assert "1234" in [vendor for vendor, _ in consoles()]
    assert set(found["texts"]["gpus-missing"]) == {"code", "severity", "message", "remedy"}
    assert found["texts"]["gpus-missing"]["code"] == "GPU845"
    assert [row["id"] for row in found["signs"]] == [row["id"] for row in rows_of_signs()]
    assert data()["flavors"] == {}


def test_the_severity_is_that_of_the_messages_as_in_the_health_of_hosts() -> None:
    hot = "amdgpu 0000:00:05.0: amdgpu: {} detected!"
    throttled = hot.format("WARN: GPU thermal throttling temperature reached, expect performance decrease. X.")
    critical = hot.format("ERROR: GPU HW Critical Temperature Fault(aka CTF)")
    for log, severity in (([throttled], "warning"), ([critical, throttled], "error")):
        found = of_signs(kernel_log.table().events([f"[    1.0] {text}" for text in log]))
        (of_guest,) = [f for f in findings(facts(gpu(), events=found), None, "vm") if f.code == "GPU933"]
        (of_host,) = sign_findings(kernel_log.events([f"[    1.0] {text}" for text in log]), "gpu1")
        assert (of_guest.severity, of_host.severity) == (severity, severity)
