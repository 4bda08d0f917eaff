"""The one way to OpenStack's APIs: sign in, send requests, read pages and several answers at a time, translate errors.

Requests go through a service's proxy of openstacksdk's connection, at one of :mod:`gpustack.cloud.microversions`,
within the limits of :mod:`gpustack.cloud.time_limits`. No message contains a password or a token.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote

from gpustack.base.errors import CloudError
from gpustack.base.known_secrets import learn
from gpustack.base.text import without_login
from gpustack.cloud import Connection, reads
from gpustack.cloud.config_files import MISFIT, checked_locations, region_of, searched
from gpustack.cloud.microversions import Microversion

_SIGN_IN = "check the user, the password or the token, and the project in clouds.yaml or the OS_* variables"
_FIND = (
    "check auth_url, region_name, interface and cacert of the cloud in clouds.yaml, or OS_AUTH_URL, OS_REGION_NAME,"
    " OS_INTERFACE and OS_CACERT"
)
_RETRY = "check that the API answers at this address, then run the command again"
_READING = "the user needs the right to read this: use a cloud of clouds.yaml with the role admin"
_WRITING = "this is for administrators: use a cloud of clouds.yaml with the role admin"
_SCOPE = "only Keystone knows roles of the system: set project_name (OS_PROJECT_NAME) instead of system_scope"
_LOGS = {"compute": "nova-api", "identity": "Keystone", "image": "glance-api", "network": "neutron-server"}
_MISFORMED = "the answer is not as the API documents it"
_OTHER_SERVICE = "check which service answers at this address"
_MALFORMED = (OverflowError, LookupError, TypeError, ValueError, AttributeError)
UNAUTHORIZED, FORBIDDEN, MISSING, CONFLICT = 401, 403, 404, 409
NOBODY = "00000000-0000-0000-0000-000000000000"
"""The id of no object."""
_NOT_ACCEPTABLE = 406
AT_ONCE = 8
"""Requests at a time: few enough for an API that serves a cloud meanwhile, and for the connections that requests keeps
open."""
PAGE = 1000
"""The entries of a page: what Nova (``[api] max_limit``) and Glance give at most by default."""
_CREATION = {service: threading.Lock() for service in (*_LOGS, "placement")}
"""Held while the SDK creates the proxy of a service on first use, which is not safe in several threads. A silent
service blocks only those who ask it too."""

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Progress = Callable[[int, int], None]
"""Called with the number of requests that were answered, and their total."""


def silent(done: int, total: int) -> None:
    """Show no progress."""


class Unanswered(CloudError):  # noqa: N818 - it is what happened
    """A request got no answer; the API may or may not have carried it out."""


class Refused(CloudError):  # noqa: N818 - it is what happened
    """The API refused a request.

    :ivar status: the HTTP status.
    """

    def __init__(self, what: str, *, status: int, where: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.status = status


@contextlib.contextmanager
def tolerating(*statuses: int) -> Iterator[None]:
    """Suppress :class:`Refused` with one of these HTTP statuses."""
    try:
        yield
    except Refused as error:
        if error.status not in statuses:
            raise


def connect(cloud: str | None = None, region: str | None = None) -> Connection:
    """A connection configured by ``clouds.yaml`` and the ``OS_*`` variables, as in all OpenStack clients.

    The current directory is not searched, since it is usually a spec repository: a clouds.yaml there could send the
    password of the user's secure.yaml to any address. It is used only if ``OS_CLIENT_CONFIG_FILE`` names it.

    :param cloud: a name in clouds.yaml; None for ``OS_CLOUD``, or the variables alone.
    :param region: of those that clouds.yaml permits; None for the first.
    :raises CloudError: when there is no such cloud, or no credentials.
    """
    import keystoneauth1.exceptions
    import openstack.config
    import openstack.connection
    import openstack.exceptions
    import yaml

    from gpustack.base.limited_yaml import reason

    wrong = (openstack.exceptions.ConfigException, keystoneauth1.exceptions.ClientException, yaml.YAMLError, *MISFIT)
    try:
        chosen: dict[str, Any] = {"region_name": region} if region else {}
        config = openstack.config.OpenStackConfig(**checked_locations()).get_one(cloud=cloud, **chosen)
        return limited(openstack.connection.Connection(config=config))
    except wrong as error:
        raise CloudError(
            f"the cloud's configuration can't be used: {reason(error).rstrip('.')}; {searched()}",
            remedy="name a cloud of clouds.yaml (--os-cloud or OS_CLOUD; gpustack_cloud of a playbook), or set the OS_*"
            " variables; clouds.yaml of the current directory is read only if OS_CLIENT_CONFIG_FILE names it",
        ) from error


_SHARED: dict[tuple[str | None, str | None], Connection] = {}
"""The connections of this process, by the name of the cloud and its region."""


def shared(cloud: str | None = None, region: str | None = None) -> Connection:
    """The one connection of this process to a cloud, until :func:`disconnect`; made as by :func:`connect`.

    :raises CloudError: when there is no such cloud, or no credentials.
    """
    if (cloud, region) not in _SHARED:
        _SHARED[cloud, region] = connect(cloud, region)
    return _SHARED[cloud, region]


def disconnect() -> None:
    """Close the connections of this process, with their sockets and threads."""
    while _SHARED:
        _cloud, connection = _SHARED.popitem()
        connection.close()
        connection.session.session.close()
        # openstacksdk (proxy.py) keeps up to 128 proxies, with their connections, in a cache of a method.
        cached: Any = getattr(getattr(sys.modules.get("openstack.proxy"), "Proxy", None), "_extract_name", None)
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


def again(connection: Connection) -> None:
    """Begin another run on a connection: services that were silent in the last one are asked again."""
    adapter: Any = connection.session.session.get_adapter("https://")
    adapter.forget_silence()


def limited(connection: Connection) -> Connection:
    """Set the time limits for a connection, and begin a run, in which a silent service is not asked again."""
    from gpustack.cloud.time_limits import LimitedAdapter

    learn(connection.config.config)
    _mount(connection, LimitedAdapter(connection.session, lambda token: region_of(connection.config, _regions(token))))
    connection.session.timeout = connection.session.timeout or _api_timeout(connection)
    return connection


def _api_timeout(connection: Connection) -> float | None:
    """``api_timeout`` of clouds.yaml, which openstackclient (osc_lib/clientmanager.py) replaces with None."""
    files = getattr(connection.config, "_openstack_config", None)
    clouds = (files and files.cloud_config.get("clouds")) or {}
    seconds = (clouds.get(connection.config.name) or {}).get("api_timeout")
    return float(seconds) if seconds else None


def connect_as(connection: Connection, **scope: str) -> Connection:
    """Connect with another scope, within the same run."""
    other = connection.connect_as(**scope)
    _mount(other, connection.session.session.get_adapter("https://"))
    return other


def _mount(connection: Connection, adapter: Any) -> None:  # noqa: ANN401 - of requests, which is imported late
    sender = connection.session.session
    for scheme in list(sender.adapters):
        sender.mount(scheme, adapter)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who is signed in: the names or ids of the user and the project (empty if there is none), and the roles.

    :ivar regions: the regions in which the catalog has Nova.
    """

    user: str
    project: str
    roles: frozenset[str]
    regions: frozenset[str] = frozenset()


def sign_in(connection: Connection) -> Access | None:
    """Sign in, and return as whom; None if a configured token is used, whose user is unknown.

    :raises CloudError: if Keystone cannot be reached or refuses.
    """
    authentication: Any = connection.session.auth
    with translated_errors("sign in"):
        if not hasattr(authentication, "get_access"):
            connection.session.get_token()
            return None
        access = authentication.get_access(connection.session)
        return Access(
            user=str(access.username or access.user_id),
            project=str(access.project_name or access.project_id or ""),
            roles=frozenset(access.role_names),
            regions=_regions(access),
        )


def _regions(access: Any) -> frozenset[str]:  # noqa: ANN401 - keystoneauth's of a token
    endpoints = access.service_catalog.get_endpoints_data(service_type="compute").values()
    return frozenset(entry.region_name for of_type in endpoints for entry in of_type if entry.region_name)


def place_of(connection: Connection) -> dict[str, str]:
    """The cloud of a connection and its user, for records: nothing secret, and no request but signing in.

    :returns: ``auth_url``, ``region``, ``user`` and ``project``, each empty if unknown.
    :raises CloudError: if Keystone refuses or does not answer, or if each service may be of another region.
    """
    config, access = connection.config, sign_in(connection) or Access(user="", project="", roles=frozenset())
    return {
        "auth_url": without_login(str(config.auth.get("auth_url") or "")),
        "region": region_of(config, access.regions),
        "user": access.user,
        "project": access.project,
    }


@contextlib.contextmanager
def translated_errors(doing: str, remedy: str | None = None) -> Iterator[None]:
    """Translate request errors of keystoneauth, openstacksdk and python-novaclient into CloudError.

    :param doing: the action, for the message: "can't …".
    :param remedy: the remedy for errors without a more specific one.
    :raises Unanswered: when there was no answer, or an unreadable one.
    :raises Refused: when Keystone refuses to sign in, or Nova a request of novaclient; others see :func:`request`.
    :raises CloudError: when the request could not be sent.
    """
    import keystoneauth1.exceptions as failures
    import openstack.exceptions

    signing = "" if doing == "sign in" else ", because the sign-in failed"
    try:
        yield
    except (failures.ConnectFailure, failures.RetriableConnectionFailure, failures.UnknownConnectionError) as error:
        raise Unanswered(f"can't {doing}: {error}", remedy=_RETRY) from error
    except (failures.Unauthorized, failures.MissingRequiredOptions, failures.MissingAuthPlugin) as error:
        raise Refused(f"can't {doing}{signing}: {error}", status=UNAUTHORIZED, remedy=_SIGN_IN) from error
    except (failures.SSLError, failures.CatalogException, openstack.exceptions.ServiceDisabledException) as error:
        reason = str(error).rpartition("service catalog: ")[2]  # before it, the SDK calls the service disabled
        raise CloudError(f"can't {doing}: {reason}", remedy=_FIND) from error
    except (failures.ClientException, openstack.exceptions.SDKException) as error:
        if isinstance(error.__context__, failures.RetriableConnectionFailure):
            # A failed discovery of versions suggests to check the address, also of a silent Keystone.
            raise Unanswered(f"can't {doing}: {error.__context__}", remedy=_RETRY) from error
        refused = isinstance(error, failures.NotFound)  # Keystone's answer to an invalid token
        raise CloudError(f"can't {doing}: {error}", remedy=_SIGN_IN if refused else remedy) from error
    except ValueError as error:
        raise Unanswered(f"can't {doing}: the answer is not valid JSON", remedy=_OTHER_SERVICE) from error
    except (*_MALFORMED, RecursionError) as error:  # keystoneauth does not check the answer of Keystone
        raise CloudError(f"can't {doing}: {_MISFORMED}", remedy=_OTHER_SERVICE) from error
    except OSError as error:
        raise CloudError(f"can't {doing}: {error}", remedy=_FIND) from error
    except _novaclient_errors() as error:
        raise _refusal("compute", error.code, str(error.message), doing, None, _WRITING) from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        # keystoneauth raises a plain Exception if there is a user without a password, or the reverse.
        raise CloudError(f"can't {doing}{signing}: {error}", remedy=_SIGN_IN) from error


def _novaclient_errors() -> Any:  # noqa: ANN401 - a class of exceptions without types
    """The base of novaclient's errors. Python evaluates the call only if an error occurred."""
    from novaclient.exceptions import ClientException

    return ClientException


@contextlib.contextmanager
def well_formed(doing: str) -> Iterator[None]:
    """Convert the exceptions of reading a malformed answer to a :class:`CloudError`."""
    try:
        yield
    except _MALFORMED as error:
        raise CloudError(f"can't {doing}: {_MISFORMED}", remedy=_OTHER_SERVICE) from error


def request(
    cloud: Connection,
    service: str,
    method: str,
    path: str,
    doing: str,
    *,
    version: Microversion | None = None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    forbidden: str = "",
) -> Any:  # noqa: ANN401 - a response of requests
    """Send one request, and return its response.

    :param service: the name of the SDK's proxy: ``compute``, ``placement``, ``identity`` or ``image``.
    :param path: below the service's endpoint, with its query.
    :param doing: the action, for the message: "can't …".
    :param body: sent as JSON; None for none.
    :param forbidden: the remedy if the user lacks the right (HTTP 403).
    :raises Refused: if the API refuses.
    :raises Unanswered: if there is no answer.
    :raises CloudError: if the request could not be sent.
    """
    plain, _, query = path.partition("?")
    if not {".", ".."}.isdisjoint(unquote(plain).split("/")) or "#" in path or "/" in query:
        # HTTP clients shorten such a path to that of another resource; requests decodes %2e first.
        raise CloudError(f"can't {doing}: an id or a name of dots, or with # or ?, is no part of an address")
    options: dict[str, Any] = {} if body is None else {"json": body}
    options |= {"headers": dict(headers)} if headers else {}
    with translated_errors(doing):
        proxy = _proxy(cloud, service, doing)
        options |= {"microversion": version and version.number, "raise_exc": False}
        # Settings of clouds.yaml can have keystoneauth repeat writes.
        answer = proxy.request(path, method, connect_retries=0, status_code_retries=0, **options)
    if answer.status_code == _NOT_ACCEPTABLE and version is not None:
        raise _too_old(service, version, doing, _endpoint(answer, path))
    if answer.status_code == FORBIDDEN and service != "identity" and cloud.config.auth.get("system_scope"):
        forbidden = _SCOPE
    raise_refusal(answer, service, path, doing, forbidden or (_READING if method == "GET" else _WRITING))
    return answer


def _proxy(cloud: Connection, service: str, doing: str) -> Any:  # noqa: ANN401 - of the SDK
    """The SDK's proxy of a service, or the reason why its versions are unreadable, which the SDK does not show."""
    from openstack.exceptions import NotSupported

    with _CREATION[service], contextlib.suppress(NotSupported):
        return getattr(cloud, service)
    adapter = cloud.config.get_session_client(service)
    where = str(adapter.get_endpoint(skip_discovery=True))
    answer = adapter.get(where, raise_exc=False, authenticated=False, connect_retries=0, status_code_retries=0)
    what = f"no version of the {service} API is readable: HTTP {answer.status_code}, {answer.reason}"
    raise CloudError(f"can't {doing}: {what}", where=where, remedy=_RETRY)


def raise_refusal(answer: Any, service: str, path: str, doing: str, forbidden: str = _READING) -> None:  # noqa: ANN401 - a response
    """Raise :class:`Refused` if the API refused the request."""
    if answer.status_code >= 400:
        raise _refusal(service, answer.status_code, _message(answer), doing, _endpoint(answer, path), forbidden)


def may(cloud: Connection, service: str, path: str, doing: str, body: object, version: Microversion) -> bool:
    """Whether the user has the right to write, by a request for an object that does not exist.

    :param path: that of :data:`NOBODY`. Nova and Placement ask their policy before they look the object up.
    :raises CloudError: if the API cannot be reached, or refuses for another reason.
    """
    try:
        request(cloud, service, "PUT", path, doing, version=version, body=body)
    except Refused as error:
        if error.status not in (FORBIDDEN, MISSING):
            raise
        return error.status == MISSING
    return True


def get(cloud: Connection, service: str, path: str, doing: str, *, version: Microversion | None = None) -> Any:  # noqa: ANN401 - JSON
    """Read a resource, and return its content, an object of JSON.

    :raises Refused: if the API refuses.
    :raises CloudError: if there is no answer, or an unreadable one.
    """
    known, key = reads.answers(), (id(cloud), service, path, version)
    if key not in known:
        known[key] = content_of(request(cloud, service, "GET", path, doing, version=version), doing)
    return known[key]


def find(cloud: Connection, service: str, path: str, doing: str, *, version: Microversion | None = None) -> Any:  # noqa: ANN401 - JSON
    """As :func:`get`, but None if there is no such resource."""
    with tolerating(MISSING):
        return get(cloud, service, path, doing, version=version)
    return None


def content_of(answer: Any, doing: str) -> Any:  # noqa: ANN401 - a response, and its JSON
    """Return the content of a response, an object of JSON.

    :raises CloudError: if it is none.
    """
    try:
        content = answer.json()
    except (ValueError, RecursionError) as error:
        raise Unanswered(f"can't {doing}: the answer is not valid JSON", remedy=_OTHER_SERVICE) from error
    if not isinstance(content, dict):
        raise CloudError(f"can't {doing}: {_MISFORMED}", remedy=_OTHER_SERVICE)
    return content


def pages(
    cloud: Connection, service: str, path: str, key: str, doing: str, *, version: Microversion | None = None
) -> Iterator[list[Any]]:
    """Yield the pages of a listing of Nova, Glance or Keystone, one request for each :data:`PAGE` entries.

    :param path: with a query, which may be empty: ``/servers/detail?``.
    :param key: the key of the entries in the answer.
    """
    marker = ""
    while True:
        content = get(cloud, service, f"{path}&limit={PAGE}{marker}", doing, version=version)
        with well_formed(doing):
            entries = list(content[key])
            yield entries
            # Glance has a key, Keystone a key of its links, and Nova a list of links.
            more = content.get("next") or (content.get("links") or {}).get("next")
            more = more or any(link.get("rel") == "next" for link in content.get(f"{key}_links", ()))
            if not (more and entries):
                return
            last = entries[-1]
            following = f"&marker={last.get('uuid') or last['id']}"
            if following == marker:
                raise ValueError("the next page begins where this one did")
            marker = following


def listing(
    cloud: Connection, service: str, path: str, key: str, doing: str, *, version: Microversion | None = None
) -> list[Any]:
    """The entries of all pages."""
    return [entry for page in pages(cloud, service, path, key, doing, version=version) for entry in page]


def each(
    ask: Callable[[Question], Answer], questions: Iterable[Question], progress: Progress = silent
) -> Iterator[Answer]:
    """Yield the answers in the order of the questions, :data:`AT_ONCE` requests at a time."""
    wanted = list(questions)
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        try:
            for number, answer in enumerate(pool.map(ask, wanted), 1):
                progress(number, len(wanted))
                yield answer
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def newest(cloud: Connection, oldest: Microversion, *newer: Microversion, doing: str) -> Microversion:
    """Return the newest of some microversions that the compute API has; ``oldest`` if Nova does not report any.

    :param doing: the action that needs ``oldest``, for the message.
    :raises Refused: when the compute API ends before ``oldest``.
    :raises CloudError: when the service can't be found.
    """
    with translated_errors("find the compute service", _FIND), _CREATION["compute"]:
        data = cloud.compute.get_endpoint_data()
        where, last = (data.url, tuple(data.max_microversion or ())) if data else (None, ())
    if last and last < oldest.parts:
        raise _too_old("compute", oldest, doing, where, ".".join(map(str, last)))
    known = (version for version in newer if not last or version.parts <= last)
    return max(known, key=lambda version: version.parts, default=oldest)


def _too_old(service: str, wanted: Microversion, doing: str, where: str | None, last: str = "") -> Refused:
    """The error of a cloud that is older than a feature."""
    ends = f"the {service} API ends at microversion {last}" if last else f"the {service} API is older"
    return Refused(
        f"can't {doing}: {ends}; {wanted.number} ({wanted.release}) is needed",
        status=_NOT_ACCEPTABLE,
        where=where,
        remedy=f"upgrade the cloud to {wanted.release}, or use the `openstack` commands by hand",
    )


def _endpoint(answer: Any, path: str) -> str | None:  # noqa: ANN401 - a response
    """The endpoint of a response, for messages."""
    return str(getattr(answer, "url", "")).partition(path.partition("?")[0])[0] or None


def _refusal(service: str, status: int, message: str, doing: str, where: str | None, forbidden: str) -> Refused:
    """The error for a refused request, with the remedy that its HTTP status suggests."""
    log = f"see the log of {_LOGS.get(service, service)}" if status >= 500 else None
    remedy = {UNAUTHORIZED: "check the user, the password and the project", FORBIDDEN: forbidden}.get(status, log)
    return Refused(f"can't {doing}: HTTP {status}, {message}", status=status, where=where, remedy=remedy)


def _message(answer: Any) -> str:  # noqa: ANN401 - a response
    """The API's reason for a refusal, in one line. Nova and Keystone wrap it in an object, Placement in a list."""
    try:
        content = answer.json()
    except (ValueError, RecursionError):
        return str(answer.reason)
    inner = next(iter(content.values()), None) if isinstance(content, dict) else None
    inner = inner[0] if isinstance(inner, list) and inner else inner
    message = (inner.get("message") or inner.get("detail")) if isinstance(inner, dict) else None
    return " ".join(str(message or answer.reason).split())
