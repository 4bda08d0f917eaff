"""Other users of the controller read no secrets from files, and other machines get metrics only."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
import waitress
from prometheus_client import generate_latest

from gpustack.base import prometheus
from gpustack.base.files import write_atomic
from gpustack.changes.journal import JournalFile
from gpustack.hosts.facts.store import save_snapshot
from support.attacks import attacked


def private(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an umask that permits everything, and a file that was readable before."""
    before = os.umask(0)
    try:
        write_atomic(directory / "new", "password", mode=0o600)
        (directory / "old").write_text("x", encoding="utf-8")
        (directory / "old").chmod(0o666)
        write_atomic(directory / "old", "password", mode=0o640)
        save_snapshot(directory / "snapshot", [])
        JournalFile(directory / "state/journal", {}).close()
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*")}
    assert modes == {"new": 0o600, "old": 0o640, "snapshot": 0o600, "state": 0o700, "journal": 0o600}


def link(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody puts a link where gpustack writes: it is replaced, and its target stays as it is."""
    (directory / "target").write_text("x", encoding="utf-8")
    (directory / "link").symlink_to("target")
    write_atomic(directory / "link", "password", mode=0o600)
    assert (directory / "target").read_text(encoding="utf-8") == "x"
    assert not (directory / "link").is_symlink()


def other_requests(_directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    port = prometheus.Page().serve("127.0.0.1", 0)
    for method, path in (("GET", "/"), ("GET", "/../etc/passwd"), ("GET", "/metrics/"), ("POST", "/metrics")):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request(method, path, body=b"" if method != "GET" else None)
            with connection.getresponse() as response:
                assert (response.status, response.read()) in ((404, b""), (405, b"")), (method, path)


def many_at_once(_directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    port = prometheus.Page().serve("127.0.0.1", 0)
    for method in (b"GET", b"HEAD"):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(method + b" /metrics HTTP/1.1\r\nConnection: keep-alive\r\n\r\n")
            connection.sendall((method + b" /metrics HTTP/1.1\r\n\r\n") * 100)
            answer = b""
            with contextlib.suppress(ConnectionResetError):  # of the requests that nobody reads
                while piece := connection.recv(1 << 16):
                    answer += piece
        assert answer.count(b"HTTP/1.1 200 OK") == 1


def silence(_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent connections end, and leave file descriptors for a scrape: waitress does both if it is asked to."""
    asked: dict[str, Any] = {}
    create = waitress.create_server
    monkeypatch.setattr(
        waitress, "create_server", lambda app, **limits: (asked.update(limits), create(app, **limits))[1]
    )
    prometheus.Page().serve("127.0.0.1", 0)
    assert 0 < asked["channel_timeout"] <= 5
    assert 0 < asked["connection_limit"] <= 512


def labels(_directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    page = prometheus.Page([prometheus.gauge("g", "d", ["name"], {('a"} 1\nevil{x="\x1b[2J\u202e',): 1.0})])
    text = generate_latest(page._registry()).decode()
    assert [line for line in text.splitlines() if not line.startswith("#")] == [text.splitlines()[-1]]
    assert "\x1b" not in text


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {
        "private": private,
        "link": link,
        "requests": other_requests,
        "labels": labels,
        "many": many_at_once,
        "silence": silence,
    },
    {
        "gpustack.base.files:write_atomic": {
            "gpustack.base.files:write_atomic": lambda path, text, **_: path.write_text("".join(text), encoding="utf-8")
        },
        "gpustack.base.prometheus:Page": {"gpustack.base.prometheus:_only_metrics": lambda app: app},
    },
)
