"""The proof that a host is what its spec says, from the facts of the running host and its initramfs images."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpustack.facts.model import Host
from gpustack.findings import Finding, Severity
from gpustack.host.decide.desired import desire
from gpustack.host.prove import checks
from gpustack.host.prove.checks import HostCheck, Images
from gpustack.spec.hosts import options_for
from gpustack.spec.model import Spec


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Every check with what it saw, and the findings that stand against the host.

    :ivar gpus: how many GPUs are passed through.
    """

    host: str
    checks: tuple[HostCheck, ...]
    findings: tuple[Finding, ...]
    gpus: int = 0

    @property
    def passed(self) -> bool:
        """Whether no error finding stands against the host."""
        return not any(found.severity is Severity.ERROR for found in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The verification as plain data, for JSON."""
        return {
            "host": self.host,
            "passed": self.passed,
            "gpus": self.gpus,
            "checks": [check.to_dict() for check in self.checks],
            "findings": [found.to_dict() for found in self.findings],
        }


def verify_next(spec: Spec, host: Host) -> Verification:
    """Check before a reboot that the boot entries, and what those of kernels to come are made from, are right."""
    desired = desire(spec, host)
    done = (*checks.menu(host, desired), *checks.future(host, desired)) if desired.targets.all else ()
    return _verification(host, done, ())


def verify_host(spec: Spec, host: Host, initramfs: Images | None, *, trial: bool = False) -> Verification:
    """Check everything that has to be so for guests to have the GPUs.

    :param initramfs: by kernel release what :func:`gpustack.linux.initramfs.read_initramfs` found in its image, or
        ``{"error": reason}``; None when no image was read, which then is not proved.
    :param trial: whether this boot is a trial, and what is for good is not to be proved yet: menu and initramfs.
    """
    desired = desire(spec, host)
    done: list[HostCheck] = []
    if desired.targets.all:
        done += checks.iommu(host, options_for(spec, host.hostname))
        done += checks.arguments(host, desired)
        if not trial:
            done += checks.not_in_trial(host)
            done += checks.menu(host, desired)
            done += checks.files(host, desired)
            done += checks.future(host, desired)
            done += checks.initramfs(host, desired, initramfs)
        for target in desired.targets.all:
            done += checks.gpu(host, target)
    done += checks.addresses(host, desired)
    return _verification(host, done, desired.findings, gpus=len(desired.targets.gpus))


def _verification(host: Host, done: Iterable[HostCheck], others: Iterable[Finding], *, gpus: int = 0) -> Verification:
    checked = tuple(done)
    found = [*others, *(check.finding for check in checked if check.finding is not None)]
    return Verification(
        host=host.hostname,
        checks=checked,
        findings=tuple(sorted(found, key=lambda f: (-f.severity.rank, f.code, f.place))),
        gpus=gpus,
    )
