"""Glance's images: list, read and change them.

Glance has properties and fields of an image at the same level. A change is a JSON patch, which Glance carries out
completely or not at all.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote

from gpustack.cloud import Connection
from gpustack.cloud.session import find, listing, request, translated_errors, well_formed
from gpustack.spec.reclaim import SERVER_PATTERN

OS_TYPE, WINDOWS = "os_type", "windows"
TRUE = ("1", "t", "true", "on", "y", "yes")
_RESEMBLES_WINDOWS = re.compile(r"windows|(?<![a-z])win[-_ ]?(?:\d|server)", re.IGNORECASE)
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_PATCH = "application/openstack-images-v2.1-json-patch"
_FORBIDDEN = "images are changed by their project or by administrators: use a cloud of clouds.yaml with that role"
_FIELDS = frozenset(("id", "name", "owner", "status", "visibility", "min_disk", "min_ram", "size", "virtual_size"))


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image.

    :ivar owner: the id of its project.
    :ivar min_disk: the least root disk in GiB; 0 for any.
    :ivar min_ram: the least memory in MiB; 0 for any.
    :ivar size: bytes in Glance's store; 0 if unknown.
    :ivar virtual_size: bytes of the disk that the image describes; 0 if unknown.
    :ivar properties: all other properties, such as ``hw_machine_type``.
    """

    id: str
    name: str
    status: str = "active"
    visibility: str = "public"
    owner: str = ""
    min_disk: int = 0
    min_ram: int = 0
    size: int = 0
    virtual_size: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def os_type(self) -> str | None:
        """The type of the operating system. Nova compares it with ``windows`` exactly, in lower case."""
        return self.properties.get(OS_TYPE)

    @property
    def resembles_windows(self) -> bool:
        """Whether a property or the name suggests Windows."""
        distribution = self.properties.get("os_distro", "")
        return (self.os_type or "").lower() == WINDOWS or any(
            _RESEMBLES_WINDOWS.search(text) for text in (distribution, self.name)
        )

    @property
    def architecture(self) -> str | None:
        """The processor architecture, by the name that the kernel uses; None if the image does not have it."""
        name = self.properties.get("hw_architecture") or self.properties.get("architecture")
        return _ARCHITECTURES.get(name.lower(), name.lower()) if name else None

    def is_meant(self, refs: Iterable[str], project: str) -> bool:
        """Whether an id, a name or a pattern means the image.

        Names and patterns mean public images and those of one's own project: others can name theirs at will.

        :param project: the id of the own project; empty if unknown.
        """
        own = self.visibility == "public" or (bool(project) and self.owner == project)
        return any(ref == self.id or (own and (ref == self.name or fnmatchcase(self.name, ref))) for ref in refs)

    def is_true(self, name: str) -> bool | None:
        """The value of a boolean property, by oslo.utils' rules; None if the image does not have it."""
        value = self.properties.get(name)
        return None if value is None else value.strip().lower() in TRUE


class ImageCloud:
    """The images of a cloud."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def project(self) -> str:
        """Return the id of the own project; empty if the user has none."""
        with translated_errors("sign in"):
            return str(self._connection.session.get_project_id() or "")

    def images(self, refs: Iterable[str] = ()) -> tuple[Image, ...]:
        """List all images that the user may see: one request for each thousand.

        :param refs: names and ids. Images that no list has, such as hidden ones, are read by their ids.
        :raises CloudError: if they cannot be listed.
        """
        doing = "list images"
        entries = listing(self._connection, "image", "/images?visibility=all", "images", doing)
        with well_formed(doing):
            images = tuple(map(parsed, entries))
        absent = {ref for ref in refs if re.fullmatch(SERVER_PATTERN, ref)} - {image.id for image in images}
        return (*images, *filter(None, map(self.image, sorted(absent))))

    def image(self, image_id: str) -> Image | None:
        """Return one image; None if it does not exist.

        :raises CloudError: if it cannot be read.
        """
        doing = "read an image"
        content = find(self._connection, "image", f"/images/{quote(image_id, safe='')}", doing)
        with well_formed(doing):
            return None if content is None else parsed(content)

    def change(
        self, image_id: str, name: str, before: Mapping[str, str | None], after: Mapping[str, str | None]
    ) -> None:
        """Set and remove properties.

        :param name: the name of the image, for messages.
        :param before: the present values; None for missing properties.
        :param after: the new values; None removes a property.
        :raises CloudError: if Glance cannot be reached or refuses.
        """
        body = [_step(key, value, before[key]) for key, value in after.items()]
        path, doing = f"/images/{quote(image_id, safe='')}", f"change {name}"
        headers = {"Content-Type": _PATCH}
        request(self._connection, "image", "PATCH", path, doing, body=body, headers=headers, forbidden=_FORBIDDEN)


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
        owner=str(entry.get("owner") or ""),
        min_disk=int(entry.get("min_disk") or 0),
        min_ram=int(entry.get("min_ram") or 0),
        size=int(entry.get("size") or 0),
        virtual_size=int(entry.get("virtual_size") or 0),
        properties={key: value for key, value in entry.items() if key not in _FIELDS and isinstance(value, str)},
    )
