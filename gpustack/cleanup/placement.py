"""Placement, asked for what clean-up needs: devices' resource providers, and who has an allocation of them.

With PCI in Placement each device, or the physical function of virtual ones, is a resource provider called
``<node>_<ADDRESS>`` below the compute node's (``nova/compute/pci_placement_translator.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from gpustack.cleanup.placement_documents import Consumer
from gpustack.cleanup.values import DAMAGE
from gpustack.errors import CloudError

if TYPE_CHECKING:
    from openstack.connection import Connection

VERSION = "1.28"
"""The first with generations of consumers, and with a PUT that takes an empty set of allocations."""

_PROVIDER = re.compile(r".+_([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\Z")


# Placement has no request for the allocations of many providers. So many are asked at a time: fewer than the
# connections that requests keeps open, and few enough for a Placement that serves a cloud meanwhile.
_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class Provider:
    """The resource provider of a device.

    :ivar root: the uuid of the compute node's provider, which is the compute node's own.
    :ivar held: how much each consumer has of it.
    :ivar unread: why Placement does not say who has it.
    """

    uuid: str
    name: str
    root: str
    address: str
    held: Mapping[str, int]
    unread: str | None = None


@dataclass(frozen=True, kw_only=True)
class Known:
    """The devices of :func:`providers`, and the cloud that answers what else is to be known of them."""

    devices: Sequence[Provider]
    cloud: Connection


def providers(cloud: Connection, roots: Iterable[str] | None = None) -> Iterator[Provider]:
    """The devices that Placement knows; all of them, or those below compute nodes.

    One request lists them; then each is asked for its allocations, :data:`_AT_ONCE` at a time. One that is gone
    meanwhile is left out, and one that Placement fails to answer for has the reason in ``unread``.

    :raises CloudError: when Placement can't be asked.
    """
    paths = ["/resource_providers"] if roots is None else [f"/resource_providers?in_tree={uuid}" for uuid in roots]
    _ask(lambda: cloud.placement)  # made when it is first asked for: before several threads do
    pool = ThreadPoolExecutor(max_workers=_AT_ONCE)
    try:
        answers = pool.map(lambda path: get(cloud, path), paths)
        with _well_formed("/resource_providers"):
            devices = [
                Provider(
                    uuid=provider["uuid"],
                    name=provider["name"],
                    root=provider["root_provider_uuid"],
                    address=name[1].lower(),
                    held={},
                )
                for answer in answers
                for provider in answer["resource_providers"]
                if (name := _PROVIDER.match(provider["name"])) and provider["root_provider_uuid"] != provider["uuid"]
            ]
        yield from filter(None, pool.map(lambda device: _with_allocations(cloud, device), devices))
    finally:
        pool.shutdown(cancel_futures=True)


def _with_allocations(cloud: Connection, device: Provider) -> Provider | None:
    path = f"/resource_providers/{device.uuid}/allocations"
    answer = _ask(lambda: cloud.placement.get(path, microversion=VERSION))
    if answer.status_code == 404:
        return None  # the device was removed since it was listed
    if answer.status_code >= 500:
        return replace(device, unread=f"Placement refused to answer: HTTP {answer.status_code}, {path}")
    content = _content(answer, path)
    with _well_formed(path):
        held = content["allocations"]
        return replace(
            device, held={consumer: sum(allocation["resources"].values()) for consumer, allocation in held.items()}
        )


def allocations_of(cloud: Connection, consumer: str) -> Mapping[str, Any]:
    """All allocations of a consumer, with its generation, project and user (none of these when it has none)."""
    path = f"/allocations/{consumer}"
    content = get(cloud, path)
    with _well_formed(path):
        return Consumer.model_validate(content).model_dump(exclude_unset=True)


def put(cloud: Connection, consumer: str, like: Mapping[str, Any], allocations: Mapping[str, Any]) -> bool:
    """Write all allocations of a consumer at once, if it has changed in nothing since it was read.

    :param like: what :func:`allocations_of` said: its generation is what is compared.
    :return: False when Placement refuses (409): the consumer changed meanwhile, or a device is somebody else's.
    :raises CloudError: when it can't be asked, or refuses for another reason.
    """
    written = {uuid: {"resources": dict(allocation["resources"])} for uuid, allocation in allocations.items()}
    body = {
        "allocations": written,
        "consumer_generation": like.get("consumer_generation"),
        "project_id": like["project_id"],
        "user_id": like["user_id"],
    }
    answer = _ask(lambda: cloud.placement.put(f"/allocations/{consumer}", json=body, microversion=VERSION))
    if answer.status_code == 409:
        return False
    if answer.status_code >= 400:
        raise CloudError(f"Placement refused to write allocations: HTTP {answer.status_code}", where=consumer)
    return True


def get(cloud: Connection, path: str) -> Any:  # noqa: ANN401 - JSON
    return _content(_ask(lambda: cloud.placement.get(path, microversion=VERSION)), path)


def _content(answer: Any, path: str) -> Any:  # noqa: ANN401 - a response, and its JSON
    if answer.status_code >= 400:
        raise CloudError(f"Placement refused to answer: HTTP {answer.status_code}", where=path)
    try:
        return answer.json()
    except (ValueError, RecursionError) as error:
        raise CloudError("Placement answered something else than JSON", where=path) from error


@contextmanager
def _well_formed(path: str) -> Iterator[None]:
    """Where an answer is read; what it lacks, or has of another kind, is an error of the cloud's."""
    try:
        yield
    except DAMAGE as error:
        raise CloudError("Placement's answer is not as its API documents it", where=path) from error


def _ask(request: Any) -> Any:  # noqa: ANN401 - a call, and its response
    from keystoneauth1.exceptions import ClientException
    from openstack.exceptions import SDKException

    try:
        return request()
    except (ClientException, SDKException, OSError) as error:
        # Their messages name URLs and reasons, not secrets.
        raise CloudError(f"Placement can't be asked: {error}", remedy="check --os-cloud and its credentials") from None


def stranger(cloud: Connection, consumer: str, provider: Provider) -> tuple[tuple[str, ...], datetime | None]:
    """What Placement knows of a consumer that no cell does, in words, and when its allocations were written."""
    path = f"/allocations/{consumer}"
    answer = _ask(lambda: cloud.placement.get(path, microversion=VERSION))
    consumer_data = _content(answer, path)
    try:
        moment = parsedate_to_datetime(answer.headers["Last-Modified"])
        written = moment.replace(tzinfo=None)  # HTTP's times are UTC
    except (KeyError, TypeError, ValueError):
        written = None
    with _well_formed(path):
        others = len(consumer_data["allocations"].keys() - {provider.uuid})
        project, user = consumer_data.get("project_id"), consumer_data.get("user_id")
    known = (
        f"consumer {consumer} is of project {project}, user {user}",
        f"its allocations, {others} of other providers, were last written {written or 'at an unknown time'} UTC",
    )
    return known, written
