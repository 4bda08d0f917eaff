"""The part of the image API that clients use before they boot a server: the one image of Nova's test double."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_TIME = "2011-01-01T01:02:03Z"
IMAGE = {
    "id": "155d900f-4e14-4e4c-a73d-069cbf4541e6",
    "name": "image",
    "status": "active",
    "visibility": "public",
    "disk_format": "raw",
    "container_format": "bare",
    "size": 25165824,
    "min_ram": 0,
    "min_disk": 0,
    "protected": False,
    "tags": [],
    "created_at": _TIME,
    "updated_at": _TIME,
}
_VERSIONS = {"versions": [{"id": "v2.9", "status": "CURRENT", "links": [{"rel": "self", "href": "/v2/"}]}]}


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The versions, the list of images (also by name), and the image (WSGI)."""
    path = environ["PATH_INFO"].strip("/")
    content: Mapping[str, object] | None = None
    if path in ("", "v2"):
        content = _VERSIONS
    elif path == "v2/images":
        name = next((w[5:] for w in environ.get("QUERY_STRING", "").split("&") if w.startswith("name=")), IMAGE["name"])
        content = {"images": [IMAGE] if name == IMAGE["name"] else []}
    elif path == "v2/images/{}".format(IMAGE["id"]):
        content = IMAGE
    body = json.dumps(content or {}).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start_response("200 OK" if content is not None else "404 Not Found", headers)
    return [body]
