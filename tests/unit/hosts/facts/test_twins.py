"""Equal hosts are decided once, and each gets the decision that it gets alone."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.base.errors import SnapshotError
from gpustack.configure.desired import wanted
from gpustack.hosts.facts import twins
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.facts.store import parse_host
from gpustack.hosts.facts.twins import has_identifier, kind_of
from gpustack.hosts.readiness.table import COLUMNS, by_host
from gpustack.nova_options.releases import release
from gpustack.prepare.host.plan import plan_host
from gpustack.prepare.host.show import show_plan
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from gpustack.spec.verdict import verdicts
from support import server_fleets
from support.server_fleets import KINDS, server

BASE = KINDS[8]
"""Consumer cards on their host's driver: their plan changes files, images and the boot menu."""


IDENTIFIER = re.compile(r"(?<![0-9A-Za-z])(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})(?![0-9A-Za-z])")
UUID = "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"
PARTS = (UUID, UUID[:-1], UUID[1:], UUID.replace("-", ""), "a" * 31, "a", "A", "g", "-", ".", "\xe9", "\u0660")


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    twins._twins.clear()
    yield
    twins._twins.clear()


def key(host: Host) -> bytes:
    """The key of its kind; empty if it has none."""
    kind = kind_of(host)
    return b"" if kind is None else kind.key


def spec_of(**more: Any) -> Spec:
    return parse_spec(json.dumps({**server_fleets.spec(100), **more}), "spec")


def results(spec: Spec, host: Host) -> list[object]:
    """All decisions about a host, as data and as text."""
    rows = by_host([host])[0]
    plan = plan_host(spec, host)
    judged = verdicts(spec, host)
    desired = wanted(spec, [host], release=release("2025.2"))
    return [
        [[column.value(row) for column in COLUMNS] for row in rows.rows],
        rows.reasons,
        judged.all,
        judged.switches,
        judged.findings,
        [desired.computes, desired.markers, desired.findings, desired.unknown],
        plan.to_dict(),
        show_plan(plan, diffs=True),
    ]


def alone(spec: Spec, host: Host, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The decisions about a host that has no twin."""
    with monkeypatch.context() as patch:
        patch.setattr(twins, "_twin", lambda host, kind: None)
        return results(spec, host.model_validate(host.model_dump(by_alias=True)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_equal_servers_are_decided_once(kind: server_fleets.Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of()
    hosts = [parse_host(server(kind, number), "test") for number in (3, 4, 5, 6)]
    assert len({key(host) for host in hosts}) == 1
    for host in hosts:
        found = results(spec, host)
        assert found == alone(spec, host, monkeypatch)
        assert twins._NUMBER not in repr(found)
    (twin,) = twins._twins.values()
    assert twin is not None
    assert len(twin.decisions) >= 3


VALUES: tuple[Any, ...] = (
    *(True, 7, "7", "x", "0000:99:00.0", "0000:99", "ffff", "ffffff"),
    *([], ["x"], ["0000:99:00.0"], [{"path": "/x", "error": "x"}], {}, {"x": "y"}, {"x": "module"}),
    *("vfio", [{"number": "1"}], [{"uuid": "x"}]),
)
"""Values, of which one fits each field."""
SAME_KIND = {
    "hostname",
    "collected_at",
    "memory_mib",
    "numa_nodes.0.memory_mib",
    "numa_nodes.0.huge_pages",
    "kernel.booted_at",
    "kernel.log",
    "kernel.log_dropped",
    "kernel.log_since",
    "boot.config_mtime",
    "pci.serial",
    "pci.aer",
}
"""The fields in which servers of one kind may differ; times of files, too, as long as their order is the same."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Each field of a document, of lists the first item only, of files the first one, of functions the last ones."""
    if isinstance(value, dict):
        names = list(value) if path != ("files",) else ["/etc/default/grub"]
        for name in names:
            yield (*path, name)
            yield from places(value[name], (*path, name))
    elif isinstance(value, list) and value:
        index = GPU if path == ("pci",) else 0
        yield from places(value[index], (*path, index))


GPU = 1


def variants(host: Host) -> Iterator[tuple[str, Host]]:
    """A host for each field of the facts' model, in which this field alone differs."""
    document = json.loads(host.model_dump_json(by_alias=True))
    for path in places(document):
        for other in VALUES:
            changed = copy.deepcopy(document)
            inner = changed
            for step in path[:-1]:
                inner = inner[step]
            before = inner[path[-1]]
            inner[path[-1]] = before + 1 if type(before) is int else not before if before in (True, False) else other
            try:
                parsed = parse_host(changed, "test")
            except SnapshotError:
                continue
            if parsed != host:
                yield ".".join(map(str, path)).replace(f"pci.{GPU}.", "pci."), parsed
                break


def test_a_host_that_differs_in_one_field_gets_its_own_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of()
    raw = server(BASE, 1)
    raw["pci"] = raw["pci"][:4]
    raw["pci"][GPU] |= {"serial": "1234", "aer": {"correctable": 1}}
    first, second = (parse_host({**raw, "hostname": name}, "test") for name in ("gpu0001", "gpu0002"))
    results(spec, first)
    results(spec, second)
    tried = dict(variants(first))
    names = {*Host.model_fields, *(f"pci.{field.alias or name}" for name, field in Function.model_fields.items())}
    assert {name for name in names if not any(f"{path}.".startswith(f"{name}.") for path in tried)} == {"version"}
    same = {name for name, host in tried.items() if key(host) == key(first)}
    assert {name for name in same if not name.startswith("pci.aer.")} == SAME_KIND
    for name in same:
        assert results(spec, tried[name]) == alone(spec, tried[name], monkeypatch), name


def test_times_in_another_order_are_another_kind() -> None:
    raw = server(BASE, 1)
    later = copy.deepcopy(raw)
    later["files"]["/etc/default/grub"]["mtime_ns"] = raw["kernel"]["booted_at"] * 10**9 + 10**18
    assert key(parse_host(raw, "test")) != key(parse_host(later, "test"))


@pytest.mark.parametrize("memory", [63 << 20, 64 << 20, (64 << 20) + 1])
def test_memory_counts_where_the_processor_addresses_no_more(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of()
    for number in range(3):
        raw = {**server(BASE, number), "memory_mib": memory + number}
        host = parse_host(raw, "test")
        assert results(spec, host) == alone(spec, host, monkeypatch)


def test_a_host_changes_no_decision_about_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names and texts are those of stand-ins of another run, or of another host."""
    spec = spec_of()
    texts = (twins.TWIN.replace(twins._NUMBER, "12345678"), "gpu0002", "nouveau", "h", server_fleets.UUID)
    honest = [parse_host(server(BASE, number), "test") for number in (2, 3)]
    expected = [alone(spec, host, monkeypatch) for host in honest]
    for text in texts:
        for number in (4, 5):
            raw = server(BASE, number)
            raw["pci"][GPU] |= {"serial": text}
            raw["files"]["/etc/modprobe.d/x.conf"] = {"text": f"options x y={text}\n"}
            lying = parse_host(raw, "test")
            assert results(spec, lying) == alone(spec, lying, monkeypatch)
    assert [results(spec, host) for host in honest] == expected


@pytest.mark.parametrize(
    "more",
    [
        {"out_of_service": [{"host": "gpu0004", "address": "0000:11:00.0", "reason": "x"}]},
        {"out_of_service": [{"host": "gpu0004", "serial": server_fleets.serial(4, 1), "reason": "x"}]},
        {"hosts": {"gpu000[0:4]": ["rtx-a6000"], "gpu000[5:9]": ["p100"]}},
        {"hosts": {"gpu0003": {"models": ["rtx-a6000"], "options": {"iommu_pt": False}}, "gpu*": ["rtx-a6000"]}},
        {"options": {"boot_changes": ["-resume=UUID=00000004-8d1c-4c43-9b6d-6a1f8f0a7c55"]}},
    ],
    ids=["address", "serial", "models", "options", "identifier"],
)
def test_equal_hosts_differ_by_their_spec(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(**more)
    for number in (3, 4, 5, 6):
        host = parse_host(server(BASE, number), "test")
        assert results(spec, host) == alone(spec, host, monkeypatch)


def test_few_kinds_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twins, "MOST_KINDS", 3)
    for host in server_fleets.fleet(24):
        by_host([parse_host(host, "test")])
        assert len(twins._twins) <= 3


@given(st.lists(st.sampled_from(PARTS), max_size=6).map("".join))
def test_identifiers_are_found_by_their_shape(text: str) -> None:
    assert has_identifier(text) == (IDENTIFIER.search(text) is not None)
