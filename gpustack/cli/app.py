"""The ``gpustack`` application: cliff's, with fast start-up, an exit code for each kind of error, and no shell.

cliff is slow because its manager loads every command to get their names, and its help looks up the distribution of
each command. Here the names are read from the entry points, the help reads a table, and a command is loaded on first
use. So the modules of commands import what they need like all others.
"""

import argparse
import atexit
import contextlib
import difflib
import gc
import importlib.metadata
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from cliff import app, commandmanager

from gpustack import __version__
from gpustack.base.errors import BROKEN_PIPE, INTERRUPTED, GpustackError, UsageError
from gpustack.base.files import data_table, file_remedy, open_private
from gpustack.base.known_secrets import forget, hidden
from gpustack.base.text import LAYOUT, SafeStream, printable
from gpustack.cli import environment
from gpustack.cli.decoration import COLOR
from gpustack.cli.options import option
from gpustack.cli.registry import by_job

NAME = "gpustack"
COLLECT_AFTER = 50_000
"""New objects between two runs of Python's garbage collector."""
_DESCRIPTION = "GPU PCI passthrough for OpenStack Nova, from a bare compute host to a GPU in the guest."


class Commands(commandmanager.CommandManager):
    """The commands by name; each is imported on first use."""

    def load_commands(self, namespace: str) -> None:
        """Read the names of a group of entry points (``host_plan`` is the command ``host plan``)."""
        self.group_list.append(namespace)
        for entry in importlib.metadata.entry_points(group=namespace):
            self.commands[entry.name.replace("_", " ")] = entry

    def group(self, words: Sequence[str]) -> str | None:
        """The group of commands with this name, without an action: ``cleanup``; None if there is none."""
        name = words[0] if len(words) == 1 else None
        is_group = any(command.startswith(f"{name} ") for command in self.commands)
        return name if is_group and name not in self.commands else None

    def resembling(self, arguments: Sequence[str]) -> list[str]:
        """Similar commands, most similar first."""
        names, first = sorted(self.commands), next(iter(arguments), " ")
        started = [name for name in names if name.startswith(first) or name.endswith(f" {first}")]
        return started or difflib.get_close_matches(" ".join(arguments[:2]), names, n=3, cutoff=0.65)


def loaded_summary(entry: "commandmanager.EntryPointT") -> str:
    """The first line of the description of a command, which is loaded."""
    try:
        summary = (entry.load().__doc__ or "").strip().partition("\n")[0].rstrip(".")
    except Exception as error:  # a broken plug-in must not hide the other commands
        return f"(can't be loaded: {error})"
    return summary[:1].lower() + summary[1:]


class _Formatter(logging.Formatter):
    """Makes the messages of all libraries printable, as logs are also read in a terminal, and hides secrets in them."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(hidden(super().format(record)), keep=LAYOUT)


class _LogFile(logging.FileHandler):
    """A log of requests and responses, for its owner only, that ends with one message on a full disk."""

    def _open(self) -> TextIO:  # type: ignore[override]
        return os.fdopen(open_private(Path(self.baseFilename)), "a", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        logging.getLogger().removeHandler(self)
        logging.getLogger(NAME).error("%s: the log ends here: %s", self.baseFilename, sys.exc_info()[1])


class Gpustack(app.App):
    """The application object that commands see as ``self.app``."""

    NAME = NAME

    def __init__(self) -> None:
        self.commands = Commands("gpustack.cli")
        self._handlers: list[logging.Handler] = []
        super().__init__(_DESCRIPTION, __version__, self.commands)
        # Everything that commands print, from any source.
        self.stdout, self.stderr = SafeStream(self.stdout), SafeStream(self.stderr)

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: dict[str, Any] | None = None
    ) -> argparse.ArgumentParser:
        """Add the options before the command."""
        parser = argparse.ArgumentParser(
            prog=NAME,
            description=description,
            usage="%(prog)s [options] <object> <action> …",
            add_help=False,
            allow_abbrev=False,
            **argparse_kwargs or {},
        )
        parser.add_argument("--version", action="version", version=f"{NAME} {version}")
        parser.add_argument("-h", "--help", action="store_true", help="print this, or the help of a command, and exit")
        level = parser.add_mutually_exclusive_group()
        about = "print more; can be repeated"
        level.add_argument("-v", "--verbose", action="count", dest="verbose_level", default=1, help=about)
        about = "print data and errors only"
        level.add_argument("-q", "--quiet", action="store_const", dest="verbose_level", const=0, help=about)
        parser.add_argument(
            "--color",
            choices=COLOR,
            help="color severities and differences (default: auto, on a terminal unless NO_COLOR is set;"
            f" environment: {environment.COLOR})",
        )
        option(parser, "--log-file FILE", "write a log to FILE", type=str)
        option(parser, "--debug", "print tracebacks of errors")
        return parser

    def print_help(self) -> None:
        """Print the options and each command with the first line of its description, by job."""
        self.parser.print_help(self.stdout)
        for job, names in by_job(name for name, _ in self.commands).items():
            print(f"\n{job}:", file=self.stdout)
            self._print_names(names)

    def print_commands(self, group: str) -> None:
        """Print the commands of a group, each with the first line of its description."""
        print(f"usage: {NAME} {group} <action> …\n\ncommands:", file=self.stdout)
        self._print_names(sorted(name for name, _ in self.commands if name.startswith(f"{group} ")))
        print(f"\n{NAME} help {group} <action> prints the options of a command.", file=self.stdout)

    def _print_names(self, names: Sequence[str]) -> None:
        summaries = data_table("commands.toml")  # of tools/manuals; other commands are loaded
        for name in names:
            summary = summaries.get(name) or loaded_summary(self.commands.commands[name])
            print(f"  {name:<18}  {summary}", file=self.stdout)

    def configure_logging(self) -> None:
        """Send warnings of libraries to stderr (more with ``-v``), and all messages to ``--log-file``."""
        root = logging.getLogger()
        root.setLevel(logging.DEBUG)
        console = logging.StreamHandler(self.stderr)
        console.setLevel({0: logging.ERROR, 1: logging.WARNING, 2: logging.INFO}.get(self.options.verbose_level, 10))
        console.setFormatter(_Formatter("%(name)s: %(message)s"))
        if self.options.verbose_level < 2:  # an unreachable Keystone is an error, with one sentence
            console.addFilter(lambda record: not record.name.startswith("keystoneauth"))
        self._handlers = [console]
        if self.options.log_file:
            self._handlers.append(_LogFile(self.options.log_file))
            self._handlers[-1].setFormatter(_Formatter(self.LOG_FILE_MESSAGE_FORMAT))
        for handler in self._handlers:
            root.addHandler(handler)

    def close_logging(self) -> None:
        """Restore the previous logging configuration."""
        for handler in self._handlers:
            logging.getLogger().removeHandler(handler)
            with contextlib.suppress(OSError):  # of a full disk
                handler.close()

    def run(self, argv: list[str]) -> int:
        """Run one command line and return its exit code; every error is printed on stderr."""
        self.options = argparse.Namespace(debug="--debug" in argv)
        try:
            self.options, remainder = self.parser.parse_known_args(argv)
            self.options.color = environment.color(self.options.color, COLOR)
            self.configure_logging()
            if remainder[:1] == ["help"]:  # cliff's own searches all installed distributions
                self.options.help, remainder = True, remainder[1:]
            if not remainder:
                self.print_help()
                return 0 if self.options.help else UsageError.exit_code
            if (group := self.commands.group(remainder)) is not None:
                self.print_commands(group)
                return 0 if self.options.help else UsageError.exit_code
            if self.options.help:
                remainder.append("--help")
            return self.run_subcommand(remainder)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:
            raise
        except Exception as error:
            return self._report(error)
        finally:
            from gpustack.cloud.session import disconnect

            disconnect()
            self.close_logging()
            forget()

    def run_subcommand(self, argv: list[str]) -> int:
        """Find the command, parse its arguments, and run it."""
        try:
            factory, name, arguments = self.commands.find_command(argv)
        except ValueError:
            raise self._unknown(argv) from None
        command = factory(self, self.options, cmd_name=name)
        parser = command.get_parser(f"{NAME} {name}")
        variables = environment.Variables(parser)
        parsed_args = parser.parse_args(arguments)
        variables.complete(parsed_args)
        return int(command.run(parsed_args))

    def parser_of(self, name: str) -> argparse.ArgumentParser:
        """The parser of a command with its help, variables included."""
        factory, _, _ = self.commands.find_command(name.split())
        parser: argparse.ArgumentParser = factory(self, None, cmd_name=name).get_parser(f"{NAME} {name}")
        environment.Variables(parser)  # adds the variables to the help
        return parser

    def _unknown(self, argv: Sequence[str]) -> UsageError:
        if argv[0].startswith("-"):
            remedy = f"options of a command follow its name; {NAME} --help lists the options before it"
            return UsageError(f"{argv[0]} is not an option of {NAME}", remedy=remedy)
        arguments = [argument for argument in argv if not argument.startswith("-")]
        names = " or ".join(repr(f"{NAME} {name}") for name in self.commands.resembling(arguments))
        remedy = f"did you mean {names}?" if names else f"{NAME} --help lists the commands"
        return UsageError(f"{' '.join(arguments[:2])!r} is not a {NAME} command", remedy=remedy)

    def _report(self, error: Exception) -> int:
        """Print the error on stderr and return its exit code."""
        if self.options.debug:
            print(hidden("".join(traceback.format_exception(error))), file=self.stderr, end="")
        if isinstance(error, GpustackError):
            message = str(error)
        elif isinstance(error, OSError) and error.strerror:
            message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
            message += f"\n  → {file_remedy(error)}"
        else:
            message = f"unexpected {type(error).__name__}: {error}"
            message += "\n  → report this fault of gpustack, with the output of --debug"
        print(hidden("\n".join((f"{NAME}: {message}", *getattr(error, "__notes__", ())))), file=self.stderr)
        return error.exit_code if isinstance(error, GpustackError) else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``gpustack`` with these arguments (default: ``sys.argv``) and return its exit code.

    The codes are those of :func:`gpustack.base.errors.exit_codes`.
    """
    # Facts and rows are many objects without cycles: Python's threshold of 700 makes the garbage collector visit them
    # again and again, a third of the time of `scan --snapshot` with 1,000 hosts.
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)  # the end of the process frees all memory without looking at each object
    # Standard streams that were closed are opened (``>&-``): the next file would be the output of child processes.
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    if os.path.expanduser("~") == "~":  # noqa: PTH111 - neither HOME nor an entry in /etc/passwd
        os.environ["HOME"] = "/"  # as container engines do
    try:
        code = Gpustack().run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has ended. Without this, Python would report a second error when it flushes at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    return code
