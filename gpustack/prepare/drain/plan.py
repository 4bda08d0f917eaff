"""The plan for one host: steps, what to wait for, instances that are left as they are, and findings."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpustack.base.findings import Finding, errors, report_lines
from gpustack.base.operations import Operation
from gpustack.base.text import in_lines
from gpustack.prepare.drain.instances import Note, Treatment, Wait


@dataclass(frozen=True, kw_only=True)
class ServicePlan:
    """The plan for one host in Nova.

    :param host: the inventory's name.
    :param title: the purpose of the plan.
    :param steps: in the order in which they are carried out.
    :param waits: conditions to wait for, one sentence each.
    :param notes: instances that are left as they are, and why.
    :param findings: an error finding blocks the plan.
    """

    host: str
    title: str
    steps: tuple[Operation, ...] = ()
    waits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether an error finding blocks the plan."""
        return bool(errors(self.findings))

    @property
    def todo(self) -> bool:
        """Whether there are steps or waits."""
        return bool(self.steps or self.waits)

    def to_dict(self) -> dict[str, object]:
        return {
            "host": self.host,
            "refused": self.refused,
            "steps": [step.to_dict() for step in self.steps],
            "waits": list(self.waits),
            "notes": list(self.notes),
            "findings": [finding.to_dict() for finding in self.findings],
        }


def plan_of(host: str, title: str, treatments: Iterable[Treatment]) -> ServicePlan:
    """The plan of treatments, in their order."""
    every = list(treatments)
    return ServicePlan(
        host=host,
        title=title,
        steps=tuple(entry for entry in every if isinstance(entry, Operation)),
        waits=tuple(dict.fromkeys(str(entry) for entry in every if isinstance(entry, Wait))),
        notes=tuple(str(entry) for entry in every if isinstance(entry, Note)),
        findings=tuple(entry for entry in every if isinstance(entry, Finding)),
    )


def show(plan: ServicePlan) -> str:
    """Return the plan as text."""
    return in_lines(_lines(plan))


def _lines(plan: ServicePlan) -> Iterator[str]:
    if plan.refused:
        yield f"{plan.host}: {plan.title}: refused"
    elif plan.todo:
        yield f"{plan.host}: {plan.title}:"
    else:
        yield f"{plan.host}: {plan.title}: nothing to do"
    steps = () if plan.refused else plan.steps
    for number, step in enumerate(steps, 1):
        yield f"    {number}. {step.line}"
        if step.why:
            yield f"       ({step.why})"
    yield from (f"    wait: {wait}" for wait in plan.waits)
    yield from (f"    leave: {note}" for note in plan.notes)
    for group in report_lines(plan.findings):
        yield from ("", *(f"  {line}" for line in group))
