"""Checks of Nova's configuration: a registry, and a report in the format of ``nova-status upgrade check``.

A new check is a generator of findings under ``@check(title)`` in the module of its family.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpustack.base.findings import Finding, Severity, worst
from gpustack.configure import providers
from gpustack.configure.installed.verdicts import Verdicts, compared
from gpustack.configure.lint import agreement, aliases, compute, devices, options, projects, scheduling, vendordata
from gpustack.configure.lint.subject import CHECKS, LintSubject
from gpustack.configure.reading import Read, read

FAMILIES = (options, aliases, devices, agreement, scheduling, projects, compute, vendordata)
"""The modules with checks, in the order of the report."""
_WORDS = {Severity.ERROR: "Failure", Severity.WARNING: "Warning"}


@dataclass(frozen=True, kw_only=True)
class LintResult:
    """One line of the report."""

    title: str
    findings: tuple[Finding, ...]

    @property
    def word(self) -> str:
        """``Success``, ``Warning`` or ``Failure``, as in ``nova-status``."""
        gravest = worst(self.findings)
        return _WORDS.get(gravest, "Success") if gravest else "Success"


@dataclass(frozen=True, kw_only=True)
class Report:
    """All lines of the report."""

    results: tuple[LintResult, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for result in self.results for finding in result.findings)


def lint(
    arguments: Sequence[str] | Read, subject: LintSubject, installed: Callable[[], Verdicts] | None = None
) -> Report:
    """Check configurations.

    :param arguments: configurations as on a command line, or those that :func:`read` returned.
    :param subject: the release, and what the spec and the hosts need; without configurations.
    :param installed: waits for the verdicts of an installed Nova, in the order of the configurations.
    :raises UsageError: when an argument is not a configuration.
    """
    configurations = arguments if isinstance(arguments, Read) else read(arguments)
    sources = configurations.sources
    results = [LintResult(title="Files", findings=configurations.unread)]
    if sources:  # If no file could be read, no check has succeeded, so the report lists none.
        computes = (source for source in sources if "compute" in source.services)
        provided = {source.label: providers.read(source.configuration, subject.release) for source in computes}
        results += judged(replace(subject, sources=sources, provided=provided))
    if installed is not None:
        found = tuple(compared(sources, Report(results=tuple(results)).findings, installed()))
        results.append(LintResult(title="Installed Nova", findings=found))
    return Report(results=tuple(results))


def judged(subject: LintSubject) -> tuple[LintResult, ...]:
    """The results of all checks on parsed configurations."""
    by_title: dict[str, dict[Finding, None]] = {}
    order = [family.__name__ for family in FAMILIES]
    for title, run in sorted(CHECKS, key=lambda check: order.index(check[1].__module__)):
        by_title.setdefault(title, {}).update(dict.fromkeys(run(subject)))
    return tuple(LintResult(title=title, findings=tuple(findings)) for title, findings in by_title.items())
