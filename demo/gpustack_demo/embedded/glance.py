"""Glance on loopback, with its images in files.

``python -m gpustack_demo.embedded.glance RELEASE …`` installs it before its first use.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gpustack.base.files import write_atomic
from gpustack_demo.embedded.additions import Addition
from gpustack_demo.embedded.environment import Environment, Report
from gpustack_demo.embedded.identity import AUTH, inside_command
from gpustack_demo.embedded.process import ServiceProcess

_DATABASE = "glance.sqlite"
_STORES = ("images", "staging", "tasks")
SETTINGS = """
[DEFAULT]
enabled_backends = store:file
[database]
connection = {database}
[glance_store]
default_backend = store
[os_glance_staging_store]
filesystem_store_datadir = {directory}/staging
[os_glance_tasks_store]
filesystem_store_datadir = {directory}/tasks
[paste_deploy]
flavor = keystone
config_file = {paste}
[store]
filesystem_store_datadir = {directory}/images
"""


def _schema(packages: Path) -> list[str]:
    config = packages / "gpustack-database.conf"
    config.write_text(f"[database]\nconnection = sqlite:///{packages}/{_DATABASE}\n", encoding="utf-8")
    return ["-m", "glance.cmd.manage", "--config-file", str(config), "db_sync"]


GLANCE = Addition(title="Glance", database=_DATABASE, schema=_schema)
ensure_glance, pins = GLANCE.ensure, GLANCE.pins


def start_glance(
    environment: Environment, directory: Path, *, port: int, identity: int, password: str, report: Report
) -> ServiceProcess:
    """Start Glance with an SQLite database.

    :param directory: for its database, images, configuration and log.
    :param identity: Keystone's port.
    """
    packages = ensure_glance(environment, report=report)
    for place in (directory, *(directory / name for name in _STORES)):
        place.mkdir(mode=0o700)
    GLANCE.copy_database(packages, directory / _DATABASE)
    database = f"sqlite:///{directory}/{_DATABASE}\nsqlite_synchronous = false"
    paste = packages / "etc" / "glance" / "glance-api-paste.ini"
    text = SETTINGS.format(directory=directory, database=database, paste=paste)
    auth = AUTH.format(group="keystone_authtoken", port=identity, password=password)
    write_atomic(directory / "glance-api.conf", text + auth, mode=0o600)
    description = directory / "description.json"
    content = {
        "environment": {"OS_GLANCE_CONFIG_DIR": str(directory)},
        "arguments": [],
        "applications": [["glance.wsgi.api", "application", False]],
        "port": port,
    }
    write_atomic(description, json.dumps(content), mode=0o600)
    return ServiceProcess(
        "Glance",
        inside_command(environment, "wsgi", description),
        log=directory / "glance.log",
        environment={**environment.variables(), "PYTHONPATH": str(packages)},
        cwd=directory,
    )


if __name__ == "__main__":
    sys.exit(GLANCE.main(sys.argv[1:]))
