"""Checks after a walk: the records of the hypervisors, the database, Nova and gpustack must be consistent."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from gpustack.base.errors import CloudError
from gpustack.changes.change import ChangeOutcome, ChangeResult
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.hypervisor import Usage
from gpustack.repair.plan import Selection
from gpustack.repair.verdict import Repair, Status, Verdict
from support.cellfile import answering
from support.cleanup_runs import run, verdict_of
from support.cloudworld import World
from support.walks import Step, Walk

TURNS = 5
"""The maximum number of plans and repairs; then nothing repairable may be left."""

Device = tuple[str, str]
"""Host and address."""


class Row(NamedTuple):
    """A row of ``pci_devices`` of one of the walk's hosts, soft-deleted or not."""

    id: int
    device: Device
    status: str
    owner: str | None
    managed: bool
    """Whether neither the row nor its compute node is deleted."""
    live: bool

    @property
    def taken(self) -> bool:
        """Whether it is claimed or allocated."""
        return self.status in ("claimed", "allocated")


@dataclass
class Books:
    """The records of a walk.

    :ivar repaired: class and repair of every completed repair.
    :ivar freed: the devices whose rows were set to available.
    """

    walk: Walk
    repaired: list[str] = field(default_factory=list)
    freed: set[Device] = field(default_factory=set)

    @property
    def world(self) -> World:
        """The cloud."""
        return self.walk.world

    def check(self, directory: Path) -> list[str]:
        """Check, repair, check again, boot instances on all free devices; return the repairs."""
        self._rest()
        verdicts = self._judge()
        self.walk.history += [f"{v.klass} {v.status} {v.host} {v.owner}: {v.because}" for v in verdicts]
        self._all_is_told(verdicts)
        before = self.exposed()
        for turn in range(TURNS):
            outcomes = self._repair(directory / f"{turn}.jsonl")
            if all(o.result in (ChangeResult.SKIPPED, ChangeResult.UNCHANGED) for o in outcomes):
                break
            assert turn < TURNS - 1, self._story("still stale after all repairs", outcomes)
        assert self.exposed() <= before, self._story("in use, and offered", self.exposed() - before)
        self.fill(before)
        self._all_has_healed()
        return self.repaired

    # --- records --------------------------------------------------------------------------------------------------

    def devices(self) -> dict[Device, list[str]]:
        """Every device in use by the hypervisors' records, with the UUIDs of its guests."""
        users: dict[Device, list[str]] = {}
        for host in self.walk.hosts:
            for domain in self.world.nova.control.domains(host):
                if domain["state"] == "running":
                    for address in domain["hostdevs"]:
                        users.setdefault((host, address), []).append(domain["uuid"])
        return users

    def rows(self) -> list[Row]:
        """All rows of the walk's hosts."""
        query = sa.text(
            "SELECT p.id, c.host, p.address, p.status, p.instance_uuid, p.deleted = 0 AND c.deleted = 0, p.deleted = 0"
            " FROM pci_devices p JOIN compute_nodes c ON c.id = p.compute_node_id ORDER BY p.id"
        )
        with self.world.engine.connect() as connection:
            records = connection.execute(query).all()
        return [
            Row(number, (host, address), status, owner, bool(managed), bool(live))
            for number, host, address, status, owner, managed, live in records
            if host in self.walk.hosts
        ]

    def homes(self) -> dict[str, str | None]:
        """The host of each living guest in the database."""
        with self.world.engine.connect() as connection:
            return dict(connection.execute(sa.text("SELECT uuid, host FROM instances WHERE deleted = 0")).all())

    def leaked(self) -> list[Row]:
        """The rows of guests that are not on the row's host in the database and do not run there."""
        homes, devices = self.homes(), self.devices()
        return [
            row
            for row in self.rows()
            if row.taken
            and (row.live or row.owner in homes)  # soft-deleted rows of deleted guests are harmless
            and not (row.managed and homes.get(row.owner or "") == row.device[0])
            and row.owner not in devices.get(row.device, ())
        ]

    def lost(self) -> list[Row]:
        """The leaked rows, and those that are neither free nor owned by a guest of their host."""
        homes, devices = self.homes(), self.devices()
        return self.leaked() + [
            row
            for row in self.rows()
            if row.managed
            and not devices.get(row.device)
            and (row.status != "available" if not row.taken else row.owner not in homes)
        ]

    def waiting(self) -> set[str]:
        """The guests with a resize to confirm or revert, whose hosts are both up."""
        query = sa.text(
            "SELECT i.uuid, m.source_compute, m.dest_compute FROM instances i JOIN migrations m"
            " ON m.instance_uuid = i.uuid WHERE i.deleted = 0 AND i.vm_state = 'resized' AND i.task_state IS NULL"
            " AND m.deleted = 0 AND m.status = 'finished'"
        )
        running = self.walk.running()
        with self.world.engine.connect() as connection:
            return {uuid for uuid, *hosts in connection.execute(query) if all(host in running for host in hosts)}

    def out_of_pools(self) -> set[str]:
        """The hosts whose pools for the scheduler do not match their free rows."""
        free: dict[str, int] = dict.fromkeys(self.walk.running(), 0)
        for row in self.rows():
            if row.managed and row.status == "available" and row.owner is None and row.device[0] in free:
                free[row.device[0]] += 1
        with self.world.engine.connect() as connection:
            nodes = connection.execute(sa.text("SELECT host, pci_stats FROM compute_nodes WHERE deleted = 0")).all()
        pools = {host: sum(map(int, re.findall(r'"count": (\d+)', text or ""))) for host, text in nodes}
        return {host for host, count in free.items() if pools.get(host) != count}

    def exposed(self) -> set[Device]:
        """Devices that a guest has on the hypervisor, and that Nova would offer to another guest."""
        owners = {row.device: row.owner for row in self.rows() if row.taken and row.managed}
        return {device for device, users in self.devices().items() if owners.get(device) not in users}

    # --- gpustack -------------------------------------------------------------------------------------------------

    def _plan(self, *stopped: str) -> tuple[Sources, Selection, tuple[Verdict, ...]]:
        """A plan for the walk's hosts without grace time."""
        sources = Sources.from_nova_conf([self.world.nova.nova_conf])
        hosts = frozenset(self.walk.hosts)
        selection = Selection(grace=timedelta(0), stuck_after=timedelta(0), hosts=hosts, stopped=frozenset(stopped))
        cloud = self.world.api if self.world.placement else None
        return sources, selection, plan.make(sources, selection, cloud).verdicts

    def _judge(self) -> tuple[Verdict, ...]:
        return self._plan()[2]

    def _ask(self, host: str) -> Usage:
        """The devices in use on a host, over SSH."""
        users = {address: frozenset(instances) for (name, address), instances in self.devices().items() if name == host}
        sources = Sources.from_nova_conf([self.world.nova.nova_conf])
        return answering(sources, users)(host)

    def _repair(self, path: Path) -> list[ChangeOutcome]:
        """Stop the services that must be stopped, apply a new plan, start them again."""
        control, running = self.world.nova.control, self.walk.running()
        stop = sorted({v.host for v in self._judge() if v.status is Status.STALE and v.stop and v.host in running})
        for host in stop:
            control.kill_compute(host, unseen=False)
            control.unseen(host, seconds=90)
        sources, selection, verdicts = self._plan(*stop)
        repairs = [verdict.to_dict() for verdict in verdicts if verdict.status is Status.STALE]
        cloud = self.world.api if self.world.placement else None
        outcomes = run(sources, path, repairs, self._ask, selection, cloud)
        restart = set(stop)
        for outcome in outcomes:
            verdict = verdict_of(outcome)
            name, host = f"{verdict['class']} {verdict['repair']}", verdict["host"]
            self.walk.history.append(f"{name} {host}: {outcome.result}, {outcome.detail}")
            if outcome.detail.startswith("restart nova-compute"):
                restart.add(host)
            if outcome.result is ChangeResult.DONE:
                self.repaired.append(name)
                if verdict["repair"] in (Repair.FREE, Repair.UNBLOCK, Repair.CLEAR_OWNER, Repair.FAIL_MIGRATION):
                    self.freed |= {(host, device["address"]) for device in verdict["devices"]}
        for host in restart:
            self.walk.return_(host)
        self._periodics()
        reused = {device for device in self.freed if self.devices().get(device)}
        assert not reused, self._story("freed, and in use by the hypervisor's word", reused)
        return outcomes

    # --- invariants -----------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Wait for running work, and run the periodic tasks of each running nova-compute."""
        for host in self.walk.running():
            self.world.nova.control.clear_faults(host)
        for server in self.walk.guests():
            with contextlib.suppress(CloudError):
                self.walk.wait(server)
        for _time in range(2):
            self._periodics()

    def _periodics(self) -> None:
        for host in self.walk.running():
            self.world.nova.control.periodic(host)

    def _all_is_told(self, verdicts: Iterable[Verdict]) -> None:
        """Each GPU without a guest is free or reported, and so is each device that Nova may offer twice.

        No work is running: *protected* does not count as reported, unless a person has to confirm or revert a resize.
        """
        verdicts = list(verdicts)
        reported = {row.id for v in verdicts if v.status is not Status.PROTECTED for row in v.rows}
        waiting = self.waiting()
        missed = [row for row in self.lost() if row.id not in reported and row.owner not in waiting]
        assert not missed, self._story("of no use to anybody, and not reported", missed)
        short = self.out_of_pools() - {v.host for v in verdicts if v.status is not Status.PROTECTED and not v.rows}
        assert not short, self._story("free by its row, in no pool, and not reported", short)
        homes, devices = self.homes(), self.devices()
        warned = {(v.host, v.owner) for v in verdicts}
        for device in self.exposed():
            # Only the hypervisor has a record of a guest that Nova moved away or deleted although it still runs here.
            at_home = [user for user in devices[device] if homes.get(user) == device[0]]
            covered = all((device[0], user) in warned for user in at_home)
            assert covered, self._story("in use, offered, and not reported", device)

    def fill(self, before: set[Device]) -> None:
        """Boot instances on all free devices; Nova's records afterwards are the proof."""
        for host in sorted(set(self.walk.hosts) - set(self.walk.running())):
            self.walk.return_(host)
        for host in self.walk.hosts:
            pools = self.world.nova.control.tracker(host)["pools"]
            for _one in range(sum(pool["count"] for pool in pools)):
                self.walk.take(Step(act="boot", host=self.walk.hosts.index(host)))
        devices, homes = self.devices(), self.homes()
        shared = {device for device, users in devices.items() if len(set(users)) > 1}
        assert not shared & self.freed, self._story("freed, and with two owners", shared)
        assert shared <= before, self._story("with two owners", shared)
        rows = [row for row in self.rows() if row.device in self.freed and self._lost(row, homes)]
        assert not rows, self._story("freed, and leaked again", rows)
        # Allocations of a running move are reported, but not changed.
        allocated = {
            (v.host, address) for v in self._judge() if v.allocation for address in v.allocation.addresses.split()
        }
        # If Nova also offers a device in use, a boot may select that one and fail.
        offers_one_in_use = {host for host, _address in before}
        empty = {device for device in self.freed - devices.keys() - allocated if device[0] not in offers_one_in_use}
        assert not empty, self._story("freed, and no guest can be booted on it", empty)

    def _all_has_healed(self) -> None:
        """Problems that Nova fixes itself, at the latest at its start, are gone after a restart of nova-compute."""
        for host in self.walk.hosts:
            self.walk.return_(host)
        late = [verdict for verdict in self._judge() if verdict.status is Status.HEALS]
        assert not late, self._story("told to heal, and has not", late)

    @staticmethod
    def _lost(row: Row, homes: dict[str, str | None]) -> bool:
        return row.managed and row.owner is not None and homes.get(row.owner) != row.device[0]

    def _story(self, claim: str, evidence: object) -> str:
        steps = "\n".join(self.walk.history)
        rows = "\n".join(map(str, self.rows()))
        return f"{claim}: {evidence}\n{rows}\nrunning {self.devices()}\nhomes {self.homes()}\n{steps}"
