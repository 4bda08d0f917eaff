"""The rules from the section ``reclaim`` of a spec."""

from __future__ import annotations

from collections.abc import Callable

from gpustack.base.errors import SpecError
from gpustack.operate.reclaim.model import Rules
from gpustack.spec.model import Spec
from gpustack.spec.patterns import HostPattern
from gpustack.spec.reclaim import duration, moment


def rules_of(spec: Spec, project_id: Callable[[str], str]) -> Rules:
    """Return the rules of a spec.

    :param project_id: looks up the id of a project by its id or name.
    :raises SpecError: if the spec has no section ``reclaim``.
    :raises gpustack.base.errors.CloudError: if a project can't be looked up.
    """
    section = spec.reclaim
    if section is None:
        raise SpecError(
            "the spec has no section `reclaim`",
            remedy="add reclaim: {projects: [NAME], idle_after: {shutoff: 7d}}",
        )
    states = section.idle_after.model_dump(exclude_none=True)
    return Rules(
        aliases=frozenset(alias for model in spec.models for alias in spec.aliases_of(model)),
        projects=frozenset(map(project_id, section.projects)),
        idle_after={state.upper(): duration(text) for state, text in states.items()},
        grace=duration(section.grace),
        metadata=section.expired,
        expires={server: moment(text) for server, text in section.expires.items()},
        running=section.running,
        hosts=_hosts(spec),
    )


def _hosts(spec: Spec) -> dict[str, tuple[HostPattern, ...]]:
    """The hosts with GPUs of each alias."""
    hosts: dict[str, tuple[HostPattern, ...]] = {}
    for text, entry in spec.hosts.items():
        for alias in {alias for model in entry.models for alias in spec.aliases_of(model)}:
            hosts[alias] = (*hosts.get(alias, ()), HostPattern.parse(text))
    return hosts
