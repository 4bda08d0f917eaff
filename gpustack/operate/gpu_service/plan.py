"""Decide how a GPU leaves service, and how it comes back. Pure.

With PCI in Placement by which Nova schedules, reserving the GPU keeps new instances off at once, also while an instance
has it. Everywhere, ``device_spec`` without the GPU keeps them off after a restart of nova-compute; until then, without
PCI in Placement, only a closed host does. If it is unknown how Nova schedules, both are done.

Both are done for a card with vGPUs too: nova-compute sets its reservation to 0 when it reads its providers again,
within five minutes (``_get_gpu_inventories`` in nova/virt/libvirt/driver.py). The provider of a card that left its
configuration stays, with its reservation.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import listed
from gpustack.changes.change import CloudChange
from gpustack.changes.closed import reason_change
from gpustack.changes.history import LastChange
from gpustack.cloud.closed import Reasons, gpu_reason, reasons_of
from gpustack.cloud.compute import Service
from gpustack.cloud.placement import Inventory
from gpustack.fleet.model import MDEV, Gpu, Holder, State
from gpustack.operate.gpu_service.changes import reservation
from gpustack.spec.model import OutOfService


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the sources have about a GPU.

    :ivar gpu: the GPU as Nova or Placement has it; None if they do not have it, or if it is unknown.
    :ivar by_address: whether the sources list the GPUs of the host by address, so that a missing GPU is not offered.
    :ivar inventory: its inventory in Placement; None without PCI in Placement.
    :ivar card: the address of its card if that is the card's inventory, which counts virtual functions together.
    :ivar scheduled: whether Nova schedules by it; False if Nova only reports devices to Placement, None if unknown,
        or if nova-compute may remove the reservation.
    :ivar entry: its entry in the spec.
    :ivar reserved_by: the record of its reservation; None if it is not reserved, or by somebody else.
    :ivar one_time_use: whether Nova reserves it when an instance gets it.
    :ivar sources: the arguments of ``nova render`` for the host.
    :ivar others: the addresses of the host's other GPUs.
    """

    host: str
    address: str
    service: Service
    gpu: Gpu | None = None
    by_address: bool = False
    inventory: Inventory | None = None
    card: str = ""
    scheduled: bool | None = True
    entry: OutOfService | None = None
    reserved_by: LastChange | None = None
    one_time_use: bool = False
    sources: Sequence[str] = ("SPEC", "HOST", "--snapshot=FILE")
    others: Sequence[str] = ()

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
    def reserved(self) -> bool:
        """Whether the GPU is reserved in Placement: nothing of it can be allocated."""
        return self.inventory is not None and max(self.inventory.unreserved.values(), default=0) <= 0

    @property
    def reservable(self) -> bool:
        """Whether a reservation keeps, or may keep, new instances off the GPU; that of a card, if it is complete."""
        placed = self.inventory is not None and self.scheduled is not False and not self.gone
        return placed and (self.reserved or not self.card)

    @property
    def reserved_for(self) -> str:
        """Who reserved units of the GPU for another reason; empty if nobody did."""
        if self.reserved_by or self.inventory is None or not any(self.inventory.reserved.values()):
            return f"{self.reserved_by} for its card" if self.card and self.reserved_by else ""
        return "Nova, for one-time use" if self.one_time_use else "somebody else"

    @property
    def reasons(self) -> Reasons:
        """Why the host is closed."""
        return reasons_of(self.service)

    @property
    def closed(self) -> bool:
        """Whether the host is closed because of this GPU."""
        return gpu_reason(self.address) in self.reasons.own


@dataclass(frozen=True, kw_only=True)
class Protection:
    """What keeps new instances off a GPU, and off what else (``also``); empty if nothing does."""

    now: str = ""
    after_instance: str = ""
    after_restart: str = ""
    also: str = ""

    def lines(self) -> Iterator[str]:
        """A line for each moment, and one about all else that takes no new instances."""
        for moment, means in (
            ("now", self.now),
            ("after its instance ends", self.after_instance),
            ("after the restart of nova-compute", self.after_restart),
        ):
            yield f"{moment}: {means or 'nothing: the next instance can get the GPU'}"
        yield from filter(None, [self.also])


@dataclass(frozen=True, kw_only=True)
class OutagePlan:
    """The changes that take a GPU out of service or bring it back, and what is left to the operator.

    :ivar lines: the lines to add to the spec, or to remove from it.
    :ivar steps: the steps of the operator, in their order.
    :ivar state: the state of the GPU now, for people.
    :ivar protection: what keeps new instances off when the changes are made; None for a GPU that comes back.
    :ivar left: why the host stays closed when the changes are made.
    :ivar question: what the question names.
    """

    operations: tuple[CloudChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    lines: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    state: str = ""
    protection: Protection | None = None
    left: str = ""
    question: str = ""

    def to_dict(self) -> dict[str, object]:
        """The plan as plain data."""
        return {
            "operations": [operation.to_dict() for operation in self.operations],
            "findings": [finding.to_dict() for finding in self.findings],
            "spec": "\n".join(self.lines),
            "steps": list(self.steps),
            "state": self.state,
            "protection": asdict(self.protection) if self.protection else {},
            "host_stays_closed": self.left,
        }


def disable(seen: Seen, reason: str, since: str, *, close: bool | None = None) -> OutagePlan:
    """Plan to take a GPU out of service.

    :param since: the date for the spec.
    :param close: whether to close the host until the GPU is excluded; None to do it if nothing else certainly keeps new
        instances off the GPU.
    :raises PlanError: if the reasons for the closed host do not fit.
    """
    kept = seen.gpu is not None and seen.gpu.dev_type == MDEV and seen.reserved and close is False
    certain = seen.reservable and (bool(seen.scheduled) or kept)  # the operator has waited for nova-compute
    closed = not seen.gone and (close if close is not None else not certain or seen.closed)
    key, left = gpu_reason(seen.address), seen.reasons
    operations: list[CloudChange] = []
    if closed and not seen.closed:
        # First: if Nova does not schedule by Placement, an instance that gets a reserved GPU ends in ERROR.
        why = "no other means certainly keeps new instances off the GPU before the restart"
        operations.append(reason_change(seen.service, key, reason, close=True, why=why))
        left = left.plus(key, reason)
    if seen.reservable and not seen.reserved and seen.inventory is not None:
        operations.append(reservation(seen.place, seen.inventory, seen.inventory.totals, why=reason))
    if seen.closed and not closed and not close and (seen.gone or certain):
        why = "Nova does not offer the GPU any more" if seen.gone else "the reservation keeps new instances off"
        operations.append(reason_change(seen.service, key, "", close=False, why=why))
        left = left.minus(key)
    protection = _protection(seen, reserved=certain, closed=key in left.own)
    return OutagePlan(
        operations=tuple(operations),
        findings=tuple(_remarks(seen, protection, closed=key in left.own)),
        lines=() if seen.entry else _lines(seen, reason, since),
        steps=tuple(_steps_off(seen)),
        state=_state(seen),
        protection=protection,
        left=str(left),
    )


def _protection(seen: Seen, *, reserved: bool, closed: bool) -> Protection:
    if seen.gone:
        gone = "Nova does not have the GPU"
        return Protection(now=gone, after_instance=gone, after_restart=gone)
    by = f"{seen.reserved_for}, until they release it" if seen.reserved and seen.reserved_for else "gpustack"
    means = [f"the reservation in Placement ({by})"] if reserved else []
    means += [f"the closed host: nova-compute of {seen.host} is disabled (gpustack)"] if closed else []
    kept = "; ".join(means)
    others = f"GPUs {listed(seen.others, 16)}; " if seen.others else ""
    excluded = "device_spec without the GPU, if you installed it before (steps below)"
    return Protection(
        now="the instance that has it" if seen.in_use else kept,
        after_instance=kept,
        after_restart=f"{kept}; {excluded}" if kept else excluded,
        also=f"the rest of {seen.host} too, while it is closed: {others}instances without a GPU" if closed else "",
    )


def _remarks(seen: Seen, protection: Protection, *, closed: bool) -> Iterator[Finding]:
    host, address = seen.host, seen.address
    for holder in seen.gpu.holders if seen.gpu else ():
        owner = f"project {holder.project or 'unknown'}, user {holder.user or 'unknown'}"
        yield finding(Code.INSTANCE_ON_FAULTY_GPU, place=seen.place, server=_words(holder), owner=owner)
    if seen.reservable and not closed:
        yield finding(Code.MOVE_MAY_CLAIM_RESERVED, place=seen.place, host=host, address=address)
    if seen.in_use and closed and not seen.closed:
        yield finding(Code.HOST_CLOSED_FOR_GPU, place=seen.place, host=host, address=address)
    if not protection.after_instance:
        yield finding(Code.GPU_UNPROTECTED, place=seen.place)
    elif seen.reserved and seen.reserved_for and not closed:
        yield finding(Code.RESERVED_BY_OTHERS_ONLY, place=seen.place, by=seen.reserved_for, host=host, address=address)


def _words(holder: Holder) -> str:
    if (server := holder.server) is None:
        return f"consumer {holder.consumer}"
    return f"{server.name} ({server.id}, {server.status})" if server.name else f"{server.id} ({server.status})"


def _lines(seen: Seen, reason: str, since: str) -> tuple[str, ...]:
    values = {"host": seen.host, "address": seen.address, "reason": reason, "since": since}
    entry = ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())
    return ("out_of_service:", f"  - {{{entry}}}")


def _steps_off(seen: Seen) -> Iterator[str]:
    if seen.entry is None:
        yield "add these lines to the spec"
    if seen.gone:
        return
    yield _render(seen)
    twice = ": its instances keep their GPUs. Before 2025.2, restart it once more when the GPU is free"
    yield f"restart nova-compute of {seen.host}{twice if seen.in_use else ' now'}"
    again = "run this command again" if seen.gpu else "run this command again with --config-file"
    yield f"{again}: it reports whether Nova still has the GPU, and opens the host if no reason is left"
    if seen.gpu is not None and seen.gpu.dev_type == MDEV:
        yield (
            "Placement keeps the provider of the card: this command reserves it. If it is still reserved after five"
            " minutes, nova-compute does not offer its vGPUs: open the host with --no-disable-service"
        )


def _render(seen: Seen) -> str:
    part = "configuration" if seen.gpu is not None and seen.gpu.dev_type == MDEV else "device_spec"
    command = f"gpustack nova render {shlex.join(seen.sources)} --service compute"
    return f"render and install the {part} of {seen.host}: {command}, or the playbook nova.yml"


def enable(seen: Seen, *, take_over: bool = False) -> OutagePlan:
    """Plan to bring a GPU back. The reservation is ended explicitly: a provider that survived keeps it.

    :param take_over: whether to release a reservation of somebody else.
    """
    key = gpu_reason(seen.address)
    findings: list[Finding] = []
    operations: list[CloudChange] = []
    question = ""
    inventory, record = seen.inventory, seen.reserved_by
    if seen.entry:
        findings.append(finding(Code.STILL_OUT_OF_SERVICE, place=seen.place, reason=seen.entry.why))
    elif inventory is not None and any(inventory.reserved.values()) and not seen.card:
        before = record.change.seen if record and isinstance(record.change.seen, dict) else {}
        if record or take_over:
            operations.append(reservation(seen.place, inventory, before, why="back in service"))
            amounts = (f"{name} {of} of {inventory.totals[name]}" for name, of in sorted(inventory.reserved.items()))
            question = "" if record else f"{seen.place}: reserved by {seen.reserved_for} ({', '.join(amounts)}). "
        else:
            by, host, address = seen.reserved_for, seen.host, seen.address
            findings.append(finding(Code.RESERVED_BY_OTHERS, place=seen.place, by=by, host=host, address=address))
    if seen.closed and not seen.entry:
        operations.append(reason_change(seen.service, key, "", close=False, why="back in service"))
    left = seen.reasons if seen.entry else seen.reasons.minus(key)
    return OutagePlan(
        operations=tuple(operations),
        findings=tuple(findings),
        steps=tuple(_steps_on(seen)),
        state=_state(seen),
        left=str(left),
        question=question,
    )


def _steps_on(seen: Seen) -> Iterator[str]:
    if seen.entry is not None:
        yield "remove the entry from out_of_service in the spec"
    elif seen.card and seen.reserved:
        yield f"release its card: gpustack gpu enable {shlex.join((seen.host, seen.card))}"
    if seen.gpu is None:
        yield _render(seen)
        yield f"restart nova-compute of {seen.host}"
        yield f"run this command again{'' if seen.gone else ' with --config-file'}: it reports whether Nova has the GPU"


def _state(seen: Seen) -> str:
    if seen.gone:
        return "out of service: Nova does not have the GPU"
    if seen.reserved:
        by = f" by {seen.reserved_for or seen.reserved_by}"
        return f"in use, reserved{by} for when it becomes free" if seen.in_use else f"reserved{by}"
    if seen.gpu is None:
        return "unknown: only Nova's databases (--config-file) show a GPU that has no provider of its own in Placement"
    return "in use" if seen.in_use else seen.gpu.state.value
