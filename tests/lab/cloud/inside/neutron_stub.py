"""A stub of Neutron: every collection is empty. Nova asks for an instance's ports even when it has no network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer `GET /v2.0/ports` with `{"ports": []}`, and so on; refuse everything that would create something."""
    name = environ["PATH_INFO"].strip("/").partition("/")[2].replace("-", "_")
    reads = environ["REQUEST_METHOD"] == "GET"
    status, body = ("200 OK", json.dumps({name: []}).encode()) if reads else ("501 Not Implemented", b"{}")
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
