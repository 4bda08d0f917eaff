"""The options that a connection URL may have after its ``?``.

Connection URLs come from ``cell_mappings``, and a person who can write that table may not be the operator. Some driver
options read local files, send them to the server, or change the meaning of a statement. So only options that describe
how to reach the server are accepted.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from gpustack.base.errors import DatabaseError
from gpustack.base.files import data_table
from gpustack.base.silence import left

_ALLOWED = data_table("connection_options.toml")
_IGNORED = frozenset({"plugin"})
"""SQLAlchemy plug-ins are meant for Nova's processes: DevStack sets plugin=dbcounter in each connection."""

# Set for every connection: PyMySQL can send any local file that a server requests.
_ALWAYS: Mapping[str, Mapping[str, object]] = {"mysql": {"local_infile": False}}
HANDSHAKE = 15
"""Seconds that a server may take for the handshake, unless the URL sets the driver's option."""
# PyMySQL's connect_timeout covers the TCP connection only; read_timeout limits the handshake and is removed afterwards.
_PATIENCE = {"mysql": ("connect_timeout", "read_timeout"), "postgresql": ("connect_timeout",)}


def arguments(url: sa.URL) -> dict[str, object]:
    """Return the driver arguments for a connection, in addition to the URL's options."""
    kind = url.get_backend_name()
    patience = {name: max(1, int(left(HANDSHAKE))) for name in _PATIENCE.get(kind, ()) if name not in url.query}
    return {**patience, **_ALWAYS.get(kind, {})}


def unlimited(url: sa.URL, connection: Any) -> None:  # noqa: ANN401 - of any driver
    """Remove the read timeout after the handshake: a statement may take any time."""
    if url.get_backend_name() == "mysql" and "read_timeout" not in url.query:
        connection._read_timeout = None


def accepted(url: sa.URL, where: str) -> sa.URL:
    """Check the options of a URL and return it without those that gpustack ignores.

    :param where: the name of the database for the error message.
    :raises DatabaseError: for an option that is not allowed; its value may be a secret and is not shown.
    """
    kind = url.get_backend_name()
    if refused := sorted(set(url.query).difference(_ALLOWED[kind], _IGNORED)):
        what = f"the connection has the option {refused[0][:64]!r}, which gpustack does not pass to the {kind} driver"
        remedy = f"remove it from the connection; allowed: {', '.join(sorted(_ALLOWED[kind]))}"
        raise DatabaseError(what, where=where, remedy=remedy)
    if url.query.keys() & {"read_default_file", "read_default_group"}:  # TripleO and RHOSO name one for TLS
        path = str(url.query.get("read_default_file", "/etc/my.cnf"))
        known = re.fullmatch(r"/etc/(my\.cnf|(my\.cnf\.d|mysql)/[\w.-]+)", path) and os.path.isfile(path)  # noqa: PTH113
        if not (known and url.username and url.password and url.host and url.database):  # or it may have another login
            what = "the connection has read_default_file, which gpustack does not pass to the driver as it is"
            remedy = "run gpustack where the file is in /etc, and name user, password, host and database; or set ssl_ca"
            raise DatabaseError(what, where=where, remedy=remedy)
    return url.difference_update_query(_IGNORED)
