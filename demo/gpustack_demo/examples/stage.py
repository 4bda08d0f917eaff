"""What the demo's chapters are played on: a directory, commands that are printed and run, and checks."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import textwrap
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from gpustack.files import share_dir, write_atomic
from gpustack_demo.examples import hosts
from gpustack_demo.examples.host import write_host
from gpustack_demo.examples.inventory import inventory

if TYPE_CHECKING:
    from gpustack_demo.embedded.nova import Nova

_WIDTH = 100
_T = TypeVar("_T")


class Surprise(Exception):  # noqa: N818  (it is what the reader is told: not an error of this program)
    """Something is not as the demo said."""


class Stage:
    """A directory that commands are run in, and what runs beside them; a context manager, which ends all of that."""

    environment: MutableMapping[str, str]
    """The environment of the commands."""
    nova: Nova | None = None
    """The Nova that was started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.names: dict[str, str] = {}
        """What one chapter leaves to a later one."""
        self._exit = contextlib.ExitStack()
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        (directory / "ansible.cfg").touch()
        path = (str(directory / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "OS_"))} | {
            "PATH": os.pathsep.join(path),
            "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
            "ANSIBLE_HOME": str(directory / ".ansible"),
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

    # --- to the reader ---

    def title(self, text: str) -> None:
        """Begin a chapter."""
        self._print(f"\n{text}\n{'=' * len(text)}", "1")

    def say(self, text: str) -> None:
        """Explain something."""
        self._print("\n" + textwrap.fill(text, _WIDTH))

    def progress(self, text: str) -> None:
        """Say what is being done while it takes time."""
        self._print(f"  … {text.removeprefix('… ')}", "2")

    def show(self, name: str) -> str:
        """Print a file, and answer what is in it."""
        self._print(f"\n$ cat {name}", "36")
        text = (self.directory / name).read_text(encoding="utf-8")
        self._print(text.rstrip("\n"))
        return text

    def excerpt(self, name: str, start: str) -> None:
        """Print a file from the line that holds ``start``."""
        lines = (self.directory / name).read_text(encoding="utf-8").splitlines()
        first = next(number for number, line in enumerate(lines) if start in line)
        self._print("\n" + "\n".join(lines[first:]))

    def check(self, holds: bool, what: str) -> None:
        """Say that something is so.

        :raises Surprise: when it is not.
        """
        if not holds:
            raise Surprise(what)
        self._print("✔ " + textwrap.fill(what, _WIDTH, subsequent_indent="  "), "32")

    def _print(self, text: str, style: str = "") -> None:
        print(f"\033[{style}m{text}\033[0m" if self._colour and style else text, flush=True)

    # --- hosts and files ---

    def host(self, kind: str, name: str) -> None:
        """Write one of the example hosts."""
        write_host(self.directory / name, getattr(hosts, kind)(name))

    def state(self, name: str) -> dict[str, tuple[int, int, bytes | None]]:
        """Everything in a host's directory: mode, time of the last change, content."""
        found = {}
        for path in sorted((self.directory / name).rglob("*")):
            status = path.lstat()
            is_file = path.is_file() and not path.is_symlink()
            content = path.read_bytes() if is_file else None
            found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
        return found

    def write(self, name: str, text: str) -> None:
        """Write a file of the administrator's."""
        (self.directory / name).write_text(text, encoding="utf-8")

    def edit(self, name: str, *changes: tuple[str, str]) -> None:
        """Change a file of the administrator's.

        :raises Surprise: when what is to be changed is not there.
        """
        text = (self.directory / name).read_text(encoding="utf-8")
        for old, new in changes:
            if old not in text:
                raise Surprise(f"{name} does not hold {old!r}")
            text = text.replace(old, new)
        self.write(name, text)

    def join(self, name: str, *snapshots: str) -> None:
        """Put the hosts of several snapshots into one."""
        found = [json.loads((self.directory / one).read_text(encoding="utf-8")) for one in snapshots]
        content = {**found[0], "hosts": [host for one in found for host in one["hosts"]]}
        write_atomic(self.directory / name, json.dumps(content), mode=0o600)

    def program(self, path: Path) -> None:
        """Let the commands find a program by its name."""
        (self.directory / "bin").mkdir(exist_ok=True)
        (self.directory / "bin" / path.name).symlink_to(path)

    def inventory(self, *names: str) -> None:
        """Write an inventory of example hosts."""
        self.write("inventory.yaml", inventory(self.directory, names))

    # --- commands ---

    def run(self, *command: str, code: int = 0, into: str | None = None, last: int | None = None) -> str:
        """Print a command, run it and print what it says.

        :param code: the exit code that it must have.
        :param last: print only so many lines of the end, as long as all goes well.
        :param into: the file that its output goes to.
        :returns: its output and its messages.
        :raises Surprise: when the exit code is another.
        """
        self._print(f"\n$ {shlex.join(command)}" + (f" > {into}" if into else ""), "36")
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
        said = done.stdout + done.stderr
        shown = (done.stderr if into is not None else said).strip("\n")
        if last is not None and done.returncode == code:
            shown = "\n".join(["[…]", *shown.splitlines()[-last:]])
        if shown:
            self._print(shown)
        if code != 0 and done.returncode == code:
            self._print(f"(exit code {code})")
        if done.returncode != code:
            raise Surprise(f"{command[0]} ended with exit code {done.returncode}, not {code}")
        return said

    def play(
        self,
        playbook: str,
        *arguments: str,
        spec: str = "gpustack.yaml",
        code: int = 0,
        last: int | None = None,
    ) -> str:
        """Run a playbook on the hosts of the inventory."""
        path = str(share_dir("playbooks") / f"{playbook}.yml")
        command = ("ansible-playbook", "-i", "inventory.yaml", path, "-e", f"gpustack_spec={spec}", *arguments)
        return self.run(*command, code=code, last=last)
