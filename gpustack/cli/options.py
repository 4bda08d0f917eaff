"""Options of commands, as a usage line writes them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gpustack.base.errors import HostError, NovaConfigError, UsageError
from gpustack.base.files import read_end
from gpustack.nova_options import releases
from gpustack.nova_options.options import Release
from gpustack.pci.address import Address

if TYPE_CHECKING:
    from gpustack.hosts.facts.model import Host
    from gpustack.spec.model import Spec

Value = TypeVar("Value")
Number = TypeVar("Number", int, float)
_LOG = 4 << 20  # bytes of a log that count
_PATHS = frozenset({"FILE", "DIR", "SPEC"})
_EQUIVALENTS = (
    ("--sudo", "--ask-become-pass", "-K"),
    ("--identity", "--private-key"),
    ("--jobs", "--forks"),
    ("--output", "--format"),
    ("--output", "--out"),
    ("--cloud", "--os-cloud"),
)
"""Options that are one thing in other commands or other programs, and here."""
REPLACED = ("findings", "metrics", "plot", "save")
WRITTEN = frozenset({*REPLACED, "journal", "log", "out", "record"})
"""The options whose file is written; those that are replaced get the result of the command."""
_RENEWED = frozenset({"merge", "snapshot"})
"""Those whose file may be written too, with what was read."""


class Once(argparse.Action):
    """Store a value; refuse a second one, which would take its place without a word."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        if (before := getattr(namespace, self.dest)) not in (self.default, values):
            raise argparse.ArgumentError(self, f"{before} and {values}: it can't be repeated")
        setattr(namespace, self.dest, values)


def option(parser: argparse._ActionsContainer, usage: str, text: str, **more: Any) -> None:  # noqa: ANN401
    """Add an option: ``--prune``, ``--project P``, or ``--flavor NAME…``, which can be repeated.

    :param usage: the option and the name of its value; FILE, DIR and SPEC are paths. Without a value, it is a flag, or
        it has ``choices``: ``--state …``. One that can be repeated is a list, empty by default.
    :param text: the help, to which the number that is the default, and "can be repeated", are added.
    :param more: other arguments of argparse's ``add_argument``.
    """
    name, _, value = usage.partition(" ")
    usual: dict[str, Any] = {} if value or "choices" in more else {"action": "store_true"}
    if value.removesuffix("…"):
        usual["metavar"] = value.removesuffix("…")
    if value.endswith("…"):
        usual |= {"action": "append", "default": []}
        head, usually, rest = text.partition(" (default: ")
        text = f"{head}; can be repeated{usually}{rest}"
    elif isinstance(default := more.get("default"), int | float) and default and "(default" not in text:
        text += " (default: %(default)g)"
    if usual.get("metavar") in _PATHS:
        usual["type"] = Path
    parser.add_argument(name, help=text, **{**usual, **more})


def equivalents(parser: argparse.ArgumentParser, option: str) -> list[str]:
    """The options and arguments of a command that are what it does not know as this option."""
    thing, actions = option.lstrip("-").rstrip("s"), parser._option_string_actions
    others = (f"--{thing}", *(other for same in _EQUIVALENTS if option in same for other in same))
    known = [*{actions[other]: other for other in others if other in actions}.values()]
    return known + [str(a.metavar) for a in parser._get_positional_actions() if a.dest.rstrip("s") == thing]


def refuse_empty(parser: argparse.ArgumentParser) -> None:
    """Refuse empty arguments, with which a command would work on more than was meant, and ``-`` as a file."""
    convert = parser._get_value

    def value(action: argparse.Action, arg_string: str) -> Any:  # noqa: ANN401 - of any type
        converted = convert(action, arg_string)
        if not arg_string.strip(" ,") and action.default != "" and action.dest != "description":
            raise argparse.ArgumentError(action, "empty value\n  → name one: is a variable of the shell not set?")
        if arg_string == "-" and action.type is Path:
            raise argparse.ArgumentError(action, "- is no file\n  → name /dev/stdin or /dev/stdout")
        return converted

    parser._get_value = value  # type: ignore[method-assign]


def refuse_written_inputs(values: Mapping[str, object]) -> None:
    """Refuse to write a file that the command reads, such as the spec.

    :param values: the values of all options.
    :raises UsageError: if a written file is also read.
    """
    lists = ((name, value if isinstance(value, list) else [value]) for name, value in values.items())
    files = [(name, file) for name, entries in lists for file in entries if isinstance(file, Path) and file.is_file()]
    read = [file for name, file in files if name not in WRITTEN | _RENEWED]
    for name, written in files:
        if name in WRITTEN and any(map(written.samefile, read)):
            raise UsageError(
                f"--{name} would change {written}, which is read", remedy=f"name another file with --{name}"
            )


def add_snapshot(parser: argparse._ActionsContainer, purpose: str = "") -> None:
    """Add ``--snapshot``.

    :param purpose: the end of the help's sentence.
    """
    text = f"read the facts of hosts from a file of scan --save, or a directory of such files{purpose}"
    option(parser, "--snapshot FILE…", text)


def add_fleet_files(parser: argparse._ActionsContainer) -> None:
    """Add the files that name what Nova and Placement do not: ``--config-file`` and ``--spec``."""
    option(
        parser,
        "--config-file FILE…",
        "nova.conf of nova-api, or its directory: also read the rows of all cells in the databases, which show"
        " each GPU without PCI in Placement",
    )
    option(parser, "--spec SPEC", "the spec, for the models behind aliases, and for GPUs out of service")


def snapshot_hosts(
    parsed_args: argparse.Namespace, report: Callable[[str], None] = lambda text: None
) -> tuple[Host, ...]:
    """The hosts of ``--snapshot``; none without it.

    :param report: is called with warnings.
    """
    if not parsed_args.snapshot:
        return ()
    from gpustack.hosts.facts.store import load_snapshot

    return load_snapshot(parsed_args.snapshot, lambda text: report(f"warning: {text}"))


def release_of(name: str | None, spec: Spec | None) -> Release:
    """The release that is named, or that of the spec, or the newest one.

    :raises NovaConfigError: if the spec names none.
    """
    if name is not None:
        return releases.release(name)
    if spec is not None:
        if spec.nova is None:
            remedy = 'add nova: {release: "2025.2"}, or name it with --release'
            raise NovaConfigError("the spec has no section `nova`", remedy=remedy)
        return releases.release(spec.nova.release)
    return releases.releases()[-1]


def read_log(name: str, keep: Callable[[bytes], bool] | None = None) -> bytes:
    """The log in a file; ``-`` is standard input. Of a long one, the end counts.

    :param keep: which lines of a longer log are read, from all of it; None for its end.
    :raises HostError: if it can't be read.
    """
    try:
        return read_end(None if name == "-" else Path(name), _LOG, keep)
    except OSError as error:
        remedy = "name a log as text: `zcat FILE`, `xzcat FILE` and `journalctl -k --file FILE` print one"
        raise HostError(f"can't be read: {error.strerror or error}", where=name, remedy=remedy) from error


def explained(reader: Callable[[str], Value]) -> Callable[[str], Value]:
    """A type for argparse, which shows the reader's errors."""

    def read(text: str) -> Value:
        try:
            return reader(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def number(kind: Callable[[str], Number], accepts: Callable[[Number], bool], expected: str) -> Callable[[str], Number]:
    """A type for argparse: a number within bounds.

    :param expected: the message about another number.
    """

    def read(text: str) -> Number:
        if not accepts(value := kind(text)):
            raise argparse.ArgumentTypeError(expected.format(text=text))
        return value

    read.__name__ = "number"  # argparse names it if the text is none
    return read


pci_address = explained(lambda text: str(Address.parse(text)))
"""A PCI address with its domain: ``0000:65:00.0`` for ``65:00.0``."""
positive = number(int, lambda value: 0 < value < 2**31, "must be 1 or more, and less than 2147483648")
natural = number(int, lambda value: 0 <= value < 2**31, "must be 0 or more, and less than 2147483648")
port = number(int, lambda value: 0 < value < 65536, "{text} is no port")
seconds = number(float, lambda value: 0 < value < 86400, "must be more than 0 seconds, and less than a day")
interval = number(float, lambda value: 1 <= value < 86400, "must be 1 second or more, and less than a day")
"""Seconds between two readings."""
