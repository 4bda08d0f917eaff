"""Neutron on loopback with the mechanism driver of SR-IOV.

Its agents do not run: each host has the record of one that reported its network devices when the cloud started.
``python -m gpustack_demo.embedded.neutron RELEASE …`` installs Neutron before its first use.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import uuid
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from gpustack.base.files import write_atomic
from gpustack_demo.embedded.additions import Addition
from gpustack_demo.embedded.environment import Environment, Report
from gpustack_demo.embedded.identity import AUTH, inside_command
from gpustack_demo.embedded.process import ServiceProcess

_DATABASE = "neutron.sqlite"
_SCHEMA = """
import sys
from neutron.db.migration.models import head
from sqlalchemy import create_engine
head.get_metadata().create_all(create_engine(sys.argv[1]))
"""
_SETTINGS = """
[DEFAULT]
state_path = {directory}
transport_url = fake:///
api_paste_config = {paste}
core_plugin = ml2
service_plugins =
agent_down_time = 86400
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[database]
connection = sqlite:///{directory}/{database}
sqlite_synchronous = false
[ml2]
type_drivers = vlan
tenant_network_types =
mechanism_drivers = sriovnicswitch
extension_drivers = port_numa_affinity_policy
[ml2_type_vlan]
network_vlan_ranges = {networks}
[oslo_concurrency]
lock_path = {directory}
"""
NOVA = """
[DEFAULT]
# Nobody reports that a port is plugged: there is no agent.
vif_plugging_timeout = 0
vif_plugging_is_fatal = false
"""
"""The configuration of Nova for ports without agents; it needs the credentials of ``[neutron]`` too."""
_AGENT = "NIC Switch agent"


def _schema(packages: Path) -> list[str]:
    return ["-c", _SCHEMA, f"sqlite:///{packages}/{_DATABASE}"]


NEUTRON = Addition(title="Neutron", database=_DATABASE, schema=_schema)


def start_neutron(
    environment: Environment,
    directory: Path,
    *,
    port: int,
    identity: int,
    password: str,
    networks: Sequence[str],
    hosts: Sequence[str],
    report: Report,
) -> ServiceProcess:
    """Start Neutron with an SQLite database.

    :param directory: for its database, configuration and log.
    :param identity: Keystone's port.
    :param networks: the physical networks, to which all hosts are connected.
    """
    packages = NEUTRON.ensure(environment, report=report)
    directory.mkdir(mode=0o700)
    NEUTRON.copy_database(packages, directory / _DATABASE)
    _add_agents(directory / _DATABASE, networks, hosts)
    text = _SETTINGS.format(
        directory=directory,
        database=_DATABASE,
        paste=packages / "etc" / "neutron" / "api-paste.ini",
        networks=",".join(f"{name}:100:200" for name in networks),
    )
    auth = AUTH.format(group="keystone_authtoken", port=identity, password=password)
    write_atomic(directory / "neutron.conf", text + auth, mode=0o600)
    description = directory / "description.json"
    content = {
        "environment": {"OS_NEUTRON_CONFIG_DIR": str(directory), "OS_NEUTRON_CONFIG_FILES": "neutron.conf"},
        "arguments": [],
        "applications": [["neutron.wsgi.api", "application", False]],
        "port": port,
    }
    write_atomic(description, json.dumps(content), mode=0o600)
    return ServiceProcess(
        "Neutron",
        inside_command(environment, "wsgi", description),
        log=directory / "neutron.log",
        environment={**environment.variables(), "PYTHONPATH": str(packages)},
        cwd=directory,
    )


def _add_agents(path: Path, networks: Sequence[str], hosts: Sequence[str]) -> None:
    """Add the agents of hosts, as their first report does."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    devices = {name: [f"ens{number}"] for number, name in enumerate(networks)}
    configurations = json.dumps({"device_mappings": devices})
    with closing(sqlite3.connect(path)) as database, database:
        database.executemany(
            "INSERT INTO agents (id, agent_type, binary, topic, host, admin_state_up, created_at, started_at,"
            " heartbeat_timestamp, configurations, load)"
            " VALUES (?, ?, 'neutron-sriov-nic-agent', 'N/A', ?, 1, ?, ?, ?, ?, 0)",
            [(str(uuid.uuid4()), _AGENT, host, now, now, now, configurations) for host in hosts],
        )


if __name__ == "__main__":
    sys.exit(NEUTRON.main(sys.argv[1:]))
