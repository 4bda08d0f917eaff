"""A stand-in for OpenStack's services on a real socket, one of which is slow, silent or breaks off."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_THINGS = {"things": [1]}
TYPES = ("identity", "compute", "placement", "image", "network")
_VERSIONS = {"identity": "/v3", "compute": "/v2.1", "placement": "", "image": "/v2", "network": "/v2.0"}


@dataclass
class Services:
    """The services: each has the beginning of the path at one address, as behind one load balancer.

    :ivar faults: by type of service; ``silent``, ``trickle`` (a byte in ``pause`` seconds), ``trickling headers``,
        ``steady`` (a long answer), ``dies`` (in the first answer), ``busy`` (503 twice), ``lost`` (504 twice),
        ``limited`` (429 twice, with ``retry_after``), ``busy for ever``, ``late``, ``unauthorized``.
    :ivar answers: by the end of the path, without the query.
    :ivar discovered: whether the fault spares the documents of versions.
    :ivar regions: the regions of the catalogue; empty for endpoints without one.
    :ivar requests: the requests of each service, without the documents of versions.
    """

    faults: dict[str, str] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    discovered: bool = True
    regions: tuple[str, ...] = ()
    pause: float = 0.1
    retry_after: str = "0"
    requests: Counter[str] = field(default_factory=Counter)
    url: str = ""
    ended: threading.Event = field(default_factory=threading.Event)
    began: list[tuple[str, float]] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        """The variables that lead a client here."""
        return {
            "OS_AUTH_URL": f"{self.url}/identity/v3",
            **{f"OS_{name}": "x" for name in ("USERNAME", "PASSWORD", "PROJECT_NAME")},
            **{f"OS_{name}_DOMAIN_NAME": "Default" for name in ("USER", "PROJECT")},
        }

    def document(self, service: str) -> dict[str, Any]:
        """The document of versions."""
        url = f"{self.url}/{service}{_VERSIONS[service]}"
        version = {
            "id": _VERSIONS[service].strip("/") or "v1.0",
            "status": "CURRENT",
            "version": "2.96",
            "min_version": "1.0",
            "max_version": "2.96",
            "links": [{"rel": "self", "href": url}],
        }
        return {"versions": [version]} if service == "placement" else {"version": version}

    def token(self) -> dict[str, Any]:
        """The answer to signing in, with the catalogue."""
        person = {"id": "u", "name": "x", "domain": {"id": "default", "name": "Default"}}
        catalogue = [
            {
                "type": service,
                "name": service,
                "endpoints": [
                    {"interface": "public", "url": f"{self.url}/{service}{_VERSIONS[service]}", "id": "e", **region}
                    for region in ([{"region": name} for name in self.regions] or [{}])
                ],
            }
            for service in TYPES
        ]
        times = {"expires_at": "2099-01-01T00:00:00.000000Z", "issued_at": "2020-01-01T00:00:00.000000Z"}
        return {"token": {**times, "methods": ["password"], "user": person, "roles": [], "catalog": catalogue}}


@contextlib.contextmanager
def services(faults: dict[str, str] | None = None, **more: Any) -> Iterator[Services]:
    """Yield running services."""
    offered = Services(faults=faults or {}, **more)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.services = offered
    offered.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield offered
    finally:
        offered.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    services: Services


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _answer(self) -> None:
        offered = self.server.services
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        service = self.path.split("/")[1]
        document = self.path.rstrip("/") == f"/{service}{_VERSIONS[service]}"
        offered.began.append((f"{self.command} {self.path}", time.monotonic()))
        if not document:
            offered.requests[service] += 1
        fault = "" if document and offered.discovered else offered.faults.get(service, "")
        content = json.dumps(
            offered.document(service)
            if document
            else offered.token()
            if self.path.endswith("/auth/tokens")
            else next((of for end, of in offered.answers.items() if self.path.partition("?")[0].endswith(end)), _THINGS)
        ).encode()
        with contextlib.suppress(OSError):
            self._with(fault, content, offered.requests[service])

    def _with(self, fault: str, content: bytes, number: int) -> None:
        offered = self.server.services
        status = 201 if self.path.endswith("/auth/tokens") else 200
        if fault == "silent":
            offered.ended.wait()
            return
        if fault == "late":
            offered.ended.wait(offered.pause)
        if fault == "busy for ever" or (fault == "busy" and number <= 2):
            status, content = 503, b"{}"
        if fault == "lost" and number <= 2:
            status, content = 504, b"<html>"
        if fault == "limited" and number <= 2:
            status, content = 429, b"{}"
        if fault == "unauthorized":
            status, content = 401, b"{}"
        if fault == "steady":
            content = b" " * 20_000 + content
        head = f"HTTP/1.1 {status} as the test wants\r\nContent-Type: application/json\r\nX-Subject-Token: t\r\n"
        head += f"Retry-After: {offered.retry_after}\r\n" if status == 429 else ""
        sent = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
        begin = len(sent) - len(content)
        if fault == "dies" and number <= 2:
            self.wfile.write(sent[:-3])
            self.close_connection = True
        elif fault in ("trickle", "trickling headers"):
            self._slowly(sent, begin if fault == "trickle" else 3, 1)
        elif fault == "steady":
            self._slowly(sent, begin, 1000)
        else:
            self.wfile.write(sent)

    def _slowly(self, sent: bytes, begin: int, size: int) -> None:
        self.wfile.write(sent[:begin])
        for start in range(begin, len(sent), size):
            if self.server.services.ended.wait(self.server.services.pause):
                return
            self.wfile.write(sent[start : start + size])

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - http.server's names

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""
