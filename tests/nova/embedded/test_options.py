"""The table of the services that use an option agrees with what real Nova reads: at the start, at a boot, at moves."""

from __future__ import annotations

import pytest

from gpustack.nova_options import options, releases, tables
from gpustack_demo.embedded.nova import EmbeddedHost, EmbeddedNova, gpus
from gpustack_demo.embedded.servers import boot, gpu_flavor, settled, until
from support.clouds import LIVE_MIGRATABLE

PARSED = {"pci/device_spec": {"api", "conductor", "scheduler"}}
"""Services that parse an option without an effect (``nova/network/neutron.py``, ``API``): lint checks values there."""
UNREAD = {
    "api/vendordata_jsonfile_path": "for an instance with a config drive, or at a request for metadata",
    "api/vendordata_providers": "likewise",
    "filter_scheduler/pci_in_placement": "nova-scheduler reads it since 2026.2, for several numbered groups",
    "filter_scheduler/pci_weight_multiplier": "where two hosts are weighed",
    "DEFAULT/default_schedule_zone": "nova-api reads it for an instance without a host",
}
"""What this instance does not lead to."""


def test_each_option_is_read_by_the_services_of_the_table(release_name: str) -> None:
    if release_name in ("yoga", "2023.1"):
        pytest.skip("devices of a flavor migrate live since 2025.1")
    hosts = [EmbeddedHost(name="gpu1", pci=gpus(2)), EmbeddedHost(name="gpu2", pci=gpus(2, bus=0x41))]
    with EmbeddedNova(release_name, hosts=hosts, config=[LIVE_MIGRATABLE]) as nova, nova.connection() as cloud:
        server = boot(cloud, "vm", gpu_flavor(cloud, "one-gpu", "vf"), host="gpu1")
        cloud.compute.migrate_server(server.id)
        assert settled(cloud, server).status == "VERIFY_RESIZE"
        cloud.compute.confirm_server_resize(server.id)
        until(cloud, server, lambda instance: instance.status == "ACTIVE")
        cloud.compute.live_migrate_server(server.id, host=None, block_migration="auto")
        until(cloud, server, lambda instance: instance.compute_host == "gpu1" and instance.task_state is None)
        nova.control.periodic()
        read = nova.control.options_read()
    release, wrong = releases.release(release_name), {}
    for path, services in options.services().items():
        if releases.option(path).known_to(release) and services != ("placement",):
            by = {service for service, paths in read.items() if path in paths}
            more = by - {*services, tables.facts()["also"].get(path), *PARSED.get(path, ())}
            if path.startswith("DEFAULT/"):
                more.discard("scheduler")  # one of its notifications iterates over the section
            if path.startswith("devices/"):
                more.discard("api")  # Nova's ConfFixture, before any service starts
            less = set(services) - by if path not in UNREAD else set()
            if more or less or PARSED.get(path, set()) - by:
                wrong[path] = f"read by {sorted(by)}, in the table {sorted(services)}"
    assert not wrong
