"""Choose GPUs by host, model, state, project, user and instance. Pure."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from gpustack.base.hostnames import key
from gpustack.cloud.identity import is_id
from gpustack.fleet.model import Fleet, Gap, Gpu, Source, State


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """What a GPU must match; an empty criterion matches all.

    :ivar models: parts of names of models.
    :ivar projects: ids or names; users too.
    :ivar servers: uuids or names of instances.
    """

    hosts: Collection[str] = ()
    models: Collection[str] = ()
    states: Collection[State] = ()
    projects: Collection[str] = ()
    users: Collection[str] = ()
    servers: Collection[str] = ()

    @property
    def about_holders(self) -> bool:
        """Whether the holders of GPUs must be known, also to compare them with the instances."""
        return bool(self.projects or self.users or self.servers or State.INCONSISTENT in self.states)


def selected(fleet: Fleet, criteria: Criteria) -> Fleet:
    """Return the fleet with the matching GPUs, and the findings about them and their hosts."""
    listed = tuple(gpu for gpu in fleet.gpus if _matches(fleet, gpu, criteria))
    if not fleet.located and set(criteria.states) - {State.ALLOCATED}:
        reason = "without PCI in Placement and without --config-file, only GPUs in use are known"
        fleet = replace(fleet, partial=(*fleet.partial, Gap(source=Source.NOVA, reason=reason)))
    if listed == fleet.gpus:
        return fleet
    chosen = {(gpu.host, gpu.model) for gpu in listed}
    # A host's GPUs that are not listed one by one have neither a state nor a holder.
    counts = () if criteria.states or criteria.about_holders else fleet.counts
    places = {place for gpu in listed for place in (gpu.place, gpu.host)}
    return replace(
        fleet,
        gpus=listed,
        counts=tuple(count for count in counts if (count.host, count.model) in chosen),
        findings=tuple(finding for finding in fleet.findings if finding.place in places),
    )


def _matches(fleet: Fleet, gpu: Gpu, criteria: Criteria) -> bool:
    names = {key(name) for name in criteria.hosts}
    if names and not names & {key(gpu.host), key(gpu.node)}:
        return False
    if criteria.models and not any(model.lower() in gpu.model.lower() for model in criteria.models):
        return False
    if criteria.states and gpu.state not in criteria.states:
        return False
    names_of_servers = {holder.instance: holder.server.name for holder in gpu.holders if holder.server}
    return all(
        not wanted
        or any(
            ref == identity or (ref == known.get(identity) and not is_id(ref))
            for identity in filter(None, identities)
            for ref in wanted
        )
        for wanted, identities, known in (
            (criteria.projects, [holder.project for holder in gpu.holders], fleet.projects),
            (criteria.users, [holder.user for holder in gpu.holders], fleet.users),
            (criteria.servers, [holder.instance for holder in gpu.holders], names_of_servers),
        )
    )
