"""The flavors cloud: real Keystone, Placement and Nova API, over HTTP."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from gpustack.cli.app import main
from gpustack_demo.embedded.cloud import EmbeddedCloud
from gpustack_demo.embedded.identity import clouds_with_keystone, start_keystone, write_clouds
from gpustack_demo.embedded.nova import EmbeddedHost, EmbeddedNova, gpus
from gpustack_demo.embedded.process import ServiceError, free_port
from gpustack_demo.embedded.servers import gpu_flavor, settled

_ALIAS = '[pci]\nalias = {"name": "k4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}\n'


@pytest.fixture(scope="module")
def cloud(release_name: str, report) -> Iterator[EmbeddedCloud]:
    with EmbeddedCloud(release_name, config=[_ALIAS], report=report) as running:
        yield running


def test_a_flavor_of_the_sdk_reads_the_same_in_the_openstack_command(cloud: EmbeddedCloud) -> None:
    with cloud.connection() as connection:
        flavor = connection.compute.create_flavor(name="by-sdk", ram=8192, vcpus=4, disk=40)
        connection.compute.create_flavor_extra_specs(flavor, {"pci_passthrough:alias": "k4200:1"})
        document = json.loads(cloud.openstack("flavor", "show", "by-sdk", "-f", "json").stdout)
        assert (document["id"], document["ram"], document["vcpus"], document["disk"]) == (flavor.id, 8192, 4, 40)
        assert document["properties"] == {"pci_passthrough:alias": "k4200:1"}
        cloud.openstack(
            "flavor", "create", "by-command", "--ram", "1024", "--property", "pci_passthrough:alias=k4200:2"
        )
        listed = {flavor.name: flavor.extra_specs for flavor in connection.compute.flavors(get_extra_specs=True)}
    assert listed["by-command"] == {"pci_passthrough:alias": "k4200:2"}


def test_tokens_are_checked(cloud: EmbeddedCloud) -> None:
    refused = cloud.openstack("flavor", "list", "--os-password", "wrong", check=False)
    assert refused.returncode != 0
    assert cloud.password not in refused.stdout + refused.stderr


def test_keystone_starts_on_the_database_of_an_earlier_one(cloud: EmbeddedCloud, tmp_path: Path) -> None:
    database = None
    for name in ("first", "second"):
        port = free_port()
        service = start_keystone(
            cloud.environment,
            tmp_path / name,
            port=port,
            password=cloud.password,
            catalog={"identity": f"http://127.0.0.1:{port}/v3"},
            database=database,
        )
        try:
            service.wait_for_port(port, seconds=90)
        finally:
            service.stop()
        database = f"sqlite:///{tmp_path}/first/keystone.sqlite"


def test_users_sign_in_for_the_first_time_at_once(cloud: EmbeddedCloud) -> None:
    """Keystone writes the day of a user's last sign-in, and SQLite refuses a write that was overtaken."""
    names = [f"first-{number}" for number in range(12)]
    with cloud.connection() as connection:
        for name in names:
            connection.identity.create_user(name=name, password=f"{cloud.password}-3", domain_id="default")

    def status(name: str) -> int:
        user = {"name": name, "domain": {"id": "default"}, "password": f"{cloud.password}-3"}
        body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}}}
        return requests.post(
            f"http://127.0.0.1:{cloud.ports['identity']}/v3/auth/tokens", json=body, timeout=60
        ).status_code

    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        assert set(pool.map(status, names)) == {201}


def test_doctor_reports_the_rights_of_users(
    cloud: EmbeddedCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An administrator may all that commands need; a member of a project can't list services."""
    with cloud.connection() as connection:
        user = connection.identity.create_user(name="member", password=f"{cloud.password}-2", domain_id="default")
        project = connection.identity.find_project("admin", ignore_missing=False)
        role = connection.identity.find_role("member") or connection.identity.create_role(name="member")
        connection.identity.assign_project_role_to_user(project, user, role)
    monkeypatch.setattr("gpustack.operate.doctor.machine.checks", lambda: iter(()))
    admin = clouds_with_keystone(cloud.ports["identity"], cloud.password)
    member = {**admin, "auth": {**admin["auth"], "username": "member", "password": f"{cloud.password}-2"}}

    def states(entry: dict[str, Any]) -> dict[str, str]:
        write_clouds(tmp_path / "clouds.yaml", entry)
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
        main(["doctor", "--os-cloud", "embedded", "-f", "json"])
        output = capsys.readouterr()
        assert cloud.password not in output.out + output.err
        return {check["name"]: check["state"] for check in json.loads(output.out)}

    rights = states(admin)
    assert {rights[name] for name in ("Cloud", "Nova flavors", "Nova services", "Placement")} == {"ok"}, rights
    rights = states(member)
    assert (rights["Cloud"], rights["Nova flavors"], rights["Nova services"]) == ("warning", "ok", "error")


def test_secrets_are_its_owners_alone(cloud: EmbeddedCloud) -> None:
    secret_files = [
        path for path in cloud.directory.rglob("*") if path.is_file() and path.suffix in {".yaml", ".conf", ".json"}
    ]
    assert cloud.clouds_yaml in secret_files
    assert {path.stat().st_mode & 0o777 for path in secret_files} == {0o600}
    assert all(cloud.password not in path.read_text(errors="replace") for path in cloud.directory.rglob("*.log"))


def test_a_service_that_does_not_start_is_named_with_its_log(release_name: str) -> None:
    with (
        pytest.raises(ServiceError, match="the Nova API") as failed,
        EmbeddedCloud(release_name, config=["no section = 1\n"]),
    ):
        pass
    assert "ParseError" in str(failed.value)


def test_nothing_listens_afterwards(release_name: str) -> None:
    with EmbeddedCloud(release_name) as running:
        ports, directory = dict(running.ports), running.directory
    assert not directory.exists()
    for port in ports.values():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=1)


def test_the_nova_that_builds_servers_takes_tokens_of_keystone_too(release_name: str) -> None:
    config = _ALIAS + (
        'passthrough_whitelist = {"vendor_id": "10de", "product_id": "11b4"}\n'
        if release_name == "yoga"
        else 'device_spec = {"vendor_id": "10de", "product_id": "11b4"}\n'
    )
    hosts = [EmbeddedHost(name="gpu1", pci=gpus(1))]
    with (
        EmbeddedNova(release_name, hosts=hosts, config=[config], keystone=True) as nova,
        nova.connection() as connection,
    ):
        placement = connection.placement.get_endpoint()
        for token, status in (("admin", 401), (connection.auth_token, 200)):
            response = requests.get(f"{placement}/resource_providers", headers={"X-Auth-Token": token}, timeout=60)
            assert response.status_code == status
        project = connection.identity.create_project(name="physics")
        gpu_flavor(connection, "one-gpu", "k4200")
        # An older client has no --no-network, and asks for version 2.1, which knows no "none".
        image = ("--os-compute-api-version", "2.37", "--image", "image", "--nic", "none")
        created = nova.openstack("server", "create", *image, "--flavor", "one-gpu", "vm", "-f", "json", check=False)
        assert created.returncode == 0, created.stderr
        assert settled(connection, connection.compute.find_server("vm")).status == "ACTIVE"
        closed = connection.compute.create_flavor(name="closed", ram=1, vcpus=1, disk=1, is_public=False)
        connection.compute.flavor_add_tenant_access(closed, project.id)
        access = json.loads(nova.openstack("flavor", "show", "closed", "-f", "json").stdout)["access_project_ids"]
        assert access == [project.id]
        assert nova.openstack("flavor", "list", "--os-password", "wrong", check=False).returncode != 0
