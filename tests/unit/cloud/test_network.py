"""Which guests have a port that is a device's, out of Neutron's answer as its API reference has it.

A stand-in answers on loopback: no real Neutron was asked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import openstack.config
import openstack.connection
import pytest

from gpustack.cloud.network import Ports, ports_of

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # openstacksdk warns of its own code

PORTS = [
    ("a", "normal", "gpu1"),
    ("a", "direct", "gpu1"),
    ("a", "macvtap", "gpu1"),
    ("a", "direct", "gpu1"),
    ("b", "normal", "gpu1"),
    ("c", "a-type-of-some-day", "gpu1"),
    ("d", "direct", "gpu10"),
]
KINDS = {"a": ("direct", "macvtap"), "c": ("a-type-of-some-day",)}


class Neutron(HTTPServer):
    """Answers with what it is given."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        fields = ("device_id", "binding:vnic_type", "binding:host_id")
        self.answer: Any = {"ports": [dict(zip(fields, port, strict=True)) for port in PORTS]}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Neutron

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        body = json.dumps(self.server.answer).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def neutron() -> Iterator[Neutron]:
    with Neutron() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def connection(**more: str) -> openstack.connection.Connection:
    config = openstack.config.OpenStackConfig(config_files=[], load_envvars=False)
    region = config.get_one(auth_type="none", endpoint="http://127.0.0.1:1/compute", **more)
    return openstack.connection.Connection(config=region)


@pytest.mark.parametrize("path", ["", "/", "/v2.0", "/networking"])
def test_the_ports_of_a_host_in_one_request(neutron: Neutron, path: str) -> None:
    ports = ports_of(connection(network_endpoint_override=neutron.url + path), "gpu1")
    assert ports == Ports(kinds=KINDS)
    (request,) = neutron.asked
    assert urlsplit(request).path == f"{path.rstrip('/').removesuffix('/v2.0')}/v2.0/ports"
    assert parse_qs(urlsplit(request).query)["binding:host_id"] == ["gpu1"]


def test_a_cloud_without_neutron() -> None:
    ports = ports_of(connection(), "gpu1")
    assert (ports.kinds, ports.unknown) == ({}, "")
    assert "no network service" in ports.none


def test_a_neutron_that_refuses_or_is_none(neutron: Neutron) -> None:
    cloud = connection(network_endpoint_override=neutron.url)
    neutron.status, neutron.answer = 403, {"NeutronError": {"message": "not you"}}
    assert ports_of(cloud, "gpu1") == Ports(unknown="can't list the ports of a host: HTTP 403, not you")
    neutron.status, neutron.answer = 200, ["ports"]
    assert "not as the API documents it" in ports_of(cloud, "gpu1").unknown
