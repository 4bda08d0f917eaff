"""nova-compute on the lab's host: its configuration without GPUs, and what it reports to the control plane."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from ..errors import LabError
from ..machine import Machine
from ..topology import GPU_COUNT
from . import settings
from .control_plane import ControlPlane

UNIT = "nova-compute"
DROP_INS = "/etc/nova/nova.conf.d"
PAUSE = 3.0
_LOG_LINES = "60"
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Installation:
    """How nova-compute runs on the host: program, user, additions to its files, and the command that prints its log."""

    program: str
    user: str
    more: Mapping[str, str]
    log: tuple[str, ...]


OPT_NOVA = Installation(
    program="/opt/nova/bin/nova-compute",
    user="root",
    more={"nova.conf": settings.PRIVSEP},
    log=("journalctl", "-u", UNIT, "-n", _LOG_LINES, "--no-pager", "-o", "cat"),
)
"""The tree in /opt/nova."""
PACKAGES = Installation(
    program="/usr/bin/nova-compute",
    user="nova",
    more={"nova.conf": "[spice]\nenabled = false\n", "nova-compute.conf": "[libvirt]\nvirt_type = qemu\n"},
    log=("tail", "-n", _LOG_LINES, "/var/log/nova/nova-compute.log"),
)
"""Debian's packages, with their user, unit, sudo and rootwrap.

The unit names nova.conf and then nova-compute.conf on the command line, so the latter decides on `virt_type`.
The drop-ins are read before both.
"""


@dataclass(frozen=True, kw_only=True)
class Compute:
    """The host, the control plane that it belongs to, and how it reaches it: if it is not named, by slirp's gateway."""

    host: Machine
    cloud: ControlPlane
    access: settings.Access | None = None
    installation: Installation = OPT_NOVA

    def configure(self) -> None:
        """Write everything that nova-compute needs to join the cloud; it does not run yet."""
        user = self.installation.user
        self.host.ssh(["mkdir", "-p", DROP_INS])
        self.host.ssh(["install", "-d", "-o", user, "-g", user, "/var/lib/nova/instances", "/var/lib/nova/lock"])
        access = self.access or settings.Access(ports=self.cloud.ports)
        text = settings.compute(
            name=self.host.name,
            access=access,
            transport=self.cloud.rabbitmq.url(access.address, access.ports["messages"]),
            password=self.cloud.password,
        )
        for name, addition in [("nova.conf", text), *self.installation.more.items()]:
            self.host.ssh(["sh", "-c", 'umask 077; cat >>"$1"', "sh", f"/etc/nova/{name}"], stdin=addition)

    def wait(self, purpose: str, answer: Callable[[], _T | None], *, seconds: float, pause: float = PAUSE) -> _T:
        """Ask until there is an answer. When the time is over or a service has ended, the error has its log."""
        end = time.monotonic() + seconds
        while (result := answer()) is None:
            self.cloud.check()
            if time.monotonic() > end:
                raise self.error(f"{purpose}: not within {seconds:.0f} s")
            time.sleep(pause)
        return result

    def error(self, message: str) -> LabError:
        """An error with the end of nova-compute's log, QEMU's and the serial port's."""
        log = self.host.ssh(self.installation.log, check=False)
        return self.host.error(f"{message}\n--- {UNIT}\n{log}")

    def devices(self) -> dict[str, str]:
        """Nova's rows of the host's functions: address to status."""
        rows = self.cloud.sql(
            "SELECT address, status FROM nova_cell1.pci_devices AS devices JOIN nova_cell1.compute_nodes AS nodes"
            f" ON nodes.id = compute_node_id AND nodes.host = '{self.host.name}'"
            " WHERE devices.deleted = 0 ORDER BY address"
        )
        return {str(address): str(status) for address, status in rows}

    def free(self) -> bool | None:
        """True when Nova offers all GPUs of the host."""
        return list(self.devices().values()) == ["available"] * GPU_COUNT or None

    def up(self, since: datetime | None = None) -> bool | None:
        """True when the service has reported itself since then; without it, since this control plane started."""
        rows = self.cloud.sql(
            "SELECT host FROM nova_cell1.services WHERE deleted = 0 AND services.binary = 'nova-compute'"
            f" AND host = '{self.host.name}' AND last_seen_up > '{since or self.cloud.started:%Y-%m-%d %H:%M:%S}'"
        )
        return bool(rows) or None

    def registered(self) -> bool | None:
        """True when the scheduler may use the host: it maps new ones to their cell every now and then."""
        rows = self.cloud.sql(f"SELECT host FROM nova_api.host_mappings WHERE host = '{self.host.name}'")
        return bool(rows) or None
