"""Verify that a host has the state that its spec requires, by its facts and its initramfs images."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpustack.base.findings import Code, Finding, errors
from gpustack.hosts.facts.model import Host
from gpustack.prepare.host.desired import desire
from gpustack.prepare.host.prove import checks
from gpustack.prepare.host.prove.checks import HostCheck, Images
from gpustack.prepare.host.tools import in_image_mode
from gpustack.spec.model import Spec, options_for


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of a verification.

    :ivar findings: sorted by severity, most severe first.
    :ivar gpus: the number of GPUs that are passed through.
    """

    host: str
    checks: tuple[HostCheck, ...]
    findings: tuple[Finding, ...]
    gpus: int = 0

    @property
    def passed(self) -> bool:
        """Whether no finding is an error."""
        return not errors(self.findings)

    def to_dict(self) -> dict[str, object]:
        """The verification as plain data, for JSON."""
        return {
            **{name: getattr(self, name) for name in ("host", "passed", "gpus")},
            "checks": [check.to_dict() for check in self.checks],
            "findings": [finding.to_dict() for finding in self.findings],
        }


def verify_next(spec: Spec, host: Host) -> Verification:
    """Check, before a reboot, the boot entries and the files from which entries of future kernels are made."""
    desired = desire(spec, host)
    results = (*checks.menu(host, desired), *checks.future(host, desired)) if desired.targets.exist else ()
    return verification(host, results)


def verify_host(spec: Spec, host: Host, initramfs: Images | None, *, trial: bool = False) -> Verification:
    """Check that a host is ready for passthrough.

    :param initramfs: results of :func:`gpustack.linux.initramfs.read_initramfs`, or ``{"error": reason}``, by kernel
        release; None if no image was read, which is reported.
    :param trial: whether the current boot is a trial; then menu, files and initramfs are not checked.
    """
    desired = desire(spec, host)
    results: list[HostCheck] = []
    if desired.targets.exist:
        results += checks.iommu(host, options_for(spec, host.hostname))
        results += checks.arguments(host, desired)
        if not trial:
            results += checks.not_in_trial(host)
            results += checks.menu(host, desired)
            results += checks.running_boot(host)
            results += checks.files(host, desired)
            results += checks.future(host, desired)
            results += checks.initramfs(host, desired, initramfs)
        for target in desired.targets.all:
            results += checks.gpu(host, target)
    results += checks.virtual_functions(host, desired.targets)
    results += checks.instances(host, desired.targets)
    results += checks.addresses(host, desired)
    # A host that boots an image with gpustack's files is prepared; otherwise the finding says how.
    passed = in_image_mode(host) and not errors(check.finding for check in results if check.finding is not None)
    known = {Code.VGPU_CARD_LEFT_OUT, *([Code.IMAGE_MODE] if passed else [])}  # a check has the first
    others = [found for found in desired.findings if found.code not in known]
    return verification(host, results, others, gpus=len(desired.targets.gpus))


def verification(
    host: Host, results: Iterable[HostCheck], others: Iterable[Finding] = (), *, gpus: int = 0
) -> Verification:
    checked = tuple(results)
    findings = [*others, *(check.finding for check in checked if check.finding is not None)]
    return Verification(
        host=host.hostname,
        checks=checked,
        findings=tuple(sorted(findings, key=lambda f: (-f.severity.rank, f.code, f.place))),
        gpus=gpus,
    )
