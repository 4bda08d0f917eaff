"""The options that a connection URL may have after its ``?``.

A row of ``cell_mappings`` is such a URL, and whoever can write the row is not the operator. Some options of the drivers
read the operator's files, send them to the server, or change what a statement does: so only those are accepted that
say how the server is reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from gpustack.errors import DatabaseError

_ALLOWED = {
    "mysql": frozenset(
        (
            *("charset", "use_unicode", "connect_timeout", "read_timeout", "write_timeout"),
            *("unix_socket", "bind_address", "ssl_ca", "ssl_capath", "ssl_cert", "ssl_key", "ssl_cipher"),
            *("ssl_check_hostname", "ssl_disabled", "ssl_verify_cert", "ssl_verify_identity"),
        )
    ),
    "postgresql": frozenset(
        (
            *("host", "port", "user", "password", "client_encoding", "application_name", "connect_timeout"),
            *("target_session_attrs", "tcp_user_timeout", "keepalives", "keepalives_idle", "keepalives_interval"),
            *("keepalives_count", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "sslcrldir"),
            *("sslsni", "ssl_min_protocol_version", "ssl_max_protocol_version", "gssencmode", "krbsrvname"),
            *("channel_binding", "require_auth", "requirepeer"),
        )
    ),
    "sqlite": frozenset({"timeout"}),
}
_IGNORED = frozenset({"plugin"})
"""SQLAlchemy's plug-ins are for Nova's processes: DevStack has plugin=dbcounter in each connection."""

# Beyond the driver's defaults, whatever the URL has: PyMySQL can send any file that a server asks for.
_ALWAYS: Mapping[str, Mapping[str, object]] = {"mysql": {"local_infile": False}}
HANDSHAKE = 15
"""Seconds that a server may take to let a client in, unless the URL has the driver's option for it."""
# PyMySQL's connect_timeout ends where TCP is connected; its read_timeout is for the rest, and is lifted afterwards.
_PATIENCE = {"mysql": ("connect_timeout", "read_timeout"), "postgresql": ("connect_timeout",)}

_SHORT = 4


def arguments(url: sa.URL) -> dict[str, object]:
    """The driver's arguments for a connection, beside those that the URL has."""
    kind = url.get_backend_name()
    patience = {name: HANDSHAKE for name in _PATIENCE.get(kind, ()) if name not in url.query}
    return {**patience, **_ALWAYS.get(kind, {})}


def unlimited(url: sa.URL, connection: Any) -> None:  # noqa: ANN401 - of any driver
    """Let a statement on a new connection take as long as it does: only the handshake has a limit."""
    if url.get_backend_name() == "mysql" and "read_timeout" not in url.query:
        connection._read_timeout = None


def accepted(url: sa.URL, where: str) -> sa.URL:
    """A URL without the options that are of no use here.

    :param where: what to call the database in the error.
    :raises DatabaseError: for an option that is not on the list; its value, which may be a secret, is not shown.
    """
    kind = url.get_backend_name()
    refused = sorted(set(url.query) - _ALLOWED[kind] - _IGNORED)
    if refused:
        raise DatabaseError(
            f"the connection has the option {refused[0][:64]!r}, which gpustack does not pass to the {kind} driver",
            where=where,
            remedy=f"remove it from the connection; allowed: {', '.join(sorted(_ALLOWED[kind]))}",
        )
    return url.difference_update_query(_IGNORED)


def without_secrets(text: str, secrets: Iterable[str], public: Iterable[str]) -> str:
    """A driver's message without the secrets that may be in it.

    A secret counts where it is a word of its own, a short one only in quotes: else a password such as ``a`` would make
    the message unreadable. One that equals a part of the URL that is shown anyway is left: stars would betray it.
    """
    for secret in sorted(set(secrets) - set(public), key=len, reverse=True):
        pattern = re.escape(secret)
        around = (r"(?<!\w)", r"(?!\w)") if len(secret) >= _SHORT else (r"(?<=['\"])", r"(?=['\"])")
        text = re.sub(around[0] + pattern + around[1], "***", text)
    return text
