"""What the demo's chapters are played on: a directory, commands that are printed and run, and checks."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

from gpustack.examples import hosts
from gpustack.examples.host import write_host
from gpustack.files import share_dir

_WIDTH = 100


class Surprise(Exception):  # noqa: N818  (it is what the reader is told: not an error of this program)
    """Something is not as the demo said."""


class Stage:
    """A directory that commands are run in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        (directory / "ansible.cfg").touch()
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("ANSIBLE_")} | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
            "ANSIBLE_HOME": str(directory / ".ansible"),
            "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
            "ANSIBLE_DISPLAY_OK_HOSTS": "false",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
            "ANSIBLE_NOCOLOR": "1",
            "COLUMNS": str(_WIDTH),
        }

    # --- to the reader ---

    def title(self, text: str) -> None:
        """Begin a chapter."""
        self._print(f"\n{text}\n{'=' * len(text)}", "1")

    def say(self, text: str) -> None:
        """Explain something."""
        self._print("\n" + textwrap.fill(text, _WIDTH))

    def show(self, name: str) -> None:
        """Print a file."""
        self._print(f"\n$ cat {name}", "36")
        self._print((self.directory / name).read_text(encoding="utf-8").rstrip("\n"))

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

    def inventory(self, *names: str) -> None:
        """Write an inventory of example hosts."""
        python = json.dumps(sys.executable)
        lines = [
            "gpu_hosts:",
            "  hosts:",
            *(f"    {name}:" for name in names),
            "  vars:",
            "    ansible_connection: local",
            "    ansible_become: false",
            f"    ansible_python_interpreter: {python}",
            f'    gpustack_root: "{self.directory}/{{{{ inventory_hostname }}}}"',
            "    gpustack_command_prefix:",
            f'      [{python}, -m, gpustack.examples.standin, --root, "{{{{ gpustack_root }}}}"]',
            "    gpustack_reboot_command: \"{{ gpustack_command_prefix + ['reboot'] }}\"",
        ]
        self.write("inventory.yaml", "\n".join(lines) + "\n")

    # --- commands ---

    def run(self, *command: str, code: int = 0, into: str | None = None) -> str:
        """Print a command, run it and print what it says.

        :param code: the exit code that it must have.
        :param into: the file that its output goes to.
        :returns: its output and its messages.
        :raises Surprise: when the exit code is another.
        """
        self._print(f"\n$ {shlex.join(command)}" + (f" > {into}" if into else ""), "36")
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if into is not None:
            self.write(into, done.stdout)
        said = done.stdout + done.stderr
        shown = (done.stderr if into is not None else said).strip("\n")
        if shown:
            self._print(shown)
        if code != 0 and done.returncode == code:
            self._print(f"(exit code {code})")
        if done.returncode != code:
            raise Surprise(f"{command[0]} ended with exit code {done.returncode}, not {code}")
        return said

    def play(self, playbook: str, *arguments: str, spec: str = "gpustack.yaml", code: int = 0) -> str:
        """Run a playbook on the hosts of the inventory."""
        path = str(share_dir("playbooks") / f"{playbook}.yml")
        return self.run(
            "ansible-playbook", "-i", "inventory.yaml", path, "-e", f"gpustack_spec={spec}", *arguments, code=code
        )
