"""Child processes that serve, and their ports."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack_demo.embedded.process import ServiceError, ServiceProcess, free_port


@pytest.fixture
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServiceProcess]:
    """A process that runs the test's program in a directory of its own."""
    command = [sys.executable, "-u", "-c", request.param]
    process = ServiceProcess("x", command, log=tmp_path / "log", environment=os.environ, cwd=tmp_path)
    yield process
    process.stop()


SLOW = "import pathlib, time; print('starting'); time.sleep(0.5); pathlib.Path('up').touch(); print('ready'); input()"


@pytest.mark.parametrize("service", [SLOW], indirect=True)
def test_a_service_is_ready_when_its_log_says_so(service: ServiceProcess, tmp_path: Path) -> None:
    service.wait_for_text("ready", seconds=120)
    assert (tmp_path / "up").exists()


@pytest.mark.parametrize("service", ["print('no memory')"], indirect=True)
def test_a_service_that_ends_is_reported_with_its_log(service: ServiceProcess) -> None:
    with pytest.raises(ServiceError, match=r"x ended with exit code 0; .*\nno memory"):
        service.wait_for_text("ready", seconds=120)


@pytest.mark.parametrize("service", ["print('busy'); input()"], indirect=True)
def test_a_service_that_does_not_get_ready_is_given_up(service: ServiceProcess) -> None:
    with pytest.raises(ServiceError, match="x did not get ready in time"):
        service.wait_for_text("ready", seconds=0.1)


def test_ports_differ_and_no_connection_gets_them() -> None:
    least = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = [free_port() for _ in range(100)]
    assert len(set(ports)) == 100
    assert max(ports) < max(least, 30_000)
