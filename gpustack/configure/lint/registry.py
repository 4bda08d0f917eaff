"""The registry of checks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpustack.base.findings import Finding
from gpustack.configure.lint.subject import LintSubject

Run = Callable[[LintSubject], Iterator[Finding]]


@dataclass(frozen=True, kw_only=True)
class LintCheck:
    """One check; checks with the same title share a line of the report."""

    title: str
    run: Run


CHECKS: list[LintCheck] = []
"""The checks of all imported modules."""


def check(title: str) -> Callable[[Run], Run]:
    """Register a check under a title; checks with the same title share a line of the report."""

    def added(run: Run) -> Run:
        CHECKS.append(LintCheck(title=title, run=run))
        return run

    return added
