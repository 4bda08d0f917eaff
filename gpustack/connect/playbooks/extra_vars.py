"""Pass the operator's ``-e`` values to Ansible as files: every user can read a command line, and Ansible logs it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gpustack.base.files import write_atomic


def as_files(values: Sequence[str], directory: Path) -> list[str]:
    """The arguments for Ansible, in the order of the values; ``@FILE`` stays unchanged.

    :param values: each as ``-e`` accepts it: ``@FILE``, YAML or JSON, or ``key=value`` words
        (``ansible/utils/vars.py``, ``load_extra_vars``).
    :param directory: a private directory.
    """
    return [f"--extra-vars={_as_file(value, directory / f'extra-{n}.json')}" for n, value in enumerate(values)]


def _as_file(value: str, path: Path) -> str:
    if not value or value[0] in "@/.":
        return value
    text = value
    if value[0] not in "[{":
        from ansible.parsing.splitter import parse_kv

        text = json.dumps(parse_kv(value))
    write_atomic(path, text, mode=0o600)
    return f"@{path}"
