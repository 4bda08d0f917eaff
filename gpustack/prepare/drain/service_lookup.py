"""Find the nova-compute service of an inventory host: only by equal names, never by similar names."""

from collections.abc import Collection, Sequence

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.hostnames import same, short
from gpustack.base.text import listed
from gpustack.cloud.compute import Service

_SHOWN = 8


def find_service(
    host: str, own_name: str | None, wanted: str, services: Sequence[Service], others: Collection[str] = ()
) -> tuple[Service | None, tuple[Finding, ...]]:
    """Return the service of a host; None if Nova has none, or if it is ambiguous.

    The host's own name alone never decides, because a host can report any name. It must have the inventory's short
    name, and no other host may claim the service.

    :param host: the inventory's name.
    :param own_name: the host's own name, which nova-compute uses by default; None if unknown.
    :param wanted: the name that the operator gave; empty to compare the two others.
    :param others: the operator's names of all other hosts.
    :returns: the service, and the findings that block its use.
    """
    if wanted:
        chosen = [service for service in services if service.host == wanted]
        if len(chosen) != 1:
            known = listed(sorted(service.host for service in services), _SHOWN) or "none"
            return None, (finding(Code.COMPUTE_HOST_UNKNOWN, place=host, wanted=wanted, known=known),)
        return _unless_claimed(host, chosen[0], [other for other in others if same(other, wanted)])
    matching = [service for service in services if same(service.host, host) or same(service.host, own_name or host)]
    if len(matching) == 1:
        (service,) = matching
        if short(service.host) == short(host):
            return _unless_claimed(host, service, [other for other in others if _claims(other, service.host, host)])
        own = finding(Code.COMPUTE_HOST_BY_OWN_NAME, place=host, own_name=own_name, service=service.host)
        return None, (own,)
    heads = {short(name) for name in (host, own_name) if name}
    alike = [service.host for service in matching or services if short(service.host) in heads]
    if not alike:
        return None, ()
    called = own_name if own_name and own_name != host else "the same"
    return None, (
        finding(Code.COMPUTE_HOST_AMBIGUOUS, place=host, own_name=called, alike=listed(sorted(alike), _SHOWN)),
    )


def _unless_claimed(
    host: str, service: Service, claimants: Sequence[str]
) -> tuple[Service | None, tuple[Finding, ...]]:
    if not claimants:
        return service, ()
    claimed = finding(
        Code.COMPUTE_HOST_OF_OTHERS, place=host, service=service.host, others=listed(sorted(claimants), _SHOWN)
    )
    return None, (claimed,)


def _claims(other: str, service: str, host: str) -> bool:
    """Whether another host may have a service; the full names are compared if the service has the inventory's name."""
    return same(other, service) if same(host, service) else short(other) == short(service)
