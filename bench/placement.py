"""Query Placement for the device allocations of a large cloud, concurrently and sequentially.

    .venv/bin/python bench/placement.py [NODES [MILLISECONDS]]

A server on loopback replaces Placement: 2,000 compute nodes with four GPUs each, half of which are allocated. It
answers each request after 5 milliseconds. Limit: with :data:`session.AT_ONCE` concurrent requests, the same requests
take less than half as long.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import limits
import openstack

from gpustack.cloud import placement, session

GPUS = 4


class Standin(BaseHTTPRequestHandler):
    """The two paths of Placement that are used."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: the body would wait for an ACK of the head
    nodes, delay = 2000, 0.005
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Answer after a delay."""
        self.asked.append(self.path)
        time.sleep(self.delay)
        body = json.dumps(self._answer()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self) -> object:
        if self.path == "/":
            links = [{"rel": "self", "href": ""}]
            version = {"id": "v1.0", "min_version": "1.0", "max_version": "1.39", "status": "CURRENT", "links": links}
            return {"versions": [version]}
        if self.path == "/resource_providers":
            roots = [self._provider(f"node-{node}", f"node-{node}") for node in range(self.nodes)]
            devices = [
                self._provider(f"node-{node}_0000:{gpu:02X}:00.0", f"node-{node}")
                for node in range(self.nodes)
                for gpu in range(GPUS)
            ]
            return {"resource_providers": roots + devices}
        taken = self.path.split("/")[2].endswith(("00:00.0", "02:00.0"))
        return {"allocations": {"vm": {"resources": {"CUSTOM_PCI_10DE_11B4": 1}}} if taken else {}}

    def _provider(self, name: str, root: str) -> dict[str, object]:
        return {"uuid": name, "name": name, "root_provider_uuid": root, "generation": 1, "links": []}

    def log_message(self, *_words: object) -> None:
        """Log nothing."""


def main() -> None:
    """Measure, print, and check the limit."""
    Standin.nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    Standin.delay = int(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 0.005
    server = ThreadingHTTPServer(("127.0.0.1", 0), Standin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    cloud = openstack.connect(auth_type="none", endpoint=url, placement_endpoint_override=url)
    took = {}
    for at_once in (1, session.AT_ONCE):
        session.AT_ONCE = at_once
        Standin.asked.clear()
        began = time.perf_counter()
        found = list(placement.providers(cloud))
        took[at_once] = time.perf_counter() - began
        print(f"{at_once} at a time: {len(found)} devices, {len(Standin.asked)} requests, {took[at_once]:.1f} s")
        assert len(found) == Standin.nodes * GPUS
        assert sum(bool(one.held) for one in found) == Standin.nodes * GPUS // 2
    limits.end(limits.check("placement.parallel", took[at_once] / took[1]))


if __name__ == "__main__":
    main()
