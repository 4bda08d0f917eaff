"""Read Placement: resource providers of devices and their allocations; write the allocations of one consumer.

With PCI in Placement, each device (or the physical function of virtual functions) is a resource provider
``<node>_<ADDRESS>`` below the compute node's provider (``nova/compute/pci_placement_translator.py``).
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

from gpustack.base.errors import CloudError
from gpustack.cloud.placement_documents import Consumer
from gpustack.novadb.values import DAMAGE

if TYPE_CHECKING:
    from openstack.connection import Connection

VERSION = "1.28"
"""The first microversion with consumer generations and with a PUT that accepts no allocations."""

_PROVIDER = re.compile(r".+_([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\Z")


# Placement has no request for the allocations of many providers. This many requests run at a time: fewer than the
# connections that requests keeps open, and few enough for a Placement that serves a cloud meanwhile.
_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class Provider:
    """The resource provider of a device.

    :ivar root: the uuid of the compute node's provider, which equals that of the compute node.
    :ivar address: the BDF address in its name, in lower case.
    :ivar held: the allocated amount, by consumer.
    :ivar unread: why the allocations could not be read; None if they were.
    """

    uuid: str
    name: str
    root: str
    address: str
    held: Mapping[str, int]
    unread: str | None = None


@dataclass(frozen=True, kw_only=True)
class Known:
    """The devices from :func:`providers`, and the cloud for further requests."""

    devices: Sequence[Provider]
    cloud: Connection


def providers(cloud: Connection, roots: Iterable[str] | None = None) -> Iterator[Provider]:
    """Yield the devices that Placement has.

    One request lists them; then the allocations of each are requested, :data:`_AT_ONCE` at a time. A device that was
    removed meanwhile is left out. If Placement fails for one (5xx), ``unread`` has the reason.

    :param roots: only below these compute nodes; None for all.
    :raises CloudError: if Placement cannot be reached or refuses.
    """
    paths = ["/resource_providers"] if roots is None else [f"/resource_providers?in_tree={uuid}" for uuid in roots]
    _ask(lambda: cloud.placement)  # the SDK creates it on first use: not in several threads
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
    """Return the allocations, generation, project and user of a consumer; only an empty ``allocations`` without any.

    :raises CloudError: if Placement cannot be reached or refuses.
    """
    path = f"/allocations/{consumer}"
    content = get(cloud, path)
    with _well_formed(path):
        return Consumer.model_validate(content).model_dump(exclude_unset=True)


def put(cloud: Connection, consumer: str, like: Mapping[str, Any], allocations: Mapping[str, Any]) -> bool:
    """Write all allocations of a consumer atomically, if it has not changed since it was read.

    :param like: the answer of :func:`allocations_of`; Placement compares its generation.
    :return: False if Placement refuses with 409: the consumer changed meanwhile, or the device is allocated or
        reserved.
    :raises CloudError: if Placement cannot be reached, or refuses for another reason.
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
    """Convert the exceptions of reading a malformed answer to a CloudError."""
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
        # Their messages contain URLs and reasons, not secrets.
        raise CloudError(f"Placement can't be asked: {error}", remedy="check --os-cloud and its credentials") from None


def stranger(cloud: Connection, consumer: str, provider: Provider) -> tuple[tuple[str, ...], datetime | None]:
    """Describe a consumer that no cell has, and return when its allocations were last written (naive UTC)."""
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
