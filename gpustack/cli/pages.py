"""Addresses of documentation pages, if the documentation is published."""

import functools
import importlib.metadata
import os
import re
from urllib.parse import quote

VARIABLE = "GPUSTACK_DOCS_URL"


def finding(code: str) -> str | None:
    """The page of a finding's code."""
    return page(f"reference/findings/{code.lower()}.html")


def page(path: str) -> str | None:
    """The address of a page; None if the documentation is not published."""
    root = os.environ.get(VARIABLE) or _published()
    return f"{quote(root.rstrip('/'), safe=':/?=&%~')}/{path}" if root else None


@functools.cache
def _published() -> str:
    """The address of the published documentation: the distribution's project URL ``Documentation``."""
    try:
        urls = importlib.metadata.metadata("nova-gpustack").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:  # a checkout without an installation
        return ""
    found = (re.fullmatch(r"Documentation, *(\S+)", url) for url in urls)
    return next((match[1] for match in found if match), "")
