# ruff: noqa: ANN401 - Nova has no types
# mypy: disable-error-code="import-not-found,import-untyped,misc,attr-defined,no-any-return"
"""All of Nova in this process, on Nova's own functional test fixtures.

Real: the API, scheduler, conductor, nova-compute and its libvirt driver, the resource and PCI trackers, Placement, the
databases. Replaced: libvirt itself (Nova's fake, which keeps domains and node devices), the message bus (in memory),
Glance, Cinder and, unless it runs, Neutron (fixtures), the copying of disks.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import threading
from typing import Any, ClassVar
from unittest import mock

import fixtures
import nova.conf
from nova.tests import fixtures as nova_fixtures
from nova.tests.fixtures import conf as conf_fixture
from nova.tests.fixtures import libvirt as fakelibvirt
from nova.tests.functional.libvirt import base
from oslo_service import service as oslo_service
from oslo_utils.fixture import uuidsentinel

from nova import config, context, exception, objects

from . import hypervisor, marks
from .databases import ApiDatabase, CellDatabases, keep_connections
from .descriptions import HostDescription, NovaDescription
from .devices import connect
from .faults import clear, migrate_domain

CONF = nova.conf.CONF
LOG = logging.getLogger("gpustack")


class _Logging(fixtures.Fixture):
    """Logs to stderr, which is the log file; Nova's own fixture keeps the log in memory."""

    class _Nothing:
        output = ""

    logger = _Nothing()

    def _setUp(self) -> None:  # noqa: N802 - the name that fixtures call
        level = logging.DEBUG if CONF_DEBUG else logging.INFO
        logging.basicConfig(level=level, format="%(asctime)s %(levelname)s [%(name)s] %(message)s", force=True)
        for noisy in ("alembic", "oslo_db.sqlalchemy", "stevedore", "waitress"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        self.useFixture(fixtures.MonkeyPatch("oslo_log.log.setup", lambda *args, **kwargs: None))


CONF_DEBUG = False
_LIBVIRT, _QEMU = 10_000_000, 8_002_002
"""10.0.0 and 8.2.2: the oldest versions with which Nova permits live migration with passed-through devices."""


class _Nothing(fixtures.Fixture):
    """Replaces an unneeded fixture."""


def _replace_fixtures(description: NovaDescription) -> None:
    global CONF_DEBUG
    CONF_DEBUG = description["debug"]
    keep_connections()
    nova_fixtures.StandardLogging = _Logging
    nova_fixtures.Database = ApiDatabase
    nova_fixtures.DefaultFlavorsFixture = _Nothing  # a cloud starts without flavors
    nova_fixtures.WarningsFixture = _Nothing
    if description["neutron"]:
        nova_fixtures.NeutronFixture = lambda testcase: _Nothing()
    nova_fixtures.CastAsCallFixture = lambda testcase: _Nothing()  # before 2023.1, every test used it

    class WithFiles:
        """Replaces nova.config: the call that parses the command line gets the harness's files."""

        def __getattr__(self, name: str) -> Any:
            return getattr(config, name)

        @staticmethod
        def parse_args(arguments: list[str], default_config_files: Any = None, **kwargs: Any) -> Any:
            return config.parse_args(arguments, default_config_files=description["api_config"], **kwargs)

    conf_fixture.config = WithFiles()


class Harness(base.ServersTestBase):
    """Calls :meth:`serve` when everything runs; see :func:`run`."""

    CAST_AS_CALL = False
    ADMIN_API = True

    description: ClassVar[NovaDescription]
    ready: Any = None

    def setUp(self) -> None:
        """Start everything except the computes."""
        self.lock = threading.RLock()
        self.connections: dict[str, Any] = {}
        self.hosts: dict[str, HostDescription] = {}
        self.STUB_KEYSTONE = not self.description["keystone"]
        marks.install(CONF)
        super().setUp()
        self.policy.set_rules(self.description["policy"], overwrite=False)
        self._stub_hypervisor()

    def serve(self) -> None:
        """Call the function that was passed to :func:`run`; it does not return."""
        type(self).ready(self)

    # -- requirements of Nova's test base ------------------------------------------------------------------------

    def _setup_cells(self) -> None:
        self.cells = CellDatabases()
        admin = context.get_admin_context()
        for name, url in self.description["cells"].items():
            cell0 = name == "cell0"
            mapping = objects.CellMapping(
                context=admin,
                uuid=objects.CellMapping.CELL0_UUID if cell0 else getattr(uuidsentinel, name),
                name=name,
                transport_url="none:///" if cell0 else "fake://nowhere/",
                database_connection=url,
            )
            mapping.create()
            self.cell_mappings[name] = mapping
            self.cells.add(name, url)
        self.useFixture(self.cells)

    def _setup_scheduler_service(self) -> Any:
        return self._control_service("scheduler", self.description["scheduler_config"])

    def _setup_conductor_service(self) -> Any:
        return self._control_service("conductor", self.description["conductor_config"])

    def _control_service(self, name: str, files: list[str] | None) -> Any:
        mark = marks.Mark(name, name, "cell1", files)
        with mark.active():
            service = self.start_service(name)
        service.gpustack_mark = mark
        return service

    # -- the hypervisor --------------------------------------------------------------------------------------

    def _stub_hypervisor(self) -> None:
        size = {"total": 100_000, "used": 0, "free": 100_000}
        for name, value in {
            "nova.virt.libvirt.LibvirtDriver._get_local_gb_info": lambda *args: dict(size),
            # Nova runs uptime(1), which a minimal machine lacks.
            "nova.virt.libvirt.LibvirtDriver.get_host_uptime": lambda driver: "up 1 day",
            "nova.virt.libvirt.LibvirtDriver.migrate_disk_and_power_off": hypervisor.migrate_disk_and_power_off,
            "nova.virt.libvirt.host.Host.get_online_cpus": lambda host: set(
                range(host.get_connection().host_info.cpus)
            ),
            "nova.tests.fixtures.libvirt.Domain.migrateToURI3": migrate_domain(self.connections),
            "nova.tests.fixtures.libvirt.Domain.createWithFlags": hypervisor.exclusive(
                fakelibvirt.Domain.createWithFlags
            ),
            "nova.tests.fixtures.libvirt.Domain._parse_definition": hypervisor.remembering(
                fakelibvirt.Domain._parse_definition
            ),
            "nova.pci.utils.is_physical_function": _is_physical_function,
        }.items():
            self.useFixture(fixtures.MonkeyPatch(name, value))

    # -- computes --------------------------------------------------------------------------------------------

    def launch(self, host: HostDescription) -> Any:
        """Start a nova-compute; domains of an earlier one on this host are kept."""
        name = host["name"]
        if name in self.computes:
            raise ValueError(f"{name} is running")
        mark = marks.Mark("compute", name, host["cell"], host["config"])
        mark.physical_functions = {device["address"] for device in host["pci"] if device["sriov_totalvfs"] is not None}
        connection = self._connection(host)
        connection.gpustack_mark = mark
        self._restore_lost_mapping(host)
        uuid = host.get("compute_id") or getattr(uuidsentinel, f"node_{name}")
        with mark.active(), _local_node_uuid(uuid):
            self.mock_conn.return_value = connection
            service = self.start_service("compute", host=name, cell_name=host["cell"])
            service.driver._host.get_connection = lambda: connection
            if hasattr(service.driver._host, "get_node_uuid"):
                service.driver._host.get_node_uuid()
        service.gpustack_mark = mark
        self._mark_periodic_tasks(service)
        self.computes[name] = service
        self.hosts[name] = host
        return service

    def _connection(self, host: HostDescription) -> Any:
        name = host["name"]
        node = host["node"] or name
        sockets = host["sockets"]
        shape = fakelibvirt.HostInfo(
            cpu_nodes=host["numa_nodes"] // sockets,  # per socket
            cpu_sockets=sockets,
            cpu_cores=host["cpus_per_node"],
            cpu_threads=1,
            kB_mem=host["memory_mib"] * 1024,
        )
        old = self.connections.get(name)
        versions = {"version": _LIBVIRT, "hv_version": _QEMU}
        mediated = old.mdev_info if old is not None else None
        connection = connect(host, shape, mediated, hostname=node, **versions)
        connection.gpustack_host = name
        if old is not None:
            connection._vms, connection._running_vms = old._vms, old._running_vms
            connection._id_counter = old._id_counter
            for domain in connection._vms.values():
                domain._connection = connection
        self.connections[name] = connection
        return connection

    def _restore_lost_mapping(self, host: HostDescription) -> None:
        """Restore a host mapping that the API deleted with its service.

        Nova's test base creates none for a host that it already knows. It can't be called again either: in 2025.2 it
        then searches the compute node by the new service, and an undeleted compute node belongs to that service only
        after the next periodic task.
        """
        name = host["name"]
        if name not in self.host_mappings:
            return
        admin = context.get_admin_context()
        try:
            objects.HostMapping.get_by_host(admin, name)
        except exception.HostMappingNotFound:
            mapping = objects.HostMapping(context=admin, host=name, cell_mapping=self.cell_mappings[host["cell"]])
            mapping.create()
            self.host_mappings[name] = mapping

    def _mark_periodic_tasks(self, service: Any) -> None:
        run, mark = service.manager.periodic_tasks, service.gpustack_mark

        def periodic_tasks(admin: Any, raise_on_error: bool = False) -> Any:
            with mark.active(), context.target_cell(admin, self.cell_mappings[mark.cell]) as targeted:
                return run(targeted, raise_on_error=raise_on_error)

        service.manager.periodic_tasks = periodic_tasks

    def halt(self, name: str, *, kill: bool) -> None:
        """Stop a nova-compute: gracefully, or as if killed (its current work is never completed)."""
        service = self.computes.pop(name)
        with service.gpustack_mark.active():
            if not kill:
                clear(service)
                service.stop()
                return
            for server in (service.rpcserver, getattr(service, "rpcserver_alt", None)):
                if server is not None:
                    server.stop()
            oslo_service.Service.stop(service)


def _is_physical_function(domain: str, bus: str, slot: str, function: str) -> bool:
    mark = marks.current()
    return mark is not None and f"{domain}:{bus}:{slot}.{function}" in mark.physical_functions


def _local_node_uuid(uuid: str) -> Any:
    if importlib.util.find_spec("nova.virt.node") is None:  # before 2023.1
        return contextlib.nullcontext()
    return mock.patch("nova.virt.node.get_local_node_uuid", return_value=str(uuid))


def run(description: NovaDescription, ready: Any) -> None:
    """Start Nova, then call ``ready`` with the harness; ``ready`` must not return.

    :raises SystemExit: when Nova does not start; the log contains the reason.
    """
    import unittest

    _replace_fixtures(description)
    Harness.description, Harness.ready = description, staticmethod(ready)
    result = unittest.TestResult()
    Harness("serve").run(result)
    for _, text in result.errors + result.failures:
        LOG.error("%s", text)
    raise SystemExit("Nova did not start")
