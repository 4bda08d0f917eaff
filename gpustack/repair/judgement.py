"""A case: rows of a compute node that one rule examines, with the checks that all rules share."""

from dataclasses import dataclass
from typing import Any

from gpustack.novadb.clock import Clock, HostState
from gpustack.novadb.model import PciRow
from gpustack.novadb.view import NodeView, Owner
from gpustack.repair.evidence import doubts, evidence_lines, fresh, in_flight, owner_of
from gpustack.repair.verdict import Status, Verdict

_NO_SERVICE = (
    "this compute node has no service, and Nova deletes both at once, so a record is wrong: start nova-compute, or "
    "stop it and add --stopped"
)
_OTHERS_SERVICE = (
    "another service has written this compute node, so a record is wrong: start nova-compute, or correct services.host"
)
_WRONG_TIME = (
    "its last report is yet to come, or more than 15 minutes old, or the row of services was last written before it: "
    "the clocks differ, or a value is wrong (service_down_time too)"
)


def about(klass: str, title: str, view: NodeView, clock: Clock) -> dict[str, Any]:
    """Return the fields of a verdict on a compute node, or on its rows: its class, cell, host, node and host state."""
    names = {"cell": view.cell, "host": view.node.host or "", "node": view.node.hypervisor_hostname or ""}
    return {"klass": klass, "title": title, **names, "host_state": view.host_state(clock)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Rows (usually one) of a compute node that the rule of class ``klass`` examines."""

    klass: str
    title: str
    view: NodeView
    clock: Clock
    rows: tuple[PciRow, ...]

    @property
    def owner(self) -> Owner | None:
        """The owner of the rows; None if they name none."""
        return owner_of(self.view, self.rows[0])

    @property
    def host_state(self) -> HostState:
        return self.view.host_state(self.clock)

    @property
    def up(self) -> bool:
        """Whether nova-compute runs, and so holds these rows in its memory."""
        return self.host_state is HostState.UP

    def held_back(self) -> Verdict | None:
        """Return a verdict if the owner is unknown or work is under way; None if the rule can decide."""
        unknown = doubts(self.owner)
        if unknown:
            return self.verdict(Status.UNDECIDED, "; ".join(unknown))
        early = [reason for row in self.rows for reason in fresh(self.view, row, self.clock)]
        protected = [*in_flight(self.owner), *early]
        if protected:
            return self.verdict(Status.PROTECTED, "; ".join(dict.fromkeys(protected)))
        if self.host_state is HostState.UNKNOWN:
            times = _OTHERS_SERVICE if self.view.others_service else _WRONG_TIME
            reason = self.clock.doubt or (_NO_SERVICE if self.view.service is None else times)
            return self.verdict(Status.UNDECIDED, f"the state of nova-compute there is unknown: {reason}")
        return None

    def judged(self, status: Status, because: str, **more: Any) -> Verdict:  # noqa: ANN401 - fields of a verdict
        """Return the verdict of :meth:`held_back`; if the rule can decide, that of :meth:`verdict`."""
        return self.held_back() or self.verdict(status, because, **more)

    def verdict(self, status: Status, because: str, **more: Any) -> Verdict:  # noqa: ANN401 - fields of a verdict
        """Return a verdict of this class with all evidence of the rows."""
        evidence = [line for row in self.rows for line in evidence_lines(self.view, row, self.clock)]
        return Verdict(
            **about(self.klass, self.title, self.view, self.clock),
            status=status,
            rows=self.rows,
            owner=self.rows[0].instance_uuid,
            evidence=tuple(dict.fromkeys(evidence)),
            because=because,
            **more,
        )
