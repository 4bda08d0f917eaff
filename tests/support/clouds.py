"""The clouds of clean-up's tests: releases of Nova, with and without PCI in Placement, their configuration."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import sqlalchemy as sa

from gpustack_demo.embedded import servers
from gpustack_demo.embedded.nova import EmbeddedNova
from gpustack_demo.embedded.releases import available
from support.cloudworld import World
from support.sshd import Sshd

_NOVA = """
[quota]
instances = -1
cores = -1
ram = -1
[pci]
device_spec = {"vendor_id": "10de", "product_id": "11b4"}
alias = {"vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI", "name": "k4200"}
alias = {"vendor_id": "10de", "product_id": "25b6", "device_type": "type-PF", "name": "card"}
alias = {"vendor_id": "10de", "product_id": "25b7", "device_type": "type-VF", "name": "function"}
"""
_PLACEMENT = """
[pci]
report_in_placement = true
alias = {"vendor_id": "10de", "product_id": "11b4", "name": "second", "traits": "CUSTOM_SECOND"}
[filter_scheduler]
pci_in_placement = true
"""
LIVE_MIGRATABLE = """
[pci]
alias = {"name": "vf", "vendor_id": "10de", "product_id": "11b4", "live_migratable": "yes"}
device_spec = {"vendor_id": "10de", "product_id": "11b4", "live_migratable": "yes", "managed": "no"}
report_in_placement = true
[filter_scheduler]
pci_in_placement = true
enabled_filters = ComputeFilter,PciPassthroughFilter
"""
"""nova.conf with devices that flavors ask for and that migrate live."""
_POLICY = {"compute:servers:resize:cross_cell": "rule:admin_api"}
"""Permits resize into another cell; without effect in clouds with one cell."""


def _named() -> tuple[str, ...]:
    """2025.2 and 2026.2, or the releases in ``GPUSTACK_NOVA_RELEASES`` (``all``: all with an interpreter)."""
    releases = os.environ.get("GPUSTACK_NOVA_RELEASES", "2025.2 2026.2").split()
    return tuple(entry.name for entry in available()) if releases == ["all"] else tuple(releases)


NAMED = _named()
DATABASES = os.environ.get("GPUSTACK_CLEANUP_DATABASES", "").split()
"""Kinds of database servers, used in turn by the releases; if empty, every Nova has SQLite files."""


def world_of(release: str, placement: bool, database: str | None = None) -> pytest.ParameterSet:
    """The parameters of ``cloud``: a release, PCI in Placement or not, the kind of database server or None."""
    if database is None and DATABASES:
        database = DATABASES[NAMED.index(release) % len(DATABASES)]
    labels = (release, database, "placement" if placement else None)
    return pytest.param((release, placement, database), id="-".join(filter(None, labels)))


WORLDS = [world_of(name, name == "2026.2") for name in NAMED]
"""Every release, the last one with PCI in Placement."""
BOTH_WAYS = [
    world_of(name, placement) for name in NAMED for placement in (False, True) if not placement or name != "yoga"
]
"""Every release, with PCI in Placement and without; Yoga has none."""
NOT_LIVE = ("yoga", "2023.1")
"""Releases before 2025.1, in which guests with GPUs can't be live-migrated."""
LIVE_WORLDS = [
    pytest.param((*values, "live"), id=world.id)
    for world in WORLDS
    for values in cast("tuple[tuple[str, bool, str | None], ...]", world.values)
    if values[0] not in NOT_LIVE
]


_BY_ADDRESS = """{"vendor_id": "10de", "product_id": "11b4", "address": "0000:81:00.0"}
device_spec = {"vendor_id": "10de", "product_id": "11b4", "address": "0000:82:00.0", "traits": "CUSTOM_SECOND"}"""


def nova_conf(
    release: str, *, placement: bool, report: bool = False, live: bool = False, once: bool = False, second: bool = False
) -> str:
    """The nova.conf of the hosts and of the API.

    :param report: whether devices are only reported to Placement.
    :param live: whether guests with GPUs can be live-migrated (since 2025.1); otherwise resize to the same host is
        permitted.
    :param once: whether each GPU is for one use only (since 2025.2, with PCI in Placement).
    :param second: whether the second GPU has the trait that the alias ``second`` requires (with PCI in Placement).
    """
    basic = _NOVA.replace("device_spec", "passthrough_whitelist") if release == "yoga" else _NOVA
    if live:
        basic = basic.replace('"11b4"}', '"11b4", "live_migratable": "yes", "managed": "no"}')
        basic = basic.replace('"name": "k4200"', '"name": "k4200", "live_migratable": "yes"')
    else:
        basic = f"[DEFAULT]\nallow_resize_to_same_host = true\n{basic}"
    if once:
        basic = basic.replace('"11b4"}', '"11b4", "one_time_use": "yes"}')
    if second:
        basic = basic.replace('{"vendor_id": "10de", "product_id": "11b4"}', _BY_ADDRESS, 1)
    if report:
        return f"{basic}[pci]\nreport_in_placement = true\n"
    return basic + _PLACEMENT if placement else basic


@contextlib.contextmanager
def running(
    release: str,
    placement: bool,
    url: str | None,
    directory: Path,
    *,
    live: bool = False,
    cells: tuple[str, ...] = ("cell1",),
    keystone: bool = False,
    report: bool = False,
    defers: bool = False,
) -> Iterator[World]:
    """A Nova without hosts, and an SSH server that serves all running hosts.

    :param url: the server of its databases; SQLite files when None.
    :param keystone: whether a real Keystone checks tokens.
    :param defers: whether deleted instances can be restored for a day.
    """
    deferred = "[DEFAULT]\nreclaim_instance_interval = 86400\n" if defers else ""
    config = (nova_conf(release, placement=placement, report=report, live=live), *filter(None, [deferred]))
    with contextlib.ExitStack() as stack:
        prefix = f"nova_{release.replace('.', '_')}"
        nova = stack.enter_context(
            EmbeddedNova(
                release,
                config=config,
                database=url,
                database_prefix=prefix,
                cells=cells,
                policy=_POLICY,
                keystone=keystone,
            )
        )
        connection = stack.enter_context(nova.connection())
        ssh = Sshd(directory=directory / "sshd")
        ssh.start()
        stack.callback(ssh.stop)
        engine = sa.create_engine(nova.database_url(), poolclass=sa.NullPool)
        flavors = {count: servers.gpu_flavor(connection, f"gpu{count}", "k4200", count) for count in (1, 2)}
        yield World(
            nova=nova,
            api=connection,
            placement=placement,
            request_ids=release != "yoga",
            undeletes=release != "yoga",
            ssh=ssh,
            engine=engine,
            flavors=flavors,
            defers=defers,
        )
