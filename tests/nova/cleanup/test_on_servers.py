"""Leaks and repairs with Nova's databases on MariaDB and on PostgreSQL, and through the playbook.

Other modules' tests are run again here, one for each class that writes in its own way; `make cleanup-servers` runs them
all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpustack.connect.playbooks.inventory import interpreter
from nova.cleanup import test_by_hand, test_leaks, test_virtual
from support.by_hand import FREE
from support.clouds import NAMED, world_of
from support.cloudworld import World

ON_SERVERS = [
    world_of(name, placed, server)
    for name, placed, server in (
        *(("2026.2", False, "postgresql"), ("2025.2", True, "mariadb")),
        *(("2023.1", True, "mariadb"), ("yoga", False, "postgresql")),
    )
    if name in NAMED
]
pytestmark = pytest.mark.every_release
on_servers = pytest.mark.parametrize("cloud", ON_SERVERS, indirect=True)
# With PCI in Placement Nova offers either a card or its functions.
with_functions = pytest.mark.parametrize(
    "cloud", [parameter for parameter in ON_SERVERS if parameter.values[0][0] == "2026.2"], indirect=True
)


@on_servers
def test_an_evacuation_from_a_host_that_stays_away(world: World) -> None:
    old, new = world.hosts(2)
    server = world.boot(old, 2)
    world.die(old)
    server = world.evacuate(server, new)
    before = world.dump()
    assert world.plan() == [f"A stale {old} free"] * 2
    world.apply()
    assert world.gpustack("undo", str(world.journal)).code == 0
    assert world.dump() == before

    world.apply()

    assert world.plan() == []
    world.runs(server)
    world.back(old)
    world.agrees(old, server)


@on_servers
def test_a_confirmation_that_failed(world: World) -> None:
    old, new = world.hosts(2)
    server = world.migrate(world.boot(old), new)
    world.nova.control.fail(old, "confirm")
    server = world.confirm(server)
    world.api.compute.reset_server_state(server, "active")
    assert world.plan() == [f"B stale {old} fail-migration"]

    world.apply("--wait", "0", code=14)
    world.nova.control.periodic(old)

    assert world.plan() == []
    world.agrees(old, server)


@on_servers
def test_a_compute_service_that_was_deleted(world: World) -> None:
    test_leaks.test_a_compute_service_that_was_deleted(world)


@on_servers
def test_rows_that_somebody_soft_deleted(world: World) -> None:
    test_leaks.test_rows_that_somebody_soft_deleted(world)


@with_functions
def test_a_card_that_is_offered_above_a_function_in_use(world: World) -> None:
    test_virtual.test_a_card_that_is_offered_above_a_function_in_use(world)


@on_servers
def test_a_free_gpu_with_an_owners_name(world: World) -> None:
    test_by_hand.test_a_free_gpu_with_an_owners_name(world)


@on_servers
def test_a_gpu_that_was_half_removed(world: World) -> None:
    test_by_hand.test_a_gpu_that_was_half_removed(world)


@on_servers
def test_a_row_that_was_freed_under_a_guest_is_report_only(world: World) -> None:
    test_by_hand.test_a_row_that_was_freed_under_a_guest_is_report_only(world)


@on_servers
def test_the_playbook_stops_repairs_and_starts(world: World, tmp_path: Path) -> None:
    (host,) = world.hosts(1)
    world.nova.control.stop_compute(host)
    world.sql(f"UPDATE pci_devices SET status = 'unavailable', updated_at = created_at WHERE id = {FREE}", host=host)
    world.nova.control.restart_compute(host)
    world.nova.control.periodic(host)
    world.sql("UPDATE pci_devices SET created_at = :old, updated_at = :old", old="2026-01-01 00:00:00")
    assert world.plan() == [f"H report {host}"]  # perhaps an operator took it out of service
    ((address, _status, _owner),) = [row for row in world.rows(host) if row[1] == "unavailable"]
    world.hypervisors()
    directory = world.ssh.directory
    ssh = ["--ssh-config", str(directory / "config"), "--known-hosts", str(directory / "known_hosts")]
    ssh += ["--timeout", "120"]
    control = world.nova.control
    inventory = tmp_path / "inventory.json"
    local = {"ansible_connection": "local", "ansible_python_interpreter": interpreter()}
    inventory.write_text(json.dumps({"all": {"hosts": {host: local}}}))
    commands = {}
    for verb in ("stop", "start"):
        script = tmp_path / verb
        call = "stop_compute" if verb == "stop" else "restart_compute"
        more = f"control.unseen({host!r}, seconds=90)\n" if verb == "stop" else ""
        script.write_text(
            "from gpustack_demo.embedded.control import Control\n"
            f"control = Control({control._port}, {control._token!r})\ncontrol.{call}({host!r})\n{more}"
        )
        commands[f"gpustack_cleanup_{verb}_command"] = [sys.executable, str(script)]
    variables = {
        **commands,
        "gpustack_cleanup_config": str(world.nova.nova_conf),
        "gpustack_cleanup_silence": 1,
        "gpustack_cleanup_unblock": [f"{host}/{address}"],
        "gpustack_cleanup_arguments": ["--journal", str(tmp_path / "journal"), "--grace", "0", *ssh],
        "ansible_become": False,
    }
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        *("-i", str(inventory), "-e", json.dumps(variables)),
        str(Path(__file__).parents[3] / "playbooks" / "cleanup.yml"),
    ]
    dry = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False, env=dict(os.environ))
    assert dry.returncode == 0, dry.stdout + dry.stderr
    assert "changed=0" in dry.stdout
    assert world.plan() == [f"H report {host}"]

    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert control.hosts()[host]  # it runs again
    assert world.plan() == []
    world.agrees(host)
