"""A GPU and a virtual function of a network card in one instance, with a port of real Neutron 27.0.4."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from openstack.connection import Connection

from gpustack.base.findings import errors
from gpustack.configure.desired import wanted
from gpustack.configure.render import render
from gpustack.hosts.facts.store import parse_host
from gpustack.nova_options import releases
from gpustack.spec.load import parse_spec
from gpustack_demo.embedded import servers
from gpustack_demo.embedded.hosts import devices_of_snapshot
from gpustack_demo.embedded.nova import IMAGE, EmbeddedHost, EmbeddedNova
from support.host_samples import function, raw_host
from support.network_cards import network_card

RELEASE = "2025.2"
SPEC = f"""
version: 1
models: {{p100: {{match: {{vendor: "10de", product: "15f8"}}}}}}
hosts: {{gpu01: [p100]}}
networks: {{rdma: {{match: {{interfaces: [ens1]}}, physical_network: fabric, numa_policy: required}}}}
nova: {{release: "{RELEASE}"}}
"""
GPUS = {"0000:88:00.0": 0, "0000:89:00.0": 0, "0000:8a:00.0": 1}
"""NUMA nodes by address; the network card is on node 0."""
FACTS = raw_host(
    *(function(address, numa_node=node, iommu_group=80 + node) for address, node in GPUS.items()),
    *network_card(0x1A, 2, "ens1"),
)
NEAR = {"0000:88:00.0", "0000:89:00.0"}
PARTS = {"0000:1a:10.0", "0000:1a:10.2"}
"""What is on node 0: GPUs, virtual functions."""


@pytest.fixture(scope="module")
def nova(report: Callable[[str], None]) -> Iterator[EmbeddedNova]:
    hosts = [parse_host(FACTS, "test")]
    rendering = render(wanted(parse_spec(SPEC, "spec"), hosts, release=releases.release(RELEASE)), hosts=hosts)
    assert errors(rendering.findings) == []
    files = {file.target: file.text for file in rendering.files if "placement" not in file.services}
    host = EmbeddedHost(name="gpu01", pci=devices_of_snapshot(FACTS["pci"]), config=[files["gpu01"]])
    with EmbeddedNova(
        RELEASE, hosts=[host], config=[files["control"]], keystone=True, networks=["fabric"], report=report
    ) as running:
        yield running


@pytest.fixture(scope="module")
def cloud(nova: EmbeddedNova) -> Iterator[Connection]:
    with nova.connection() as connection:
        yield connection


@pytest.fixture(scope="module")
def network(cloud: Connection) -> str:
    provider = {
        "provider:network_type": "vlan",
        "provider:physical_network": "fabric",
        "provider:segmentation_id": 101,
    }
    made = cloud.network.create_network(name="fabric", **provider)
    cloud.network.create_subnet(network_id=made.id, ip_version=4, cidr="192.0.2.0/24", enable_dhcp=False)
    return str(made.id)


@pytest.fixture(scope="module")
def flavor(cloud: Connection) -> Any:
    specs = {"hw:numa_nodes": "1", "hw:pci_numa_affinity_policy": "required"}
    return servers.gpu_flavor(cloud, "gpu-rdma", "p100", extra_specs=specs)


def boot(cloud: Connection, network: str, flavor: Any) -> tuple[Any, str]:
    """An instance with a GPU and a port, and the id of the port."""
    port = cloud.network.create_port(network_id=network, binding_vnic_type="direct", numa_affinity_policy="required")
    made = cloud.compute.create_server(name="rdma", flavor_id=flavor.id, image_id=IMAGE, networks=[{"port": port.id}])
    return servers.settled(cloud, made), str(port.id)


def rows(nova: EmbeddedNova) -> dict[str, tuple[str, str | None]]:
    """Status and instance of each device in Nova's database."""
    with closing(sqlite3.connect(nova.directory / "cell1.sqlite")) as database:
        query = "SELECT address, status, instance_uuid FROM pci_devices WHERE deleted = 0"
        return {address: (status, owner) for address, status, owner in database.execute(query)}


def test_a_port_gets_a_virtual_function_beside_the_gpu(
    nova: EmbeddedNova, cloud: Connection, network: str, flavor: Any
) -> None:
    assert {status for status, _owner in rows(nova).values()} == {"available"}
    assert set(rows(nova)) == {*GPUS, *PARTS}
    instances = [boot(cloud, network, flavor) for _ in PARTS]
    for server, port_id in instances:
        assert (server.status, server.fault) == ("ACTIVE", None)
        owned = {address for address, row in rows(nova).items() if row == ("allocated", server.id)}
        assert len(owned & NEAR) == len(owned & PARTS) == 1
        assert len(owned) == 2
        port = cloud.network.get_port(port_id)
        assert (port.binding_host_id, port.binding_vif_type) == ("gpu01", "hw_veb")
        (part,) = owned & PARTS
        profile = {key: port.binding_profile[key] for key in ("pci_slot", "physical_network", "pci_vendor_info")}
        assert profile == {"pci_slot": part, "physical_network": "fabric", "pci_vendor_info": "8086:10ca"}
    # A GPU is free on the other node, but no virtual function.
    last, _port = boot(cloud, network, flavor)
    assert last.status == "ERROR"
    assert last.fault["message"].startswith("No valid host was found.")
    for server in (last, *(server for server, _port in instances)):
        servers.delete(cloud, server)
    nova.control.periodic("gpu01")
    assert set(rows(nova).values()) == {("available", None)}
    for _server, port_id in instances:
        assert cloud.network.get_port(port_id).binding_vif_type == "unbound"
