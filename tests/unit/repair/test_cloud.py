"""A cloud whose Placement can't be asked: the rows are judged, nothing is written, no password is anywhere."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.cellfile import CellFile, fill, nova_conf

SECRET = "s3cr3t-of-the-cloud"


@contextlib.contextmanager
def answering(status: int) -> Iterator[int]:
    """A Keystone that lets nobody sign in, and a Placement that says so much to whatever it is asked; their port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            port = self.server.server_port  # type: ignore[attr-defined]
            link = {"rel": "self", "href": f"http://127.0.0.1:{port}{self.path}"}
            version = {"id": "v3.14", "status": "stable", "links": [link]}
            microversions = {"id": "v1.0", "min_version": "1.0", "max_version": "1.39", "links": [link]}
            match self.path:
                case "/":
                    self._answer(200, {"versions": [{"status": "CURRENT", **microversions}]})
                case "/v3":
                    self._answer(200, {"version": version})
                case _:
                    self._answer(status, {})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(401, {})

        def _answer(self, code: int, content: object) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@contextlib.contextmanager
def silent() -> Iterator[int]:
    """A server that takes connections and says nothing; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def signed_in(port: int, seconds: int = 120) -> dict[str, object]:
    """An entry of clouds.yaml for which nobody is asked to sign in.

    :param seconds: the time limit of a request.
    """
    url = f"http://127.0.0.1:{port}"
    return {"auth_type": "none", "endpoint": url, "placement_endpoint_override": url, "api_timeout": seconds}


def by_password(port: int) -> dict[str, object]:
    auth = {"auth_url": f"http://127.0.0.1:{port}/v3", "username": "admin", "password": SECRET, "project_name": "p"}
    return {"auth": {**auth, "user_domain_name": "d", "project_domain_name": "d"}, "api_timeout": 120}


CLOUDS = {
    "no Keystone": (lambda: contextlib.nullcontext(1), by_password, "can't list the resource providers"),
    "a Keystone that refuses": (lambda: answering(200), by_password, "401"),
    "a Placement that forbids it": (lambda: answering(403), signed_in, "HTTP 403"),
    "a Placement that says nothing": (
        silent,
        lambda port: signed_in(port, seconds=1),
        "can't list the resource providers",
    ),
}


@pytest.fixture
def cell(tmp_path: Path) -> CellFile:
    cell_file = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    fill(cell_file)
    nova_conf(tmp_path, {"cell1": cell_file.url}, service_down_time=3600)
    return cell_file


def gpustack(directory: Path, action: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpustack", "--debug", "cleanup", action]
    return subprocess.run(
        [*command, "--config-file", str(directory / "nova.conf"), *more],
        timeout=300,
        env={
            **os.environ,
            "OS_CLIENT_CONFIG_FILE": str(directory / "clouds.json"),
            "XDG_STATE_HOME": str(directory / "state"),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("kind", CLOUDS)
def test_a_placement_that_can_not_be_asked(cell: CellFile, tmp_path: Path, kind: str) -> None:
    started, entry, reason = CLOUDS[kind]
    before = cell.dump()
    without = json.loads(gpustack(tmp_path, "plan", "-f", "json").stdout)
    metrics, saved, journal = tmp_path / "prom", tmp_path / "plan.json", tmp_path / "journal"
    counts = tmp_path / "counts"
    with started() as port:
        (tmp_path / "clouds.json").write_text(json.dumps({"clouds": {"mine": entry(port)}}))
        files = ("--metrics", str(metrics), "--out", str(saved))
        planned = gpustack(tmp_path, "plan", "-f", "json", "--os-cloud", "mine", *files)
        options = ("--yes", "--no-hypervisor", "--journal", str(journal), "--os-cloud", "mine")
        applied = gpustack(tmp_path, "apply", *options)
        of_file = gpustack(tmp_path, "apply", str(saved), *options)
        watched = gpustack(tmp_path, "watch", "--metrics", str(counts), "--os-cloud", "mine", "--count", "1")

    # What is said of the rows is what is said without a cloud, and that classes Q and S are not known.
    assert planned.returncode == 21, planned.stderr
    assert reason in planned.stderr
    document = json.loads(planned.stdout)
    assert [verdict for verdict in document if verdict["class"] not in ("Q", "S")] == without
    (undecided,) = (verdict for verdict in document if verdict["class"] == "Q")
    assert (undecided["status"], undecided["cell"], undecided["repair"]) == ("undecided", "cell1", None)
    assert reason in undecided["evidence"][0]
    assert reason in json.loads(saved.read_text())["unasked"]
    assert watched.returncode == 0, watched.stderr
    for text in (metrics.read_text(), counts.read_text()):
        for klass in "QS":
            assert f'class="{klass}",status="undecided"}} 1.0' in text
        assert "gpustack_cleanup_up 0.0" in text
    # Nothing is written by halves: neither from this plan nor from a saved one.
    for process in (applied, of_file):
        assert process.returncode == 21, process.stderr
        assert "nothing was changed" in process.stderr
        assert "omit --os-cloud" in process.stderr
    assert not journal.exists()
    assert cell.dump() == before
    for process in (planned, applied, of_file, watched):
        assert SECRET not in process.stdout + process.stderr
    assert SECRET not in saved.read_text() + metrics.read_text() + counts.read_text()
