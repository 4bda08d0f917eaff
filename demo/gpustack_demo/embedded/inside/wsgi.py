# mypy: disable-error-code="import-not-found,import-untyped"
"""One WSGI application of an OpenStack service."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

from .descriptions import ApplicationDescription
from .http import one_writer, run


def serve(description: ApplicationDescription) -> None:
    """Serve the first of ``applications`` that this release has (``module:attribute``, called if it is a factory).

    ``environment`` and ``arguments`` are set before the import, because the services read their configuration from
    them.
    """
    os.environ.update(description["environment"])
    sys.argv[1:] = description["arguments"]
    module, attribute, factory = _load(description["applications"])
    app = getattr(importlib.import_module(module), attribute)
    run(one_writer(app() if factory else app), description["port"])


def _load(applications: list[tuple[str, str, bool]]) -> tuple[str, str, bool]:
    for module, attribute, factory in applications:
        try:
            spec = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            continue
        if spec is not None:
            return module, attribute, factory
    raise SystemExit("none of {} is there".format(", ".join(entry[0] for entry in applications)))
