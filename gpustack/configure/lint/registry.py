"""The registry of checks."""

from collections.abc import Callable, Iterator

from gpustack.base.findings import Finding
from gpustack.configure.lint.subject import LintSubject

Run = Callable[[LintSubject], Iterator[Finding]]


CHECKS: list[tuple[str, Run]] = []
"""The checks of all imported modules, with their titles."""


def check(title: str) -> Callable[[Run], Run]:
    """Register a check under a title; checks with the same title share a line of the report."""

    def added(run: Run) -> Run:
        CHECKS.append((title, run))
        return run

    return added
