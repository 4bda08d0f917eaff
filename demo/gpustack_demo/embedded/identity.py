"""Keystone on loopback: the first service of a cloud that checks tokens, and clouds.yaml for clients."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path

from gpustack.base.files import write_atomic
from gpustack_demo.embedded.environment import Environment
from gpustack_demo.embedded.process import ServiceProcess
from gpustack_demo.embedded.templates import copy_template

_INSIDE = Path(__file__).resolve().parent / "inside"
_KEYSTONE = """
[DEFAULT]
log_file =
[database]
connection = {database}
[fernet_tokens]
key_repository = {directory}/fernet-keys
[fernet_receipts]
key_repository = {directory}/fernet-keys
[credential]
key_repository = {directory}/credential-keys
[identity]
# The only password is long and random, so slow hashes protect nothing. Nova signs in for each change of access.
password_hash_rounds = 4
[cache]
enabled = true
backend = dogpile.cache.memory
"""
AUTH = """
[{group}]
auth_type = password
auth_url = http://127.0.0.1:{port}/v3
username = admin
password = {password}
user_domain_name = Default
project_name = admin
project_domain_name = Default
region_name = RegionOne
"""
"""The credentials of a service, also for ``[keystone_authtoken]``."""
COMPUTE_ENDPOINT = "70000000000000000000000000000001"
"""The id of the public endpoint of Nova, which ``[oslo_limit]`` names."""
LIMITS = """
[quota]
driver = nova.quota.UnifiedLimitsDriver
[oslo_limit]
auth_type = password
auth_url = http://127.0.0.1:{port}/v3
username = admin
password = {password}
user_domain_name = Default
system_scope = all
endpoint_id = {endpoint}
"""
"""The configuration of Nova for limits in Keystone."""


def inside_command(environment: Environment, service: str, description: Path) -> list[str]:
    """The command that runs the code of ``inside/``."""
    return [str(environment.program("python")), str(_INSIDE), service, str(description)]


def start_keystone(
    environment: Environment,
    directory: Path,
    *,
    port: int,
    password: str,
    catalog: Mapping[str, str],
    database: str | None = None,
) -> ServiceProcess:
    """Start a Keystone whose only user is ``admin`` (of project ``admin``, domain ``Default``).

    :param directory: for its database, keys, configuration and log.
    :param catalog: the URL of every service type, including ``identity``.
    :param database: the URL of an empty database; None for an SQLite file.
    """
    directory.mkdir(mode=0o700)
    if database is None:
        copy_template(environment, "keystone", directory / "keystone.sqlite")
    for repository in ("fernet-keys", "credential-keys"):
        (directory / repository).mkdir(mode=0o700)
        for number in ("0", "1"):
            write_atomic(directory / repository / number, base64.urlsafe_b64encode(os.urandom(32)).decode(), mode=0o600)
    config = directory / "keystone.conf"
    connection = database or f"sqlite:///{directory}/keystone.sqlite\nsqlite_synchronous = false"
    write_atomic(config, _KEYSTONE.format(directory=directory, database=connection), mode=0o600)
    description = directory / "description.json"
    content = {
        "config": str(config),
        "port": port,
        "password": password,
        "catalog": dict(catalog),
        "endpoints": {"compute": COMPUTE_ENDPOINT},
        "empty": bool(database),
    }
    write_atomic(description, json.dumps(content), mode=0o600)
    return ServiceProcess(
        "Keystone",
        inside_command(environment, "keystone", description),
        log=directory / "keystone.log",
        environment=environment.variables(),
        cwd=directory,
    )


def clouds_with_keystone(port: int, password: str) -> dict[str, object]:
    """The entry of clouds.yaml for that user."""
    return {
        "auth": {
            "auth_url": f"http://127.0.0.1:{port}/v3",
            "username": "admin",
            "password": password,
            "project_name": "admin",
            "user_domain_name": "Default",
            "project_domain_name": "Default",
        },
        "region_name": "RegionOne",
    }


def clouds_without_keystone(endpoints: Mapping[str, str], token: str) -> dict[str, object]:
    """The entry of clouds.yaml for services that all accept this one token."""
    entry: dict[str, object] = {"auth_type": "admin_token", "auth": {"endpoint": endpoints["compute"], "token": token}}
    return {**entry, **{f"{kind}_endpoint_override": url for kind, url in endpoints.items()}}


def write_clouds(path: Path, entry: Mapping[str, object]) -> None:
    """Write clouds.yaml with one cloud, ``embedded``. Mode 0600."""
    import yaml

    write_atomic(path, yaml.safe_dump({"clouds": {"embedded": dict(entry)}}), mode=0o600)
