# ruff: noqa: ANN401 - Nova has no types
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-any-return"
"""Requests to the running Nova beyond its API: every public method of :class:`Verbs` is one."""

from __future__ import annotations

import datetime
import sqlite3
from contextlib import closing
from typing import Any, cast

import sqlalchemy
from nova.tests.fixtures import libvirt as fakelibvirt
from oslo_messaging._drivers import impl_fake
from oslo_utils import timeutils

from nova import context

from . import marks
from .descriptions import Domain, FaultState, HostDescription, Mediated, TrackerState
from .faults import InjectedFault, clear, put
from .hypervisor import document, hostdevs, mediated

_STATES = {
    fakelibvirt.VIR_DOMAIN_RUNNING: "running",
    fakelibvirt.VIR_DOMAIN_SHUTOFF: "shut off",
    fakelibvirt.VIR_DOMAIN_SHUTDOWN: "shutdown",
    fakelibvirt.VIR_DOMAIN_PAUSED: "paused",
}


class Verbs:
    """Verbs on the computes of one harness. Arguments and results are JSON."""

    def __init__(self, harness: Any) -> None:
        self._harness = harness

    def hosts(self) -> dict[str, dict[str, bool]]:
        """Every host that was ever started, and whether its nova-compute runs."""
        return {name: {"running": name in self._harness.computes} for name in self._harness.hosts}

    def start(self, host: HostDescription) -> None:
        """Start a nova-compute on a new or stopped ``host`` (a complete description)."""
        with self._harness.lock:
            self._launch(host)

    def stop(self, name: str) -> None:
        """Stop nova-compute gracefully: its current work is completed. Guests keep running."""
        with self._harness.lock:
            self._harness.halt(name, kill=False)

    def kill(self, name: str) -> None:
        """Stop nova-compute like SIGKILL: its current work stays incomplete. Guests keep running."""
        with self._harness.lock:
            self._harness.halt(name, kill=True)

    def restart(self, name: str, changes: dict[str, Any], kill: bool = False) -> None:
        """Stop nova-compute if it runs and start it again; ``changes`` replaces parts of the host's description."""
        with self._harness.lock:
            if name in self._harness.computes:
                self._harness.halt(name, kill=kill)
            self._launch(cast("HostDescription", {**self._harness.hosts[name], **changes}))

    def _launch(self, host: HostDescription) -> None:
        self._harness.launch(host)
        self.unseen(host["name"], seconds=0)  # otherwise its first report comes some seconds after the start

    def power_off(self, name: str) -> None:
        """Power off the host: nova-compute is killed, its guests are gone, its last report is long ago."""
        with self._harness.lock:
            if name in self._harness.computes:
                self._harness.halt(name, kill=True)
            connection = self._harness.connections[name]
            connection._running_vms.clear()
            for domain in connection._vms.values():
                domain._state = fakelibvirt.VIR_DOMAIN_SHUTOFF
        self.unseen(name)

    def wipe(self, name: str) -> None:
        """Wipe the disks of a powered-off host: libvirt has no guests any more."""
        connection = self._harness.connections[name]
        connection._running_vms.clear()
        connection._vms.clear()

    def expire_messages(self, name: str) -> None:
        """Drop the messages that wait for a host, as RabbitMQ does with the queues of one that is down for long."""
        for exchange in impl_fake.FakeExchangeManager._exchanges.values():
            with exchange._queues_lock:
                for (_topic, server), queue in exchange._server_queues.items():
                    if server == name:
                        queue.clear()

    def unseen(self, name: str, seconds: int = 3600) -> None:
        """Set the last report of a stopped service to ``seconds`` ago."""
        engine = self._harness.cells.engine(self._harness.hosts[name]["cell"])
        last_report = timeutils.utcnow() - datetime.timedelta(seconds=seconds)
        statement = "UPDATE services SET last_seen_up = :seen, updated_at = :seen WHERE host = :host AND deleted = 0"
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(statement), {"seen": last_report, "host": name})

    def periodic(self, name: str | None = None, task: str = "update_available_resource") -> None:
        """Run one periodic task of a nova-compute, or of all that run."""
        for host in [name] if name else sorted(self._harness.computes):
            service = self._harness.computes[host]
            mark = service.gpustack_mark
            admin = context.get_admin_context()
            with mark.active(), context.target_cell(admin, self._harness.cell_mappings[mark.cell]) as targeted:
                getattr(service.manager, task)(targeted)

    def reload_scheduler(self) -> None:
        """What SIGHUP does to nova-scheduler: it reads which cells are disabled."""
        with self._harness.scheduler.gpustack_mark.active():
            self._harness.scheduler.manager.reset()

    def fault(
        self,
        name: str,
        step: str,
        action: str = "raise",
        when: str = "before",
        error: str = "builtins.RuntimeError",
        message: str = "injected",
        times: int = 1,
    ) -> None:
        """Make a step of a nova-compute fail; see :class:`~.faults.InjectedFault`."""
        put(self._harness.computes[name], InjectedFault(step, action, when, error, message, times))

    def faults(self, name: str) -> list[FaultState]:
        """The faults of a nova-compute: the number of hits and of hanging threads."""
        return [fault.state() for fault in self._harness.computes[name].gpustack_mark.faults.values()]

    def clear_faults(self, name: str) -> None:
        """Remove the faults; hanging threads continue."""
        clear(self._harness.computes[name])

    def domains(self, name: str) -> list[Domain]:
        """The hypervisor's records of every guest of a host: state, and the addresses of its devices."""
        return [
            {
                "uuid": domain.UUIDString(),
                "name": domain.name(),
                "state": _STATES.get(domain._state, str(domain._state)),
                "hostdevs": hostdevs(domain),
            }
            for domain in self._harness.connections[name]._vms.values()
        ]

    def mediated(self, name: str) -> list[Mediated]:
        """The mediated devices of a host, and the domains that have them."""
        connection = self._harness.connections[name]
        users = {uuid: domain.UUIDString() for domain in connection._vms.values() for uuid in mediated(domain)}
        return [
            {
                "uuid": device.uuid,
                "type": device.type,
                "parent": device.parent,
                "users": [users[device.uuid]] if device.uuid in users else [],
            }
            for device in connection.mdev_info.devices.values()
        ]

    def domain_xml(self, name: str, uuid: str) -> str:
        """The domain XML, as from ``virsh dumpxml``."""
        return document(self._harness.connections[name].lookupByUUIDString(uuid))

    def definition(self, name: str, uuid: str) -> str:
        """The domain's definition as Nova wrote it; the fake libvirt keeps a part of it only."""
        definition: str = self._harness.connections[name].lookupByUUIDString(uuid).gpustack_definition
        return definition

    def definitions(self, name: str) -> list[tuple[str, bool]]:
        """The definition of each domain of a host, and whether it runs."""
        domains = self._harness.connections[name]._vms.values()
        return [(domain.gpustack_definition, bool(domain.isActive())) for domain in domains]

    def place(self, name: str, definitions: list[tuple[str, bool]]) -> None:
        """Let a host that is powered off have these domains, as :meth:`definitions` returned them, and no others."""
        self.wipe(name)
        for definition, runs in definitions:
            domain = self._harness.connections[name].defineXML(definition)
            if runs:
                domain.createWithFlags(0)

    def image(self, properties: dict[str, str]) -> str:
        """The id of a new image with these properties, in the test double of Glance."""
        metadata = {"name": "with properties", "container_format": "raw", "disk_format": "raw", "is_public": True}
        created = self._harness.glance.create(None, {**metadata, "min_ram": 0, "min_disk": 0, "properties": properties})
        return cast("str", created["id"])

    def tracker(self, name: str) -> TrackerState:
        """The PCI tracker of a nova-compute in memory: its devices, and the pools of the free ones."""
        tracker = self._harness.computes[name].manager.rt.pci_tracker
        if tracker is None:
            return {"devices": [], "pools": []}
        fields = (
            "address",
            "vendor_id",
            "product_id",
            "dev_type",
            "status",
            "instance_uuid",
            "request_id",
            "parent_addr",
            "numa_node",
        )

        def known(device: Any, field: str) -> Any:
            """A field of a device; None if it is unset, as in older releases for removed devices."""
            return getattr(device, field, None) if device.obj_attr_is_set(field) else None

        return {
            "devices": [{field: known(device, field) for field in fields} for device in tracker.pci_devs],
            "pools": [{key: value for key, value in pool.items() if key != "devices"} for pool in tracker.stats.pools],
        }

    def configure_placement(self, options: dict[str, Any]) -> None:
        """Set options of Placement (``GROUP/NAME``), as in placement.conf; it reads them with each request."""
        conf = self._harness.placement.fixture.conf_fixture.conf
        for path, value in options.items():
            group, name = path.split("/")
            if value is None:
                conf.clear_override(name, group=group)
            else:
                conf.set_override(name, value, group=group)

    def keep_placement(self, path: str) -> None:
        """Copy Placement's database, which is in memory, to an SQLite file."""
        with closing(sqlite3.connect(path)) as target:
            self._placement().backup(target)

    def restore_placement(self, path: str) -> None:
        """Let Placement's database be as :meth:`keep_placement` kept it."""
        with closing(sqlite3.connect(path)) as source:
            source.backup(self._placement())

    @staticmethod
    def _placement() -> sqlite3.Connection:
        from placement import db_api

        with db_api.placement_context_manager.writer.get_engine().connect() as connection:
            return cast("sqlite3.Connection", connection.connection.dbapi_connection)

    def option(self, service: str, group: str | None, option: str) -> Any:
        """The value of a configuration option in a service: ``api``, ``scheduler``, ``conductor`` or a host."""
        from .harness import CONF

        def read() -> Any:
            return getattr(CONF[group], option) if group else getattr(CONF, option)

        if service == "api":
            return read()
        daemon = {"scheduler": self._harness.scheduler, "conductor": self._harness.conductor}.get(service)
        daemon = daemon or self._harness.computes[service]
        with daemon.gpustack_mark.active():
            return read()

    def options_read(self) -> dict[str, list[str]]:
        """The options that the code of each kind of service has read so far, as ``GROUP/NAME``."""
        return {kind: sorted(names) for kind, names in marks.reads.copy().items()}
