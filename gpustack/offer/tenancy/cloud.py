"""The state of a cloud that tenancy compares."""

from gpustack.cloud import Connection, compute, placement
from gpustack.cloud.servers import listing
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.offer.tenancy.model import MARK, Present, is_ours


def present(connection: Connection, trait: str, *, flavors: tuple[PresentFlavor, ...] | None = None) -> Present:
    """Read the state of a cloud, for this trait and those of earlier specs.

    :param flavors: the flavors of the cloud; None reads no instances either.
    :raises CloudError: if Nova or Placement cannot be reached or refuses.
    """
    known = compute.aggregates(connection)
    ours = [aggregate for aggregate in known if is_ours(aggregate)]
    traits = {trait, *(aggregate.metadata[MARK] for aggregate in ours)}
    return Present(
        aggregates=tuple(known),
        nodes=tuple(compute.hypervisors(connection)),
        bearers={name: placement.bearers(connection, name) for name in sorted(traits)},
        members={
            aggregate.name: frozenset(p.uuid for p in placement.listed(connection, f"member_of={aggregate.uuid}"))
            for aggregate in ours
        },
        flavors=flavors or (),
        servers=() if flavors is None else listing(connection).servers,
    )
