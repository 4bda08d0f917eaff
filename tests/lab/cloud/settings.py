"""Texts of configuration files: the services of the control plane, and nova-compute on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpustack_demo.embedded.identity import AUTH

SLIRP = "10.0.2.2"
"""This machine's loopback as a host of the lab reaches it."""

PLACEMENT = """
[placement_database]
connection = {database}placement
sync_on_startup = true
"""

# A host in emulation may be silent for a minute, and its calls may take longer.
_MESSAGES = """
rpc_response_timeout = 300
service_down_time = 180
transport_url = {transport}
[oslo_messaging_rabbit]
heartbeat_timeout_threshold = 300
"""

NOVA = (
    """
[DEFAULT]
my_ip = 127.0.0.1
state_path = {directory}"""
    + _MESSAGES
    + """
[api]
auth_strategy = keystone
[api_database]
connection = {database}nova_api
[conductor]
workers = 1
[database]
connection = {database}nova_cell1
[oslo_concurrency]
lock_path = {directory}
[scheduler]
discover_hosts_in_cells_interval = 20
workers = 1
"""
)

# privsep-helper directly: the service runs as root, and its tree has no rootwrap.
PRIVSEP = "".join(
    f"[{group}]\nhelper_command = /opt/nova/bin/privsep-helper --config-file /etc/nova/nova.conf\n"
    for group in ("nova_sys_admin", "privsep_osbrick", "vif_plug_linux_bridge_privileged", "vif_plug_ovs_privileged")
)
_COMPUTE = (
    """\
[DEFAULT]
compute_driver = libvirt.LibvirtDriver
host = {name}
my_ip = {my_ip}
reserved_host_memory_mb = 512
state_path = /var/lib/nova"""
    + _MESSAGES
    + """
[libvirt]
virt_type = qemu
[oslo_concurrency]
lock_path = /var/lib/nova/lock
[vnc]
enabled = false
"""
)


@dataclass(frozen=True, kw_only=True)
class Access:
    """How a host of the lab reaches the control plane, and other hosts reach it."""

    ports: Mapping[str, int]
    address: str = SLIRP
    my_ip: str = "10.0.2.15"


def auth(group: str, port: int, password: str) -> str:
    """How a service signs in at Keystone's `port`."""
    return AUTH.format(group=group, port=port, password=password)


def compute(*, name: str, access: Access, transport: str, password: str) -> str:
    """nova.conf of nova-compute on the lab's host `name`: everything but GPUs and privileges."""
    text = _COMPUTE.format(name=name, my_ip=access.my_ip, transport=transport)
    for group, kind in (("placement", "placement"), ("neutron", "network")):
        signed_in = auth(group, access.ports["identity"], password).replace("127.0.0.1", access.address)
        text += f"{signed_in}endpoint_override = {_url(access, kind)}\n"
    return f"{text}[glance]\nendpoint_override = {_url(access, 'image')}\n"


def _url(access: Access, kind: str) -> str:
    return f"http://{access.address}:{access.ports[kind]}"
