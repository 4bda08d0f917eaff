"""``gpustack gpu watch``. Stand-ins answer for Nova and Placement; real ones are asked in tests/nova."""

from __future__ import annotations

import gc
import json
import logging
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import CloudError, GpustackError, PartialError, SpecError
from gpustack.base.findings import Finding
from gpustack.base.prometheus import Page
from gpustack.cli.app import INTERRUPTED
from gpustack.cli.gpu_watch import GpuWatchCommand
from gpustack.fleet.index import Answers
from gpustack.fleet.model import Gap, Source
from gpustack.operate.capacity.model import Capacity, Demand
from support.fleet_answers import device
from support.limits import StandInLimits, limited
from support.metric_samples import Labels, labels, samples
from support.ports import closed_port
from support.prometheus_programs import check_metrics
from support.slow_services import services

Gpustack = Callable[..., Any]


class Cloud:
    """A stand-in for Nova and Placement: it has one free GPU.

    :ivar answers: what it answers; an error is raised.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.answers: Answers | CloudError = Answers(servers=(), devices=(device("gpu1", 0x81),))

    def read(self, *_arguments: object, **_more: object) -> Answers:
        self.asked += 1
        if isinstance(self.answers, CloudError):
            raise self.answers
        return self.answers


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    stand_in = Cloud()
    monkeypatch.setattr("gpustack.cli.gpu.read", stand_in.read)
    return stand_in


def success(text: str) -> dict[str, float]:
    return {dict(source)["source"]: value for source, value in samples(text, "gpustack_collect_success").items()}


def test_once_writes_a_file_that_node_exporter_can_read(cloud: Cloud, tmp_path: Path, gpustack: Gpustack) -> None:
    path = tmp_path / "gpustack.prom"
    ran = gpustack("gpu", "watch", "--textfile", path, "--once")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert path.stat().st_mode & 0o777 == 0o644
    text = path.read_text(encoding="utf-8")
    state = labels(hostname="gpu1", address="0000:81:00.0", state="free")
    assert samples(text, "gpustack_gpu_state")[state] == 1
    assert success(text) == {"nova": 1, "placement": 1}
    assert abs(samples(text, "gpustack_collect_timestamp_seconds")[labels()] - time.time()) < 120


def test_a_partial_answer_is_written_and_reported(cloud: Cloud, tmp_path: Path, gpustack: Gpustack) -> None:
    assert isinstance(cloud.answers, Answers)
    cloud.answers = replace(cloud.answers, gaps=(Gap(source=Source.NOVA, reason="a cell does not answer"),))
    path = tmp_path / "gpustack.prom"
    ran = gpustack("gpu", "watch", "--textfile", path, "--once")
    assert ran.code == 23
    assert "Nova: a cell does not answer" in ran.err
    assert success(path.read_text(encoding="utf-8")) == {"nova": 0, "placement": 1}


@pytest.mark.filterwarnings("ignore:Support for InfluxDB")
def test_a_cloud_that_can_not_be_reached_replaces_the_old_numbers(
    tmp_path: Path, gpustack: Gpustack, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gpustack.prom"
    path.write_text('gpustack_gpu_state{hostname="gpu1"} 1\n')
    with closed_port() as port:
        auth = {"auth_url": f"http://127.0.0.1:{port}/v3", "username": "u", "password": "hunter2", "project_name": "p"}
        (tmp_path / "clouds.json").write_text(json.dumps({"clouds": {"mine": {"auth": auth}}}))
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.json"))
        ran = gpustack("gpu", "watch", "--os-cloud", "mine", "--textfile", path, "--once")
    assert ran.code == 21
    text = path.read_text(encoding="utf-8")
    assert success(text) == {"nova": 0, "placement": 0}
    assert "gpustack_gpu_state" not in text
    assert "hunter2" not in text + ran.err


SPEC = """
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu1: [k4200]}
nova: {release: "2025.2"}
flavors: {g1: {model: k4200, vcpus: 1, ram: 1GiB, disk: 1}}
"""


def capacity(least: int, most: int) -> Capacity:
    demand = Demand(flavor="g1", gpus={"k4200": 1}, amounts={}, vcpus=1, ram=1024)
    return Capacity(demand=demand, least=least, most=most, free=most)


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        (capacity(3, 3), {labels(flavor="g1"): 3}),
        (capacity(0, 0), {labels(flavor="g1"): 0}),
        (capacity(0, 3), {}),
        (CloudError("nobody answers"), None),
        (PartialError("a cell does not answer"), None),
    ],
)
def test_flavors_of_a_spec(
    cloud: Cloud,
    tmp_path: Path,
    gpustack: Gpustack,
    monkeypatch: pytest.MonkeyPatch,
    counted: Capacity | GpustackError,
    expected: dict[Labels, float] | None,
) -> None:
    def count_all(*_arguments: object, **_sources: object) -> tuple[list[Capacity], list[Finding], tuple[str, ...]]:
        if isinstance(counted, PartialError):
            return [], [], (str(counted),)
        if isinstance(counted, GpustackError):
            raise counted
        return [counted], [], ()

    monkeypatch.setattr("gpustack.cli.gpu_watch.count_all", count_all)
    monkeypatch.setattr(GpuWatchCommand, "connection", lambda *_arguments, **_more: None)
    (tmp_path / "gpustack.yaml").write_text(SPEC)
    path = tmp_path / "gpus.prom"
    ran = gpustack("gpu", "watch", "--textfile", path, "--once", "--spec", tmp_path / "gpustack.yaml")
    text = path.read_text(encoding="utf-8")
    check_metrics(text)
    assert success(text) == {"nova": 1, "placement": 1, "capacity": expected is not None}
    assert samples(text, "gpustack_flavor_free") == (expected or {})
    assert ran.code == (counted.exit_code if isinstance(counted, GpustackError) else 0)

    cloud.answers = CloudError("nobody answers")
    gpustack("gpu", "watch", "--textfile", path, "--once", "--spec", tmp_path / "gpustack.yaml")
    assert success(path.read_text(encoding="utf-8")) == {"nova": 0, "placement": 0, "capacity": 0}


def test_the_old_file_remains_if_the_disk_refuses_the_new_one(cloud: Cloud, tmp_path: Path, gpustack: Gpustack) -> None:
    missing = tmp_path / "missing" / "gpustack.prom"
    ran = gpustack("gpu", "watch", "--textfile", missing, "--once")
    assert ran.code == 1
    assert f"mkdir -p {missing.parent}" in ran.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--once"], "neither a textfile nor a port"),
        (["--once", "--listen", "9835"], "--once and --listen"),
        (["--once", "--interval", "5", "--textfile", "x.prom"], "not allowed with"),
        (["--textfile", "/dev/stdout"], "node_exporter reads only files that end with .prom"),
        (["--textfile", "x.prom", "--interval", "0"], "1 second or more"),
        (["--listen", "65536"], "65536 is no port"),
        (["--listen", "::1:9835"], "brackets are missing"),
        (["--listen", "localhost"], "localhost is no port"),
    ],
)
def test_invalid_command_lines(cloud: Cloud, gpustack: Gpustack, arguments: list[str], reason: str) -> None:
    ran = gpustack("gpu", "watch", *arguments)
    assert ran.code == 2
    assert reason in ran.err
    assert cloud.asked == 0


def test_a_port_in_use_is_refused_before_the_cloud_is_asked(cloud: Cloud, gpustack: Gpustack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = gpustack("gpu", "watch", "--listen", str(port))
    assert ran.code == 1
    assert f"can't listen on 127.0.0.1:{port}: Address already in use" in ran.err
    assert cloud.asked == 0


def test_scrapes_do_not_ask_the_cloud(cloud: Cloud, gpustack: Gpustack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scrapes take place in the pauses of the command; the second one is interrupted."""
    ports: list[int] = []
    serve = Page.serve

    def serving(page: Page, address: str, port: int) -> int:
        ports.append(serve(page, address, port))
        return ports[0]

    def scrape() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/metrics", timeout=120) as answer:
            return str(answer.read().decode())

    def pause(seconds: float) -> None:
        assert seconds == 300
        if cloud.asked == 2:
            assert success(scrape()) == {"nova": 0, "placement": 0}
            with pytest.raises(ConnectionRefusedError):  # as it would not be on 0.0.0.0
                socket.create_connection(("127.0.0.2", ports[0]), timeout=120)
            raise KeyboardInterrupt
        assert success(scrape()) == {"nova": 1, "placement": 1}
        assert success(scrape()) == {"nova": 1, "placement": 1}
        assert cloud.asked == 1
        cloud.answers = CloudError("nobody answers")

    monkeypatch.setattr(Page, "serve", serving)
    monkeypatch.setattr(time, "sleep", pause)
    ran = gpustack("gpu", "watch", "--listen", "0")
    assert (ran.code, cloud.asked) == (INTERRUPTED, 2)
    assert f"metrics: http://127.0.0.1:{ports[0]}/metrics" in ran.err


def test_a_spec_that_is_damaged_later_is_an_error_of_the_collection(
    cloud: Cloud, tmp_path: Path, gpustack: Gpustack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that starts with it ends; one that runs goes on, and reads the corrected spec."""
    spec, path = tmp_path / "gpustack.yaml", tmp_path / "gpus.prom"
    texts = iter(("version: [\n", SPEC))
    seen: list[float] = []

    def pause(_seconds: float) -> None:
        seen.append(success(path.read_text(encoding="utf-8"))["nova"])
        if len(seen) == 3:
            raise KeyboardInterrupt
        spec.write_text(next(texts))

    monkeypatch.setattr(GpuWatchCommand, "connection", lambda *_arguments, **_more: None)
    monkeypatch.setattr("gpustack.cli.gpu_watch.count_all", lambda *_arguments, **_sources: ([], [], ()))
    monkeypatch.setattr(time, "sleep", pause)
    spec.write_text(SPEC)
    ran = gpustack("gpu", "watch", "--textfile", path, "--spec", spec)
    assert (ran.code, seen) == (INTERRUPTED, [1, 0, 1])
    assert f"{spec}: the spec is not valid" in ran.err
    spec.write_text("version: [\n")
    assert gpustack("gpu", "watch", "--textfile", path, "--spec", spec).code == SpecError.exit_code


@pytest.mark.parametrize(
    ("limits", "code", "expected", "answered"),
    [
        (StandInLimits(limited(1, p1=4)), 0, {"p1": 4}, 1),
        (StandInLimits(limited(1, complete=False, p1=4)), 23, {"p1": 4}, 0),
        (StandInLimits(limited(1), fails=("present",)), 21, None, 0),
    ],
)
def test_limits_of_a_spec_with_quotas(
    cloud: Cloud,
    tmp_path: Path,
    gpustack: Gpustack,
    monkeypatch: pytest.MonkeyPatch,
    limits: StandInLimits,
    code: int,
    expected: dict[str, float] | None,
    answered: int,
) -> None:
    monkeypatch.setattr(GpuWatchCommand, "connection", lambda *_arguments, **_more: None)
    monkeypatch.setattr("gpustack.cli.gpu_watch.LimitsCloud", lambda _connection: limits)
    spec, path = tmp_path / "gpustack.yaml", tmp_path / "gpus.prom"
    spec.write_text(SPEC.partition("flavors")[0] + "quotas: {default: {k4200: 1}}\n")
    ran = gpustack("gpu", "watch", "--textfile", path, "--once", "--spec", spec)
    assert ran.code == code, ran.err
    text = path.read_text(encoding="utf-8")
    found = {
        labels(tenant_id=project, model="NVIDIA Quadro K4200"): limit for project, limit in (expected or {}).items()
    }
    assert samples(text, "gpustack_tenant_gpu_limit") == found
    assert success(text) == {"nova": 1, "placement": 1, "limits": answered}


EMPTY = {
    "/resource_providers": {"resource_providers": []},
    "/servers/detail": {"servers": []},
    "/os-services": {"services": []},
    "/projects": {"projects": []},
    "/users": {"users": []},
}
ROUNDS = int(os.environ.get("GPUSTACK_SOAK_ROUNDS", "7"))
"""``GPUSTACK_SOAK_ROUNDS=500`` for the complete soak (``make soak``)."""
FAULTS = {1: ("compute", "dies"), 2: ("placement", "busy for ever"), 3: ("compute", "silent"), 4: ("identity", "dies")}
"""The fault of a round, by its number in a period; rounds 5, 6 and 0 are healthy."""
PERIOD = 7


@pytest.mark.filterwarnings("ignore:Support for InfluxDB", "ignore::PendingDeprecationWarning")
def test_months_of_rounds_leave_no_descriptor_thread_or_memory(
    tmp_path: Path, gpustack: Gpustack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """APIs that fail, are silent or restart at times; the services are stand-ins on a real socket."""
    used: list[tuple[int, int, int]] = []
    pause = time.sleep
    monkeypatch.setattr("gpustack.cloud.time_limits.FIRST_BYTE", 0.2)
    monkeypatch.setattr("gpustack.cloud.time_limits.CONNECT", 0.2)
    monkeypatch.setattr("gpustack.cloud.time_limits.PAUSES", (0.0, 0.0))
    with services(answers=EMPTY) as offered:
        for name, value in offered.variables.items():
            monkeypatch.setenv(name, value)

        def between(seconds: float) -> None:
            if seconds != 300:
                pause(min(seconds, 0.01))
                return
            round_number = len(used) + 1
            service, fault = FAULTS.get(round_number % PERIOD, ("", ""))
            offered.faults = {service: fault} if service else {}
            offered.began.clear()
            offered.ended.set()  # the stand-in's own threads of silent answers end
            offered.ended = threading.Event()
            pause(0.01)
            gc.collect()
            descriptors = len(list(Path("/proc/self/fd").iterdir()))
            used.append((descriptors, threading.active_count(), len(gc.get_objects())))
            if round_number > ROUNDS:
                raise KeyboardInterrupt

        monkeypatch.setattr(time, "sleep", between)
        monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # pytest keeps each record
        ran = gpustack("gpu", "watch", "--textfile", tmp_path / "gpus.prom")
    assert ran.code == INTERRUPTED
    assert "no complete answer" in ran.err
    healthy = [of for number, of in enumerate(used) if number % PERIOD == 0]
    assert success((tmp_path / "gpus.prom").read_text(encoding="utf-8"))["placement"] in (0, 1)
    (descriptors, threads, objects), last = healthy[0], healthy[-1]
    assert last[0] <= descriptors + 2, used  # fewer than the faults of a period
    assert last[1] <= threads + 2, used
    assert last[2] <= objects + 2000, used
