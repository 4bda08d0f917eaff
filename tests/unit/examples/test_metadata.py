"""The demo's request to Nova's metadata API: that of Neutron's agent, for an instance of the cell."""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from gpustack_demo.examples.metadata import main

SECRET = "shared"


class Api(BaseHTTPRequestHandler):
    """A stand-in for Nova's API, which checks the signature in the same way."""

    def do_GET(self) -> None:
        signature = hmac.new(SECRET.encode(), b"u2", hashlib.sha256).hexdigest()
        instance = (self.headers["X-Instance-ID"], self.headers["X-Tenant-ID"])
        good = instance == ("u2", "p1") and self.headers["X-Instance-ID-Signature"] == signature
        self.send_response(200 if good and self.path == "/openstack/latest/vendor_data.json" else 403)
        self.end_headers()
        self.wfile.write(json.dumps({"cloud-init": "#!/bin/sh"}).encode())


def test_the_script_of_an_instance_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = tmp_path / "cell.sqlite"
    with closing(sqlite3.connect(database)) as cell, cell:
        cell.executescript(
            "CREATE TABLE instances (uuid, project_id, display_name, deleted);"
            "INSERT INTO instances VALUES ('u1', 'p1', 'vm1', 7), ('u2', 'p1', 'vm1', 0), ('u3', 'p1', 'vm2', 0);"
        )
    with HTTPServer(("127.0.0.1", 0), Api) as server:
        access = {"database": str(database), "metadata": {"port": server.server_port, "secret": SECRET}}
        path = tmp_path / "demo.json"
        path.write_text(json.dumps(access))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert main([str(path), "vm1"]) == 0
        with pytest.raises(OSError, match="403"):
            main([str(path), "vm2"])
        server.shutdown()
    assert capsys.readouterr().out == "#!/bin/sh\n"
