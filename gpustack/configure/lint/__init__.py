"""Checks of Nova's configuration: a registry, and a report in the format of ``nova-status upgrade check``.

A new check is a generator of findings under ``@check(title)`` in the module of its family.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gpustack.base.errors import NovaConfigError, TemplateError
from gpustack.base.findings import Code, Finding, Severity, finding, worst
from gpustack.configure import providers
from gpustack.configure.installed.verdicts import Verdicts, compared
from gpustack.configure.instance_shapes import InstanceShape
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
from gpustack.configure.networks import Ports
from gpustack.configure.packing import Advised
from gpustack.configure.sources import Source, read_sources
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.releases import Release
from gpustack.spec.model import Spec
from gpustack.spec.tenancy import Tenancy

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
            sources += read_sources([argument])
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


def lint(
    arguments: Sequence[str] | Read,
    *,
    release: Release,
    hosts: Sequence[Host] = (),
    expected: Collection[str] = (),
    advised: Sequence[Advised] = (),
    shapes: Sequence[InstanceShape] = (),
    limited: bool = False,
    marked: Mapping[str, Mapping[str, int]] | None = None,
    reserved: Tenancy | None = None,
    ports: Mapping[str, Ports] | None = None,
    spec: Spec | None = None,
    restricted: Collection[str] = (),
    installed: Verdicts | None = None,
) -> Report:
    """Check configurations.

    :param arguments: configurations as on a command line, or those that :func:`read` returned.
    :param hosts: the facts of compute hosts, for checks of device_specs.
    :param expected: the aliases of the spec.
    :param advised: the options that the counts of its flavors require.
    :param shapes: the instances of its flavors.
    :param limited: whether the spec has quotas.
    :param marked: the markers that each host needs for its quotas, by its name and marker class.
    :param reserved: which instances its GPU hosts accept.
    :param ports: the virtual functions for ports on each host, by its name.
    :param spec: for the verdicts on the GPUs of ``hosts``.
    :param restricted: the names of flavors that only single projects may use.
    :param installed: the verdicts of an installed Nova, in the order of the configurations.
    :raises UsageError: when an argument is not a configuration.
    """
    configurations = arguments if isinstance(arguments, Read) else read(arguments)
    sources = configurations.sources
    files = LintResult(title="Files", findings=configurations.unread)
    # If no file could be read, no check has succeeded, so the report lists none.
    checked = (
        judged(
            sources,
            release=release,
            hosts=hosts,
            expected=expected,
            advised=advised,
            shapes=shapes,
            limited=limited,
            marked=marked,
            provided=providers.provided(sources) if marked else None,
            reserved=reserved,
            ports=ports,
            spec=spec,
            restricted=restricted,
        )
        if sources
        else ()
    )
    results = (files, *checked)
    if installed is not None:
        found = Report(results=results).findings
        results = (*results, LintResult(title="Installed Nova", findings=tuple(compared(sources, found, installed))))
    return Report(results=results)


def judged(
    sources: Sequence[Source],
    *,
    release: Release,
    hosts: Sequence[Host] = (),
    expected: Collection[str] = (),
    advised: Sequence[Advised] = (),
    shapes: Sequence[InstanceShape] = (),
    limited: bool = False,
    marked: Mapping[str, Mapping[str, int]] | None = None,
    provided: Mapping[str, Mapping[str, int]] | None = None,
    reserved: Tenancy | None = None,
    ports: Mapping[str, Ports] | None = None,
    spec: Spec | None = None,
    restricted: Collection[str] = (),
) -> tuple[LintResult, ...]:
    """The results of all checks on parsed configurations."""
    subject = LintSubject(
        release=release,
        sources=tuple(sources),
        hosts=tuple(hosts),
        expected=frozenset(expected),
        advised=tuple(advised),
        shapes=tuple(shapes),
        limited=limited,
        marked=marked or {},
        provided=provided or {},
        tenancy=reserved,
        ports=ports or {},
        spec=spec,
        restricted=frozenset(restricted),
    )
    by_title: dict[str, dict[Finding, None]] = {}
    order = [family.__name__ for family in FAMILIES]
    for check in sorted(CHECKS, key=lambda c: order.index(c.run.__module__)):
        by_title.setdefault(check.title, {}).update(dict.fromkeys(check.run(subject)))
    return tuple(LintResult(title=title, findings=tuple(findings)) for title, findings in by_title.items())
