"""The host plan: the operations that configure a host as its spec requires. Pure: the input is spec and facts only."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gpustack.base.errors import UsageError
from gpustack.base.findings import Code, Finding, errors, finding
from gpustack.base.operations import BindLive, Operation, RemoveFile, RunCommand, WriteFile
from gpustack.hosts.facts.model import Host
from gpustack.linux.grub import paths as grub_paths
from gpustack.pci import catalogue
from gpustack.prepare.host import support
from gpustack.prepare.host.decide.targets import Targets
from gpustack.prepare.host.decide.virtual_functions import described
from gpustack.prepare.host.desired import Desired, desire
from gpustack.prepare.host.live import bind_live
from gpustack.prepare.host.next_boot import difference as differences
from gpustack.prepare.host.next_boot import reboot as reboots
from gpustack.prepare.host.next_boot import rebuild as boot
from gpustack.prepare.host.next_boot import tpm
from gpustack.prepare.host.next_boot import trial as trials
from gpustack.prepare.host.next_boot.difference import BootDifference
from gpustack.prepare.host.own_files import GRUB, OwnedFile
from gpustack.prepare.host.prior_setup.adopt import adopt as take_over
from gpustack.prepare.host.prior_setup.adopt import with_remedies
from gpustack.prepare.host.tools import family, in_image_mode, update_grub
from gpustack.spec.assignment import Assigned, Shared
from gpustack.spec.model import Spec, options_for
from gpustack.spec.twins import decided_by

_MOOT_WHEN_REFUSED = frozenset(
    {Code.GROUP_NOT_KNOWN_YET, Code.HOST_DRIVER_NOT_BLACKLISTED, Code.BUILT_IN_DRIVER_DISPLACED}
)


@dataclass(frozen=True, kw_only=True)
class PlannedGpu:
    """A GPU (or NVSwitch) of the plan.

    :ivar model: its model in the spec; ``nvswitch`` for a switch.
    :ivar name: the name of the card.
    :ivar functions: the addresses of the functions that are bound together, the main function first.
    :ivar refused: whether an error blocks it.
    """

    address: str
    model: str
    name: str
    driver: str
    functions: tuple[str, ...]
    refused: bool


@dataclass(frozen=True, kw_only=True)
class PlannedShare:
    """A card of the plan that is shared: virtual functions are created of it at boot, for a model or a network."""

    address: str
    name: str
    virtual_functions: int
    shared_as: str
    model: str | None = None
    network: str | None = None


@dataclass(frozen=True, kw_only=True)
class HostPlan:
    """The plan of one host.

    :ivar operations: in the order of execution; empty if the plan is refused.
    :ivar findings: sorted by severity, most severe first.
    :ivar reboot: the reasons for a reboot; empty if none is required.
    :ivar refused: whether an error blocks the plan; then the host is not changed at all.
    :ivar expected: the desired state that verification checks; empty if the plan is refused.
    :ivar trial: the time limit of the trial boot that this plan requests, or of the one that it makes permanent.
    :ivar in_trial: whether a trial boot is running.
    :ivar next_boot: the next boot and its difference to the running system; None if the plan does not change it.
    """

    host: str
    gpus: tuple[PlannedGpu, ...]
    shared: tuple[PlannedShare, ...] = ()
    findings: tuple[Finding, ...]
    refused: bool
    operations: tuple[Operation, ...] = ()
    reboot: tuple[str, ...] = ()
    expected: dict[str, object] = field(default_factory=dict)
    trial: int | None = None
    in_trial: bool = False
    next_boot: BootDifference | None = None

    def to_dict(self) -> dict[str, object]:
        """The plan as plain data, which the playbooks execute."""
        return {
            "host": self.host,
            "refused": self.refused,
            "gpus": [{**asdict(gpu), "functions": list(gpu.functions)} for gpu in self.gpus],
            "shared": list(map(asdict, self.shared)),
            "operations": [operation.to_dict() for operation in self.operations],
            "findings": [f.to_dict() for f in self.findings],
            "reboot": list(self.reboot),
            "expected": self.expected,
            "next_boot": None if self.next_boot is None else self.next_boot.to_dict(),
            "trial": None if self.trial is None else {**trials.document(self.trial), "running": self.in_trial},
        }


def plan_host(spec: Spec, host: Host, *, adopt: bool = False, live: bool = False, trial: int | None = None) -> HostPlan:
    """Plan one host.

    A single error blocks the complete plan, because the GPUs of a host share its files, its initramfs and its reboot.

    :param adopt: whether to adopt hand-made configuration.
    :param live: whether to bind GPUs on the running host, where possible, instead of a reboot.
    :param trial: seconds within which a trial boot of new kernel arguments must be confirmed; None for no trial boot.
        If a trial boot is running, the plan makes its arguments permanent.
    :raises UsageError: for a trial boot without time.
    """
    if trial is not None and trial < 1:
        remedy = "set gpustack_trial_seconds to the time that the host needs to boot and to be verified"
        raise UsageError(f"a trial boot of {trial} s ends before the host has started", remedy=remedy)
    return decided_by(spec, host, (plan_host, adopt, live, trial), functools.partial(_plan, adopt, live, trial))


def _plan(adopt: bool, live: bool, trial: int | None, spec: Spec, host: Host) -> HostPlan:
    draft = _compare(spec, host, adopt=adopt)
    if draft.desired.targets.exist and family(host) is not None and not in_image_mode(host):
        draft = _try_arguments(draft, trial)
        draft = _change_files(draft)
        draft = _bind_live(spec, draft) if live else draft
        draft = _boot_again(draft)
        draft = _prove(spec, draft)
    return _conclude(draft, trial)


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """The intermediate state of a plan.

    :ivar host: the facts, after the adoption of hand-made configuration if requested.
    :ivar taken: the operations that adopt it.
    """

    host: Host
    desired: Desired
    taken: tuple[Operation, ...]
    findings: tuple[Finding, ...]
    trial: int | None = None
    files: tuple[Operation, ...] = ()
    commands: tuple[Operation, ...] = ()
    bound: tuple[BindLive, ...] = ()
    reboot: tuple[str, ...] = ()
    next_boot: BootDifference | None = None

    @property
    def in_trial(self) -> bool:
        return trials.is_running(self.host)

    @property
    def is_settled(self) -> bool:
        """Whether the next boot needs no more changes."""
        return not self.files and not self.commands and self.trial is None

    def having(self, *findings: Finding, **changes: Any) -> _Draft:  # noqa: ANN401 - fields of several types
        """Return a copy with additional findings and changed fields."""
        return replace(self, findings=(*self.findings, *findings), **changes)


def _compare(spec: Spec, host: Host, *, adopt: bool) -> _Draft:
    """Adopt hand-made configuration if requested, and compare the host with the spec."""
    desired = desire(spec, host)
    adopted: tuple[Operation, ...] = ()
    findings: tuple[Finding, ...] = ()
    if adopt and desired.targets.exist:
        adopted, findings, host = take_over(host, desired.by_hand)
        desired = desire(spec, host)
    findings = (*findings, *with_remedies(host, desired.findings, desired.by_hand, adopted=adopt))
    draft = _Draft(host=host, desired=desired, taken=adopted, findings=findings)
    return draft.having(finding(Code.TRIAL_BOOT_RUNNING, place=host.hostname)) if draft.in_trial else draft


def _try_arguments(draft: _Draft, seconds: int | None) -> _Draft:
    """Decide whether a trial boot is necessary: only for new kernel arguments."""
    host, desired = draft.host, draft.desired
    if seconds is None or draft.in_trial or not any(reboots.argument_reasons(host, desired)):
        return draft
    if grub_paths([op.path for op in draft.taken if isinstance(op, WriteFile)]):
        draft = draft.having(finding(Code.TRIAL_WITH_ADOPTION, place=host.hostname))
    files = (*draft.taken, *boot.file_operations(host, desired))
    if desired.entries is None and not any(isinstance(op, WriteFile | RemoveFile) and op.path == GRUB for op in files):
        return draft.having(finding(Code.NOTHING_TO_TRY, place=host.hostname))
    return draft.having(*trials.findings(host), trial=seconds)


def _change_files(draft: _Draft) -> _Draft:
    """Plan the changes of files, and the commands that rebuild initramfs images and the boot menu."""
    host, desired, trial = draft.host, draft.desired, draft.trial
    staged = desired if trial is None else _staged(host, desired, trial)
    files = (*draft.taken, *boot.file_operations(host, staged))
    commands = boot.commands(host, desired, files)
    updates_menu = any(isinstance(op, RunCommand) and op.argv == ("update-grub",) for op in commands)
    if trial is not None and not updates_menu and not trials.has_entry(host, desired):
        commands = (*commands, update_grub("GRUB's menu lacks the entry of the trial"))
    draft = replace(draft, files=files, commands=commands, reboot=reboots.reasons(host, desired))
    draft = draft.having(*support.inexact(host, files))
    return draft.having(*boot.entry_findings(host, desired)) if draft.is_settled else draft


def _bind_live(spec: Spec, draft: _Draft) -> _Draft:
    """Bind GPUs on the running host that would otherwise require a reboot."""
    if not draft.reboot or draft.trial is not None or draft.in_trial or errors(draft.findings):
        return draft
    bound, findings, host = bind_live(draft.host, draft.desired, options_for(spec, draft.host.hostname))
    reboot = reboots.reasons(host, desire(spec, host)) if bound else draft.reboot
    return draft.having(*findings, bound=bound, reboot=reboot)


def _boot_again(draft: _Draft) -> _Draft:
    """Request one more boot, only once, if the host still differs after a boot with the complete configuration."""
    stuck = reboots.stuck(draft.host, draft.desired, draft.reboot) if draft.is_settled and not draft.bound else None
    if stuck is None:
        return draft
    found, files = stuck
    return draft.having(found, files=files)


def _prove(spec: Spec, draft: _Draft) -> _Draft:
    """Compare the next boot with the running one; words of others that it changes block the plan."""
    if not draft.commands and not draft.reboot:
        return draft
    host, desired = draft.host, draft.desired
    options = options_for(spec, host.hostname)
    permanent = () if draft.trial is None else (update_grub("when the trial becomes permanent"),)
    operations, drop_in = (*draft.files, *draft.commands, *permanent), desired.files.get(GRUB)
    after = differences.after(host, operations, None if drop_in is None else drop_in.content)
    change = differences.difference(host, after, operations, accepted=options.boot_changes)
    found = (*differences.findings(host, change, desired), *tpm.findings(host, operations, accepted=options.accept_tpm))
    return draft.having(*found, next_boot=change)


def _conclude(draft: _Draft, seconds: int | None) -> HostPlan:
    """The final plan, without operations if an error blocks it."""
    is_refused = bool(errors(draft.findings))
    findings = [f for f in draft.findings if not is_refused or f.code not in _MOOT_WHEN_REFUSED]
    targets = draft.desired.targets
    plan = HostPlan(
        host=draft.host.hostname,
        gpus=tuple(_planned(draft.host, target, targets, findings) for target in targets.all),
        shared=tuple(map(_shared, targets.shared)),
        findings=tuple(sorted(findings, key=lambda f: (-f.severity.rank, f.code, f.place))),
        refused=is_refused,
        next_boot=draft.next_boot,
    )
    if is_refused:
        return plan
    last = (reboots.reboot(draft.reboot, draft.trial),) if draft.reboot else ()
    return replace(
        plan,
        operations=(*draft.files, *draft.commands, *draft.bound, *last),
        reboot=draft.reboot,
        expected=draft.desired.to_dict(),
        trial=seconds or 0 if draft.in_trial else draft.trial,
        in_trial=draft.in_trial,
    )


def _staged(host: Host, desired: Desired, seconds: int) -> Desired:
    """The desired state during the trial: GRUB's drop-in unchanged, plus the files of the trial."""
    files = {path: file for path, file in desired.files.items() if path != GRUB}
    if (current := host.files.get(GRUB)) is not None:
        files[GRUB] = OwnedFile(content=current.text, mode=current.mode, why="")
    if desired.next_line is not None:  # an unknown one blocks the plan
        files |= trials.files(desired.next_line.text, seconds)
    return replace(desired, files=files)


def _shared(card: Shared) -> PlannedShare:
    function = card.function
    return PlannedShare(
        address=card.address,
        name=catalogue.describe(function.vendor, function.product, function.pci_class),
        virtual_functions=card.count,
        shared_as=described(card),
        **{"network" if card.is_network else "model": card.model},
    )


def _planned(host: Host, target: Assigned, targets: Targets, findings: Iterable[Finding]) -> PlannedGpu:
    blocked = {f.place for f in errors(findings)}
    own_places = {host.at(f.address) for f in target.gpu.functions}
    return PlannedGpu(
        address=target.address,
        model=target.model,
        name=target.gpu.name if not target.is_switch else f"NVIDIA NVSwitch [{target.gpu.main.ids}]",
        driver=target.driver_of(target.gpu.main),
        functions=tuple(f.address for f in target.gpu.functions),
        refused=target.address in targets.refused or not blocked.isdisjoint(own_places),
    )
