"""The text format: promtool and the parser of prometheus_client read what is written."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpustack.base.prometheus import Page, gauge
from support.prometheus_programs import check_metrics, promtool

NAMES = ('a "quoted" name', "back\\slash", "two\nlines", "Straße 漢")


def test_names_with_special_characters_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "gpustack.prom"
    Page([gauge("gpustack_x", "A \\ and\na line.", ("name",), {(name,): 1 for name in NAMES})]).write(path)
    (family,) = text_string_to_metric_families(path.read_text(encoding="utf-8"))
    assert [sample.labels["name"] for sample in family.samples] == [name.replace("\n", "\\n") for name in NAMES]
    check_metrics(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["\x1b[2J", "\ud800", "\u202e", "\x00"])
def test_harmful_characters_are_escaped(tmp_path: Path, name: str) -> None:
    path = tmp_path / "gpustack.prom"
    Page([gauge("gpustack_x", "A name.", ("name",), {(name,): 1})]).write(path)
    assert path.read_text(encoding="utf-8").isascii()
    check_metrics(path.read_text(encoding="utf-8"))


def test_names_that_look_alike_are_one_sample() -> None:
    """node_exporter rejects the complete file if two samples have the same labels."""
    family = gauge("gpustack_x", "A name.", ("name",), {("\x1b",): 1, ("\\x1b",): 2})
    assert [sample.value for sample in family.samples] == [2]


def test_promtool_would_find_a_fault() -> None:
    assert promtool("check", "metrics", text="gpustack_x 1\n").returncode == 3


def test_node_exporter_can_read_the_file(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        Page([gauge("gpustack_x", "X.", samples={(): 1})]).write(tmp_path / "gpustack.prom")
    finally:
        os.umask(before)
    assert (tmp_path / "gpustack.prom").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["gpustack.prom"]


def test_scrapes_get_the_metrics_published_last() -> None:
    page = Page()
    address = f"http://127.0.0.1:{page.serve('127.0.0.1', 0)}/metrics"

    def scrape() -> str:
        with urllib.request.urlopen(address, timeout=120) as answer:
            text: str = answer.read().decode()
        return text

    assert scrape() == ""
    for value in (1, 2):
        page.publish([gauge("gpustack_x", "X.", samples={(): value})])
        assert scrape() == scrape()
        assert f"gpustack_x {value}.0\n" in scrape()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("HEAD", "/metrics", 200), ("POST", "/metrics", 405), ("OPTIONS", "/metrics", 405), ("GET", "/", 404)],
)
def test_only_the_metrics_are_served(method: str, path: str, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", Page().serve("127.0.0.1", 0), timeout=120)
    connection.request(method, path)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (status, b"")
    connection.close()


def test_silent_connections_do_not_stop_scrapes() -> None:
    """More than the process may have file descriptors: those above the limit wait in the kernel."""
    program = """if True:
        import resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        from gpustack.base.prometheus import Page
        print(Page().serve("127.0.0.1", 0), flush=True)
        sys.stdin.read()
    """
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
            assert answer.status == 200
        for connection in silent:
            connection.close()
