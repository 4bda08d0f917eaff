"""Format plans and verifications as text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpustack.base.findings import Finding, report_lines
from gpustack.base.operations import Reboot, RemoveFile, WriteFile, count, show_counts
from gpustack.base.text import counted, printable
from gpustack.hosts.facts.model import Host
from gpustack.prepare.host.own_files import ADOPTED
from gpustack.prepare.host.plan import HostPlan, PlannedGpu, PlannedShare, plan_host
from gpustack.prepare.host.prove.checks import CheckStatus
from gpustack.prepare.host.prove.verify import Verification
from gpustack.spec.model import Spec
from gpustack.spec.twins import decided_by


@dataclass(frozen=True, kw_only=True)
class ShownPlan:
    """A plan with its texts.

    :ivar text: the plan with the diff of each file.
    :ivar brief: the plan without diffs.
    :ivar kind: the same object for hosts whose plans differ in names and identifiers alone.
    """

    plan: HostPlan
    text: str
    brief: str
    kind: object


def shown_plan(spec: Spec, host: Host, *, adopt: bool, live: bool, trial: int | None) -> ShownPlan:
    """Plan one host and format the plan, once for all equal hosts; the arguments are those of :func:`plan_host`."""

    def decide(spec: Spec, host: Host) -> ShownPlan:
        plan = plan_host(spec, host, adopt=adopt, live=live, trial=trial)
        return ShownPlan(plan=plan, text=show_plan(plan, diffs=True), brief=show_plan(plan), kind=object())

    return decided_by(spec, host, (shown_plan, adopt, live, trial), decide)


def show_plan(plan: HostPlan, *, diffs: bool = False) -> str:
    """Format a plan: GPUs, operations with their reasons, findings.

    :param diffs: whether to show the diff of each file.
    """
    lines = [f"{plan.host}: {_summary(plan)}"]
    if plan.gpus:
        title = "  Requested:" if plan.refused else "  For passthrough:"
        lines += ["", title, *(f"    {line}" for line in _gpu_lines(plan.gpus))]
    if plan.shared:
        lines += ["", "  Shared:", *(f"    {line}" for line in _share_lines(plan.shared))]
    if plan.operations:
        lines += ["", "  To do:"]
        for number, operation in enumerate(plan.operations, 1):
            lines.append(f"    {number}. {operation.describe()}")
            why = plan.reboot if isinstance(operation, Reboot) else (operation.why,)
            lines += [f"       ({reason})" for reason in why]
            if diffs and isinstance(operation, WriteFile | RemoveFile) and operation.path != ADOPTED:
                lines += [f"       {line}".rstrip() for line in operation.diff().splitlines()]
    if plan.next_boot is not None and (plan.refused or not plan.next_boot.is_empty):
        lines += ["", *(f"  {line}" for line in plan.next_boot.show())]
    lines += _finding_lines(plan.findings)
    return "\n".join(printable(line, keep="\t") for line in lines)


READY = ("ready", "NOT ready")
"""The verdicts on a prepared host, passed and failed."""
BOOTABLE = ("the next boot has its arguments", "the next boot does NOT have its arguments")
UNDONE = ("as before gpustack", "NOT as before gpustack")


def show_verification(verification: Verification, verdicts: tuple[str, str] = READY, *, details: bool = True) -> str:
    """Format a verification: the verdict, the checks, the findings.

    :param verdicts: the texts for passed and failed.
    :param details: whether to show all checks if the host passes; checks that are not OK are always shown.
    """
    bad = [check for check in verification.checks if check.status is not CheckStatus.OK]
    counts = [
        *([counted(verification.gpus, "GPU")] if verification.gpus else []),
        counted(len(verification.checks), "check"),
        *([f"{len(bad)} not good"] if bad else []),
    ]
    verdict = verdicts[0] if verification.passed else verdicts[1]
    lines = [f"{verification.host}: {', '.join([verdict, *counts])}"]
    visible = verification.checks if details or not verification.passed else bad
    if visible:
        lines += [""]
    for check in visible:
        place = check.place.removeprefix(verification.host).strip()
        parts = [part for part in (place, check.what, check.seen) if part]
        lines.append(f"  {check.status.value:<7}  {': '.join(parts)}")
    lines += _finding_lines(verification.findings)
    return "\n".join(printable(line, keep="\t") for line in lines)


def _summary(plan: HostPlan) -> str:
    if plan.refused:
        refused = [gpu.address for gpu in plan.gpus if gpu.refused]
        about = f" because of {', '.join(refused)}" if refused else ""
        return f"refused{about}; nothing is changed on this host"
    return ", ".join(show_counts(count(plan.operations))) if plan.operations else "nothing to do"


def _gpu_lines(gpus: Sequence[PlannedGpu]) -> Iterator[str]:
    width = max(len(gpu.name) for gpu in gpus)
    for gpu in gpus:
        also = [address for address in gpu.functions if address != gpu.address]
        line = f"{gpu.address}  {gpu.name:<{width}}  {gpu.model} on {gpu.driver}"
        line += f", with {', '.join(also)}" if also else ""
        yield line + (": refused" if gpu.refused else "")


def _share_lines(cards: Sequence[PlannedShare]) -> Iterator[str]:
    width = max(len(card.name) for card in cards)
    for card in cards:
        purpose = f"of model {card.model}" if card.network is None else f"for network {card.network}"
        yield f"{card.address}  {card.name:<{width}}  {card.shared_as} {purpose}"


def _finding_lines(findings: Iterable[Finding]) -> list[str]:
    return [line for group in report_lines(findings) for line in ("", *(f"  {line}" for line in group))]
