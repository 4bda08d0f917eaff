"""Keeps the compiled code of Ansible's modules between the tasks of tests. The interpreter imports it at its start.

Ansible sends the source of each module, and of all that it imports, in a ZIP file, and Python compiles it in each task:
a seventh of a play's processor time. Here, equal sources are compiled once. :mod:`support.warm` sets the variable.
"""

import marshal
import os
import zipimport
from typing import Any

_DIRECTORY = os.environ.get("GPUSTACK_COMPILED")
_PYTHON: Any = zipimport
_codes: dict[str, Any] = {}
"""Those that :mod:`support.warm` has read, for its forks."""


def remember() -> None:
    """Read the files that are new."""
    for entry in os.scandir(_DIRECTORY):
        if len(entry.name) == _LENGTH and entry.name not in _codes:
            with open(entry.path, "rb") as opened:
                _codes[entry.name] = marshal.load(opened)  # noqa: S302 (its own file, in a directory of mode 0700)


def _compiled(path: str, source: bytes, *more: Any) -> Any:
    name = hashlib.sha256(path.rpartition(".zip")[2].encode() + b"\0" + source).hexdigest()
    if name in _codes:
        return _codes[name]
    kept = f"{_DIRECTORY}/{name}"
    try:
        with open(kept, "rb") as opened:
            return marshal.load(opened)  # noqa: S302
    except OSError:
        code = _compile(path, source, *more)
    own = f"{kept}.{os.getpid()}"
    with open(own, "wb") as opened:
        marshal.dump(code, opened)
    os.rename(own, kept)  # noqa: PTH104
    return code


if _DIRECTORY and hasattr(zipimport, "_compile_source"):
    import hashlib

    _LENGTH = hashlib.sha256().digest_size * 2
    _compile, _PYTHON._compile_source = _PYTHON._compile_source, _compiled
