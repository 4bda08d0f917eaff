"""Which nova-compute service a host of the inventory is: by names that are the same, never by names that look alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from gpustack.codes import Code
from gpustack.findings import Finding, finding
from gpustack.hostnames import same, short
from gpustack.maintenance.model import ComputeService


def find_service(
    host: str, own_name: str | None, wanted: str, services: Sequence[ComputeService], others: Collection[str] = ()
) -> tuple[ComputeService | None, tuple[Finding, ...]]:
    """The service of a host; None when Nova has none of it, or when it is not clear.

    A host may lie about its name, so its own name alone never decides: it must have the inventory's short name, and
    no other host may have a claim to the service.

    :param host: the inventory's name.
    :param own_name: what the host calls itself, which is what nova-compute takes unless told otherwise.
    :param wanted: the name that the operator gave; empty to compare the two others.
    :param others: the names that the operator has for all other hosts.
    :returns: the service, and the findings that stand against using it.
    """
    if wanted:
        named = [one for one in services if one.host == wanted]
        if len(named) == 1 and not any(same(other, wanted) for other in others):
            return named[0], ()
        code = Code.COMPUTE_HOST_AMBIGUOUS if len(named) == 1 else Code.COMPUTE_HOST_UNKNOWN
        known = _joined(services)
        return None, (finding(code, place=host, wanted=wanted, own_name=wanted, known=known, alike=_joined(named)),)
    found = [one for one in services if same(one.host, host) or (own_name and same(one.host, own_name))]
    certain = len(found) == 1 and short(found[0].host) == short(host)
    if certain and not any(_claims(other, found[0].host, host) for other in others):
        return found[0], ()
    heads = {short(name) for name in (host, own_name) if name}
    alike = found or [one for one in services if short(one.host) in heads]
    if not alike:
        return None, ()
    called = own_name if own_name and own_name != host else "the same"
    return None, (finding(Code.COMPUTE_HOST_AMBIGUOUS, place=host, own_name=called, alike=_joined(alike)),)


def _claims(other: str, service: str, host: str) -> bool:
    """Whether another host may have a service: one of the inventory's name only by the same name."""
    return same(other, service) if same(host, service) else short(other) == short(service)


def _joined(services: Iterable[ComputeService]) -> str:
    names = sorted(one.host for one in services)
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "") if names else "none"
