"""A proxy on loopback that counts requests, delays them, and drops connections at a chosen one."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NEVER = 10**9
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "proxy-connection"}


@dataclass
class Traffic:
    """The traffic through all proxies that share it, and the faults to apply.

    :ivar dies_at: the number of the request (from 0) whose connection is dropped.
    :ivar carried_out: whether that request, or the one at ``fails_at``, reaches the service: only its answer is lost.
    :ivar comes_back: whether later requests are answered again.
    :ivar fails_at: the number of the request that is answered with ``status``; it is carried out if ``carried_out``.
    :ivar silent_at: the number of the request that gets no answer before the client ends the connection.
    :ivar latency: additional seconds for each request.
    """

    requests: list[str] = field(default_factory=list)
    dies_at: int = NEVER
    carried_out: bool = False
    comes_back: bool = True
    fails_at: int = NEVER
    status: int = 500
    silent_at: int = NEVER
    latency: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, line: str) -> int:
        with self._lock:
            self.requests.append(line)
            return len(self.requests) - 1

    def calm(self) -> None:
        """Reset the records and the faults."""
        with self._lock:
            self.requests.clear()
            self.dies_at, self.carried_out, self.comes_back = NEVER, False, True
            self.fails_at = self.silent_at = NEVER

    @property
    def writes(self) -> list[str]:
        """The requests that change something; signing in does not."""
        return [line for line in self.requests if not line.startswith("GET") and "/auth/tokens" not in line]


@contextlib.contextmanager
def proxy(port: int, traffic: Traffic) -> Iterator[int]:
    """Yield the port of a proxy for the service on ``port``."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.target, server.traffic = port, traffic
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    target: int
    traffic: Traffic


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.upstream = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=120)

    def finish(self) -> None:
        self.upstream.close()
        with contextlib.suppress(OSError):
            super().finish()

    def _pass_on(self) -> None:
        traffic = self.server.traffic
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        number = traffic.count(f"{self.command} {self.path}")
        if traffic.latency:
            time.sleep(traffic.latency)
        dies = number == traffic.dies_at or (number > traffic.dies_at and not traffic.comes_back)
        if dies and not (number == traffic.dies_at and traffic.carried_out):
            self._die()
            return
        if number == traffic.fails_at:
            if traffic.carried_out:
                self._forward(body)
            self.send_response(traffic.status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if number == traffic.silent_at:
            self.rfile.read(1)  # until the client gives up
            self._die()
            return
        response, content = self._forward(body)
        if dies:
            self._die()
            return
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def _forward(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        for attempt in (1, 2):
            try:
                self.upstream.request(self.command, self.path, body or None, headers)
                response = self.upstream.getresponse()
                return response, response.read()
            except (http.client.RemoteDisconnected, ConnectionError):
                # The service closed an idle connection.
                self.upstream.close()
                if attempt == 2:
                    raise
        raise AssertionError

    def _die(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = _pass_on  # noqa: N815 - http.server's names

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""
