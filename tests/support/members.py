"""Users of an embedded cloud with Keystone who are members of one project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import openstack.connection
import yaml
from openstack.config import loader

if TYPE_CHECKING:
    from openstack.connection import Connection


def member(admin: Connection, clouds_yaml: Path, directory: Path, *, user: str, project: str) -> Path:
    """Create a project with a member, and return the clouds.yaml of the member."""
    identity: Any = admin.identity
    created = identity.create_project(name=project, domain_id="default")
    account = identity.create_user(name=user, password="secret", default_project_id=created.id)
    (role,) = identity.roles(name="member")
    identity.assign_project_role_to_user(created, account, role)
    content = yaml.safe_load(clouds_yaml.read_text(encoding="utf-8"))
    content["clouds"]["embedded"]["auth"] |= {"username": user, "password": "secret", "project_name": project}
    path = directory / f"{user}.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def connection_of(clouds_yaml: Path) -> Connection:
    """A connection with the cloud ``embedded`` of a file."""
    config = loader.OpenStackConfig(
        config_files=[str(clouds_yaml)], secure_files=[], vendor_files=[], load_envvars=False
    )
    return openstack.connection.Connection(config=config.get_one(cloud="embedded"))
