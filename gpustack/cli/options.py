"""Options of commands, as a usage line writes them."""

import argparse
from pathlib import Path
from typing import Any

from gpustack.base.errors import HostError
from gpustack.base.files import read_end

_LOG = 4 << 20  # bytes of a log that count
_PATHS = frozenset({"FILE", "DIR", "SPEC"})


def option(parser: argparse._ActionsContainer, usage: str, text: str, **more: Any) -> None:  # noqa: ANN401
    """Add an option: ``--prune``, ``--project P``, or ``--flavor NAME…``, which can be repeated.

    :param usage: the option and the name of its value; FILE, DIR and SPEC are paths. Without a value, it is a flag, or
        it has ``choices``: ``--state …``.
    :param text: the help.
    :param more: other arguments of argparse's ``add_argument``.
    """
    name, _, value = usage.partition(" ")
    usual: dict[str, Any] = {} if value or "choices" in more else {"action": "store_true"}
    if value.removesuffix("…"):
        usual["metavar"] = value.removesuffix("…")
    if value.endswith("…"):
        usual["action"] = "append"
    if usual.get("metavar") in _PATHS:
        usual["type"] = Path
    parser.add_argument(name, help=text, **{**usual, **more})


def read_log(name: str) -> bytes:
    """The log in a file; ``-`` is standard input. Of a long one, the end counts.

    :raises HostError: if it can't be read.
    """
    try:
        return read_end(None if name == "-" else Path(name), _LOG)
    except OSError as error:
        raise HostError(f"can't be read: {error.strerror or error}", where=name, remedy="name a log") from error


def positive(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number
