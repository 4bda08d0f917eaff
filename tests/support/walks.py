"""Random walks through a cloud: operations and faults drawn by hypothesis.

A step selects its guest and host by small numbers, modulo the number of existing ones. So every list of steps is a
walk, and a shorter list is a simpler one. A step that Nova refuses, or that has no guest, is skipped. :mod:`books`
checks the state after a walk.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa
from hypothesis import strategies as st
from openstack.compute.v2.server import Server
from openstack.exceptions import BadRequestException, SDKException

from gpustack.base.errors import CloudError
from gpustack_demo.embedded import servers
from gpustack_demo.embedded.control import ControlError
from gpustack_demo.embedded.nova import IMAGE
from support.cloudworld import World

HOSTS = 3
PATIENCE = 6.0
"""Seconds for a step; a step that is blocked by a fault or a dead host is then abandoned."""

_MOVE = ("prep_resize", "resize_claim", "copy", "finish_resize_call", "finish", "finish_rpc")
FAULTS: Mapping[str, tuple[str, ...]] = {
    "boot": ("claim", "spawn"),
    "migrate": _MOVE,
    "resize": _MOVE,
    "confirm": ("confirm", "confirm_rpc", "drop_move_claim"),
    "revert": ("revert", "revert_rpc", "finish_revert"),
    "live": (
        *("check_destination", "pre_live_migration", "migrate", "rollback", "rollback_at_destination"),
        *("post_live_migration", "post_at_destination"),
    ),
    "evacuate": ("rebuild_claim", "spawn"),
    "rebuild": ("destroy", "spawn"),
    "unshelve": ("claim", "spawn"),
    "delete": ("destroy", "terminate"),
}
"""Possible faults of each operation: names of :data:`gpustack_demo.embedded.control.STEPS`."""
_AFTER = {"rollback": "migrate", "rollback_at_destination": "migrate"}
"""The fault that must precede a rollback."""

STORIES: tuple[tuple[str, ...], ...] = (
    ("boot",),
    ("migrate", "confirm"),
    ("migrate", "confirm"),
    ("resize", "confirm"),
    ("migrate", "revert"),
    ("resize", "revert"),
    ("live",),
    ("live",),
    ("shelve", "unshelve"),
    ("stop", "migrate", "confirm", "start"),
    ("die", "evacuate"),
    ("die", "evacuate"),
    ("kill", "evacuate"),
    ("die", "delete"),
    ("kill", "delete"),
    ("kill", "delete", "archive"),
    ("die", "evacuate", "forget", "reinstall"),
    ("migrate", "die", "confirm"),
    ("migrate", "kill", "revert"),
    ("delete",),
    ("reboot",),
    ("rebuild",),
    ("delete", "archive"),
    ("die", "evacuate", "archive"),
    ("together", "confirm"),
    ("edit",),
    ("edit", "restart"),
    ("soft", "restore"),
    ("soft", "die", "restore"),
    ("soft", "reclaim"),
    ("suspend", "resume"),
    ("suspend", "die", "evacuate"),
    ("rescue", "unrescue"),
    ("pause", "unpause"),
    ("shelve", "offload", "unshelve"),
)
"""Sequences of actions on the same guest and host, where possible."""
INTERLUDES = (
    *("back", "back", "reset", "reset", "periodic", "kill", "die", "restart", "forget"),
    *("boot", "delete", "soft", "unshelve", "reboot", "rebuild", "archive"),
)
"""Actions between two stories."""

ACTIONS: Mapping[str, str] = {
    "create": "boot",
    "delete": "delete",
    "evacuate": "evacuate",
    "restore": "restore",
    "stop": "stop",
    "start": "start",
    "reboot": "reboot",
    "rebuild": "rebuild",
    "revertResize": "revert",
    "migrate": "migrate",
    "confirmResize": "confirm",
    "resize": "resize",
    "pause": "pause",
    "unpause": "unpause",
    "rescue": "rescue",
    "unrescue": "unrescue",
    "suspend": "suspend",
    "resume": "resume",
    "shelve": "shelve",
    "unshelve": "unshelve",
    "shelveOffload": "offload",
    "live-migration": "live",
    "resetState": "reset",
}
"""The step for each of Nova's server actions (``nova/compute/instance_actions.py``)."""
WITHOUT_DEVICES: Mapping[str, str] = {
    "changePassword": "the guest agent's",
    "trigger_crash_dump": "an interrupt of the guest",
    "live_migration_cancel": "ends as a failed migration does: the faults of live",
    "live_migration_force_complete": "ends as a migration does",
    **dict.fromkeys(("attach_interface", "detach_interface"), "a port; GPUs have none"),
    **dict.fromkeys(("attach_volume", "detach_volume", "swap_volume", "extend_volume"), "a volume"),
    "refresh_volume_attachment": "a volume, by nova-manage",
    **dict.fromkeys(("attach_share", "detach_share"), "a share"),
    **dict.fromkeys(("lock", "unlock"), "a flag of the API"),
    **dict.fromkeys(("createBackup", "createImage"), "a copy of the disk"),
}
"""Server actions that change no device, with the reason."""

EDITS = (
    # freed although a guest has it; soft-deleted; owned by a guest that never existed; blocked without a reason
    "UPDATE pci_devices SET status = 'available', instance_uuid = NULL, request_id = NULL WHERE id = :taken",
    "UPDATE pci_devices SET deleted = id WHERE id = :taken",
    "UPDATE pci_devices SET status = 'allocated', instance_uuid = :nobody WHERE id = :free",
    "UPDATE pci_devices SET status = 'unavailable' WHERE id = :free",
)
"""Manual changes of rows."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: an action, its guest and host, and a fault.

    :ivar fault: a name of :data:`FAULTS` that fails on every host; ``""`` for none.
    :ivar kill: whether the nova-compute is killed there instead of failing.
    :ivar late: whether the fault is after that step, not before it.
    """

    act: str
    guest: int = 0
    host: int = 0
    fault: str = ""
    kill: bool = False
    late: bool = False

    def __str__(self) -> str:
        manner = f" {'killed' if self.kill else 'failed'} {'after' if self.late else 'at'} {self.fault}"
        return f"{self.act} guest {self.guest} host {self.host}{manner if self.fault else ''}"


_guests, _hosts = st.integers(0, 3), st.integers(0, HOSTS - 1)


@st.composite
def _story(draw: st.DrawFn) -> list[Step]:
    """A story with a possible fault in one step, followed by an interlude."""
    acts, guest, host = draw(st.sampled_from(STORIES)), draw(_guests), draw(_hosts)
    steps = [Step(act=act, guest=guest, host=host) for act in acts]
    faulty = [number for number, act in enumerate(acts) if act in FAULTS]
    fails = draw(st.booleans())
    if faulty and fails:
        at = draw(st.sampled_from(faulty))
        fault, kill, late = draw(st.sampled_from(FAULTS[acts[at]])), draw(st.booleans()), draw(st.booleans())
        steps[at] = replace(steps[at], fault=fault, kill=kill, late=late)
        steps += [Step(act="reset", guest=guest)] * draw(st.integers(0, 1))
    between = st.builds(Step, act=st.sampled_from(INTERLUDES), guest=_guests, host=_hosts)
    return steps + draw(st.lists(between, max_size=2))


walks = st.lists(_story(), min_size=3, max_size=7).map(lambda stories: [step for story in stories for step in story])


_COMPLETE = (
    "UPDATE migrations SET status = 'completed'"
    " WHERE migration_type = 'evacuation' AND status = 'done' AND source_compute = :host"
)


@dataclass
class Walk:
    """A walk on its own hosts in a running cloud.

    :ivar dead: the hosts without power.
    :ivar stopped: the hosts whose nova-compute alone is down.
    :ivar forgotten: the hosts whose service was deleted.
    :ivar history: a description of the steps so far.
    """

    world: World
    hosts: list[str] = field(init=False)
    dead: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    history: list[str] = field(default_factory=list)
    _hanging: str = ""

    def __post_init__(self) -> None:
        self.hosts = self.world.hosts(HOSTS)

    def take(self, step: Step) -> None:
        """Take a step, as far as possible."""
        host = self.hosts[step.host]
        if step.fault:
            for name in self.running():
                action, when = "hang" if step.kill else "raise", "after" if step.late else "before"
                self.world.nova.control.fail(name, step.fault, action=action, when=when)
                if step.fault in _AFTER:
                    self.world.nova.control.fail(name, _AFTER[step.fault])
        self._hanging = step.fault if step.kill else ""
        refused = ""
        try:
            getattr(self, f"_{step.act}")(step, host)
        except (SDKException, CloudError, ControlError, LookupError) as error:
            refused = f": {type(error).__name__} {str(error).splitlines()[0] if str(error) else ''}"
        hit = self._hit(step.fault) if step.fault else []
        self.history.append(f"{step}{' (hit)' if hit else ''}{refused}")
        for name in self.running() if step.fault else ():
            if step.kill and name in hit:
                self.world.nova.control.kill_compute(name)
                self.stopped.add(name)
            else:
                self.world.nova.control.clear_faults(name)
        self._hanging = ""

    def running(self) -> list[str]:
        """The hosts whose nova-compute runs."""
        return [host for host in self.hosts if host not in self.dead | self.stopped]

    def guests(self) -> list[Server]:
        """The existing guests."""
        existing = []
        for server in list(self.world.guests):
            try:
                existing.append(self.world.api.compute.get_server(server.id))
            except SDKException:
                self.world.guests.remove(server)
        return existing

    def wait(self, server: Server) -> None:
        """Wait until a guest has no task, or a nova-compute hangs at the step at which it is to be killed."""
        with contextlib.suppress(SDKException):  # it was deleted
            servers.until(
                self.world.api,
                server,
                lambda instance: (
                    (
                        instance.task_state is None
                        and instance.status not in ("BUILD", "REVERT_RESIZE", "MIGRATING", "REBUILD")
                    )
                    or bool(self._hanging and self._hit(self._hanging))
                ),
                seconds=PATIENCE,
            )

    def return_(self, host: str) -> None:
        """Power on a host, or kill and restart its nova-compute: a graceful stop may wait for a hanging step."""
        if host in self.forgotten:  # Nova would not register it again with guests on it
            self.world.nova.control.wipe_host(host)
        self.forgotten.discard(host)
        self.world.nova.control.restart_compute(host, kill=True)
        try:
            servers.force_down(self.world.api, host, False)
        except BadRequestException:
            # nova-compute keeps the evacuation of a deleted guest that the hypervisor no longer has
            # (_destroy_evacuated_instances), and the API does not clear forced_down as long as that exists.
            self.world.sql(_COMPLETE, host=host)
            servers.force_down(self.world.api, host, False)
        self.dead.discard(host)
        self.stopped.discard(host)
        self.world.nova.control.periodic(host)

    def leave(self) -> None:
        """Remove the hosts with their guests."""
        self.world.leave()

    def _hit(self, fault: str) -> list[str]:
        return [host for host in self.running() if self.world.nova.control.hits(host, fault)]

    def _guest(self, step: Step, *status: str) -> Server:
        fit = [guest for guest in self.guests() if not status or guest.status in status]
        return fit[step.guest % len(fit)] if fit else _nobody()

    def _other(self, step: Step, server: Server) -> str:
        fit = [host for host in self.running() if host != server.compute_host]
        return fit[step.host % len(fit)] if fit else str(_nobody())

    def _do(self, server: Server, call: Callable[[], object]) -> None:
        call()
        self.wait(server)

    # --- actions of users and operators -----------------------------------------------------------------------------

    def _boot(self, step: Step, host: str) -> None:
        flavor = self.world.flavors[1 + step.guest % 2]
        name = f"vm{next(self.world._numbers)}"
        self.world.guests.append(
            self.world.api.compute.create_server(
                name=name, flavor_id=flavor.id, image_id=IMAGE, networks="none", host=host
            )
        )
        self.wait(self.world.guests[-1])

    def _migrate(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ACTIVE", "SHUTOFF")
        target = self._other(step, server)
        self._do(server, lambda: self.world.api.compute.migrate_server(server, host=target))

    def _resize(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ACTIVE", "SHUTOFF")
        small = server.flavor.get("original_name", "") == self.world.flavors[1].name
        self._do(server, lambda: self.world.api.compute.resize_server(server, self.world.flavors[2 if small else 1]))

    def _live(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ACTIVE")
        target = self._other(step, server)
        self._do(
            server,
            lambda: self.world.api.compute.live_migrate_server(server.id, host=target, block_migration="auto"),
        )

    def _confirm(self, step: Step, _host: str) -> None:
        server = self._guest(step, "VERIFY_RESIZE")
        self._do(server, lambda: self.world.api.compute.confirm_server_resize(server))

    def _revert(self, step: Step, _host: str) -> None:
        server = self._guest(step, "VERIFY_RESIZE")
        self._do(server, lambda: self.world.api.compute.revert_server_resize(server))

    def _evacuate(self, step: Step, _host: str) -> None:
        away = [guest for guest in self.guests() if guest.compute_host in self.dead | self.stopped]
        server = away[step.guest % len(away)] if away else _nobody()
        servers.force_down(self.world.api, server.compute_host)
        self._do(server, lambda: self.world.api.compute.evacuate_server(server, host=None))

    def _delete(self, step: Step, _host: str) -> None:
        """Delete a guest at once, also where deletion is deferred."""
        server = self._guest(step)
        self._do(server, lambda: self.world.api.compute.delete_server(server, force=self.world.defers))

    def _soft(self, step: Step, _host: str) -> None:
        """Delete a guest in a cloud that keeps it for a day (``reclaim_instance_interval``)."""
        server = self._guest(step) if self.world.defers else _nobody()
        self._do(server, lambda: self.world.api.compute.delete_server(server))

    def _restore(self, step: Step, _host: str) -> None:
        server = self._guest(step, "SOFT_DELETED")
        self._do(server, lambda: self.world.api.compute.restore_server(server))

    def _reclaim(self, step: Step, _host: str) -> None:
        server = self._guest(step, "SOFT_DELETED")
        self._do(server, lambda: self.world.api.compute.delete_server(server, force=True))

    def _reset(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ERROR")
        self.world.api.compute.reset_server_state(server, "active")

    def _shelve(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ACTIVE")
        self._do(server, lambda: self.world.api.compute.shelve_server(server))

    def _unshelve(self, step: Step, _host: str) -> None:
        server = self._guest(step, "SHELVED", "SHELVED_OFFLOADED")
        self._do(server, lambda: self.world.api.compute.unshelve_server(server))

    def _stop(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ACTIVE")
        self._do(server, lambda: self.world.api.compute.stop_server(server))

    def _start(self, step: Step, _host: str) -> None:
        server = self._guest(step, "SHUTOFF")
        self._do(server, lambda: self.world.api.compute.start_server(server))

    def _reboot(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ACTIVE", "ERROR")
        self._do(server, lambda: self.world.api.compute.reboot_server(server, "HARD"))

    def _suspend(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ACTIVE")
        self._do(server, lambda: self.world.api.compute.suspend_server(server))

    def _resume(self, step: Step, _host: str) -> None:
        server = self._guest(step, "SUSPENDED")
        self._do(server, lambda: self.world.api.compute.resume_server(server))

    def _rescue(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ACTIVE", "SHUTOFF")
        self._do(server, lambda: self.world.api.compute.rescue_server(server))

    def _unrescue(self, step: Step, _host: str) -> None:
        server = self._guest(step, "RESCUE")
        self._do(server, lambda: self.world.api.compute.unrescue_server(server))

    def _pause(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ACTIVE")
        self._do(server, lambda: self.world.api.compute.pause_server(server))

    def _unpause(self, step: Step, _host: str) -> None:
        server = self._guest(step, "PAUSED")
        self._do(server, lambda: self.world.api.compute.unpause_server(server))

    def _offload(self, step: Step, _host: str) -> None:
        server = self._guest(step, "SHELVED")
        self._do(server, lambda: self.world.api.compute.shelve_offload_server(server))

    def _rebuild(self, step: Step, _host: str) -> None:
        server = self._guest(step, "ACTIVE", "SHUTOFF", "ERROR")
        self._do(server, lambda: self.world.api.compute.rebuild_server(server, IMAGE))

    def _together(self, step: Step, _host: str) -> None:
        """Migrate a guest and delete another at once."""
        server, *others = [self._guest(step, "ACTIVE", "SHUTOFF"), *self.guests()]
        target, other = self._other(step, server), next((one for one in others if one.id != server.id), None)
        self.world.api.compute.migrate_server(server, host=target)
        if other is not None:
            self.world.api.compute.delete_server(other)
            self.wait(other)
        self.wait(server)

    def _archive(self, _step: Step, _host: str) -> None:
        """Move soft-deleted rows to the shadow tables."""
        ran = self.world.nova.manage("db", "archive_deleted_rows", "--all-cells", check=False)
        if ran.returncode not in (0, 1):  # 1: rows were moved
            raise LookupError(ran.stderr)

    # --- events of hosts --------------------------------------------------------------------------------------------

    def _die(self, _step: Step, host: str) -> None:
        self.dead.add(host)
        self.stopped.discard(host)
        self.world.die(host)

    def _kill(self, _step: Step, host: str) -> None:
        if host in self.running():
            self.world.nova.control.kill_compute(host)
            self.stopped.add(host)

    def _back(self, _step: Step, host: str) -> None:
        self.return_(host)

    def _restart(self, _step: Step, host: str) -> None:
        if host in self.running():
            self.return_(host)

    def _periodic(self, _step: Step, host: str) -> None:
        if host in self.running():
            self.world.nova.control.periodic(host)

    def _forget(self, _step: Step, host: str) -> None:
        """Delete the service of a host that is down; Nova refuses that while guests are there."""
        if host not in self.running():
            self.world.api.compute.delete_service(servers.service_id(self.world.api, host))
            self.forgotten.add(host)

    def _reinstall(self, step: Step, host: str) -> None:
        """Reinstall a dead host: it has no guests, and another identity."""
        if host not in self.dead:
            _nobody()
        with contextlib.suppress(CloudError):  # it is forgotten
            self._forget(step, host)
        self.world.nova.control.wipe_host(host)
        self.world.nova.control.restart_compute(host, compute_id=str(uuid.uuid4()))
        self.dead.discard(host)
        self.forgotten.discard(host)
        self.world.nova.control.periodic(host)

    def _edit(self, step: Step, host: str) -> None:
        """Change a row manually."""
        query = sa.text(
            "SELECT p.id, p.instance_uuid FROM pci_devices p JOIN compute_nodes c ON c.id = p.compute_node_id"
            " WHERE c.host = :host AND p.deleted = 0 AND p.status IN ('available', 'allocated') ORDER BY p.id"
        )
        with self.world.engine.connect() as connection:
            rows = connection.execute(query, {"host": host}).all()
        values: dict[str, Any] = {
            "nobody": str(uuid.uuid4()),
            "taken": next((row.id for row in rows if row.instance_uuid), None),
            "free": next((row.id for row in rows if not row.instance_uuid), None),
        }
        statement = EDITS[step.guest % len(EDITS)]
        self.world.sql(statement, **{name: value for name, value in values.items() if f":{name}" in statement})


def _nobody() -> Server:
    raise LookupError("there is none")
