# ruff: noqa: ANN401 - Nova has no types
# mypy: disable-error-code="import-not-found,import-untyped,no-any-return"
"""Token checks: loopback is open to every user of the machine, so each request needs a token."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

from .http import App

_VERSIONS = {"", "v2", "v2.1"}
"""Paths of version documents, which real services also show without a token; clients read them first."""


def checked(app: App, token: str | None) -> App:
    """``app``, restricted to requests with a token.

    :param token: the token; None for any token that Keystone accepts (``[keystone_authtoken]``).
    """
    inner = _by_keystone(app) if token is None else _by_comparison(app, token)

    def wrapped(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        public = environ["REQUEST_METHOD"] in ("GET", "HEAD") and environ["PATH_INFO"].strip("/") in _VERSIONS
        return (app if public else inner)(environ, start_response)

    return wrapped


def equal(presented: str, token: str) -> bool:
    """Compare tokens in constant time; a header may contain any character."""
    return hmac.compare_digest(presented.encode("utf-8", "replace"), token.encode())


def _by_comparison(app: App, token: str) -> App:
    def wrapped(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if equal(environ.get("HTTP_X_AUTH_TOKEN", ""), token):
            return app(environ, start_response)
        start_response("401 Unauthorized", [("Content-Type", "text/plain"), ("Content-Length", "0")])
        return [b""]

    return wrapped


def _by_keystone(app: App) -> App:
    from keystonemiddleware.auth_token import AuthProtocol
    from nova.conf import CONF

    return AuthProtocol(app, {"oslo_config_config": CONF})
