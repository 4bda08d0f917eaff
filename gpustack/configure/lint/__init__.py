"""Checks of Nova's configuration: a registry, and a report in the format of ``nova-status upgrade check``.

A new check is a generator of findings under ``@check(title)`` in the module of its family.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpustack.base.errors import NovaConfigError, TemplateError
from gpustack.base.findings import Code, Finding, Severity, finding, worst
from gpustack.configure import providers
from gpustack.configure.deployment import openstack_helm, rhoso
from gpustack.configure.inspection import documents
from gpustack.configure.installed.verdicts import Verdicts, compared
from gpustack.configure.lint import (
    agreement,
    aliases,
    compute,
    compute_start,
    devices,
    filters,
    networks,
    options,
    packing,
    placement,
    quota,
    tenancy,
    vendordata,
)
from gpustack.configure.lint.registry import CHECKS
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.sources import Source, read_sources, split

FAMILIES = (
    options,
    aliases,
    devices,
    networks,
    agreement,
    filters,
    packing,
    placement,
    quota,
    tenancy,
    compute_start,
    compute,
    vendordata,
)
"""The modules with checks, in the order of the report."""
_TOOLS = (rhoso.sources, openstack_helm.sources)
SUCCESS, WARNING, FAILURE = 0, 1, 2
_RESULTS = {SUCCESS: "Success", WARNING: "Warning", FAILURE: "Failure"}
_CODES = {Severity.ERROR: FAILURE, Severity.WARNING: WARNING}


@dataclass(frozen=True, kw_only=True)
class LintResult:
    """One line of the report."""

    title: str
    findings: tuple[Finding, ...]

    @property
    def code(self) -> int:
        """0, 1 or 2, as in ``nova-status``."""
        gravest = worst(self.findings)
        return _CODES.get(gravest, SUCCESS) if gravest else SUCCESS

    @property
    def word(self) -> str:
        """``Success``, ``Warning`` or ``Failure``."""
        return _RESULTS[self.code]

    def to_dict(self) -> dict[str, object]:
        """The line as plain data."""
        return {"check": self.title, "result": self.word, "findings": [finding.to_dict() for finding in self.findings]}


@dataclass(frozen=True, kw_only=True)
class Report:
    """All lines of the report."""

    results: tuple[LintResult, ...]

    @property
    def code(self) -> int:
        """The code of the most severe result: the exit code of the command."""
        return max((result.code for result in self.results), default=SUCCESS)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for result in self.results for finding in result.findings)


@dataclass(frozen=True, kw_only=True)
class Read:
    """The configurations of a command line, and the findings about those that can't be read."""

    sources: tuple[Source, ...]
    unread: tuple[Finding, ...] = ()


def read(arguments: Sequence[str]) -> Read:
    """Read configurations.

    :param arguments: configurations as on a command line (:mod:`gpustack.configure.sources`).
    :raises UsageError: when an argument is not a configuration.
    """
    sources: list[Source] = []
    unread: list[Finding] = []
    for argument in arguments:
        try:
            sources += _of_tool(argument) or read_sources([argument])
        except TemplateError as error:
            unread.append(finding(Code.JINJA_TEMPLATE, place=error.where or argument, what=error.what))
        except NovaConfigError as error:
            unread.append(
                finding(
                    Code.NOVA_FILE_UNREADABLE,
                    place=error.where or argument,
                    error=error.what,
                    remedy=error.remedy or "check the path",
                )
            )
    return Read(sources=tuple(sources), unread=tuple(unread))


def _of_tool(argument: str) -> list[Source]:
    """The configurations in the YAML resources of RHOSO or the values of OpenStack-Helm; none for any other file."""
    path = Path(split(argument)[1])
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return []
    found = [source for document in documents(path) for tool in _TOOLS for source in tool(path, document)]
    found = [source for source in found if source.configuration.settings]
    if not found:
        problem = "the file holds no settings of Nova for RHOSO or OpenStack-Helm"
        raise NovaConfigError(
            problem, where=str(path), remedy="name the nova.conf that the deployment tool makes of it"
        )
    return found


def lint(arguments: Sequence[str] | Read, subject: LintSubject, installed: Verdicts | None = None) -> Report:
    """Check configurations.

    :param arguments: configurations as on a command line, or those that :func:`read` returned.
    :param subject: the release, and what the spec and the hosts need; without configurations.
    :param installed: the verdicts of an installed Nova, in the order of the configurations.
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
        found = tuple(compared(sources, Report(results=tuple(results)).findings, installed))
        results.append(LintResult(title="Installed Nova", findings=found))
    return Report(results=tuple(results))


def judged(subject: LintSubject) -> tuple[LintResult, ...]:
    """The results of all checks on parsed configurations."""
    by_title: dict[str, dict[Finding, None]] = {}
    order = [family.__name__ for family in FAMILIES]
    for check in sorted(CHECKS, key=lambda c: order.index(c.run.__module__)):
        by_title.setdefault(check.title, {}).update(dict.fromkeys(check.run(subject)))
    return tuple(LintResult(title=title, findings=tuple(findings)) for title, findings in by_title.items())
