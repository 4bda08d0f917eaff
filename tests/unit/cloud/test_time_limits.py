"""Limits on waiting, with real clients and sockets; a stand-in for the services, with small limits."""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
from cliff.app import App
from keystoneauth1.exceptions import ConnectFailure
from keystoneauth1.session import TCPKeepAliveAdapter
from openstack.connection import Connection

from gpustack.base import known_secrets, silence
from gpustack.base.errors import CloudError
from gpustack.cli.gpu import GpuListCommand
from gpustack.cloud import session, time_limits
from gpustack.cloud.network import ports_of
from gpustack.cloud.reads import reading_once
from gpustack.cloud.server_actions import ServiceCloud
from gpustack.cloud.session import Refused, Unanswered, connect, each, get, request, sign_in
from gpustack.cloud.time_limits import patience
from support.slow_services import Services, services

pytestmark = [
    pytest.mark.filterwarnings("ignore:Support for InfluxDB"),
    pytest.mark.filterwarnings("ignore:The 'service_type' parameter"),  # openstacksdk's own call
]
LIMIT = 0.5


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("OS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name, value in {"CONNECT": 0.1, "FIRST_BYTE": LIMIT, "PAUSES": (0, 0)}.items():
        monkeypatch.setattr(time_limits, name, value)
    for name, value in {"TOTAL": 1.0, "LEAST": 0.1, "LAST": 0.05, "_waited": 0.0}.items():
        monkeypatch.setattr(silence, name, value)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    with services() as offered:
        for name, value in offered.variables.items():
            monkeypatch.setenv(name, value)
        yield offered


@pytest.fixture
def clouds_yaml(there: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    user = "username: x, password: x, project_name: x, user_domain_name: Default, project_domain_name: Default"
    auth = f"{{auth_url: '{there.url}/identity/v3', {user}}}"
    path = tmp_path / "own.yaml"
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(path))

    def write(setting: str) -> None:
        path.write_text(f"clouds: {{mine: {{auth: {auth}, {setting}}}}}")

    return write


def things(cloud: Connection, service: str = "compute", path: str = "/things") -> Any:
    return get(cloud, service, path, "list things")


def is_silent(cloud: Connection, service: str = "compute", path: str = "/things", *, asked: bool = True) -> None:
    """Ask a silent service; without ``asked``, the client knows that it is, and does not wait."""
    with pytest.raises(Unanswered, match="gave no complete answer within") as caught:
        things(cloud, service, path)
    assert ("not asked again" in str(caught.value)) is not asked


@pytest.fixture
def granted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """The time limits of the requests without an answer: for the connection, and for the first byte."""
    send, limits = TCPKeepAliveAdapter.send, list[tuple[float, float]]()

    def noted(self: Any, request: Any, timeout: tuple[float, float], **options: Any) -> Any:
        limits.append(timeout)
        answer = send(self, request, timeout=timeout, **options)
        limits.remove(timeout)
        return answer

    monkeypatch.setattr(TCPKeepAliveAdapter, "send", noted)
    return limits


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            "unauthorized",
            "{there}: can't list things: no version of the placement API is readable: HTTP 401, as the test",
        ),
        ("silent", "can't list things: placement at {there} gave no complete answer within"),
        ("dies", "can't list things: "),
    ],
)
def test_an_api_without_versions_is_named_with_the_reason(there: Services, fault: str, reason: str) -> None:
    """The SDK only reports that the service has no supported version."""
    there.faults["placement"], there.discovered = fault, False
    with pytest.raises(CloudError) as caught:
        things(connect(), "placement")
    assert not isinstance(caught.value, Refused)
    assert str(caught.value).startswith(reason.format(there=f"{there.url}/placement"))
    assert "supported versions" not in str(caught.value)
    assert "check that the API answers at this address" in str(caught.value)


@pytest.mark.parametrize("fault", ["silent", "trickle", "trickling headers"])
@pytest.mark.parametrize("discovered", [True, False])
def test_a_silent_service_is_named_and_not_asked_again(there: Services, fault: str, discovered: bool) -> None:
    there.faults["compute"], there.discovered = fault, discovered
    cloud = connect()
    with pytest.raises(Unanswered) as caught:
        things(cloud)
    assert f"can't list things: compute at {there.url}/compute gave no complete answer within " in str(caught.value)
    number = len(there.began)
    is_silent(cloud, asked=False)
    assert len(there.began) == number
    assert things(cloud, "placement") == {"things": [1]}  # at the same address


def test_a_silent_keystone_ends_every_request(there: Services, granted: list[tuple[float, float]]) -> None:
    there.faults["identity"], there.discovered = "silent", False
    cloud = connect()
    with pytest.raises(Unanswered, match=f"identity at {there.url}/identity gave"):
        sign_in(cloud)
    for service in ("compute", "placement", "image"):
        with pytest.raises(Unanswered, match="not asked again"):
            things(cloud, service)
    assert granted == [(0.1, LIMIT)]


def test_all_silent_services_together_keep_the_total(there: Services, granted: list[tuple[float, float]]) -> None:
    cloud = connect()
    sign_in(cloud)
    there.faults |= dict.fromkeys(("compute", "placement", "image", "network"), "silent")
    for service in ("compute", "placement", "image"):
        is_silent(cloud, service)
    assert "network at" in ports_of(cloud, "host").unknown
    assert len(granted) == 4
    assert sum(seconds for _, seconds in granted) <= silence.TOTAL


def test_a_silent_service_blocks_no_other_thread(there: Services) -> None:
    there.faults["compute"], there.discovered = "silent", False
    cloud = connect()
    sign_in(cloud)

    begun, ended = time.monotonic(), []

    def ask(service: str) -> None:
        if service == "compute":
            is_silent(cloud)
        else:
            things(cloud, service)
        ended.append(service)

    list(each(ask, ["compute", "placement", "image"]))
    assert ended[2:] == ["compute"]
    assert time.monotonic() - begun >= LIMIT


@pytest.mark.parametrize("fault", ["steady", "late"])
def test_an_api_that_answers_is_never_cut_off(there: Services, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there.faults["compute"] = fault  # "steady" takes 21 pauses, four times the limit
    monkeypatch.setattr(time_limits, "MOST_HEADERS", 10_000)  # half of its body
    there.pause = 0.1
    if fault == "late":
        monkeypatch.setattr(time_limits, "FIRST_BYTE", 3 * LIMIT)
        there.pause = LIMIT * 1.8
    cloud = connect()
    begun = time.monotonic()
    assert things(cloud) == {"things": [1]}
    assert time.monotonic() - begun > (4 * LIMIT if fault == "steady" else LIMIT / 2)


@pytest.mark.parametrize("fault", ["dies", "busy", "lost"])
def test_reads_are_repeated_twice_and_writes_never(there: Services, fault: str) -> None:
    there.faults["compute"] = fault
    assert things(connect()) == {"things": [1]}
    assert there.requests["compute"] == 3
    there.requests.clear()
    with pytest.raises(Refused if fault == "busy" else Unanswered):
        request(connect(), "compute", "POST", "/things", "create a thing", body={})
    assert there.requests["compute"] == 1


@pytest.mark.parametrize(
    ("asked", "least"), [("1", 1.0), ("9999999", 1.5), ("Fri, 31 Dec 2100 23:59:59 GMT", 1.5), ("soon", 0)]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_requests_above_a_limit_are_repeated_after_the_pause_that_the_api_asks_for(
    there: Services, monkeypatch: pytest.MonkeyPatch, method: str, asked: str, least: float
) -> None:
    monkeypatch.setattr(time_limits, "LONGEST_PAUSE", 1.5)
    there.faults["compute"], there.retry_after = "limited", asked
    assert request(connect(), "compute", method, "/things", "change things").json() == {"things": [1]}
    times = [begun for line, begun in there.began if line.endswith("/things")]
    assert len(times) == 3
    assert all(least <= later - earlier < 60 for earlier, later in pairwise(times))


def test_reads_are_repeated_after_pauses(there: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limits, "PAUSES", (0.1, 0.2))
    there.faults["compute"] = "busy"
    things(connect())
    times = [begun for line, begun in there.began if line.endswith("/things")]
    assert [later - earlier >= pause for earlier, later, pause in zip(times, times[1:], (0.1, 0.2), strict=False)] == [
        True,
        True,
    ]


@pytest.mark.parametrize(("most", "accepted"), [(15, True), (14, False)])
def test_an_answer_that_is_too_long_ends_the_request(
    there: Services, most: int, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = connect()
    content = things(cloud, "placement")  # the documents of versions are longer
    monkeypatch.setattr(time_limits, "MOST_BYTES", most)
    if accepted:
        assert things(cloud, "placement", "/others") == content
    else:
        with pytest.raises(Unanswered, match=f"placement at {there.url}/placement sent more than 0 MiB in one answer"):
            things(cloud, "placement", "/others")
    assert there.requests["placement"] == 2  # it is not repeated


def test_a_keystone_that_hides_its_versions_is_named(there: Services) -> None:
    """keystoneauth would sign in for them, and wait for itself."""
    there.faults["identity"], there.discovered = "unauthorized", False
    with pytest.raises(Unanswered, match=f"identity at {there.url}/identity does not list its versions: HTTP 401"):
        sign_in(connect())


class _Moments:
    """A socket and its clock: each read happens at the next moment and brings the next piece."""

    def __init__(self, *reads: tuple[float, int]) -> None:
        self._reads = list(reads)
        self.limit: float | None = 10.0
        self.granted: list[float | None] = []
        self.closed = False

    def monotonic(self) -> float:
        return self._reads[0][0]

    def gettimeout(self) -> float | None:
        return self.limit

    def settimeout(self, seconds: float | None) -> None:
        self.limit = seconds

    def readinto(self, _buffer: object) -> int:
        self.granted.append(self.limit)
        return self._reads[0][1]

    def close(self) -> None:
        self.closed = True

    def read_all(self, paced: time_limits._Paced) -> None:
        while True:
            paced.readinto(bytearray(1))
            if len(self._reads) == 1:
                return
            del self._reads[0]


@pytest.mark.parametrize(
    ("reads", "granted"),
    [
        ([(0, 1), (2, 3), (9, 0)], [10, 8, 1]),
        ([(0, 1), (2, 4), (9, 0)], [10, 8, 3]),  # enough bytes: the time begins again
        ([(0, 1), (2, 3), (3, 1), (9, 0)], [10, 8, 7, 4]),
        ([(0, 9), (5, 3), (8, 0)], [10, 5, 2]),  # only those after the first count
        ([(0, 1), (10, 1)], [10, 0.001]),
        ([(0, 1), (11, 1)], [10, 0.001]),
    ],
)
def test_an_answer_has_the_same_time_for_each_part(
    reads: list[tuple[float, int]], granted: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    moments: Any = _Moments(*reads)
    monkeypatch.setattr(time_limits, "AT_LEAST", 4)
    monkeypatch.setattr(time_limits, "time", moments)
    paced = time_limits._Paced(moments, moments)
    moments.read_all(paced)
    assert moments.granted == granted
    assert moments.limit == 10
    paced.close()
    assert (moments.closed, paced.closed) == (True, True)


@pytest.mark.parametrize(
    ("pieces", "is_head", "accepted"), [((6, 4), True, True), ((6, 5), True, False), ((6, 5), False, True)]
)
def test_headers_end_within_a_limit(
    pieces: tuple[int, ...], is_head: bool, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limits, "MOST_HEADERS", 10)
    moments: Any = _Moments(*((0, piece) for piece in pieces))
    paced = time_limits._Paced(moments, moments)
    assert paced.is_head
    paced.is_head = is_head
    with contextlib.nullcontext() if accepted else pytest.raises(OSError, match="has no end of its headers"):
        moments.read_all(paced)


def test_a_write_of_any_library_ends_reading_once(there: Services) -> None:
    """python-novaclient sends without this package: waiting for its result must not read the value before."""
    cloud = connect()
    with reading_once():
        for _ in range(2):
            things(cloud)
        assert there.requests["compute"] == 1
        with contextlib.suppress(CloudError):
            ServiceCloud(cloud).act("s", "shelve")
        before = there.requests["compute"]
        for _ in range(2):
            things(cloud)
        assert there.requests["compute"] == before + 2


def test_writes_are_sent_once_whatever_clouds_yaml_has(there: Services, clouds_yaml: Callable[[str], None]) -> None:
    there.faults["compute"] = "busy"
    clouds_yaml("compute_status_code_retries: 5, compute_connect_retries: 5")
    with pytest.raises(Refused, match="503"):
        request(connect("mine"), "compute", "POST", "/things", "create a thing", body={})
    assert there.requests["compute"] == 1


def test_a_busy_service_is_reported_after_three_attempts(there: Services) -> None:
    there.faults["compute"] = "busy for ever"
    with pytest.raises(Refused, match="HTTP 503"):
        things(connect())
    assert there.requests["compute"] == 3


def test_api_timeout_of_clouds_yaml_wins(
    there: Services, clouds_yaml: Callable[[str], None], granted: list[tuple[float, float]]
) -> None:
    there.faults["compute"], there.pause = "late", 2 * LIMIT
    clouds_yaml(f"api_timeout: {3 * LIMIT}")
    assert things(connect("mine")) == {"things": [1]}
    is_silent(connect())
    assert granted == [(0.1, LIMIT)]


def test_an_action_may_take_longer_than_a_read(there: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpustack.cloud.server_actions._ACTION", 3 * LIMIT)
    api = ServiceCloud(connect())
    there.faults["compute"], there.pause = "late", 2 * LIMIT
    api.act("1", "live_migrate")
    with pytest.raises(Unanswered, match=f"compute at {there.url}/compute gave"):
        api.mark("1", {"a": "b"})
    number = len(there.began)
    with pytest.raises(Unanswered, match="not asked again"), patience(9.0):
        api.act("1", "live_migrate")
    assert len(there.began) == number


def test_neutron_is_asked_again_after_a_broken_answer(there: Services) -> None:
    there.faults["network"] = "dies"
    assert "the answer" in ports_of(connect(), "host").unknown  # no ports: it was answered
    assert there.requests["network"] == 3


def test_the_connection_of_openstackclient_has_the_limits(
    there: Services, clouds_yaml: Callable[[str], None], granted: list[tuple[float, float]]
) -> None:
    clouds_yaml(f"api_timeout: {3 * LIMIT}")
    there.faults["compute"] = "silent"
    for cloud, limit in ((None, LIMIT), ("mine", 3 * LIMIT)):
        plain = connect(cloud)
        # openstackclient's own has neither limits nor api_timeout.
        plain.config.config["api_timeout"], plain.session.timeout = None, None
        program = cast(App, SimpleNamespace(client_manager=SimpleNamespace(sdk_connection=plain)))
        limited = GpuListCommand(program, None).connection(argparse.Namespace())
        assert limited is plain
        is_silent(limited)
        assert granted.pop() == (0.1, limit)


def test_another_scope_knows_the_silent_services(there: Services) -> None:
    there.faults["compute"] = "silent"
    cloud = connect()
    is_silent(cloud)
    is_silent(session.connect_as(cloud, project_name="other"), asked=False)


def test_an_unreachable_host_ends_after_the_limit_for_connections(
    monkeypatch: pytest.MonkeyPatch, granted: list[tuple[float, float]]
) -> None:
    """A listening socket with a full backlog drops new connections, as a host that is down does."""
    import socket

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v3"
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(listening.getsockname())
        for name, value in Services(url="x").variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("OS_AUTH_URL", url)
        with pytest.raises(Unanswered, match=r"identity at http://127.0.0.1:\d+ gave no complete answer within "):
            sign_in(connect())
        assert granted == [(0.1, LIMIT)]
        for client in waiting:
            client.close()


def test_no_error_names_the_login_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in Services(url="x").variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OS_AUTH_URL", "http://me:geheim@127.0.0.1:1/v3")
    with pytest.raises(Unanswered, match=r"no connection to identity at http://127\.0\.0\.1:1: ") as caught:
        sign_in(connect())
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "variables",
    [
        {"OS_AUTH_URL": "http://me:x/geheim@127.0.0.1:1/v3"},
        {"OS_AUTH_URL": "http://me:geheim@127.0.0.1:99999/v3"},
        {"OS_AUTH_URL": "htp://me:geheim@127.0.0.1/v3"},
        {"http_proxy": "http://me:geheim/x@127.0.0.1:1", "OS_AUTH_URL": "http://192.0.2.7:5000/v3"},
    ],
)
def test_no_error_of_a_library_has_a_secret(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**Services(url="http://127.0.0.1:1").variables, **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CloudError, match="Unexpected exception") as caught:
        sign_in(connect())
    known_secrets.forget()
    assert "geheim" not in str(caught.value)


def test_a_proxy_without_an_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**Services(url="x").variables, "http_proxy": "http://me:geheim@127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OS_AUTH_URL", "http://192.0.2.7:5000/v3")
    with pytest.raises(
        Unanswered, match="through the proxy of http_proxy or https_proxy: Connection refused"
    ) as caught:
        sign_in(connect())
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(("sizes", "accepted"), [((6, 4), True), ((6, 5), False), ((11,), False)])
def test_an_answer_of_any_length_is_read_up_to_a_limit(
    sizes: tuple[int, ...], accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limits, "MOST_BYTES", 10)
    answer = requests.Response()
    answer.raw = io.BytesIO()
    closed: list[bool] = []
    monkeypatch.setattr(answer, "close", lambda: closed.append(True))
    monkeypatch.setattr(answer, "iter_content", lambda size: iter([b"x" * each for each in sizes]))
    time_limits._within_limit(answer, "compute at http://nova")
    if accepted:
        assert answer.content == b"x" * 10
    else:
        with pytest.raises(ConnectFailure, match="compute at http://nova sent more than 0 MiB"):
            answer.content  # noqa: B018
    assert bool(closed) is not accepted


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        (requests.ConnectionError(OSError(errno.EPIPE, "Broken pipe")), "Broken pipe"),
        (
            requests.ConnectionError("Response ended: IncompleteRead, connection broken"),
            "the service broke off its answer",
        ),
        (requests.ConnectionError("something else"), "ConnectionError"),
        (
            requests.exceptions.ProxyError(OSError("Tunnel connection failed: 403 Forbidden")),
            "Tunnel connection failed: 403 Forbidden",
        ),
    ],
)
def test_the_reason_is_the_systems_if_it_gave_one(error: Exception, reason: str) -> None:
    assert time_limits._reason(error) == reason
