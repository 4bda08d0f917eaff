"""Glance's API through openstacksdk, the only module of this package that sends requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gpustack.base.errors import CloudError
from gpustack.cloud.session import raise_refusal, translated_errors
from gpustack.offer.image.change import SetProperties
from gpustack.offer.image.model import Image

if TYPE_CHECKING:
    from openstack.connection import Connection

_PAGE = "1000"
_PATCH = "application/openstack-images-v2.1-json-patch"
_NOT_FOUND = 404
_FORBIDDEN = "images are changed by their project or by administrators: use a cloud of clouds.yaml with that role"
_FIELDS = frozenset(("id", "name", "status", "visibility", "min_disk", "min_ram", "size", "virtual_size"))


class ImageCloud:
    """The images of a cloud.

    :raises CloudError: if the image service cannot be found.
    """

    def __init__(self, connection: Connection) -> None:
        with translated_errors("find the image service"):
            self._image: Any = connection.image
            data = self._image.get_endpoint_data()
        self._where: str | None = data.url if data else None

    def images(self) -> tuple[Image, ...]:
        """List all images that the user may see: one request for each thousand.

        :raises CloudError: if they cannot be listed.
        """
        images: list[Image] = []
        query = {"limit": _PAGE, "visibility": "all"}
        while True:
            answer = self._get("/images", "list images", query)
            try:
                page = [parsed(entry) for entry in answer["images"]]
                more = bool(answer.get("next"))
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                problem = "can't list images: the answer is not from Glance"
                raise CloudError(problem, where=self._where, remedy="see what answers at this address") from error
            images += page
            if not more or not page:
                return tuple(images)
            query = {**query, "marker": page[-1].id}

    def image(self, image_id: str) -> Image | None:
        doing = "read an image"
        with translated_errors(doing):
            answer = self._image.get(f"/images/{quote(image_id, safe='')}")
            if answer.status_code == _NOT_FOUND:
                return None
            raise_refusal(answer, doing, self._where, forbidden=_FORBIDDEN)
            return parsed(answer.json())

    def change(self, operation: SetProperties) -> None:
        doing = f"change {operation.name}"
        patch = [_step(key, value, operation.before[key]) for key, value in operation.after.items()]
        with translated_errors(doing):
            path = f"/images/{quote(operation.image, safe='')}"
            answer = self._image.patch(path, json=patch, headers={"Content-Type": _PATCH})
            raise_refusal(answer, doing, self._where, forbidden=_FORBIDDEN)

    def _get(self, path: str, doing: str, query: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
        with translated_errors(doing):
            answer = self._image.get(path, params=query)
            raise_refusal(answer, doing, self._where, forbidden=_FORBIDDEN)
            return answer.json()


def _step(key: str, after: str | None, before: str | None) -> dict[str, str]:
    path = "/" + key.replace("~", "~0").replace("/", "~1")
    if after is None:
        return {"op": "remove", "path": path}
    return {"op": "add" if before is None else "replace", "path": path, "value": after}


def parsed(entry: Mapping[str, Any]) -> Image:
    """An image of Glance's answer, which has properties and fields at the same level."""
    return Image(
        id=str(entry["id"]),
        name=str(entry.get("name") or ""),
        status=str(entry["status"]),
        visibility=str(entry.get("visibility") or ""),
        min_disk=int(entry.get("min_disk") or 0),
        min_ram=int(entry.get("min_ram") or 0),
        size=int(entry.get("size") or 0),
        virtual_size=int(entry.get("virtual_size") or 0),
        properties={key: value for key, value in entry.items() if key not in _FIELDS and isinstance(value, str)},
    )
