"""Which nova-compute service a host of the inventory is: by names that are the same, never by names that look alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpustack.findings import Finding, finding
from gpustack.service.model import Service


def find_service(
    host: str, own_name: str | None, wanted: str, services: Sequence[Service]
) -> tuple[Service | None, tuple[Finding, ...]]:
    """The service of a host; None when Nova has none of it, or when it is not clear.

    :param host: the inventory's name.
    :param own_name: what the host calls itself, which is what nova-compute takes unless told otherwise.
    :param wanted: the name that the operator gave; empty to compare the two others.
    :returns: the service, and the findings that stand against using it.
    """
    if wanted:
        named = [one for one in services if one.host == wanted]
        if len(named) == 1:
            return named[0], ()
        return None, (finding("GPU602", place=host, wanted=wanted, known=_joined(services)),)
    names = {name.casefold() for name in (host, own_name) if name}
    same = [one for one in services if one.host.casefold() in names]
    if len(same) == 1:
        return same[0], ()
    heads = {name.partition(".")[0] for name in names}
    alike = same or [one for one in services if one.host.casefold().partition(".")[0] in heads]
    if not alike:
        return None, ()
    known = own_name if own_name and own_name != host else "the same"
    return None, (finding("GPU603", place=host, own_name=known, alike=_joined(alike)),)


def _joined(services: Iterable[Service]) -> str:
    names = sorted(one.host for one in services)
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "") if names else "none"
