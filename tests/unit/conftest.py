"""Hypothesis without deadlines: a busy machine is no reason to fail. SQLite without waiting for the disk."""

import contextlib
import sqlite3

import sqlalchemy
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@sqlalchemy.event.listens_for(sqlalchemy.Engine, "connect")
def do_not_wait(connection: object, _record: object) -> None:
    """No test loses power. A commit that waits for the disk takes 3 ms, most of the time of a row."""
    if isinstance(connection, sqlite3.Connection):
        with contextlib.suppress(sqlite3.Error):  # a test's file may be no database
            connection.execute("PRAGMA synchronous = OFF")
