"""The table of what keeps new instances off a GPU out of service, as ``gpustack gpu disable`` plans it."""

from dataclasses import dataclass
from typing import Any

from gpustack.base.findings import Code, definitions
from gpustack.cloud.closed import MAINTENANCE, gpu_reason
from gpustack.cloud.compute import Service
from gpustack.cloud.placement import Inventory
from gpustack.fleet.model import Gpu, Holder, State
from gpustack.operate.gpu_service.plan import OutagePlan, Seen, disable

_HOST, _ADDRESS = "gpu01", "0000:81:00.0"
_WHY = "fatal AER errors"
_SERVICE = Service(id="1", host=_HOST, enabled=True)
_PLACED = {"scheduled": True}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """How Nova schedules, and an option of the command.

    :ivar close: the option: ``--disable-service`` or ``--no-disable-service``; None without.
    :ivar reserved: the units that somebody else reserved.
    """

    title: str
    state: dict[str, Any]
    close: bool | None = None
    reserved: int = 0
    placed: bool = True
    gone: bool = False

    def plan(self, state: State, reason: str = "") -> OutagePlan:
        """What the command plans for a GPU in this state; ``reason`` is that of the closed host."""
        inventory = Inventory(provider="p", generation=1, classes={"GPU": {"total": 1, "reserved": self.reserved}})
        holders = (Holder(consumer="instance"),) if state is State.ALLOCATED else ()
        service = Service(id="1", host=_HOST, enabled=False, reason=reason) if reason else _SERVICE
        seen = Seen(
            host=_HOST,
            address=_ADDRESS,
            service=service,
            gpu=None if self.gone else Gpu(host=_HOST, address=_ADDRESS, state=state, holders=holders),
            by_address=True,
            inventory=inventory if self.placed and not self.gone else None,
            **self.state,
        )
        return disable(seen, _WHY, "2026-11-22", close=self.close)


CONFIGURATIONS = (
    Configuration(title="by Placement's devices (`placement: schedule`)", state=_PLACED),
    Configuration(title="so, with `--disable-service`", state=_PLACED, close=True),
    Configuration(title="so, and somebody else reserved the GPU before", state=_PLACED, reserved=1),
    Configuration(title="devices are only reported (`placement: report`)", state={"scheduled": False}),
    Configuration(title="without PCI in Placement (`placement: off`)", state={"scheduled": False}, placed=False),
    Configuration(title="unknown: no `--config-file`, no section `nova`", state={"scheduled": None}),
    Configuration(
        title="any but the first, with `--no-disable-service`", state={"scheduled": False}, close=False, placed=False
    ),
    Configuration(title="any, after device_spec without the GPU was installed", state={"scheduled": False}, gone=True),
)


def table() -> str:
    """The table, to be included."""
    heads = (
        "How Nova schedules",
        "Reason of the closed host",
        "Keeps new instances off now, or as soon as the instance ends that has the GPU",
        "After a restart of nova-compute",
        "The host when a maintenance ends",
        "Remaining gap",
    )
    return "\n".join([_line(heads), "|---" * len(heads) + "|", *map(_row, CONFIGURATIONS), ""])


def _row(configuration: Configuration) -> str:
    free, used = (configuration.plan(state) for state in (State.FREE, State.ALLOCATED))
    if free.protection is None or used.protection is None or free.protection.now != used.protection.after_instance:
        raise ValueError(f"{configuration.title}: the protection of a free GPU differs from that after its instance")
    during = configuration.plan(State.FREE, f"gpustack: {MAINTENANCE}")
    gaps = dict.fromkeys(
        f"{found.code.value}: {definitions()[found.code].title}"
        for found in (*free.findings, *used.findings)
        if found.code is not Code.INSTANCE_ON_FAULTY_GPU
    )
    return _line(
        (
            configuration.title,
            free.left or "none",
            _short(free.protection.now),
            _short(free.protection.after_restart),
            "stays closed" if gpu_reason(_ADDRESS) in during.left else "opens",
            "; ".join(gaps) or "none",
        )
    )


def _short(text: str) -> str:
    for part in (f": nova-compute of {_HOST} is disabled", " (gpustack)", " (steps below)"):
        text = text.replace(part, "")
    return text or "**nothing**"


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
