"""A service answers with documents of any form: each function that reads an API refuses them, or goes on."""

from __future__ import annotations

import contextlib
import gzip
import inspect
import json
import socket
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import openstack.connection
import pytest

from gpustack.base.errors import CloudError, GpustackError
from gpustack.cloud import session
from support.attacks import REMEDY, assert_no_line_is_forged, attacked
from support.fleet_cloud import StandIn
from support.fuzz_readers import EVERYTHING, functions

FUNCTIONS = dict(functions())
ESCAPES = f"\x1b]0;owned\x07\u202e{REMEDY}\u2028"


def strange(document: Any, value: object) -> Any:
    """The document with each innermost value replaced."""
    if isinstance(document, dict):
        return {key: strange(inner, value) for key, inner in document.items()}
    return [strange(inner, value) for inner in document] if isinstance(document, list) else value


ANSWERS: dict[str, Any] = {
    "a list": [EVERYTHING] * 3,
    "nothing": None,
    "a text": "[" * 3000,
    "empty": {},
    "emptied": {key: type(value)() for key, value in EVERYTHING.items()},
    "numbers": strange(EVERYTHING, 10**400),
    "floats": strange(EVERYTHING, float("nan")),
    "escapes": strange(EVERYTHING, ESCAPES),
    "paths": strange(EVERYTHING, "../../servers/x"),
    "objects": strange(EVERYTHING, {"a": [1]}),
    "swapped": {key: [value] if isinstance(value, dict) else {"0": value} for key, value in EVERYTHING.items()},
}


def everywhere(answer: Any) -> None:
    asked = set()
    for name, function in FUNCTIONS.items():
        requests: list[str] = []

        def reply(path: str, name: str = name, requests: list[str] = requests) -> tuple[int, Any]:
            requests.append(path)
            asked.add(name)
            assert len(requests) < 1000, requests[:3]
            assert "/../" not in path, path
            return 200, answer

        cloud = StandIn(answers=dict.fromkeys(("compute", "placement", "identity", "image"), reply))
        try:
            result = function(cloud)
            if inspect.isgenerator(result):
                list(result)
        except GpustackError as error:
            assert_no_line_is_forged(str(error))
        except Exception as error:
            pytest.fail(f"{name}: {error!r}")
    assert len(asked) > 30


def attack(name: str) -> Any:
    def attacked_by(_directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
        everywhere(ANSWERS[name])

    return attacked_by


TOKEN = b"HTTP/1.1 201 Created\r\nX-Subject-Token: t\r\nContent-Type: application/json\r\n"
ENDLESS = b"[0,[0,[0"
RAW = {
    # before an endless part, and that part
    "levels": (TOKEN + b"\r\n" + b'{"a":' * 20_000, b""),
    "no token": (TOKEN + b'\r\n{"token": null}', b""),
    "no user": (TOKEN + b'\r\n{"token": {}}', b""),
    "provisional answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "lines": (
        b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
        + json.dumps({"error": {"message": ESCAPES, "code": 401, "title": ESCAPES}}).encode(),
        b"",
    ),
    "no right to versions": (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", b""),
    "an endless answer": (TOKEN + b"\r\n", ENDLESS),
    "an inflated answer": (TOKEN + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(ENDLESS * (1 << 18)), b""),
}


def answered(connection: socket.socket, head: bytes, endless: bytes) -> None:
    with contextlib.suppress(OSError), connection:
        while b"\r\n\r\n" not in connection.recv(1 << 16):
            pass
        connection.sendall(head)
        while endless:
            connection.sendall(endless * 4096)


@pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning")  # about InfluxDB
@pytest.mark.parametrize("name", RAW)
def test_a_hostile_keystone_ends_signing_in(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpustack.cloud.time_limits.MOST_BYTES", 1 << 20)
    monkeypatch.setattr("gpustack.cloud.time_limits.PAUSES", ())
    server = socket.create_server(("127.0.0.1", 0))
    attacked_cloud = openstack.connection.Connection(
        auth={"auth_url": f"http://127.0.0.1:{server.getsockname()[1]}/v3", "username": "u", "password": "TOPSECRET"}
    )

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=answered, args=(connection, *RAW[name]), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    raised: list[CloudError] = []

    def sign_in() -> None:
        try:
            session.sign_in(session.limited(attacked_cloud))
        except CloudError as error:
            raised.append(error)

    signing = threading.Thread(target=sign_in, daemon=True)
    signing.start()
    signing.join(timeout=60)
    server.close()
    (error,) = raised
    assert "TOPSECRET" not in str(error)
    assert_no_line_is_forged(str(error))


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {name: attack(name) for name in ANSWERS},
    {"gpustack.cloud.session:well_formed": {"gpustack.cloud.session:well_formed": lambda _doing: nullcontext()}},
)
