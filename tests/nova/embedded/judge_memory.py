"""Run in the environment of a release: whether a database in memory outlives oslo.db's ``connection_recycle_time``."""

import sys
import unittest.mock

import sqlalchemy
from oslo_db.sqlalchemy import engines

sys.modules["mock"] = unittest.mock  # Yoga's fixtures import the backport of it
from gpustack_demo.embedded.inside.databases import keep_connections  # noqa: E402


def tables() -> list[str]:
    """Create a table; the tables that the next connection finds."""
    engine = engines.create_engine("sqlite://", connection_recycle_time=0)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE allocations (id INTEGER)"))
    return sqlalchemy.inspect(engine).get_table_names()


before = tables()
keep_connections()
print(len(before), *tables())
