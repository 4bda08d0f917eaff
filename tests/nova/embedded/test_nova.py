"""The embedded Nova is real: it schedules, claims, tracks, leaks and heals devices; and its services are apart."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import requests
import yaml

from gpustack_demo.embedded.control import ControlError
from gpustack_demo.embedded.nova import EmbeddedDevice, EmbeddedHost, EmbeddedNova, gpus
from gpustack_demo.embedded.servers import boot, delete, gpu_flavor, settled, until
from support.clouds import LIVE_MIGRATABLE


def nova_conf(release_name: str) -> str:
    spec = "passthrough_whitelist" if release_name == "yoga" else "device_spec"
    return f"""
[pci]
alias = {{"name": "k4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}}
{spec} = {{"vendor_id": "10de", "product_id": "11b4"}}
[filter_scheduler]
enabled_filters = ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,PciPassthroughFilter
"""


def status(url: str, token: str | bytes | None) -> int:
    """The status of an answer to a request that carries a token, or none."""
    headers = {} if token is None else {"X-Auth-Token": token}
    return requests.get(url, headers=headers, timeout=60).status_code


@pytest.fixture(scope="module")
def nova(release_name: str, report) -> Iterator[EmbeddedNova]:
    hosts = [
        EmbeddedHost(name="gpu1", pci=gpus(2)),
        EmbeddedHost(name="gpu2", pci=gpus(2, bus=0x41)),
        EmbeddedHost(name="cpu1"),
    ]
    with EmbeddedNova(release_name, hosts=hosts, config=[nova_conf(release_name)], report=report) as running:
        yield running


@pytest.fixture(scope="module")
def cloud(nova: EmbeddedNova):
    with nova.connection() as connection:
        yield connection


@pytest.fixture(scope="module")
def flavor(cloud):
    return gpu_flavor(cloud, "one-gpu", "k4200")


@pytest.fixture
def gone(nova: EmbeddedNova, cloud):
    """Deletes what a test boots, lets every host see it, and takes faults off."""
    yield
    for host, running in nova.control.hosts().items():
        if running:
            nova.control.clear_faults(host)
    for server in list(cloud.compute.servers(all_projects=True)):
        delete(cloud, server)
    sql(nova, "UPDATE migrations SET status = 'failed' WHERE status = 'error'")
    nova.control.periodic()


def sql(nova: EmbeddedNova, statement: str, *values: object) -> list[tuple]:
    path = nova.database_url().removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=20)) as database, database:
        return database.execute(statement, values).fetchall()


def owners(nova: EmbeddedNova) -> dict[str, str]:
    """Address → owner, of every device that a live row gives to someone."""
    rows = sql(nova, "SELECT address, instance_uuid FROM pci_devices WHERE status = 'allocated' AND deleted = 0")
    return dict(rows)


@pytest.mark.usefixtures("gone")
def test_every_gpu_gets_one_guest_and_one_more_finds_no_host(nova: EmbeddedNova, cloud, flavor) -> None:
    servers = [boot(cloud, f"vm{number}", flavor) for number in range(4)]
    assert [server.status for server in servers] == ["ACTIVE"] * 4
    owned = owners(nova)
    assert sorted(owned) == ["0000:41:00.0", "0000:42:00.0", "0000:81:00.0", "0000:82:00.0"]
    for server in servers:
        hostdevs = nova.control.hostdevs(server.id)
        assert list(hostdevs) == [server.compute_host]
        assert hostdevs[server.compute_host] == [address for address, owner in owned.items() if owner == server.id]
        assert hostdevs[server.compute_host][0].split(":")[1] in nova.control.domain_xml(server.compute_host, server.id)
    more = boot(cloud, "one-more", flavor)
    assert (more.status, more.fault["message"]) == (
        "ERROR",
        "No valid host was found. There are not enough hosts available.",
    )


@pytest.mark.usefixtures("gone")
def test_a_failed_confirm_pins_the_source_until_its_migration_is_failed(nova: EmbeddedNova, cloud, flavor) -> None:
    server = boot(cloud, "moving", flavor, host="gpu1")
    (source,) = nova.control.hostdevs(server.id)["gpu1"]
    cloud.compute.migrate_server(server.id)
    server = settled(cloud, server)
    assert (server.status, server.compute_host) == ("VERIFY_RESIZE", "gpu2")
    nova.control.fail("gpu1", "confirm")
    cloud.compute.confirm_server_resize(server.id)
    until(cloud, server, lambda instance: instance.status == "ERROR")
    assert nova.control.hits("gpu1", "confirm") == 1
    nova.control.periodic()
    assert owners(nova)[source] == server.id, "the periodic task must not free what an error migration pins"
    sql(nova, "UPDATE migrations SET status = 'failed' WHERE instance_uuid = ?", server.id)
    nova.control.periodic("gpu1")
    assert source not in owners(nova)
    assert sum(pool["count"] for pool in nova.control.tracker("gpu1")["pools"]) == 2


@pytest.mark.usefixtures("gone")
def test_a_killed_compute_leaves_its_work_half_done_and_its_guests_running(nova: EmbeddedNova, cloud, flavor) -> None:
    staying = boot(cloud, "staying", flavor, host="gpu1")
    moving = boot(cloud, "moving", flavor, host="gpu1")
    nova.control.fail("gpu1", "copy", action="hang")
    cloud.compute.migrate_server(moving.id)
    nova.control.wait_for_fault("gpu1", "copy")
    nova.control.kill_compute("gpu1")
    assert [service.state for service in cloud.compute.services(host="gpu1")] == ["down"]
    assert nova.control.hosts()["gpu1"] is False
    assert cloud.compute.get_server(moving.id).task_state == "resize_migrating"
    nova.control.restart_compute("gpu1")
    assert [service.state for service in cloud.compute.services(host="gpu1")] == ["up"]
    assert {domain["uuid"]: domain["state"] for domain in nova.control.domains("gpu1")}[staying.id] == "running"
    assert sql(nova, "SELECT status FROM migrations WHERE instance_uuid = ?", moving.id) == [("migrating",)]
    sql(nova, "UPDATE migrations SET status = 'failed' WHERE instance_uuid = ?", moving.id)


@pytest.mark.usefixtures("gone")
def test_the_hypervisor_gives_no_device_to_two_running_guests(nova: EmbeddedNova, cloud, flavor) -> None:
    first, second = (boot(cloud, name, flavor, host="gpu2") for name in ("first", "second"))
    hostdevs = nova.control.hostdevs(first.id)["gpu2"]
    cloud.compute.stop_server(second.id)
    until(cloud, second, lambda instance: instance.status == "SHUTOFF")
    # What a wrong repair does: the second guest's row now names the first one's device.
    request = "SELECT request_id FROM pci_devices WHERE instance_uuid = ?"
    ((second_request,),) = sql(nova, request, second.id)
    ((first_request,),) = sql(nova, request, first.id)
    sql(nova, "UPDATE pci_devices SET instance_uuid = NULL WHERE instance_uuid = ?", second.id)
    steal = "UPDATE pci_devices SET instance_uuid = ?, request_id = ? WHERE address = ?"
    sql(nova, steal, second.id, second_request, hostdevs[0])
    cloud.compute.start_server(second.id)
    after = settled(cloud, second)
    assert after.status != "ACTIVE"
    assert "in use by driver QEMU" in nova.log.read_text(encoding="utf-8")
    sql(nova, steal, first.id, first_request, hostdevs[0])
    nova.control.restart_compute("gpu2")


def test_a_live_migration_moves_the_device_and_a_failed_rollback_leaks_one(release_name: str) -> None:
    if release_name in ("yoga", "2023.1"):
        pytest.skip("devices of a flavor migrate live since 2025.1")
    hosts = [EmbeddedHost(name="gpu1", pci=gpus(2)), EmbeddedHost(name="gpu2", pci=gpus(2, bus=0x41))]
    with EmbeddedNova(release_name, hosts=hosts, config=[LIVE_MIGRATABLE]) as nova, nova.connection() as cloud:
        server = boot(cloud, "vm", gpu_flavor(cloud, "one-gpu", "vf"), host="gpu1")
        cloud.compute.live_migrate_server(server.id, host=None, block_migration="auto")
        until(cloud, server, lambda instance: instance.compute_host == "gpu2" and instance.task_state is None)
        hostdevs = nova.control.hostdevs(server.id)
        assert list(hostdevs) == ["gpu2"], "the guest runs at the destination alone"
        nova.control.periodic()
        assert owners(nova) == {hostdevs["gpu2"][0]: server.id}
        providers = {provider.name for provider in cloud.placement.resource_providers()}
        assert "gpu1_0000:81:00.0" in providers
        nova.control.fail("gpu2", "migrate", action="skip")
        nova.control.fail("gpu2", "rollback")
        cloud.compute.live_migrate_server(server.id, host=None, block_migration="auto")
        nova.control.wait_for_fault("gpu2", "rollback")
        until(cloud, server, lambda instance: instance.status == "ERROR")
        nova.control.periodic()
        claimed = sql(nova, "SELECT instance_uuid FROM pci_devices WHERE status = 'claimed'")
        assert claimed == [(server.id,)]


def test_the_openstack_command_talks_to_it(nova: EmbeddedNova, flavor) -> None:
    listed = json.loads(nova.openstack("flavor", "list", "-f", "json").stdout)
    assert [entry["Name"] for entry in listed] == [flavor.name]


def test_nova_manage_finds_its_cells(nova: EmbeddedNova) -> None:
    assert nova.database_url("cell1") in nova.manage("cell_v2", "list_cells", "--verbose").stdout
    assert nova.nova_conf.stat().st_mode & 0o777 == 0o600


def test_each_service_has_its_own_configuration(nova: EmbeddedNova, release_name: str) -> None:
    settings = nova_conf(release_name).replace("k4200", "renamed") + "[DEFAULT]\nreserved_host_memory_mb = 1234\n"
    nova.start_compute(EmbeddedHost(name="own1", pci=gpus(1), config=[settings]))
    option = nova.control.option
    assert option("own1", None, "reserved_host_memory_mb") == 1234
    assert "renamed" in option("own1", "pci", "alias")[0]
    for service in ("api", "scheduler", "conductor", "gpu1"):
        assert option(service, None, "reserved_host_memory_mb") == 512
        assert "k4200" in option(service, "pci", "alias")[0]
    assert [option(host, None, "host") for host in ("own1", "gpu1")] == ["own1", "gpu1"]
    nova.control.stop_compute("own1")


def test_a_compute_that_nova_refuses_says_why(nova: EmbeddedNova) -> None:
    bad = '[pci]\ndevice_spec = {"vendor_id": 10de}\npassthrough_whitelist = {"vendor_id": 10de}\n'
    with pytest.raises(ControlError) as refused:
        nova.start_compute(EmbeddedHost(name="bad1", pci=gpus(1), config=[bad]))
    assert "nova.exception" in refused.value.kind
    assert "bad1" not in nova.control.hosts()


def test_devices_can_change_at_a_restart(nova: EmbeddedNova) -> None:
    nova.start_compute(EmbeddedHost(name="changing", pci=gpus(1)))
    assert [device["address"] for device in nova.control.tracker("changing")["devices"]] == ["0000:81:00.0"]
    nova.control.restart_compute("changing", pci=gpus(2, bus=0x91))
    addresses = {
        device["address"] for device in nova.control.tracker("changing")["devices"] if device["status"] == "available"
    }
    assert addresses == {"0000:91:00.0", "0000:92:00.0"}
    nova.control.stop_compute("changing")


def test_device_kinds_are_what_libvirt_says(nova: EmbeddedNova, release_name: str) -> None:
    physical = EmbeddedDevice(
        address="0000:a1:00.0", vendor="10de", product="20b5", sriov_totalvfs=16, virtual_functions=("0000:a1:00.4",)
    )
    virtual = EmbeddedDevice(address="0000:a1:00.4", vendor="10de", product="20b6", physical_function="0000:a1:00.0")
    bare = EmbeddedDevice(address="0000:b1:00.0", vendor="10de", product="20b5", sriov_totalvfs=0)
    config = nova_conf(release_name).replace(', "product_id": "11b4"}', "}")
    nova.start_compute(EmbeddedHost(name="kinds", pci=(physical, virtual, bare, *gpus(1)), config=[config]))
    kinds = {device["address"]: device["dev_type"] for device in nova.control.tracker("kinds")["devices"]}
    assert kinds == {
        "0000:a1:00.0": "type-PF",
        "0000:a1:00.4": "type-VF",
        "0000:b1:00.0": "type-PF",
        "0000:81:00.0": "type-PCI",
    }
    nova.control.stop_compute("kinds")


def test_the_control_port_wants_its_token(nova: EmbeddedNova) -> None:
    from gpustack_demo.embedded.control import Control

    stranger = Control(nova.control._port, "guess")
    with pytest.raises(ControlError, match="wrong token"):
        stranger.hosts()


def test_every_service_refuses_requests_without_its_token(nova: EmbeddedNova) -> None:
    clouds = yaml.safe_load(nova.clouds_yaml.read_text(encoding="utf-8"))["clouds"]["embedded"]
    paths = {"compute": "/servers", "placement": "/resource_providers", "image": "/v2/images"}
    tokens = (None, "admin", b"gu\xe9ss", clouds["auth"]["token"])
    answers = {
        kind: [status(clouds[f"{kind}_endpoint_override"] + path, token) for token in tokens]
        for kind, path in paths.items()
    }
    assert answers == {kind: [401, 401, 401, 200] for kind in paths}


@pytest.fixture
def no_uptime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a minimal Debian, without the package procps."""
    program = tmp_path / "uptime"
    program.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("no_uptime")
def test_two_cells_and_nothing_left_behind(release_name: str) -> None:
    hosts = [EmbeddedHost(name="one", pci=gpus(1)), EmbeddedHost(name="two", pci=gpus(1), cell="cell2")]
    with EmbeddedNova(release_name, hosts=hosts, config=[nova_conf(release_name)], cells=("cell1", "cell2")) as running:
        directory, pid = running.directory, running.service.pid
        with running.connection() as cloud:
            flavor = gpu_flavor(cloud, "one-gpu", "k4200")
            server = boot(cloud, "vm", flavor, host="two")
            assert (server.status, server.compute_host) == ("ACTIVE", "two")
        url = running.database_url("cell2").removeprefix("sqlite:///")
        with closing(sqlite3.connect(url)) as database:
            (count,) = database.execute("SELECT count(*) FROM pci_devices WHERE status = 'allocated'").fetchone()
        assert count == 1
        assert owners(running) == {}
    assert not directory.exists()
    time.sleep(0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
