"""The verdict on each GPU: what hardware, host and spec allow together."""

from __future__ import annotations

from typing import Any

import pytest

import gpustack.spec.verdict as module
from gpustack.hosts.facts.collector.vgpus import RECORD
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import parse_host
from gpustack.hosts.readiness.assessment import State
from gpustack.prepare.host.decide.targets import choose
from gpustack.prepare.host.plan import plan_host
from gpustack.spec.model import Spec
from gpustack.spec.verdict import HostVerdicts, Verdict, verdicts
from support.host_samples import Raw, changed, function, host, raw_host, snapshot

K4200 = {"vendor": "10de", "product": "11b4"}
P100 = {"vendor": "10de", "product": "15f8"}
CARDS = [function(f"0000:{bus:02x}:00.0", iommu_group=bus) for bus in (1, 2)]
NIC = function("0000:03:00.0", ids="8086:1521", pci_class="020000", driver="igb", iommu_group=1)


def spec(ids: dict[str, str] = P100, out: list[Raw] | None = None, **options: Any) -> Spec:
    entries = [{"host": "gpu01", "reason": "sick", **entry} for entry in out or ()]
    data = {"version": 1, "models": {"a": {"match": ids}}, "hosts": {"*": ["a"]}, "options": options}
    return Spec.model_validate({**data, "out_of_service": entries})


def of(facts: Host, wanted: Spec, address: str = "0000:01:00.0") -> Verdict:
    return verdicts(wanted, facts).by_address[address]


# Each fact that changes, the options of the spec, the verdict, and its codes.
FACTS: dict[str, tuple[Raw, dict[str, Any], State, str]] = {
    "nothing": ({}, {}, State.READY, ""),
    "no answer from the card": ({"pci": {"0000:01:00.0": {"responds": False}}}, {}, State.BLOCKED, "GPU027"),
    "a NIC of the host in its group": ({"pci": {"0000:03:00.0": NIC}}, {}, State.BLOCKED, "GPU013"),
    "no group": ({"pci": {"0000:01:00.0": {"iommu_group": None}}}, {}, State.BLOCKED, "GPU012"),
    "an unassigned BAR": (
        {"pci": {"0000:01:00.0": {"bars": [{"index": 1, "start": 0, "size": 4096}]}}},
        {},
        State.BLOCKED,
        "GPU021",
    ),
    "no interrupt remapping": ({"set": {"iommu.interrupt_remapping": False}}, {}, State.BLOCKED, "GPU123"),
    "the same, and the spec permits it": (
        {"set": {"iommu.interrupt_remapping": False}},
        {"allow_unsafe_interrupts": True},
        State.PREPARABLE,
        "GPU003",
    ),
    "virtual functions of others": ({"pci": {"0000:01:00.0": {"sriov_numvfs": 2}}}, {}, State.BLOCKED, "GPU017"),
    "virtual functions by gpustack": (
        {"pci": {"0000:01:00.0": {"sriov_numvfs": 2}}, "files": {RECORD: "0000:01:00.0 has 2 virtual functions\n"}},
        {},
        State.PREPARABLE,
        "GPU017",
    ),
    "a host driver": ({"pci": {"0000:01:00.0": {"driver": "nvidia"}}}, {}, State.PREPARABLE, "GPU307, GPU010"),
    "another passthrough driver": ({"pci": {"0000:01:00.0": {"driver": "pci-stub"}}}, {}, State.PREPARABLE, "GPU307"),
    "an unreadable driver": (
        {"set": {"unread": [{"path": "/sys/bus/pci/devices/0000:01:00.0/driver", "error": "EIO"}]}},
        {},
        State.UNKNOWN,
        "GPU024",
    ),
    "NVSwitches without a mode": (
        {"pci": {"0000:05:00.0": function("0000:05:00.0", ids="10de:1af1", pci_class="068000", iommu_group=5)}},
        {},
        State.BLOCKED,
        "GPU118",
    ),
}


def facts_with(changes: Raw) -> Host:
    return parse_host(changed({**raw_host(*CARDS), "files": {}, "boot": {"kernels": []}}, changes), "test")


@pytest.mark.parametrize("name", FACTS)
def test_each_fact_has_its_verdict(name: str) -> None:
    changes, options, state, codes = FACTS[name]
    verdict = of(facts_with(changes), spec(**options))
    assert (verdict.state, verdict.codes) == (state, codes)
    assert verdict.is_offered == (state in (State.READY, State.PREPARABLE))


def test_a_wide_domain_is_blocked() -> None:
    verdict = of(host(function("10000:01:00.0")), spec(), "10000:01:00.0")
    assert (verdict.state, verdict.codes) == (State.BLOCKED, "GPU020")


def test_without_a_spec_the_facts_decide() -> None:
    judged = verdicts(None, facts_with({"pci": {"0000:01:00.0": {"responds": False}}}))
    assert [(v.state, v.target) for v in judged.all] == [(State.BLOCKED, None), (State.READY, None)]


def test_a_verdict_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, wanted, calls = facts_with({}), spec(), []
    assess = module.assess
    monkeypatch.setattr(module, "assess", lambda *args, **more: calls.append(args[1]) or assess(*args, **more))
    first = verdicts(wanted, facts)
    assert verdicts(wanted, facts) is first
    assert len(calls) == len(CARDS)
    copy = facts.model_copy(update={"hostname": "gpu02"})
    assert verdicts(wanted, copy).host is copy, "a copy of a host has verdicts of its own"


def outage(name: str, *entries: dict[str, str]) -> HostVerdicts:
    ids = {"k4200-prepared": K4200, "mi300x": {"vendor": "1002", "product": "74a1"}}[name]
    facts = parse_host(snapshot(name), name)
    return verdicts(spec(ids, [{"host": facts.hostname, **entry} for entry in entries]), facts)


def withheld(judged: HostVerdicts) -> list[str]:
    return [verdict.address for verdict in judged.all if verdict.out_of_service]


@pytest.mark.parametrize("address", ["0000:88:00.0", "0000:88:00.1"], ids=["the GPU", "its audio function"])
def test_a_gpu_out_of_service_stays_assigned_and_is_not_offered(address: str) -> None:
    judged = outage("k4200-prepared", {"address": address})
    assert [target.address for target in judged.assigned] == ["0000:84:00.0", "0000:88:00.0"]
    assert [target.address for target in judged.offered] == ["0000:84:00.0"]
    assert withheld(judged) == ["0000:88:00.0"]
    assert (judged.complete, judged.absent, judged.unknown) == (False, (), ())


def test_other_hosts_are_not_concerned() -> None:
    assert outage("k4200-prepared", {"host": "gpu02", "address": "0000:88:00.0"}).complete
    assert not outage("k4200-prepared", {"host": "GPU01", "address": "0000:88:00.0"}).complete


def test_a_serial_number_finds_the_card_or_nothing() -> None:
    assert withheld(outage("mi300x", {"serial": "12-34-56-78-9A-BC-DE-01"})) == ["0000:85:00.0"]
    missing = outage("mi300x", {"serial": "12-34-56-78-9a-bc-de-02"})
    assert (len(missing.offered), len(missing.absent), len(missing.unknown)) == (2, 1, 0)
    blind = outage("k4200-prepared", {"serial": "12-34-56-78-9a-bc-de-02"})
    assert (len(blind.absent), len(blind.unknown), blind.complete) == (0, 1, False)


def test_card_out_of_service_withholds_its_virtual_functions() -> None:
    card = function("0000:88:00.0", sriov_numvfs=1, driver="igb")
    part = function("0000:88:10.0", physical_function="0000:88:00.0", iommu_group=2)
    facts = host(card, part)
    ids = {**P100, "function": "virtual"}
    assert [target.address for target in verdicts(spec(ids), facts).offered] == ["0000:88:10.0"]
    assert choose(spec(ids), facts).all == ()
    closed = verdicts(spec(ids, [{"address": "0000:88:00.0"}]), facts)
    assert (closed.offered, withheld(closed)) == ((), ["0000:88:10.0"])


DEAD = {"pci": {"0000:88:00.0": {"responds": False}}}


def test_a_dead_gpu_out_of_service_does_not_stop_the_others() -> None:
    facts = parse_host(changed(snapshot("k4200"), DEAD), "k4200")
    refused = plan_host(spec(K4200), facts)
    assert refused.refused
    plan = plan_host(spec(K4200, [{"address": "0000:88:00.0"}]), facts)
    assert not plan.refused
    assert [gpu.address for gpu in plan.gpus] == ["0000:84:00.0"]
    (left,) = [f for f in plan.findings if f.code == "GPU500"]
    assert (left.place, left.message) == (
        "gpu01 0000:88:00.0",
        "out of service (sick), and blocked by GPU027: the host is prepared without it",
    )
    texts = "".join(str(operation.to_dict().get("content", "")) for operation in plan.operations)
    assert "keep 0000:84:00.0 vfio-pci" in texts
    assert "0000:88:00.0" not in texts
    assert "blacklist nouveau" in texts, "the dead card needs no driver"


def test_a_gpu_that_is_left_out_keeps_its_group_from_others() -> None:
    sick, other = function("0000:01:00.0", responds=False), function("0000:01:01.0")
    judged = verdicts(spec(out=[{"address": "0000:01:00.0"}]), host(sick, other))
    assert [(v.address, v.state, v.is_left_out) for v in judged.all] == [
        ("0000:01:00.0", State.BLOCKED, True),
        ("0000:01:01.0", State.BLOCKED, False),
    ]
    assert judged.all[1].codes == "GPU111"
