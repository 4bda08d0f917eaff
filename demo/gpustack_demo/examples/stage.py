"""The environment of the demo's chapters: a directory, commands that are printed and run, and checks."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from gpustack_demo.examples import hosts
from gpustack_demo.examples.cloud import install, running
from gpustack_demo.examples.host import write_host
from gpustack_demo.examples.inventory import inventory

if TYPE_CHECKING:
    from gpustack_demo.embedded.nova import EmbeddedNova

_WIDTH = 100
_T = TypeVar("_T")


class Surprise(Exception):  # noqa: N818  (a result of the demo, not an error of this program)
    """A result differs from what the demo expects."""


class Stage:
    """A directory in which commands run, with the services for them; a context manager that stops the services."""

    environment: MutableMapping[str, str]
    """The environment of the commands."""
    nova: EmbeddedNova | None = None
    """The running Nova; None before :meth:`start_cloud`."""
    log: Path
    """Each command with its complete output, and the messages of the set-up."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "demo.log"
        self.names: dict[str, str] = {}
        """Names that one chapter passes to a later one."""
        self._exit = contextlib.ExitStack()
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        (directory / "ansible.cfg").touch()
        path = (str(directory / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "OS_"))} | {
            "PATH": os.pathsep.join(path),
            "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
            "ANSIBLE_HOME": str(directory / ".ansible"),
            "ANSIBLE_REMOTE_TMP": str(directory / ".ansible/tmp"),
            "XDG_STATE_HOME": str(directory / ".state"),
            "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
            "ANSIBLE_DISPLAY_OK_HOSTS": "false",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
            "ANSIBLE_NOCOLOR": "1",
            "COLUMNS": str(_WIDTH),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._exit.close()

    def enter(self, context: contextlib.AbstractContextManager[_T]) -> _T:
        """Enter a context that lasts as long as the stage."""
        return self._exit.enter_context(context)

    def start_cloud(self, snapshot: str, rendered: str) -> None:
        """Start Nova and its hosts' SSH servers; afterwards commands use the cloud and find ``openstack``."""
        environment = install(self.note)
        began = time.monotonic()
        nova, _server = self.enter(running(self.directory, [self.directory / snapshot], self.directory / rendered))
        self.note(f"Nova runs after {time.monotonic() - began:.0f} s; its log is {nova.log}")
        self.nova = nova
        self.environment.update(OS_CLIENT_CONFIG_FILE=str(nova.clouds_yaml), OS_CLOUD="embedded")
        self.program(environment.program("openstack"))

    # --- output ---

    def title(self, text: str) -> None:
        """Begin a chapter."""
        self._print(f"\n{text}", "1")

    def report(self, text: str) -> None:
        """Print an explanation."""
        self._print("\n" + textwrap.fill(text, _WIDTH))

    def note(self, text: str) -> None:
        """Write a line to the log."""
        with self.log.open("a", encoding="utf-8") as stream:
            stream.write(f"{text}\n")

    def show(self, name: str) -> str:
        """Print a file and return its content."""
        self._print(f"$ cat {name}", "36")
        text = (self.directory / name).read_text(encoding="utf-8")
        self._print(text.rstrip("\n"))
        return text

    def excerpt(self, name: str, start: str) -> None:
        """Print a file from the line that contains ``start``."""
        lines = (self.directory / name).read_text(encoding="utf-8").splitlines()
        first = next(number for number, line in enumerate(lines) if start in line)
        self._print("\n" + "\n".join(lines[first:]))

    def check(self, holds: bool, what: str) -> None:
        """Print a result after checking it.

        :raises Surprise: when it does not hold.
        """
        self.expect(holds, what)
        self._print("✔ " + textwrap.fill(what, _WIDTH, subsequent_indent="  "), "32")

    @staticmethod
    def expect(holds: bool, what: str) -> None:
        """Check a result without printing it.

        :raises Surprise: when it does not hold.
        """
        if not holds:
            raise Surprise(what)

    def _print(self, text: str, style: str = "") -> None:
        print(f"\033[{style}m{text}\033[0m" if self._colour and style else text, flush=True)

    # --- hosts and files ---

    def host(self, kind: str, name: str) -> None:
        """Write one of the example hosts."""
        write_host(self.directory / name, getattr(hosts, kind)(name))

    def state(self, name: str) -> dict[str, tuple[int, int, bytes | None]]:
        """Everything in a host's directory: mode, time of the last change, content."""
        state = {}
        for path in sorted((self.directory / name).rglob("*")):
            status = path.lstat()
            is_file = path.is_file() and not path.is_symlink()
            content = path.read_bytes() if is_file else None
            state[str(path)] = (status.st_mode, status.st_mtime_ns, content)
        return state

    def write(self, name: str, text: str) -> None:
        """Write a file as the administrator."""
        (self.directory / name).write_text(text, encoding="utf-8")

    def append(self, name: str, text: str) -> None:
        """Append to a file as the administrator."""
        with (self.directory / name).open("a", encoding="utf-8") as stream:
            stream.write(text)

    def edit(self, name: str, *changes: tuple[str, str]) -> None:
        """Change a file as the administrator.

        :raises Surprise: when the file lacks the text to change.
        """
        text = (self.directory / name).read_text(encoding="utf-8")
        for old, new in changes:
            if old not in text:
                raise Surprise(f"{name} does not hold {old!r}")
            text = text.replace(old, new)
        self.write(name, text)

    def program(self, path: Path) -> None:
        """Make a program available to commands by its name."""
        (self.directory / "bin").mkdir(exist_ok=True)
        (self.directory / "bin" / path.name).symlink_to(path)

    def inventory(self, *names: str) -> None:
        """Write an inventory of example hosts."""
        self.write("inventory.yaml", inventory(self.directory, names))

    # --- commands ---

    def run(self, *command: str, code: int = 0, into: str | None = None, only: str | None = "") -> str:
        """Print a command, run it and print its output.

        :param code: the expected exit code.
        :param into: the file for its standard output.
        :param only: print only lines that match this pattern; None prints nothing, not even the command.
        :returns: its standard output and standard error.
        :raises Surprise: when the exit code differs.
        """
        line = f"$ {shlex.join(command)}" + (f" > {into}" if into else "")
        if only is not None:
            self._print(_wrapped(line), "36")
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if into is not None:
            self.write(into, done.stdout)
        output = done.stdout + done.stderr
        self.note(f"{line}\n{output}(exit code {done.returncode})\n")
        if done.returncode != code:
            self._print(output)
            raise Surprise(f"{command[0]} ended with exit code {done.returncode}, not {code}")
        for shown in (done.stderr if into is not None else output).splitlines():
            if only is not None and re.search(only, shown):
                self._print(_wrapped(shown))
        return output

    def devices(self, only: str | None = "") -> str:
        """Print each GPU with its row in Nova's database and its instance on the hypervisor."""
        return self.run("python", "-m", "gpustack_demo.examples.devices", "cloud/demo.json", only=only)


def _wrapped(line: str) -> str:
    """A line wrapped to the width; lines of a table are unchanged."""
    if len(line) <= _WIDTH or line.startswith(("|", "+")):
        return line
    return textwrap.fill(line, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
