"""Names of hosts: each comparison with its strictness, and those who ask."""

from __future__ import annotations

import pytest

from gpustack.base import hostnames
from gpustack.configure.sources import HostNames, Source
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.config import NovaConfiguration
from gpustack.novadb.hardware import Hardware, finder
from gpustack.novadb.model import ComputeNode, Instance, Migration

SHORT, CAPITALS, FULL, OTHER_DOMAIN, LONGER = "gpu1", "GPU1", "gpu1.example.org", "gpu1.example.com", "gpu11"


@pytest.mark.parametrize(
    ("name", "counterpart", "same", "extends", "short"),
    [
        (SHORT, SHORT, True, True, True),
        (SHORT, CAPITALS, True, True, True),
        (CAPITALS, FULL, False, True, True),
        (FULL, OTHER_DOMAIN, False, False, True),
        (SHORT, LONGER, False, False, False),
        (SHORT, f"{SHORT} ", False, True, False),  # MySQL ignores spaces at the end
        (FULL, f"{FULL}.", False, True, True),
        ("10.0.0.1", "10.0.0.2", False, False, False),
        ("2001:DB8::1", "2001:db8::1", True, True, True),
        ("2001:db8::1", "2001:db8:0::1", False, False, True),
    ],
)
def test_each_comparison_has_its_strictness(
    name: str, counterpart: str, *, same: bool, extends: bool, short: bool
) -> None:
    for first, second in ((name, counterpart), (counterpart, name)):
        assert hostnames.same(first, second) is same
        assert hostnames.extends(first, second) is extends
        assert (hostnames.short(first) == hostnames.short(second)) is short


@pytest.mark.parametrize(
    ("names", "expected", "may"),
    [
        (["gpu1"], ["gpu1"], True),
        (["GPU1", "gpu1.az1"], ["gpu1"], True),
        (["gpu1"], ["gpu1.az1"], True),
        (["gpu1", "gpu1.az1"], ["gpu1.az1"], True),
        (["gpu1", "gpu1.az2"], ["gpu1.az1"], False),
        (["gpu1", "gpu1.az2"], ["gpu1", "gpu1.az1"], False),
        (["gpu1", "gpu1.storage", "gpu1.az1"], ["gpu1", "gpu1.az1"], True),
        (["gpu1", "gpu1.localdomain"], ["gpu1.az1"], True),
        (["gpu1", "gpu1.az1.example.org"], ["gpu1.az1"], True),
        (["gpu2", "gpu2.az1"], ["gpu1.az1"], False),
        (["10.0.0.2"], ["10.0.0.1"], False),
        (["10.0.0.1"], ["10.0.0.1"], True),
    ],
)
def test_a_machine_of_another_domain_is_another_machine(names: list[str], expected: list[str], *, may: bool) -> None:
    assert hostnames.may_be_of_one_machine(names, expected) is may


@pytest.mark.parametrize(
    ("name", "head"), [(FULL, SHORT), ("GPU1.example.org", CAPITALS), ("10.0.0.1", "10.0.0.1"), ("::1", "::1")]
)
def test_a_head_is_as_written(name: str, head: str) -> None:
    assert hostnames.head(name) == head


def test_the_very_name_precedes_the_same_name() -> None:
    indexed = hostnames.index({SHORT: 1, CAPITALS: 2, "GPU2": 3})
    numbers = [hostnames.find(indexed, name) for name in (SHORT, CAPITALS, "gpu2", FULL)]
    assert numbers == [1, 2, 3, None]


def node(host: str = SHORT, name: str = SHORT, deleted: int = 0) -> ComputeNode:
    return ComputeNode(id=1, uuid=None, host=host, hypervisor_hostname=name, deleted=deleted, updated_at=None)


@pytest.mark.parametrize(
    ("host", "name", "local"),
    [
        (SHORT, SHORT, True),
        (CAPITALS, SHORT, False),
        (SHORT, CAPITALS, False),
        (FULL, SHORT, False),
        (SHORT, FULL, False),
        (None, SHORT, False),
    ],
)
def test_an_instance_is_placed_by_both_names_letter_by_letter(host: str | None, name: str, *, local: bool) -> None:
    placed = Instance(
        uuid="vm",
        host=host,
        node=name,
        vm_state="active",
        task_state=None,
        deleted=0,
        hidden=False,
        display_name=None,
        cell="cell1",
    )
    assert node().has(placed) is local
    assert not node(deleted=1).has(placed)


@pytest.mark.parametrize(
    ("host", "name", "touches"),
    [(SHORT, SHORT, True), (CAPITALS, CAPITALS, True), (SHORT, FULL, False), (FULL, SHORT, False)],
)
def test_a_migration_touches_a_node_in_capitals(host: str, name: str, *, touches: bool) -> None:
    ends = {"source_compute": host, "source_node": name, "dest_compute": "gpu2", "dest_node": "gpu2"}
    migration = Migration(
        id=1, instance_uuid="vm", status="error", migration_type=None, cross_cell_move=False, updated_at=None, **ends
    )
    assert migration.touches(node()) is touches


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([CAPITALS], CAPITALS),
        ([FULL], FULL),
        ([SHORT, FULL], SHORT),
        ([FULL, OTHER_DOMAIN], None),
        ([SHORT, CAPITALS], None),
        ([LONGER], None),
    ],
)
def test_hardware_is_of_one_host_only(hosts: list[str], expected: str | None) -> None:
    hardware = {name: Hardware(present={}) for name in hosts}
    assert finder(hardware)(SHORT, None) is (None if expected is None else hardware[expected])


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        (FULL, [FULL]),
        (SHORT, [FULL, OTHER_DOMAIN]),
        (CAPITALS, [FULL, OTHER_DOMAIN]),
        ("10.0.0.7", ["10.0.0.7"]),
        ("10", [FULL, OTHER_DOMAIN, "10.0.0.7"]),  # names no host: it may be of each
    ],
)
def test_a_path_names_the_hosts_of_a_configuration(directory: str, expected: list[str]) -> None:
    hosts = [
        Host.model_validate({"version": 1, "hostname": name, "pci": []}) for name in (FULL, OTHER_DOMAIN, "10.0.0.7")
    ]
    configuration = NovaConfiguration(files=(f"/etc/kolla/config/nova/{directory}/nova.conf",), settings=())
    source = Source(label="", services=("compute",), configuration=configuration, named=True)
    assert [host.hostname for host in HostNames(hosts).having(source)] == expected
