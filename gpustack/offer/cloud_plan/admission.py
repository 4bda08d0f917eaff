"""Who may boot on which host, before and after a plan: projects by flavors; where that differs from the spec. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import listed
from gpustack.offer.cloud_plan.access import ANYBODY, AccessState
from gpustack.offer.tenancy.check import accepted
from gpustack.offer.tenancy.model import Wanted, is_ours

Admissions = Mapping[tuple[str, str], frozenset[str]]
"""The projects that Nova admits, by host and id of a flavor; :data:`ANYBODY` for projects that nothing names."""
_SHOWN = 5


def admissions(state: AccessState, projects: frozenset[str]) -> dict[tuple[str, str], frozenset[str]]:
    """Who may boot where, by access to flavors, projects of aggregates, and traits; room and devices do not count."""
    bits = state.bits()
    by_project = dict(state.accepted(projects))
    table = {}
    for flavor, right in state.flavors.items():
        fits = state.fits(right)
        for host, bit in bits.items():
            may = (project for project in projects if right.projects is None or project in right.projects)
            table[host, flavor] = frozenset(project for project in may if by_project[project] & fits & bit)
    return table


def differences(
    before: Admissions, after: Admissions, projects: frozenset[str], names: Mapping[str, str]
) -> Iterator[str]:
    """One line for each host and kind of difference.

    :param names: of flavors and projects, by id.
    """
    groups: dict[tuple[str, frozenset[str], frozenset[str]], list[str]] = {}
    for host, flavor in sorted({*before, *after}):
        old, new = (table.get((host, flavor), frozenset()) for table in (before, after))
        if old != new:
            groups.setdefault((host, old, new), []).append(names.get(flavor, flavor))
    for (host, old, new), flavors in groups.items():
        texts = [in_words(group, projects, names) for group in (old, new)]
        yield f"{host}: {listed(sorted(flavors), _SHOWN)}: {' → '.join(texts)}"


def in_words(group: frozenset[str], projects: frozenset[str], names: Mapping[str, str]) -> str:
    """A set of projects: ``all projects``, ``all projects but …``, ``nobody`` or their names."""
    if group == projects:
        return "all projects"
    shown = sorted(names.get(project, project) for project in (projects - group if ANYBODY in group else group))
    text = listed(shown, _SHOWN)
    return f"all projects but {text}" if ANYBODY in group else text or "nobody"


def deviations(
    state: AccessState, wanted: Wanted, projects: frozenset[str], names: Mapping[str, str]
) -> Iterator[Finding]:
    """Who is refused or admitted on hosts of the spec, other than the spec wants; aggregates of others do not count.

    :param state: after the plan.
    """
    ours = replace(state, aggregates={name: of for name, of in state.aggregates.items() if is_ours(of)})
    table = admissions(ours, projects)
    for host in sorted(wanted.gpu_hosts):
        entries = [entry for entry in wanted.aggregates if host in entry.hosts]
        if not entries or host not in state.hosts:
            continue
        # An isolation that waits has a finding of its own.
        isolated = any(wanted.trait in of.traits for of in ours.aggregates.values() if of.has(host))
        allowed = accepted(wanted, host) or projects
        refused: dict[frozenset[str], list[str]] = {}
        admitted: dict[frozenset[str], list[str]] = {}
        for flavor, right in ours.flavors.items():
            name = names.get(flavor, flavor)
            fits = name in wanted.flavors or not isolated or wanted.trait in right.traits
            want = allowed & (projects if right.projects is None else right.projects) if fits else frozenset()
            has = table[host, flavor]
            refused.setdefault(want - has, []).append(name)
            admitted.setdefault(has - want, []).append(name)
        for code, groups in ((Code.HOST_REFUSES, refused), (Code.HOST_ADMITS, admitted)):
            for group, flavors in groups.items():
                if group:
                    who = in_words(group, projects, names)
                    yield finding(code, place=host, projects=who, flavors=listed(sorted(flavors), _SHOWN))
        if isolated and not any(table[host, flavor] for flavor, right in ours.flavors.items() if right.gpus):
            yield finding(Code.HOST_WITHOUT_FLAVOR, place=host, trait=wanted.trait)
