# ruff: noqa: ANN401 - Nova has no types
# mypy: disable-error-code="import-not-found,import-untyped"
"""Nova over HTTP: compute and metadata API, Placement, one image, verbs for tests, each on a port of loopback."""

from __future__ import annotations

import json
import logging
import threading
import traceback
from pathlib import Path
from typing import Any

from . import images
from .descriptions import NovaDescription
from .guard import checked, equal
from .harness import run
from .http import App, collect_garbage, run_in_thread
from .verbs import Verbs

LOG = logging.getLogger("gpustack")


def serve(description: NovaDescription) -> None:
    """Start Nova and serve it; does not return."""

    def ready(harness: Any) -> None:
        from nova.api.metadata.handler import MetadataRequestHandler

        ports = description["ports"]
        token = None if description["keystone"] else description["token"]
        compute = harness.api_fixture.app()  # with Keystone, its own pipeline checks tokens
        if token:
            compute = checked(_as_admin(compute, harness.api_fixture.project_id), token)
        run_in_thread(compute, ports["compute"])
        run_in_thread(checked(_placement(harness), token), ports["placement"])
        run_in_thread(checked(images.app, token), ports["image"])
        run_in_thread(MetadataRequestHandler(), ports["metadata"])  # checks Neutron's signature
        verbs = Verbs(harness)
        for host in description["hosts"]:
            verbs.start(host)
        run_in_thread(_control(verbs, description["token"]), ports["control"])
        collect_garbage()
        Path(description["ready"]).touch()
        threading.Event().wait()

    run(description, ready)


def _as_admin(app: App, project: str) -> App:
    """Add the headers that Keystone's middleware adds for the administrator, unless the request has them."""

    def wrapped(environ: dict[str, Any], start_response: Any) -> Any:
        environ.pop("HTTP_X_AUTH_TOKEN", None)  # Nova's test double takes it for the name of a user
        environ.setdefault("HTTP_X_AUTH_USER", "admin")
        environ.setdefault("HTTP_X_AUTH_PROJECT_ID", project)
        environ.setdefault("HTTP_X_ROLES", "reader,member,admin")
        return app(environ, start_response)

    return wrapped


def _placement(harness: Any) -> App:
    from placement import deploy

    app: App = deploy.loadapp(harness.placement.fixture.conf_fixture.conf)

    def wrapped(environ: dict[str, Any], start_response: Any) -> Any:
        environ["HTTP_X_AUTH_TOKEN"] = "admin"  # noqa: S105 - the fixture asks for any
        return app(environ, start_response)

    return wrapped


def _control(verbs: Verbs, token: str) -> App:
    """A WSGI application: ``POST /VERB`` with arguments as JSON returns the result, or 500 with the error."""

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        presented = environ.get("HTTP_X_GPUSTACK_TOKEN", "")
        if not equal(presented, token):
            return _answer(start_response, "403 Forbidden", {"error": "Forbidden", "message": "wrong token"})
        verb = environ["PATH_INFO"].strip("/")
        method = None if verb.startswith("_") else getattr(verbs, verb, None)
        if method is None:
            return _answer(start_response, "404 Not Found", {"error": "NotFound", "message": "no verb " + verb})
        try:
            arguments = json.loads(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)) or b"{}")
            return _answer(start_response, "200 OK", {"result": method(**arguments)})
        except Exception as error:
            LOG.exception("control verb %s failed", verb)
            kind = type(error).__module__ + "." + type(error).__name__
            return _answer(
                start_response,
                "500 Failed",
                {"error": kind, "message": str(error), "traceback": traceback.format_exc()},
            )

    return app


def _answer(start_response: Any, status: str, content: dict[str, Any]) -> list[bytes]:
    body = json.dumps(content, default=str).encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
