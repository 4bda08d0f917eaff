"""Check that nova-api enforces the limits that the spec sets (quotas)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from gpustack.codes import Code
from gpustack.findings import Finding, finding
from gpustack.nova_conf.lint.registry import check
from gpustack.nova_conf.lint.subject import LintSubject
from gpustack.nova_options import releases
from gpustack.nova_options.markers import DROP_IN

DRIVER = releases.option("quota/driver")
_UNIFIED = "nova.quota.UnifiedLimitsDriver"


@check("Limits of projects")
def driver(subject: LintSubject) -> Iterator[Finding]:
    """Only one quota driver reads limits from Keystone."""
    for source in subject.serving("api") if subject.limited else ():
        if all(PurePosixPath(file).name == DROP_IN for file in source.configuration.files):
            continue  # a rendered file, without the operator's own settings
        settings = source.configuration.effective(DRIVER)
        if settings and (settings[-1].unknown or settings[-1].value.strip() == _UNIFIED):
            continue
        state = f"= {settings[-1].value!r}" if settings else "is not set"
        yield finding(Code.UNIFIED_LIMITS_OFF, place=settings[-1].place if settings else source.label, state=state)
