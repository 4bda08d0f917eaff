# mypy: disable-error-code="import-not-found,import-untyped"
"""Keystone, with its first user and its catalog created before it serves."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from .descriptions import KeystoneDescription
from .http import one_writer, run

_REGION = "RegionOne"


def serve(description: KeystoneDescription) -> None:
    """Serve Keystone on ``port``; ``password`` is that of user and project ``admin``; ``catalog`` maps type to URL.

    With ``empty``, the database gets its schema first.
    """
    os.environ["OS_KEYSTONE_CONFIG_FILES"] = description["config"]
    os.environ["OS_KEYSTONE_CONFIG_DIR"] = str(Path(description["config"]).parent)
    from keystone.server import wsgi

    app = wsgi.initialize_public_application()
    if description["empty"]:
        from keystone.common.sql import upgrades

        upgrades.offline_sync_database_to_version()
    _bootstrap(description["password"], description["catalog"], description["endpoints"])
    # Each sign-in writes when the user was last active.
    run(one_writer(app), description["port"])


def _bootstrap(password: str, catalog: dict[str, str], endpoints: dict[str, str]) -> None:
    from keystone.cmd import bootstrap
    from keystone.common import provider_api

    bootstrap.backends.load_backends = lambda: None  # loaded by the application; a second time fails
    first = bootstrap.Bootstrapper()
    first.admin_username = first.project_name = first.admin_role_name = "admin"
    first.admin_password = password
    first.region_id = _REGION
    first.service_name = "keystone"
    first.public_url = first.internal_url = first.admin_url = catalog["identity"]
    first.bootstrap()
    _grant_service_role()

    api = provider_api.ProviderAPIs.catalog_api
    for kind, url in catalog.items():
        if kind == "identity":
            continue
        service = uuid.uuid4().hex
        api.create_service(service, {"id": service, "name": kind, "type": kind, "enabled": True})
        for interface in ("public", "internal", "admin"):
            endpoint = (endpoints.get(kind) if interface == "public" else None) or uuid.uuid4().hex
            reference = {
                "id": endpoint,
                "interface": interface,
                "url": url,
                "service_id": service,
                "region_id": _REGION,
            }
            api.create_endpoint(endpoint, {**reference, "enabled": True})


def _grant_service_role() -> None:
    """Grant ``admin`` the role of services, if this release has it: Neutron requires it for ``binding:profile``."""
    from keystone.common import provider_api

    apis = provider_api.ProviderAPIs
    roles = {role["name"]: role["id"] for role in apis.role_api.list_roles()}
    if "service" in roles:
        user = apis.identity_api.get_user_by_name("admin", "default")
        project = apis.resource_api.get_project_by_name("admin", "default")
        # A database that a Keystone of before has used has the role already.
        if roles["service"] not in apis.assignment_api.get_roles_for_user_and_project(user["id"], project["id"]):
            apis.assignment_api.add_role_to_user_and_project(user["id"], project["id"], roles["service"])
