"""The checks: each has a title, and says what it finds of the configurations that it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpustack.findings import Finding
from gpustack.nova_conf.lint.subject import LintSubject

Run = Callable[[LintSubject], Iterator[Finding]]


@dataclass(frozen=True, kw_only=True)
class LintCheck:
    """One check, as a line of the report."""

    title: str
    run: Run


CHECKS: list[LintCheck] = []
"""Every check of the modules that were imported."""


def check(title: str) -> Callable[[Run], Run]:
    """Add a check to the report under a title; several under one title make one line."""

    def added(run: Run) -> Run:
        CHECKS.append(LintCheck(title=title, run=run))
        return run

    return added
