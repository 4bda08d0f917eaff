"""Reasons for closed hosts as changes, for all who close hosts: a reason is added or ended, and the others stay."""

from dataclasses import replace
from typing import Any, ClassVar, Self

from gpustack.changes.change import CloudChange
from gpustack.cloud import Connection, closed, compute
from gpustack.cloud.closed import MAINTENANCE, Reasons
from gpustack.cloud.compute import Service


class ReasonChange(CloudChange):
    """Add a reason to close a host, or end it; the value is whether the host has the reason.

    ``about`` has the host, the reason, its text, and the reasons that stay (``left``).
    """

    kind: ClassVar[str] = "switch_service"
    object_kind: ClassVar[str] = "closed_host"
    undone: ClassVar[str] = "ends the reason, or adds it again; the other reasons stay"
    value: ClassVar[Any] = bool
    described: ClassVar[tuple[str, ...]] = ("host", "reason", "text", "left")

    def describe(self) -> str:
        host, reason, left = self.about["host"], self.about["reason"], self.about["left"]
        if self.wanted:
            return f"disable nova-compute of {host}: {Reasons().plus(reason, self.about['text'])}"
        if left:
            return f"end the reason {reason}; host stays closed: {left}"
        return f"enable nova-compute of {host}: {reason} ended"

    def remaining(self, cloud: Connection) -> Self | None:
        """With the other reasons of now: they decide whether the host opens."""
        host, reason = self.about["host"], self.about["reason"]
        if not compute.services(cloud, host):
            return None
        left = "" if self.wanted else str(closed.reasons_of(closed.service_of(cloud, host)).minus(reason))
        return replace(self, about={**self.about, "left": left})

    def read(self, api: Connection) -> bool:
        return self.about["reason"] in closed.reasons_of(closed.service_of(api, self.about["host"])).own

    def carry_out(self, api: Connection) -> str:
        closed.set_reason(api, self.about["host"], self.about["reason"], self.about["text"] if self.wanted else None)
        return ""

    def permitted(self) -> str:
        return "" if closed.is_reason(self.about["reason"]) else "gpustack has no such reason to close a host"


def reason_change(service: Service, reason: str, text: str, *, close: bool, why: str) -> ReasonChange:
    """The change that adds a reason to a host, or ends it.

    :raises PlanError: if the reasons would not fit in Nova.
    """
    before = closed.reasons_of(service)
    after = before.plus(reason, text) if close else before.minus(reason)
    after.to_text()
    place = service.host if reason == MAINTENANCE else f"{service.host} {reason.removeprefix('GPU ')}"
    return ReasonChange(
        why=why,
        name=f"{place} as a reason to close the host",
        about={
            "host": service.host,
            "reason": reason,
            "text": text or before.own.get(reason, ""),
            "left": "" if close else str(after),
        },
        seen=reason in before.own,
        wanted=close,
    )
