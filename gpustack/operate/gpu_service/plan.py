"""Decide how a GPU leaves service, and how it comes back. Pure.

With PCI in Placement, reserving the GPU keeps new instances off at once. Everywhere, ``device_spec`` without the GPU
keeps them off after a restart of nova-compute; until then, without PCI in Placement, only a disabled nova-compute does.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gpustack.base.codes import Code
from gpustack.base.findings import Finding, finding
from gpustack.base.operations import Operation
from gpustack.cloud.compute import Service
from gpustack.cloud.placement import Inventory
from gpustack.fleet.model import Gpu, Holder, State
from gpustack.spec.model import OutOfService


@dataclass(frozen=True, kw_only=True)
class Reservation(Operation):
    """Reserve a GPU in Placement, or release it."""

    kind: ClassVar[str] = "set_inventory"
    place: str
    before: Inventory
    after: Inventory

    def describe(self) -> str:
        verb = "reserve" if self.after.is_reserved else "release"
        return f"{verb} {self.place} in Placement: reserved {self.before} → {self.after}"


@dataclass(frozen=True, kw_only=True)
class Switch(Operation):
    """Disable nova-compute, so that no new instance comes to the host, or enable it.

    :ivar reason: the reason that Nova shows; empty to enable it.
    """

    kind: ClassVar[str] = "switch_service"
    service: Service
    enabled: bool
    reason: str = ""

    def describe(self) -> str:
        verb = "enable" if self.enabled else "disable"
        return f"{verb} nova-compute of {self.service.host}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the sources have about a GPU.

    :ivar gpu: the GPU as Nova or Placement has it; None if they do not have it, or if it is unknown.
    :ivar by_address: whether the sources list the GPUs of the host by address, so that a missing GPU is not offered.
    :ivar inventory: its inventory in Placement; None without PCI in Placement.
    :ivar scheduled: whether Nova schedules by it; False if Nova only reports devices to Placement.
    :ivar entry: its entry in the spec.
    """

    host: str
    address: str
    service: Service
    gpu: Gpu | None = None
    by_address: bool = False
    inventory: Inventory | None = None
    scheduled: bool = True
    entry: OutOfService | None = None

    @property
    def place(self) -> str:
        """Host and address."""
        return f"{self.host} {self.address}"

    @property
    def gone(self) -> bool:
        """Whether Nova certainly does not have the GPU."""
        return self.gpu is None and self.by_address

    @property
    def in_use(self) -> bool:
        """Whether an instance has the GPU, so that no other one gets it now."""
        return self.gpu is not None and (bool(self.gpu.holders) or self.gpu.state in (State.ALLOCATED, State.CLAIMED))

    @property
    def reservable(self) -> bool:
        """Whether a reservation in Placement keeps new instances off."""
        return self.inventory is not None and self.scheduled

    @property
    def switched_off_for_it(self) -> bool:
        """Whether gpustack disabled nova-compute because of this GPU, and nobody gave another reason since."""
        return not self.service.enabled and self.service.reason.startswith(_reason_of(self))


@dataclass(frozen=True, kw_only=True)
class OutagePlan:
    """The operations that take a GPU out of service or bring it back, and what is left to the operator.

    :ivar lines: the lines to add to the spec, or to remove from it.
    :ivar steps: the steps of the operator, in their order.
    :ivar state: the state of the GPU now, for people.
    """

    operations: tuple[Operation, ...] = ()
    findings: tuple[Finding, ...] = ()
    lines: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    state: str = ""

    def to_dict(self) -> dict[str, object]:
        """The plan as plain data."""
        return {
            "operations": [operation.to_dict() for operation in self.operations],
            "findings": [finding.to_dict() for finding in self.findings],
            "spec": "\n".join(self.lines),
            "steps": list(self.steps),
            "state": self.state,
        }


# --- out of service -------------------------------------------------------------------------------------------------


def disable(seen: Seen, reason: str, since: str, *, close: bool | None = None) -> OutagePlan:
    """Plan to take a GPU out of service.

    :param since: the date for the spec.
    :param close: whether to disable nova-compute until the GPU is excluded; None to do it if nothing else keeps new
        instances off the GPU.
    """
    return OutagePlan(
        operations=tuple(_off(seen, reason, close)),
        findings=tuple(_remarks(seen)),
        lines=() if seen.entry else _lines(seen, reason, since),
        steps=() if seen.gone and seen.entry else tuple(_steps_off(seen)),
        state=_state(seen),
    )


def _off(seen: Seen, reason: str, close: bool | None) -> Iterator[Operation]:
    if seen.gone:
        if seen.switched_off_for_it and not close:
            yield Switch(why="Nova does not offer the GPU any more", service=seen.service, enabled=True)
        return
    if seen.reservable and seen.inventory is not None and not seen.inventory.is_reserved:
        yield Reservation(
            why=reason, place=seen.place, before=seen.inventory, after=seen.inventory.with_reserved(everything=True)
        )
    needed = close if close is not None else not (seen.reservable or seen.in_use)
    if needed and seen.service.enabled:
        yield Switch(
            why="no other means keeps new instances off the GPU before the restart",
            service=seen.service,
            enabled=False,
            reason=f"{_reason_of(seen)}: {reason}",
        )


def _reason_of(seen: Seen) -> str:
    """The beginning of the reason by which a later run recognises its own; not the one of host maintenance."""
    return f"GPU {seen.address} out of service"


def _remarks(seen: Seen) -> Iterator[Finding]:
    for holder in seen.gpu.holders if seen.gpu else ():
        yield finding(Code.INSTANCE_ON_FAULTY_GPU, place=seen.place, server=_words(holder), owner=_owner(holder))
    if seen.reservable and not seen.gone:
        yield finding(Code.MOVE_MAY_CLAIM_RESERVED, place=seen.place, host=seen.host)


def _words(holder: Holder) -> str:
    server = holder.server
    if server is None:
        return f"consumer {holder.consumer}"
    return f"{server.name} ({server.id}, {server.status})" if server.name else f"{server.id} ({server.status})"


def _owner(holder: Holder) -> str:
    return f"project {holder.project or 'unknown'}, user {holder.user or 'unknown'}"


def _lines(seen: Seen, reason: str, since: str) -> tuple[str, ...]:
    values = {"host": seen.host, "address": seen.address, "reason": reason, "since": since}
    entry = ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())
    return ("out_of_service:", f"  - {{{entry}}}")


def _steps_off(seen: Seen) -> Iterator[str]:
    if seen.entry is None:
        yield "add these lines to the spec"
    if seen.gone:
        return
    yield (
        f"render and install the device_spec of {seen.host}: gpustack nova render gpustack.yaml {seen.host}"
        " --snapshot hosts.json --service compute, or the playbook nova.yml"
    )
    if seen.in_use:
        yield (
            f"restart nova-compute of {seen.host}: its instances keep their GPUs. Before 2025.2, restart it once more"
            " when the GPU is free"
        )
    else:
        yield f"restart nova-compute of {seen.host} now"
    yield "run this command again: it reports whether Nova still has the GPU"


# --- back in service ------------------------------------------------------------------------------------------------


def enable(seen: Seen) -> OutagePlan:
    """Plan to bring a GPU back. ``reserved`` is set explicitly: a provider that survived keeps it."""
    findings = [finding(Code.STILL_OUT_OF_SERVICE, place=seen.place, reason=seen.entry.why)] if seen.entry else []
    return OutagePlan(
        operations=() if findings else tuple(_on(seen)),
        findings=tuple(findings),
        steps=tuple(_steps_on(seen)),
        state=_state(seen),
    )


def _on(seen: Seen) -> Iterator[Operation]:
    if seen.inventory is not None and not seen.inventory.is_open:
        yield Reservation(
            why="back in service",
            place=seen.place,
            before=seen.inventory,
            after=seen.inventory.with_reserved(everything=False),
        )
    if seen.switched_off_for_it:
        yield Switch(why="back in service", service=seen.service, enabled=True)


def _steps_on(seen: Seen) -> Iterator[str]:
    if seen.entry is not None:
        yield "remove the entry from out_of_service in the spec"
    if seen.gpu is None:
        yield (
            f"render and install the device_spec of {seen.host}: gpustack nova render gpustack.yaml {seen.host}"
            " --snapshot hosts.json --service compute, or the playbook nova.yml"
        )
        yield f"restart nova-compute of {seen.host}"
        yield "run this command again: it reports whether Nova has the GPU"


# --- both -----------------------------------------------------------------------------------------------------------


def _state(seen: Seen) -> str:
    if seen.gone:
        return "out of service: Nova does not have the GPU"
    if seen.gpu is None:
        return "unknown: without PCI in Placement, only Nova's databases (--config-file) show each GPU"
    reserved = seen.inventory is not None and seen.inventory.is_reserved
    if seen.in_use:
        return "in use" + (", reserved for when it becomes free" if reserved else "")
    return "reserved" if reserved else seen.gpu.state.value
