"""Plans and verifications as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpustack.findings import Finding, tellings
from gpustack.host.own_files import ADOPTED
from gpustack.host.plan import HostPlan, PlannedGpu
from gpustack.host.prove.checks import CheckStatus
from gpustack.host.prove.verify import Verification
from gpustack.operations import BindLive, Operation, Reboot, RemoveFile, RunCommand, WriteFile
from gpustack.text import LAYOUT, printable


def show_plan(plan: HostPlan, *, diffs: bool = False) -> str:
    """A host's plan: what goes to guests, what is done and why, and what is worth knowing.

    :param diffs: whether to show what changes in each file.
    """
    lines = [f"{plan.host}: {_summary(plan)}"]
    if plan.gpus:
        lines += [
            "",
            "  Asked for:" if plan.refused else "  For guests:",
            *(f"    {line}" for line in _gpu_lines(plan.gpus)),
        ]
    if plan.operations:
        lines += ["", "  To do:"]
        for number, operation in enumerate(plan.operations, 1):
            lines.append(f"    {number}. {operation.describe()}")
            why = plan.reboot if isinstance(operation, Reboot) else (operation.why,)
            lines += [f"       ({reason})" for reason in why]
            if diffs and isinstance(operation, WriteFile | RemoveFile) and operation.path != ADOPTED:
                lines += [f"       {line}".rstrip() for line in operation.diff().splitlines()]
    lines += _finding_lines(plan.findings)
    return printable("\n".join(lines), keep=LAYOUT)


READY = ("ready for guests", "NOT ready for guests")
"""What is said of a prepared host that passes its verification, and of one that does not."""
BOOTABLE = ("the next boot has its arguments", "the next boot does NOT have its arguments")
UNDONE = ("as it was before gpustack", "NOT as it was before gpustack")
"""What is said of a host that was given back."""


def show_verification(verification: Verification, verdicts: tuple[str, str] = READY) -> str:
    """A verification: every check with what it saw, then what stands against the host."""
    failed = sum(check.status is not CheckStatus.OK for check in verification.checks)
    total = len(verification.checks)
    verdict = verdicts[0] if verification.passed else verdicts[1]
    said = f"{total} checks" + (f", {failed} of them not good" if failed else ", all good")
    lines = [f"{verification.host}: {verdict} ({said})"]
    if verification.checks:
        lines += [""]
    for check in verification.checks:
        place = check.place.removeprefix(verification.host).strip()
        where = f"{place}: " if place else ""
        lines.append(f"  {check.status.value:<7}  {where}{check.what}: {check.seen}")
    lines += _finding_lines(verification.findings)
    return printable("\n".join(lines), keep=LAYOUT)


def _summary(plan: HostPlan) -> str:
    if plan.refused:
        refused = [gpu.address for gpu in plan.gpus if gpu.refused]
        about = f" because of {', '.join(refused)}" if refused else ""
        return f"refused{about}; nothing is done on this host"
    if not plan.operations:
        return "nothing to do"
    return ", ".join(_counted(plan.operations))


def _counted(operations: Iterable[Operation]) -> Iterator[str]:
    operations = tuple(operations)
    for kinds, one, many in (
        ((WriteFile, RemoveFile), "1 file changes", "{} files change"),
        ((RunCommand,), "1 command runs", "{} commands run"),
        ((BindLive,), "1 card is bound at once", "{} cards are bound at once"),
    ):
        count = sum(isinstance(operation, kinds) for operation in operations)
        if count:
            yield one if count == 1 else many.format(count)
    if any(isinstance(operation, Reboot) for operation in operations):
        yield "a reboot is needed"


def _gpu_lines(gpus: Iterable[PlannedGpu]) -> Iterator[str]:
    gpus = tuple(gpus)
    width = max(len(gpu.name) for gpu in gpus)
    for gpu in gpus:
        also = [address for address in gpu.functions if address != gpu.address]
        line = f"{gpu.address}  {gpu.name:<{width}}  {gpu.model} on {gpu.driver}"
        line += f", with {', '.join(also)}" if also else ""
        yield line + (": refused" if gpu.refused else "")


def _finding_lines(findings: Iterable[Finding]) -> list[str]:
    return [line for group in tellings(findings) for line in ("", *(f"  {told}" for told in group))]
