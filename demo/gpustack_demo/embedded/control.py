"""Control of a running embedded Nova beyond its API: services, faults, records of hypervisors and trackers."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gpustack.base.errors import GpustackError
from gpustack_demo.embedded.hosts import EmbeddedDevice

if TYPE_CHECKING:
    from gpustack_demo.embedded.inside.descriptions import Domain, FaultState, Mediated, TrackerState

STEPS: Mapping[str, str] = {
    # boot, unshelve, evacuate
    "claim": "rt.instance_claim",
    "spawn": "driver.spawn",
    "rebuild_claim": "rt.rebuild_claim",
    # cold migration and resize; on the source …
    "copy": "driver.migrate_disk_and_power_off",
    "finish_resize_call": "compute_rpc.finish_resize",
    "confirm": "driver.confirm_migration",
    "confirm_rpc": "manager.confirm_resize",
    "drop_move_claim": "rt.drop_move_claim_at_source",
    "finish_revert": "driver.finish_revert_migration",
    # … and on the destination
    "resize_claim": "rt.resize_claim",
    "prep_resize": "manager.prep_resize",
    "finish": "driver.finish_migration",
    "finish_rpc": "manager.finish_resize",
    "revert": "driver.destroy",
    "revert_rpc": "manager.revert_resize",
    # live migration; on the source …
    "migrate": "domain.migrate",
    "rollback": "manager._rollback_live_migration",
    "post_live_migration": "driver.post_live_migration_at_source",
    # … and on the destination
    "check_destination": "manager.check_can_live_migrate_destination",
    "pre_live_migration": "driver.pre_live_migration",
    "post_at_destination": "manager.post_live_migration_at_destination",
    "rollback_at_destination": "driver.rollback_live_migration_at_destination",
    # delete, and any clean-up of a guest
    "destroy": "driver.destroy",
    "terminate": "manager.terminate_instance",
}
"""Short names of steps whose failure is known to leave something behind; any ``PART.METHOD`` is valid too."""


class ControlError(GpustackError):
    """A verb failed; ``kind`` is the class of Nova's exception."""

    def __init__(self, kind: str, message: str, trace: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.trace = trace


class Control:
    """The verbs; each raises :class:`ControlError` when Nova refuses it."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token

    @property
    def access(self) -> tuple[int, str]:
        """The port and the token, for a :class:`Control` in another process."""
        return self._port, self._token

    def call(self, verb: str, **arguments: object) -> Any:  # noqa: ANN401 - JSON
        """Call any verb by name."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        try:
            headers = {"X-Gpustack-Token": self._token, "Content-Type": "application/json"}
            connection.request("POST", f"/{verb}", json.dumps(arguments).encode(), headers)
            answer = connection.getresponse()
            content: dict[str, Any] = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise ControlError(content["error"], content["message"], content.get("traceback", ""))
        return content["result"]

    # -- services --------------------------------------------------------------------------------------------

    def hosts(self) -> dict[str, bool]:
        """Every host that was ever started, and whether its nova-compute runs."""
        return {name: entry["running"] for name, entry in self.call("hosts").items()}

    def stop_compute(self, host: str) -> None:
        """Stop nova-compute gracefully. Its guests keep running."""
        self.call("stop", name=host)

    def kill_compute(self, host: str, *, unseen: bool = True) -> None:
        """Stop nova-compute like SIGKILL: its current work stays incomplete. Its guests keep running.

        :param unseen: whether to set its last report to long ago, so that the API considers it down.
        """
        self.call("kill", name=host)
        if unseen:
            self.call("unseen", name=host)

    def power_off_host(self, host: str) -> None:
        """Power off the host: nova-compute and its guests are gone, and the last report is long ago."""
        self.call("power_off", name=host)

    def wipe_host(self, host: str) -> None:
        """Wipe the disks of a powered-off host: it returns without guests."""
        self.call("wipe", name=host)

    def restart_compute(self, host: str, *, kill: bool = False, **changes: object) -> None:
        """Stop nova-compute if it runs, and start it; the guests stay.

        :param changes: changes of the host: ``pci`` (a sequence of :class:`EmbeddedDevice`), ``node`` (the hypervisor
            hostname), ``compute_id`` (a UUID: the host was reinstalled), ``config`` (a list of files).
        """
        if "pci" in changes:
            changes["pci"] = [asdict(device) for device in cast("Sequence[EmbeddedDevice]", changes["pci"])]
        self.call("restart", name=host, changes=changes, kill=kill)

    def periodic(self, host: str | None = None, task: str = "update_available_resource") -> None:
        """Run a periodic task of the compute manager now, on one host or on all that run."""
        self.call("periodic", name=host, task=task)

    def reload_scheduler(self) -> None:
        """Let nova-scheduler read which cells are disabled, as on SIGHUP."""
        self.call("reload_scheduler")

    def unseen(self, host: str, seconds: int = 3600) -> None:
        """Set the last report of a stopped nova-compute to ``seconds`` ago."""
        self.call("unseen", name=host, seconds=seconds)

    # -- faults ----------------------------------------------------------------------------------------------

    def fail(
        self,
        host: str,
        step: str,
        *,
        action: str = "raise",
        when: str = "before",
        error: str = "builtins.RuntimeError",
        message: str = "injected",
        times: int = 1,
    ) -> None:
        """Make a step of the nova-compute on ``host`` fail.

        :param step: a short name of :data:`STEPS`, or ``PART.METHOD``.
        :param action: ``raise`` ``error``, ``hang`` (until :meth:`clear_faults`, or forever after
            :meth:`kill_compute`), or ``skip`` (the step does nothing, like a lost message; at ``migrate``, the
            hypervisor's job fails, and only its state shows that).
        :param when: ``before`` or ``after`` the step is done.
        :param error: an exception class with its module; its constructor takes a message.
        :param times: the number of times; 0 for always.
        """
        step = STEPS.get(step, step)
        self.call("fault", name=host, step=step, action=action, when=when, error=error, message=message, times=times)

    def clear_faults(self, host: str) -> None:
        """Remove the faults of a host; hanging threads continue."""
        self.call("clear_faults", name=host)

    def hits(self, host: str, step: str) -> int:
        """The number of times that the fault at ``step`` has happened."""
        fault = self._fault(host, step)
        return fault["hits"] if fault else 0

    def wait_for_fault(self, host: str, step: str, *, seconds: float = 120) -> None:
        """Wait until the fault at ``step`` has happened.

        :raises GpustackError: when the time is over.
        """
        deadline = time.monotonic() + seconds
        while not self.hits(host, step):
            if time.monotonic() > deadline:
                raise GpustackError(f"{step} was not reached within {seconds:.0f} s", where=host)
            time.sleep(0.05)

    def _fault(self, host: str, step: str) -> FaultState | None:
        wanted = STEPS.get(step, step)
        faults: list[FaultState] = self.call("faults", name=host)
        return next((fault for fault in faults if fault["step"] == wanted), None)

    # -- state ---------------------------------------------------------------------------------------------------

    def domains(self, host: str) -> list[Domain]:
        """The hypervisor's guests: ``uuid``, ``name``, ``state``, ``hostdevs`` (addresses)."""
        domains: list[Domain] = self.call("domains", name=host)
        return domains

    def mediated(self, host: str) -> list[Mediated]:
        """The mediated devices of a host: ``uuid``, ``type``, ``parent`` and ``users``, the UUIDs of guests."""
        devices: list[Mediated] = self.call("mediated", name=host)
        return devices

    def domain_xml(self, host: str, server: str) -> str:
        """The domain XML of one guest, as from ``virsh dumpxml``."""
        return str(self.call("domain_xml", name=host, uuid=server))

    def definition(self, host: str, server: str) -> str:
        """The definition of one guest's domain, as Nova wrote it."""
        return str(self.call("definition", name=host, uuid=server))

    def definitions(self, host: str) -> list[tuple[str, bool]]:
        """The definition of each domain of a host, and whether it runs."""
        kept: list[tuple[str, bool]] = self.call("definitions", name=host)
        return kept

    def place(self, host: str, definitions: Sequence[tuple[str, bool]]) -> None:
        """Let a host that is powered off have these domains, and no others."""
        self.call("place", name=host, definitions=definitions)

    def expire_messages(self, host: str) -> None:
        """Drop the messages that wait for a host, as RabbitMQ does with the queues of one that is down for long."""
        self.call("expire_messages", name=host)

    def image(self, properties: Mapping[str, str]) -> str:
        """The id of a new image with these properties."""
        return str(self.call("image", properties=dict(properties)))

    def hostdevs(self, server: str) -> dict[str, list[str]]:
        """The devices of a guest's domains, by host."""
        by_host = {}
        for host in self.hosts():
            for domain in self.domains(host):
                if domain["uuid"] == server:
                    by_host[host] = list(domain["hostdevs"])
        return by_host

    def tracker(self, host: str) -> TrackerState:
        """The tracker of a nova-compute in memory: ``devices`` (with status and owner) and ``pools`` of free ones."""
        state: TrackerState = self.call("tracker", name=host)
        return state

    def configure_placement(self, options: Mapping[str, str | None]) -> None:
        """Set options of Placement by ``GROUP/NAME``, as in placement.conf; None restores the default."""
        self.call("configure_placement", options=dict(options))

    def keep_placement(self, path: Path) -> None:
        """Copy Placement's database, which is in memory, to an SQLite file."""
        self.call("keep_placement", path=str(path))

    def restore_placement(self, path: Path) -> None:
        """Let Placement's database be as :meth:`keep_placement` kept it."""
        self.call("restore_placement", path=str(path))

    def option(self, service: str, group: str | None, option: str) -> Any:  # noqa: ANN401 - whatever the option is
        """The value of an option in ``api``, ``scheduler``, ``conductor`` or the nova-compute of a host."""
        return self.call("option", service=service, group=group, option=option)

    def options_read(self) -> dict[str, list[str]]:
        """The options read so far, as ``GROUP/NAME``, by service (``api``, ``compute`` and so on)."""
        found: dict[str, list[str]] = self.call("options_read")
        return found
