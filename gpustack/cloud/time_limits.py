"""Limits on the time that APIs may take, for every request of a connection, whichever library sends it.

The SDK, keystoneauth (which signs in and discovers versions) and python-novaclient all send through the HTTP adapter of
the session. So this adapter has the limits, repeats reads, and remembers which services are silent.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import io
import os
import re
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from keystoneauth1.exceptions import ConnectFailure, ConnectTimeout
from keystoneauth1.session import TCPKeepAliveAdapter
from requests.exceptions import ChunkedEncodingError, ConnectionError, ProxyError, SSLError, Timeout  # noqa: A004
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import InvalidHeader, ReadTimeoutError
from urllib3.util import Retry

from gpustack.base import silence
from gpustack.base.known_secrets import learn
from gpustack.base.text import without_login
from gpustack.cloud import reads

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from keystoneauth1.session import Session
    from requests import PreparedRequest, Response

CONNECT = 5.0
"""Seconds for a TCP connection, with TLS."""
FIRST_BYTE = 30.0
"""Seconds until the first byte of an answer, unless clouds.yaml has ``api_timeout``; see also :data:`AT_LEAST`."""
AT_LEAST = 256
"""The bytes that an answer brings in the time for the first byte, again and again until it ends: one byte in five
seconds breaks this limit, a long answer does not."""
MOST_BYTES = 128 << 20
"""The permitted size of an answer, without compression. One of a thousand instances has five MiB."""
MOST_HEADERS = 1 << 20
"""The permitted bytes before the headers are complete: any number of provisional answers (``100 Continue``) may precede
them."""
PAUSES = (0.5, 1.0)
"""Seconds before a read is repeated: a drain reads for up to an hour. A write is, after :data:`LIMITED`."""
LONGEST_PAUSE = 30.0
"""The seconds that an API may ask for instead, with ``Retry-After``."""
LIMITED = 429
"""The HTTP status of a request that the API did not begin, since there were too many."""
BUSY = frozenset({LIMITED, 502, 503, 504})
"""The HTTP statuses of an API that is overloaded, restarts, or is not reached by its load balancer."""
LOST = frozenset({502, 504})
"""Those of a load balancer that got no answer of the API, which may carry the request out all the same."""
_PATIENCE: ContextVar[float | None] = ContextVar("_PATIENCE", default=None)
"""Instead of :data:`FIRST_BYTE`; None for that."""
_VERSION = re.compile(r"/v\d[\d.]*(?=/|$)")


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Wait longer for the first byte of the answers to the requests within; ``api_timeout`` of clouds.yaml wins."""
    usual = _PATIENCE.set(seconds)
    try:
        yield
    finally:
        _PATIENCE.reset(usual)


class LimitedAdapter(TCPKeepAliveAdapter):
    """The adapter of one run: it sends nothing to a service that was silent before.

    Its errors are those of keystoneauth, which passes them on; it would replace the message of requests' own.

    :param session: the session that sends with it, whose catalogue has the endpoints.
    :param check: refuses a new token with a catalogue, before anything is sent with it.
    """

    def __init__(self, session: Session, check: Callable[[Any], object] = bool) -> None:
        super().__init__()
        self._session, self._check = session, check
        learn([value for name, value in os.environ.items() if name.lower().endswith("_proxy")])
        self._silent: dict[str, str] = {}
        self._access: Any = None
        self._known: dict[str, str] = {}

    def forget_silence(self) -> None:
        """Begin another run."""
        self._silent.clear()
        silence.forget()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - as requests has it
        """Create the pools of connections."""
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:  # noqa: ANN401 - as requests has it
        """Return the pools of connections through an HTTP proxy."""
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def send(  # type: ignore[override]
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: float | None = None,
        **options: Any,  # noqa: ANN401 - as requests has it
    ) -> Response:
        """Send a request and read its answer; repeat a read after a lost connection or :data:`BUSY`, a write after
        :data:`LIMITED`.

        :param timeout: ``api_timeout`` of clouds.yaml, in seconds; None without it.
        :raises ConnectTimeout: if the service is silent, or was before.
        :raises ConnectFailure: if there is no connection, or no complete answer; for a write also after :data:`LOST`.
        """
        learn({"token": request.headers.get("X-Auth-Token")})
        endpoint, service = self._service(str(request.url))
        # A token is created by a POST, which changes nothing else.
        repeatable = request.method in ("GET", "HEAD") or str(request.url).endswith("/auth/tokens")
        if not repeatable:
            reads.forget()
        for pause in (*PAUSES, None):
            try:
                answer = self._sent(request, endpoint, service, timeout, stream=stream, **options)
            except SSLError:
                raise
            except (ConnectionError, ChunkedEncodingError) as error:
                if pause is None or not repeatable:
                    way = " through the proxy of http_proxy or https_proxy" if isinstance(error, ProxyError) else ""
                    raise ConnectFailure(f"no connection to {service} at {endpoint}{way}: {_reason(error)}") from error
            else:
                if not repeatable and answer.status_code in LOST:
                    raise ConnectFailure(f"no answer of {service} behind {endpoint}: HTTP {answer.status_code}")
                if answer.status_code not in (BUSY if repeatable else (LIMITED,)) or pause is None:
                    return answer
                pause = max(pause, _asked_for(answer))
                answer.close()
            time.sleep(pause)
        raise AssertionError

    def _sent(
        self,
        request: PreparedRequest,
        endpoint: str,
        service: str,
        timeout: float | None,
        *,
        stream: bool,
        **options: Any,  # noqa: ANN401 - as requests has it
    ) -> Response:
        """Send once, and read the answer."""
        if endpoint in self._silent:
            raise ConnectTimeout(f"{self._silent[endpoint]}; it is not asked again in this run")
        seconds = timeout or _PATIENCE.get() or silence.left(FIRST_BYTE)
        begun = time.monotonic()
        try:
            answer = super().send(request, stream=True, timeout=(min(CONNECT, seconds), seconds), **options)
            is_anonymous = "X-Auth-Token" not in request.headers
            if is_anonymous and (service, request.method, answer.status_code) == ("identity", "GET", 401):
                # keystoneauth would sign in for the versions, and wait for itself without an end (identity/base.py).
                answer.close()
                raise ConnectFailure(f"{service} at {endpoint} does not list its versions: HTTP 401")
            if not stream:
                _within_limit(answer, f"{service} at {endpoint}")
                answer.content  # noqa: B018 - reads the body, within the limits
        except (Timeout, ConnectionError) as error:
            stalled = any(isinstance(cause, ReadTimeoutError) for cause in error.args)
            if not (stalled or isinstance(error, Timeout)):
                raise
            waited = time.monotonic() - begun
            if endpoint not in self._silent:  # other threads wait for it at the same time
                silence.waited(waited)
            self._silent[endpoint] = f"{service} at {endpoint} gave no complete answer within {waited:.3g} seconds"
            raise ConnectTimeout(self._silent[endpoint]) from error
        return answer

    def _service(self, url: str) -> tuple[str, str]:
        """The endpoint of a URL, without a version, and the type of its service.

        Services can share an address (``https://api/compute``, ``https://api/placement``): one may be silent alone.
        """
        url = without_login(url)
        authentication: Any = self._session.auth
        access = getattr(authentication, "auth_ref", None)
        if access is not self._access or not self._known:
            if access and access.has_service_catalog():
                self._check(access)
            self._access, self._known = access, _endpoints(str(getattr(authentication, "auth_url", "") or ""), access)
        fitting = (endpoint for endpoint in self._known if endpoint and f"{url}/".startswith(f"{endpoint}/"))
        if endpoint := max(fitting, key=len, default=""):
            return endpoint, self._known[endpoint]
        address = urlsplit(url)
        server = f"{address.scheme}://{address.netloc}"
        return _unversioned(url) if _VERSION.search(address.path) else server, "an API"


def _asked_for(answer: Response) -> float:
    """The pause that an API asks for, in seconds."""
    with contextlib.suppress(InvalidHeader):
        return min(Retry().get_retry_after(answer.raw) or 0.0, LONGEST_PAUSE)
    return 0.0


def _endpoints(auth_url: str, access: Any) -> dict[str, str]:  # noqa: ANN401 - keystoneauth's of a token, or None
    """The type of service of each endpoint in the catalogue of a token."""
    known = {_unversioned(auth_url): "identity"}
    for service in access.service_catalog.normalize_catalog() if access and access.has_service_catalog() else ():
        known |= {_unversioned(str(endpoint["url"])): str(service["type"]) for endpoint in service["endpoints"]}
    return known


def _unversioned(url: str) -> str:
    return _VERSION.split(without_login(url).partition("?")[0])[0].rstrip("/")


def _within_limit(answer: Response, where: str) -> None:
    """Have the body of an answer, which may be compressed, read up to :data:`MOST_BYTES`."""
    read = answer.iter_content

    def pieces(size: int) -> Iterator[bytes]:
        length = 0
        for piece in read(size):
            length += len(piece)
            if length > MOST_BYTES:
                answer.close()
                raise ConnectFailure(f"{where} sent more than {MOST_BYTES >> 20} MiB in one answer")
            yield piece

    answer.iter_content = pieces  # type: ignore[method-assign,assignment]


class _Paced(io.RawIOBase):
    """The bytes of an answer: the socket's limit holds for the first, and then for each :data:`AT_LEAST`.

    :ivar is_head: whether the headers are incomplete; they have at most :data:`MOST_HEADERS` bytes.
    """

    def __init__(self, raw: io.RawIOBase, connection: socket.socket) -> None:
        self._raw, self._socket = raw, connection
        self._ends: float | None = None
        self._bytes = self._head = 0
        self.is_head = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - a writable buffer
        seconds = self._socket.gettimeout()
        try:
            if self._ends is not None:
                self._socket.settimeout(max(self._ends - time.monotonic(), 0.001))
            number = self._raw.readinto(buffer)
        finally:
            self._socket.settimeout(seconds)
        self._bytes += number or 0
        self._head += number or 0
        if self.is_head and self._head > MOST_HEADERS:
            raise OSError(errno.EMSGSIZE, "the answer has no end of its headers")
        if self._ends is None or self._bytes >= AT_LEAST:
            self._ends, self._bytes = time.monotonic() + (seconds or FIRST_BYTE), 0
        return number

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - as http.client has it
        super().__init__(sock, *arguments, **options)
        self._paced = _Paced(self.fp.detach(), sock)
        self.fp = io.BufferedReader(self._paced)

    def begin(self) -> None:
        super().begin()
        self._paced.is_head = False


def _pool(pool: type, connection: type) -> Any:  # noqa: ANN401 - a class
    """A pool of connections whose answers are of :class:`_Answer`."""
    return type("Pool", (pool,), {"ConnectionCls": type("Connection", (connection,), {"response_class": _Answer})})


_POOLS = {"http": _pool(HTTPConnectionPool, HTTPConnection), "https": _pool(HTTPSConnectionPool, HTTPSConnection)}


def _reason(error: BaseException) -> str:
    """The system's reason for a failed connection, below the exceptions of requests and urllib3."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and (inner.strerror or str(inner).startswith("Tunnel ")):
            return inner.strerror or str(inner)
        nested = [entry for entry in (getattr(inner, "reason", None), *inner.args) if isinstance(entry, BaseException)]
        inner = inner.__cause__ or (nested[0] if nested else inner.__context__)
    return "the service broke off its answer" if "broken" in str(error).lower() else type(error).__name__
