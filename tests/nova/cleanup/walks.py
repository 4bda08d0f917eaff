"""Random walks through a cloud: operations and faults drawn by hypothesis, and the books that are checked at the end.

A step says what to do in small numbers, which are taken round and round among the guests and hosts that there are: so
every list of steps is a walk, and a shorter list is a simpler one. What Nova refuses is no step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa
from cloudworld import World
from hypothesis import strategies as st
from openstack.compute.v2.server import Server
from openstack.exceptions import SDKException

from gpustack.cleanup import apply, plan
from gpustack.cleanup.apply import Outcome, Result
from gpustack.cleanup.hypervisor import Usage
from gpustack.cleanup.journal import Journal
from gpustack.cleanup.plan import Selection, Sources
from gpustack.cleanup.verdict import Repair, Status, Verdict
from gpustack.embedded import servers
from gpustack.embedded.control import STEPS, ControlError
from gpustack.errors import CloudError

HOSTS = 3
PATIENCE = 6.0
"""Seconds that a step may take; one that a fault or a dead host holds up is left behind."""

MOVES = ("migrate", "live", "evacuate", "confirm", "revert")
ACTS = ("boot", "boot", "migrate", "migrate", "confirm", "revert", "resize", "live", "evacuate", "delete")
HAPPENINGS = ("die", "back", "kill", "restart", "periodic", "reset", "shelve")
Device = tuple[str, str]
"""Host and address."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: what is done, with which guest and host, and the fault that is put in its way.

    :ivar fault: a name of :data:`STEPS` that fails on every host; ``""`` for none.
    :ivar kill: instead of failing there, the nova-compute is killed in the middle of it.
    """

    act: str
    guest: int = 0
    host: int = 0
    fault: str = ""
    kill: bool = False


steps = st.one_of(
    st.builds(Step, act=st.sampled_from(ACTS), guest=st.integers(0, 3), host=st.integers(0, HOSTS - 1)),
    st.builds(
        Step,
        act=st.sampled_from((*MOVES, "boot", "delete")),
        guest=st.integers(0, 3),
        host=st.integers(0, HOSTS - 1),
        fault=st.sampled_from(sorted(STEPS)),
        kill=st.booleans(),
    ),
    st.builds(Step, act=st.sampled_from(HAPPENINGS), guest=st.integers(0, 3), host=st.integers(0, HOSTS - 1)),
)


@dataclass
class Walk:
    """A walk: hosts of its own in a running cloud."""

    world: World
    hosts: list[str] = field(init=False)
    dead: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hosts = self.world.hosts(HOSTS)

    # --- steps ----------------------------------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """Take a step, as far as it goes."""
        host = self.hosts[step.host]
        if step.fault:
            for one in self._running():
                how = {"action": "hang"} if step.kill else {}
                self.world.nova.control.fail(one, step.fault, **how)
        refused = ""
        try:
            getattr(self, f"_{step.act}")(step, host)
        except (SDKException, CloudError, ControlError, LookupError) as error:
            refused = f" ({type(error).__name__})"
        self.done.append(f"{step}{refused}")
        for one in self._running() if step.fault else ():
            hit = self.world.nova.control.hits(one, step.fault)
            if step.kill and hit:
                self.world.nova.control.kill_compute(one)
                self.stopped.add(one)
            else:
                self.world.nova.control.clear_faults(one)

    def _running(self) -> list[str]:
        return [host for host in self.hosts if host not in self.dead | self.stopped]

    def guests(self) -> list[Server]:
        """The guests that there are."""
        found = []
        for server in list(self.world.made):
            try:
                found.append(self.world.api.compute.get_server(server.id))
            except SDKException:
                self.world.made.remove(server)
        return found

    def _guest(self, step: Step, *status: str) -> Server:
        fit = [one for one in self.guests() if not status or one.status in status]
        return fit[step.guest % len(fit)] if fit else _nobody()

    def _wait(self, server: Server) -> None:
        with contextlib.suppress(SDKException):  # it was deleted
            servers.until(
                self.world.api,
                server,
                lambda one: one.task_state is None and one.status not in ("BUILD", "REVERT_RESIZE", "MIGRATING"),
                seconds=PATIENCE,
            )

    def _boot(self, step: Step, host: str) -> None:
        flavor = self.world.flavors[1 + step.guest % 2]
        name = f"vm{next(self.world._numbers)}"
        self.world.made.append(
            self.world.api.compute.create_server(
                name=name, flavor_id=flavor.id, image_id=servers.IMAGE, networks="none", host=host
            )
        )
        self._wait(self.world.made[-1])

    def _do(self, server: Server, call: Callable[[], object]) -> None:
        call()
        self._wait(server)

    def _migrate(self, step: Step, host: str) -> None:
        server = self._guest(step, "ACTIVE", "SHUTOFF")
        self._do(server, lambda: self.world.api.compute.migrate_server(server, host=host))

    def _resize(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ACTIVE", "SHUTOFF")
        small = server.flavor.get("original_name", "") == self.world.flavors[1].name
        self._do(server, lambda: self.world.api.compute.resize_server(server, self.world.flavors[2 if small else 1]))

    def _live(self, step: Step, host: str) -> None:
        server = self._guest(step, "ACTIVE")
        self._do(
            server,
            lambda: self.world.api.compute.live_migrate_server(server.id, host=host, block_migration="auto"),
        )

    def _confirm(self, step: Step, _host: str) -> None:
        server = self._guest(step, "VERIFY_RESIZE")
        self._do(server, lambda: self.world.api.compute.confirm_server_resize(server))

    def _revert(self, step: Step, _host: str) -> None:
        server = self._guest(step, "VERIFY_RESIZE")
        self._do(server, lambda: self.world.api.compute.revert_server_resize(server))

    def _evacuate(self, step: Step, _host: str) -> None:
        away = [one for one in self.guests() if one.compute_host in self.dead | self.stopped]
        server = away[step.guest % len(away)] if away else _nobody()
        servers.force_down(self.world.api, server.compute_host)
        self._do(server, lambda: self.world.api.compute.evacuate_server(server, host=None))

    def _delete(self, step: Step, _host: str) -> None:
        server = self._guest(step)
        self._do(server, lambda: self.world.api.compute.delete_server(server))

    def _reset(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ERROR")
        self.world.api.compute.reset_server_state(server, "active")

    def _shelve(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ACTIVE")
        self._do(server, lambda: self.world.api.compute.shelve_server(server))

    def _die(self, _step: Step, host: str) -> None:
        self.world.die(host)
        self.dead.add(host)
        self.stopped.discard(host)

    def _kill(self, _step: Step, host: str) -> None:
        if host in self._running():
            self.world.nova.control.kill_compute(host)
            self.stopped.add(host)

    def _back(self, _step: Step, host: str) -> None:
        self.return_(host)

    def _restart(self, _step: Step, host: str) -> None:
        self.return_(host)

    def _periodic(self, _step: Step, host: str) -> None:
        if host in self._running():
            self.world.nova.control.periodic(host)

    def return_(self, host: str) -> None:
        """Let a host come back, or restart its nova-compute."""
        self.world.nova.control.restart_compute(host)
        servers.force_down(self.world.api, host, False)
        self.dead.discard(host)
        self.stopped.discard(host)
        self.world.nova.control.periodic(host)

    # --- the books ------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Let what still goes on come to its end, and each nova-compute that runs do what it does every minute."""
        for host in self._running():
            self.world.nova.control.clear_faults(host)
        for server in self.guests():
            with contextlib.suppress(CloudError):
                self._wait(server)
        for _time in range(2):
            for host in self._running():
                self.world.nova.control.periodic(host)

    def devices(self, running: bool = True) -> dict[Device, list[str]]:
        """The hypervisors' word: every device, with the uuids of the guests that have it."""
        found: dict[Device, list[str]] = {}
        for host in self.hosts:
            for domain in self.world.nova.control.domains(host):
                if domain["state"] == "running" or not running:
                    for address in domain["hostdevs"]:
                        found.setdefault((host, address), []).append(domain["uuid"])
        return found

    def ask(self, host: str) -> Usage:
        """What a host says over SSH."""
        users = {address: frozenset(who) for (one, address), who in self.devices().items() if one == host}
        return Usage(users=users)

    def rows(self) -> dict[int, tuple[Device, str, str | None]]:
        """Every live row of the walk's hosts: device, status and owner."""
        query = sa.text(
            "SELECT p.id, c.host, p.address, p.status, p.instance_uuid FROM pci_devices p JOIN compute_nodes c"
            " ON c.id = p.compute_node_id WHERE p.deleted = 0 AND c.deleted = 0"
        )
        with self.world.engine.connect() as connection:
            return {
                row[0]: ((row[1], row[2]), row[3], row[4]) for row in connection.execute(query) if row[1] in self.hosts
            }

    def homes(self) -> dict[str, str | None]:
        """Where the database says that each living guest is."""
        with self.world.engine.connect() as connection:
            return dict(connection.execute(sa.text("SELECT uuid, host FROM instances WHERE deleted = 0")).all())

    def leaked(self) -> set[int]:
        """The rows that are taken for a guest which is not on their host, and does not run there."""
        homes, devices = self.homes(), self.devices()
        return {
            number
            for number, (device, status, owner) in self.rows().items()
            if status in ("claimed", "allocated")
            and homes.get(owner or "") != device[0]
            and owner not in devices.get(device, ())
        }

    def exposed(self) -> set[Device]:
        """Devices that a guest has by the hypervisor's word, and that Nova would give to another."""
        owners = {device: owner for device, status, owner in self.rows().values() if status in ("claimed", "allocated")}
        return {device for device, users in self.devices().items() if owners.get(device) not in users}

    def judge(self, *stopped: str) -> tuple[Sources, Selection, tuple[Verdict, ...]]:
        """A plan for the walk's hosts without any grace."""
        sources = Sources.from_nova_conf([self.world.nova.nova_conf])
        selection = Selection(grace=timedelta(0), hosts=frozenset(self.hosts), stopped=frozenset(stopped))
        return sources, selection, plan.make(sources, selection).verdicts

    def repair(self, path: Path, *stopped: str) -> list[Outcome]:
        """Carry a fresh plan out."""
        sources, selection, verdicts = self.judge(*stopped)
        wanted = [one.to_dict() for one in verdicts if one.status is Status.STALE]
        with contextlib.closing(Journal(path=path)) as journal:
            return list(apply.carry_out(sources, wanted, selection, journal, ask=self.ask, wait=0))

    def check(self, directory: Path) -> list[str]:
        """Look into the books, repair, look again, fill every device that is free; → what was repaired."""
        self.rest()
        verdicts = self.judge()[2]
        self.done += [f"{v.klass} {v.status} {v.host} {v.owner}: {v.because}" for v in verdicts]
        reported = {row.id for verdict in verdicts for row in verdict.rows}
        missed = self.leaked() - reported
        assert not missed, self._story("leaked and not reported", [self.rows()[number] for number in missed])
        before, repaired, freed = self.exposed(), [], set()
        for turn in range(4):
            stop = tuple(v.host for v in self.judge()[2] if v.stop and v.host in self._running())
            for host in stop:
                self.world.nova.control.stop_compute(host)
                self.world.nova.control.unseen(host, seconds=30)
            outcomes = self.repair(directory / f"{len(list(directory.iterdir()))}.jsonl", *stop)
            for outcome in outcomes:
                verdict = outcome.verdict
                if outcome.result in (Result.REPAIRED, Result.WAITING):
                    repaired.append(f"{verdict.klass} {verdict.repair}")
                    if verdict.repair in (Repair.FREE, Repair.UNBLOCK, Repair.CLEAR_OWNER):
                        freed |= {(verdict.host, row.address) for row in verdict.rows}
            again = {o.verdict.host for o in outcomes if o.result is Result.RESTART} | set(stop)
            for host in again:
                self.return_(host)
            for host in self._running():
                self.world.nova.control.periodic(host)
            taken = {device for device in freed if self.devices().get(device)}
            assert not taken, self._story("freed, and in use by the hypervisor's word", taken)
            if not outcomes or all(o.result in (Result.SKIPPED, Result.GONE) for o in outcomes):
                break
            assert turn < 3, self._story("still stale after three repairs", outcomes)
        assert self.exposed() <= before, self._story("in use, and offered", self.exposed() - before)
        self._fill(before, freed)
        return repaired

    def _fill(self, before: set[Device], freed: Iterable[Device]) -> None:
        """Boot on everything that is free: what Nova says of it afterwards is the proof."""
        for host in sorted(self.dead | self.stopped):
            self.return_(host)
        for host in self.hosts:
            pools = self.world.nova.control.tracker(host)["pools"]
            for _one in range(sum(pool["count"] for pool in pools)):
                self._boot(Step(act="boot"), host)
        shared = {device for device, users in self.devices().items() if len(set(users)) > 1}
        assert not shared & set(freed), self._story("freed, and with two owners", shared)
        assert shared <= before, self._story("with two owners", shared)
        homes = self.homes()
        wrong = [
            row
            for row in self.rows().values()
            if row[0] in set(freed) and row[2] is not None and homes.get(row[2]) != row[0][0]
        ]
        assert not wrong, self._story("freed, and leaked again", wrong)

    def _story(self, what: str, which: object) -> str:
        log = "\n".join(self.done)
        return (
            f"{what}: {which}\nrows {list(self.rows().values())}\nguests {self.devices()}\nhomes {self.homes()}\n{log}"
        )


def _nobody() -> Server:
    raise LookupError("there is no such guest")
