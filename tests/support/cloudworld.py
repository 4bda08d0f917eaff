"""Actions on a real Nova: boot, move, break, read rows, run gpustack, and check that Nova agrees."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any
from unittest import mock

import sqlalchemy as sa
from openstack.compute.v2.flavor import Flavor
from openstack.compute.v2.server import Server
from openstack.connection import Connection
from openstack.exceptions import HttpException

from gpustack.cli.app import main
from gpustack.novadb.model import ERROR, IN_FLIGHT
from gpustack.repair import domains
from gpustack.repair import plugin_api as restart
from gpustack_demo.embedded import servers
from gpustack_demo.embedded.nova import EmbeddedDevice, EmbeddedHost, EmbeddedNova, gpus
from support.sshd import Sshd, keygen

GPUS = 2


@dataclass(frozen=True)
class Ran:
    """The result of a run of gpustack."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit {self.code}\n{self.out}\n{self.err}"


@dataclass
class World:
    """A running cloud."""

    nova: EmbeddedNova
    api: Connection
    placement: bool
    request_ids: bool
    """Whether rows contain the request id of a flavor (since Zed): a foreign row then keeps a guest from starting."""
    undeletes: bool
    """Whether a compute node that was deleted with its service returns as the same one (since 2023.1)."""
    ssh: Sshd
    engine: sa.Engine
    flavors: dict[int, Flavor]
    journal: Path = Path()
    plain: Flavor | None = None
    """A flavor without devices, if there is one."""
    defers: bool = False
    """Whether a deletion can be reverted for a day: instances are soft-deleted."""
    guests: list[Server] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    """Hosts that do not answer over SSH."""
    _keys: dict[str, Path] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    # --- hosts and guests -----------------------------------------------------------------------------------------

    def hosts(
        self, count: int, pci: tuple[EmbeddedDevice, ...] | None = None, config: str | None = None, cell: str = "cell1"
    ) -> list[str]:
        """Start new hosts with two GPUs each, with a nova.conf of their own if given."""
        names = [f"gpu{next(self._numbers)}" for _ in range(count)]
        for name in names:
            self.nova.start_compute(
                EmbeddedHost(
                    name=name, pci=gpus(GPUS) if pci is None else pci, config=[config] if config else None, cell=cell
                )
            )
            self._reachable(name, gpus(GPUS) if pci is None else pci)
        self.used += names
        return names

    def boot(self, host: str, count: int = 1) -> Server:
        """Boot a guest with ``count`` GPUs on a host."""
        server = servers.boot(self.api, f"vm{next(self._numbers)}", self.flavors[count], host=host)
        self.guests.append(server)
        return server

    def drop(self, server: Server) -> None:
        """Delete a guest."""
        servers.delete(self.api, server)
        self.guests.remove(next(guest for guest in self.guests if guest.id == server.id))

    def die(self, host: str) -> None:
        """Power off the host, and set its service to forced_down."""
        self.nova.control.power_off_host(host)
        servers.force_down(self.api, host)
        self.silent.add(host)

    def back(self, host: str, **changes: Any) -> None:
        """Power on the host."""
        self.silent.discard(host)
        self.nova.control.restart_compute(host, **changes)
        servers.force_down(self.api, host, False)
        self.nova.control.periodic(host)

    def evacuate(self, server: Server, host: str) -> Server:
        """Evacuate a guest from a dead host."""
        self.api.compute.evacuate_server(server, host=host)
        return servers.until(
            self.api,
            server,
            lambda instance: (
                instance.compute_host == host and instance.task_state is None and instance.status != "REBUILD"
            ),
        )

    def migrate(self, server: Server, host: str) -> Server:
        """Migrate a guest, up to VERIFY_RESIZE or the last state that it reaches."""
        self.api.compute.migrate_server(server, host=host)
        return servers.settled(self.api, server)

    def live(self, server: Server, host: str, move: str) -> Server:
        """Live-migrate a guest, wait until its migration has that status, and return the guest."""
        self.api.compute.live_migrate_server(server.id, host=host, block_migration="auto")
        return self.moved(server, move)

    def moves(self, server: Server) -> list[str]:
        """The statuses of a guest's migrations, newest first."""
        last = "SELECT status FROM migrations WHERE instance_uuid = :vm ORDER BY id DESC"
        with self.engine.connect() as connection:
            return list(connection.execute(sa.text(last), {"vm": server.id}).scalars())

    def moved(self, server: Server, move: str) -> Server:
        """Wait until the last migration of a guest has a status, and if it is over, until the guest has no task."""

        def done(instance: Server) -> bool:
            settled = instance.task_state is None and (move != ERROR or instance.status == "ERROR")
            return self.moves(server)[:1] == [move] and (settled or move in IN_FLIGHT)

        return servers.until(self.api, server, done)

    def confirm(self, server: Server) -> Server:
        """Confirm the migration."""
        self.api.compute.confirm_server_resize(server)
        return servers.until(
            self.api, server, lambda instance: instance.status != "VERIFY_RESIZE" and instance.task_state is None
        )

    def state(self, server: Server, action: str, status: str) -> Server:
        """Stop, start or reboot a guest, and check its final status."""
        act = {
            "stop": lambda: self.api.compute.stop_server(server),
            "start": lambda: self.api.compute.start_server(server),
            "reboot": lambda: self.api.compute.reboot_server(server, "HARD"),
        }
        act[action]()
        current = servers.settled(self.api, server)
        current = servers.until(self.api, current, lambda instance: instance.task_state is None)
        assert current.status == status, (action, current.status, current.fault)
        return current

    def runs(self, server: Server) -> Server:
        """Start a guest that was evacuated. Up to Yoga (before API 2.95) it already runs, and is rebooted."""
        stopped = self.api.compute.get_server(server.id).status == "SHUTOFF"
        return self.state(server, "start" if stopped else "reboot", "ACTIVE")

    def starts(self, server: Server) -> bool:
        """Whether a stopped guest can be started."""
        try:
            self.api.compute.start_server(server)
        except HttpException:
            return False
        return bool(servers.settled(self.api, server).status == "ACTIVE")

    def tidy(self) -> None:
        """Delete the guests, and remove the hosts."""
        for host in self.used:
            self.nova.control.clear_faults(host) if self.nova.control.hosts().get(host) else None
        for server in self.guests:
            servers.delete(self.api, server)
        for host in self.used:
            self.nova.control.power_off_host(host)
        self.guests.clear()
        self.used.clear()
        self.silent.clear()

    def leave(self) -> None:
        """Remove the hosts with their guests; some guests can't be deleted after their test."""
        for host in self.used:
            self.nova.control.power_off_host(host)
        self.guests.clear()
        self.used.clear()

    # --- rows -----------------------------------------------------------------------------------------------------

    def cell(self, name: str) -> sa.Engine:
        """The database of a cell."""
        return self.engine if name == "cell1" else sa.create_engine(self.nova.database_url(name), poolclass=sa.NullPool)

    def sql(self, statement: str, *, cell: str = "cell1", **values: object) -> int:
        """Run a statement on a cell, as an operator would; return the number of changed rows."""
        with self.cell(cell).begin() as connection:
            return connection.execute(sa.text(statement), values).rowcount

    def rows(self, host: str) -> list[tuple[str, str, str | None]]:
        """Address, status and owner of every row of a host, including soft-deleted ones."""
        query = sa.text(
            "SELECT p.address, p.status, p.instance_uuid FROM pci_devices p JOIN compute_nodes c "
            "ON c.id = p.compute_node_id WHERE c.host = :host ORDER BY p.id"
        )
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(query, {"host": host})]

    def dump(self, cell: str = "cell1") -> dict[str, list[tuple[Any, ...]]]:
        """Everything that a repair may change, for comparisons."""
        with self.cell(cell).connect() as connection:
            return {
                name: [tuple(row) for row in connection.execute(sa.text(f"SELECT * FROM {name} ORDER BY id"))]
                for name in ("pci_devices", "migrations")
            }

    # --- gpustack -------------------------------------------------------------------------------------------------

    def gpustack(self, *arguments: str, grace: str = "0") -> Ran:
        """Run ``gpustack cleanup …`` in this process: a separate one would spend nearly all its time on imports."""
        command = ["cleanup", *arguments, "--config-file", str(self.nova.nova_conf)]
        command += ["--yes"] if arguments[0] == "undo" else ["--grace", grace]
        if arguments[0] in ("apply", "explain") or "--ask-hosts" in arguments:
            command += ["--ssh-config", str(self.ssh.directory / "config")]
            command += ["--known-hosts", str(self.ssh.directory / "known_hosts"), "--timeout", "120"]
        if arguments[0] == "apply" and "--wait" not in arguments:
            command += ["--wait", "20"]
        variables = {"OS_CLIENT_CONFIG_FILE": str(self.nova.clouds_yaml), "OS_CLOUD": "embedded"}
        out, err = io.StringIO(), io.StringIO()
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, variables))
            stack.enter_context(warnings.catch_warnings(action="ignore"))
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            code = main(command)
        return Ran(code, out.getvalue(), err.getvalue())

    def scan(self, root: Path, facts: Path) -> None:
        """Save the facts of a host whose files are below a directory."""
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(["scan", "--root", str(root), "--save", str(facts)]) == 0

    def plan(
        self,
        *hosts: str,
        everything: bool = False,
        grace: str = "0",
        stuck: int = 3600,
        ask: bool = False,
        placement: bool = False,
    ) -> list[str]:
        """``CLASS STATUS HOST REPAIR`` of every verdict on hosts."""
        scope = [argument for host in hosts or self.used for argument in ("--host", host)]
        options = ("--stuck-after", str(stuck), *(["--all"] if everything else []), *(["--ask-hosts"] if ask else []))
        options += ("--os-cloud", "embedded") if placement else ()
        self.hypervisors() if ask else None
        ran = self.gpustack("plan", *scope, "-f", "json", *options, grace=grace)
        assert ran.code == 0, ran
        return sorted(
            " ".join(filter(None, (verdict["class"], verdict["status"], verdict["host"], verdict["repair"])))
            for verdict in json.loads(ran.out)
        )

    def leftovers(self, *hosts: str) -> list[tuple[str, str, str]]:
        """Host, resource provider and consumer of every allocation that classes Q and S report."""
        scope = [argument for host in hosts for argument in ("--host", host)]
        ran = self.gpustack("plan", *scope, "--class", "Q", "--class", "S", "--os-cloud", "embedded", "-f", "json")
        assert ran.code == 0, ran
        document = json.loads(ran.out)
        assert all(verdict["status"] == "stale" for verdict in document), document
        return [
            (verdict["host"], verdict["allocation"]["provider"], verdict["allocation"]["consumer"])
            for verdict in document
        ]

    def allocations(self, server: Server) -> dict[str, dict[str, int]]:
        """The allocations of a guest in Placement, by provider."""
        by_provider = self.api.placement.get(f"/allocations/{server.id}", microversion="1.28").json()["allocations"]
        return {provider: allocation["resources"] for provider, allocation in by_provider.items()}

    def unset_leftovers(self) -> Ran:
        """Remove stale allocations in Placement."""
        return self.apply("--class", "Q", "--class", "S", "--os-cloud", "embedded")

    def apply(self, *arguments: str, code: int | None = 0, nothing: bool = False) -> Ran:
        """Repair the stale rows on the hosts of this test.

        :param nothing: whether no stale rows are expected.
        """
        self.hypervisors()
        scope = [argument for host in self.used for argument in ("--host", host)]
        number = next(self._numbers)
        self.journal = self.journal.with_name(f"journal-{number}.jsonl")
        ran = self.gpustack("apply", "--yes", "--journal", str(self.journal), *scope, *arguments)
        assert code is None or ran.code == code, ran
        assert code is None or ("nothing to repair" in ran.err) == nothing, ran
        return ran

    # --- hypervisors ----------------------------------------------------------------------------------------------

    def _reachable(self, host: str, pci: tuple[EmbeddedDevice, ...]) -> None:
        """Make a host answer over SSH, with libvirt's status files in a directory of its own."""
        root = self.ssh.directory / "roots" / host
        (root / "proc/sys/kernel").mkdir(parents=True)
        (root / "proc/sys/kernel/hostname").write_text(f"{host}\n")
        (root / "proc/1/fd").mkdir(parents=True)
        (root / "run/libvirt/qemu").mkdir(parents=True)
        for device in pci:
            function = root / "sys/bus/pci/devices" / device.address
            function.mkdir(parents=True)
            (function / "vendor").write_text(f"0x{device.vendor}\n")
            (function / "device").write_text(f"0x{device.product}\n")
        key = keygen(self.ssh.directory / f"key-{host}")
        self.ssh.allow(key, f'command="{quote(sys.executable)} -I -S - --root {root}"')
        self._keys[host] = key
        (self.ssh.directory / "known_hosts").write_text(self.ssh.known())

    def hypervisors(self) -> None:
        """Write libvirt's status files of the running domains, and update the reachable hosts."""
        (self.ssh.directory / "config").write_text(
            "".join(
                f"Host {host}\n  HostName 127.0.0.1\n  Port {1 if host in self.silent else self.ssh.port}\n"
                f"  IdentityFile {key}\n  IdentitiesOnly yes\n"
                for host, key in self._keys.items()
            )
        )
        for host in self.used:
            directory = self.ssh.directory / "roots" / host / "run/libvirt/qemu"
            for old in directory.iterdir():
                old.unlink()
            for domain in self.nova.control.domains(host):
                if domain["state"] == "running":
                    xml = self.nova.control.domain_xml(host, domain["uuid"])
                    (directory / f"{domain['name']}.xml").write_text(f"<domstatus state='running'>{xml}</domstatus>")

    def against_restart(self, host: str) -> set[str]:
        """The findings that block a restart of a host's nova-compute in nova.yml."""
        self.hypervisors()
        answer = domains.look(str(self.ssh.directory / "roots" / host))
        return {
            objection.code
            for objection in restart.objections(restart.Restart(host=host, answer=answer), [self.nova.nova_conf])
        }

    def booted(self, host: str, *, seconds: int) -> None:
        """Set a host's boot time to ``seconds`` ago."""
        (self.ssh.directory / "roots" / host / "proc/uptime").write_text(f"{seconds}.00 {seconds}.00\n")

    def log_excerpt(self) -> str:
        """The last lines of Nova's log about errors and claims."""
        lines = self.nova.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if re.search("ERROR|WARNING|Error|in use|claim", line)][-40:])

    def exclusive(self) -> None:
        """Check that no device belongs to two running domains of a host."""
        for host in self.used:
            assigned = [
                address
                for domain in self.nova.control.domains(host)
                if domain["state"] == "running"
                for address in domain["hostdevs"]
            ]
            assert len(assigned) == len(set(assigned)), host

    def agrees_beside(self, host: str, server: Server | None = None) -> None:
        """Check Nova's view if a guest still has the host's other GPU."""
        new = self.boot(host)
        assert new.status == "ACTIVE", (new.fault, self.log_excerpt())
        self.exclusive()
        if server is not None:
            self.state(server, "reboot", "ACTIVE")
            self.exclusive()

    def agrees(self, freed: str, server: Server | None = None) -> None:
        """Check Nova's view after a repair: a new guest fills the host, and the old one can be started and deleted."""
        new = self.boot(freed, GPUS)
        assert new.status == "ACTIVE", (new.fault, self.log_excerpt())
        self.exclusive()
        if server is not None:
            current = self.api.compute.get_server(server.id)
            if current.status == "SHUTOFF":
                self.state(server, "start", "ACTIVE")
            self.state(server, "reboot", "ACTIVE")
            self.state(server, "stop", "SHUTOFF")
            self.state(server, "start", "ACTIVE")
            self.exclusive()
            self.drop(server)
        self.drop(new)
        for host, runs in self.nova.control.hosts().items():
            if runs and host in self.used:
                self.nova.control.periodic(host)
                assert {status for _address, status, _owner in self.rows(host)} <= {"available"}, self.rows(host)
