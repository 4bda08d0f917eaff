"""Access to an OpenStack API, shared by the domains: sign in, and translate request errors.

Requests go through a service's proxy of openstacksdk's connection, at a microversion that the caller passes. No message
contains a password or a token.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import CloudError

if TYPE_CHECKING:
    from openstack.connection import Connection

_SIGN_IN = "check the user, the password and the project in clouds.yaml or the OS_* variables"
_FIND = (
    "check auth_url, region_name, interface and cacert of the cloud in clouds.yaml, or OS_AUTH_URL, OS_REGION_NAME,"
    " OS_INTERFACE and OS_CACERT"
)
_FORBIDDEN = "this needs a user who may administer Nova: use a cloud of clouds.yaml with the role admin"


class Unanswered(CloudError):  # noqa: N818 - it is what happened
    """A request got no answer; the API may or may not have carried it out."""


class Refused(CloudError):  # noqa: N818 - it is what happened
    """The API refused a request.

    :ivar status: the HTTP status.
    """

    def __init__(self, what: str, *, status: int, where: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.status = status


def connect(cloud: str | None = None, *, timeout: float | None = None) -> Connection:
    """A connection configured by ``clouds.yaml`` and the ``OS_*`` variables, as in all OpenStack clients.

    The current directory is not searched, since it is usually a spec repository: a clouds.yaml there could send the
    password of the user's secure.yaml to any address. It is used only if ``OS_CLIENT_CONFIG_FILE`` names it.

    :param cloud: a name in clouds.yaml; None for ``OS_CLOUD``, or the variables alone.
    :param timeout: seconds to wait for an answer, unless clouds.yaml has ``api_timeout``.
    :raises CloudError: when there is no such cloud, or no credentials.
    """
    import keystoneauth1.exceptions
    import openstack.config
    import openstack.connection
    import openstack.exceptions

    try:
        region = openstack.config.OpenStackConfig(**_files()).get_one(cloud=cloud)
        if region.config.get("api_timeout") is None:
            region.config["api_timeout"] = timeout
        return openstack.connection.Connection(config=region)
    except (
        openstack.exceptions.ConfigException,
        keystoneauth1.exceptions.ClientException,
        OSError,
        *(AttributeError, TypeError, ValueError, LookupError),  # raised for a clouds.yaml with values of wrong types
    ) as error:
        raise CloudError(
            f"the cloud's configuration can't be used: {error}",
            remedy="name a cloud of clouds.yaml with --os-cloud or OS_CLOUD, or set the OS_* variables; clouds.yaml of"
            " the current directory is read only if OS_CLIENT_CONFIG_FILE names it",
        ) from error


def cloud_names() -> list[str]:
    """The names of the clouds in ``clouds.yaml`` that :func:`connect` accepts.

    :raises CloudError: when the file can't be read.
    """
    import openstack.config
    import openstack.exceptions

    try:
        config = openstack.config.OpenStackConfig(**_files())
        return sorted(config.get_cloud_names()) if config.config_filename else []
    except (openstack.exceptions.ConfigException, OSError, AttributeError, TypeError, ValueError, LookupError) as error:
        raise CloudError(f"clouds.yaml can't be used: {error}", remedy="correct the file") from error


def _files() -> dict[str, Any]:
    """openstacksdk's default locations without the current directory (``openstack/config/loader.py``)."""
    from openstack.config import loader

    working_directory, *search_path = loader.CONFIG_SEARCH_PATH
    return {
        name: [
            file for file in files if str(Path(file).parent) != working_directory or working_directory in search_path
        ]
        for name, files in (
            ("config_files", loader.CONFIG_FILES),
            ("secure_files", loader.SECURE_FILES),
            ("vendor_files", loader.VENDOR_FILES),
        )
    }


@contextlib.contextmanager
def translated_errors(doing: str, remedy: str | None = None) -> Iterator[None]:
    """Translate request errors of keystoneauth and openstacksdk into CloudError.

    :param doing: the action, for the message: "can't …".
    :param remedy: the remedy for errors without a more specific one.
    :raises Unanswered: when there was no answer, or an unreadable one.
    :raises CloudError: when the request could not be sent, or was refused.
    """
    import keystoneauth1.exceptions as failures
    import openstack.exceptions

    try:
        yield
    except (failures.ConnectFailure, failures.RetriableConnectionFailure, failures.UnknownConnectionError) as error:
        retry = "see whether the API can be reached, and run the command again: it goes on where this one stopped"
        raise Unanswered(f"can't {doing}: {error}", remedy=retry) from error
    except (failures.Unauthorized, failures.MissingRequiredOptions, failures.MissingAuthPlugin) as error:
        raise CloudError(f"can't sign in to {doing}: {error}", remedy=_SIGN_IN) from error
    except failures.SSLError as error:
        raise CloudError(f"can't {doing}: {error}", remedy=_FIND) from error
    except (failures.ClientException, openstack.exceptions.SDKException) as error:
        raise CloudError(f"can't {doing}: {error}", remedy=remedy) from error
    except ValueError as error:
        raise Unanswered(
            f"can't {doing}: the answer is not valid JSON", remedy="see what answers at this address"
        ) from error
    except OSError as error:
        raise CloudError(f"can't {doing}: {error}", remedy=_FIND) from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        # keystoneauth raises a plain Exception if there is a user without a password, or the reverse.
        raise CloudError(f"can't sign in to {doing}: {error}", remedy=_SIGN_IN) from error


def compute_of(connection: Connection) -> tuple[Any, str | None, tuple[int | float, ...]]:
    """The compute service's proxy, its endpoint, and the newest microversion (empty if unknown).

    :raises CloudError: when the service can't be found.
    """
    with translated_errors("find the compute service", _FIND):
        compute = connection.compute
        data = compute.get_endpoint_data()
    return compute, data.url if data else None, tuple(data.max_microversion or ()) if data else ()


def raise_refusal(answer: Any, doing: str, where: str | None, *, forbidden: str = _FORBIDDEN) -> None:  # noqa: ANN401
    """Raise :class:`Refused` if the API refused the request.

    :param answer: a response of requests.
    :param doing: the action, for the message: "can't …".
    :param where: the endpoint, for the message.
    :param forbidden: the remedy if the user lacks the right (HTTP 403).
    """
    if answer.status_code >= 400:
        raise refusal(answer.status_code, _message(answer), doing, where, forbidden=forbidden)


def refusal(status: int, message: str, doing: str, where: str | None, *, forbidden: str = _FORBIDDEN) -> Refused:
    """The error for a refused request, with the remedy that its HTTP status suggests."""
    remedy = {
        401: "check the user, the password and the project",
        403: forbidden,
    }.get(status, "see the log of nova-api" if status >= 500 else None)
    return Refused(f"can't {doing}: HTTP {status}, {message}", status=status, where=where, remedy=remedy)


def _message(answer: Any) -> str:  # noqa: ANN401 - a response
    """The API's reason for a refusal. Nova and Keystone wrap it in an object with one key."""
    try:
        content = answer.json()
    except ValueError:
        return str(answer.reason)
    inner = next(iter(content.values()), None) if isinstance(content, dict) else None
    return str(inner.get("message", answer.reason)) if isinstance(inner, dict) else str(answer.reason)


def numbers(version: str) -> tuple[int, ...]:
    """A microversion as numbers, for comparisons."""
    return tuple(int(part) for part in version.split("."))
