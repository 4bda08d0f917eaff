"""The host plan: which operations make a host what its spec says. Pure: same spec and facts, same plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from gpustack.codes import Code
from gpustack.facts.model import Host
from gpustack.findings import Finding, Severity, finding
from gpustack.host.boot import reboot as reboots
from gpustack.host.boot import rebuild as boot
from gpustack.host.boot import trial as trials
from gpustack.host.decide.desired import Desired, desire
from gpustack.host.decide.live import bind_live
from gpustack.host.decide.targets import Targets
from gpustack.host.own_files import GRUB, OwnedFile
from gpustack.host.prior_setup.adopt import adopt as take_over
from gpustack.host.prior_setup.remedies import with_remedies
from gpustack.linux.grub import paths as grub_paths
from gpustack.operations import BindLive, Operation, Reboot, RemoveFile, RunCommand, TrialReboot, WriteFile
from gpustack.spec.assignment import Assigned
from gpustack.spec.hosts import options_for
from gpustack.spec.model import Spec

_TAKEN_OVER = "what was set up by hand goes from GRUB's configuration for all boots: take it over without a trial"
_MOOT_WHEN_REFUSED = frozenset(
    {Code.GROUP_NOT_KNOWN_YET, Code.HOST_DRIVER_NOT_BLACKLISTED, Code.BUILT_IN_DRIVER_DISPLACED}
)


@dataclass(frozen=True, kw_only=True)
class PlannedGpu:
    """A GPU (or NVSwitch) of the plan.

    :ivar model: the spec's name for it; ``nvswitch`` for a switch.
    :ivar functions: the addresses of everything that is bound with it, its own first.
    :ivar refused: whether an error finding stands against it.
    """

    address: str
    model: str
    name: str
    driver: str
    functions: tuple[str, ...]
    refused: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {
            "address": self.address,
            "model": self.model,
            "name": self.name,
            "driver": self.driver,
            "functions": list(self.functions),
            "refused": self.refused,
        }


@dataclass(frozen=True, kw_only=True)
class HostPlan:
    """What is to be done on one host.

    :ivar operations: in the order in which they are to be carried out; none when the plan is refused.
    :ivar findings: what is worth knowing, gravest first.
    :ivar reboot: why the host must be rebooted; empty when it need not be.
    :ivar refused: whether an error finding stands against the plan: then nothing at all is done on the host.
    :ivar expected: what must be found on the host once it is right; empty when the plan is refused.
    :ivar trial: the trial boot that this plan asks for, or that is running and that this plan makes permanent.
    :ivar in_trial: whether it is running.
    """

    host: str
    gpus: tuple[PlannedGpu, ...]
    operations: tuple[Operation, ...]
    findings: tuple[Finding, ...]
    reboot: tuple[str, ...]
    refused: bool
    expected: dict[str, Any]
    trial: trials.Trial | None = None
    in_trial: bool = False

    @property
    def changes(self) -> bool:
        """Whether something would be done."""
        return bool(self.operations)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data: what the playbooks carry out."""
        return {
            "host": self.host,
            "refused": self.refused,
            "gpus": [gpu.to_dict() for gpu in self.gpus],
            "operations": [operation.to_dict() for operation in self.operations],
            "findings": [found.to_dict() for found in self.findings],
            "reboot": list(self.reboot),
            "expected": self.expected,
            "trial": None if self.trial is None else {**self.trial.to_dict(), "running": self.in_trial},
        }


def plan_host(spec: Spec, host: Host, *, adopt: bool = False, live: bool = False, trial: int | None = None) -> HostPlan:
    """Plan one host.

    :param trial: whether new kernel arguments are tried first, and then how many seconds the host has to be
        confirmed. In a boot that is a trial already, the plan is the one that makes it permanent.

    One error finding refuses the whole plan, so that nothing is half done: the GPUs of a host share its files, its
    initramfs and its one reboot.

    :param adopt: whether to take over what was set up by hand.
    :param live: whether to bind on the running host what can be bound there, in place of a reboot.
    """
    desired = desire(spec, host)
    taken: tuple[Operation, ...] = ()
    told: tuple[Finding, ...] = ()
    if adopt and desired.targets.all:
        adoption = take_over(host, desired.by_hand)
        host, taken, told = adoption.host, adoption.operations, adoption.findings
        desired = desire(spec, host)
    files = (*taken, *boot.file_operations(host, desired)) if desired.targets.all else ()
    why = reboots.reasons(host, desired) if desired.targets.all else ()
    found = [*told, *with_remedies(host, desired.findings, desired.by_hand, adopted=adopt)]
    in_trial = trials.is_running(host)
    wanted = trials.trial(trial) if trial is not None and not in_trial and _is_for_arguments(host, desired) else None
    if in_trial:
        found.append(finding(Code.TRIAL_BOOT_RUNNING, place=host.hostname))
    if wanted is not None and grub_paths([op.path for op in taken if isinstance(op, WriteFile)]):
        found.append(finding(Code.NO_TRIAL_BOOT, place=host.hostname, why=_TAKEN_OVER))
    if wanted is not None and desired.entries is None and not _changes(files, GRUB):
        found.append(finding(Code.NOTHING_TO_TRY, place=host.hostname))
        wanted = None
    if wanted is not None:
        found += trials.findings(host)
        files = (*taken, *boot.file_operations(host, _staged(host, desired, wanted)))
    commands = boot.commands(host, desired, files) if desired.targets.all else ()
    if wanted is not None and not _updates_menu(commands) and not trials.has_entry(host, desired, wanted):
        commands = (*commands, RunCommand(argv=("update-grub",), why="GRUB's menu lacks the entry of the trial"))
    is_settled = not files and not commands and bool(desired.targets.all) and wanted is None
    if is_settled:
        found += boot.entry_findings(host, desired)
    bound: tuple[BindLive, ...] = ()
    if live and why and wanted is None and not in_trial and not any(f.severity is Severity.ERROR for f in found):
        outcome = bind_live(host, desired, options_for(spec, host.hostname))
        bound = outcome.operations
        found += outcome.findings
        why = reboots.reasons(outcome.host, desire(spec, outcome.host)) if bound else why
    if is_settled and not bound and (stuck := reboots.stuck(host, desired, why)) is not None:
        found.append(stuck.finding)
        files = stuck.files
    refused = any(f.severity is Severity.ERROR for f in found)
    if refused:
        found = [f for f in found if f.code not in _MOOT_WHEN_REFUSED]
    operations: tuple[Operation, ...] = ()
    if not refused:
        operations = (*files, *commands, *bound, *((_reboot(why, wanted),) if why else ()))
    return HostPlan(
        host=host.hostname,
        gpus=tuple(_planned(host, target, desired.targets, found) for target in desired.targets.all),
        operations=operations,
        findings=tuple(sorted(found, key=lambda f: (-f.severity.rank, f.code, f.place))),
        reboot=() if refused else why,
        refused=refused,
        expected={} if refused else desired.to_dict(),
        trial=None if refused else trials.trial(trial or 0) if in_trial else wanted,
        in_trial=in_trial and not refused,
    )


def _reboot(why: tuple[str, ...], wanted: trials.Trial | None) -> Reboot:
    return Reboot(why="; ".join(why)) if wanted is None else TrialReboot(why="; ".join(why), seconds=wanted.seconds)


def _is_for_arguments(host: Host, desired: Desired) -> bool:
    """Whether the running kernel lacks arguments, or has some that go: only those are worth a trial."""
    return bool(desired.targets.all) and bool(tuple(reboots.argument_reasons(host, desired)))


def _changes(files: Iterable[Operation], path: str) -> bool:
    return any(isinstance(op, WriteFile | RemoveFile) and op.path == path for op in files)


def _updates_menu(commands: Iterable[Operation]) -> bool:
    return any(isinstance(op, RunCommand) and op.argv == ("update-grub",) for op in commands)


def _staged(host: Host, desired: Desired, wanted: trials.Trial) -> Desired:
    """What the host shall be for the trial: GRUB's drop-in as it is, and the files of the trial beside it."""
    files = {path: file for path, file in desired.files.items() if path != GRUB}
    if (there := host.files.get(GRUB)) is not None:
        files[GRUB] = OwnedFile(content=there.text, mode=there.mode, why="")
    return replace(desired, files={**files, **trials.files(desired, wanted)})


def _planned(host: Host, target: Assigned, targets: Targets, findings: Iterable[Finding]) -> PlannedGpu:
    against = {f.place for f in findings if f.severity is Severity.ERROR}
    places = {f"{host.hostname} {f.address}" for f in target.gpu.functions}
    return PlannedGpu(
        address=target.address,
        model=target.model,
        name=target.gpu.name if not target.is_switch else f"NVIDIA NVSwitch [{target.gpu.main.ids}]",
        driver=target.driver_of(target.gpu.main),
        functions=tuple(f.address for f in target.gpu.functions),
        refused=target.address in targets.refused or not against.isdisjoint(places),
    )
