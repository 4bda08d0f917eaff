"""A directory with example hosts, an inventory and a spec, in which the real ansible-playbook runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpustack.base.files import collection_dir
from gpustack.hosts.facts.collector import collect
from gpustack_demo.examples import hosts
from gpustack_demo.examples.machine import Machine
from support import warm

EXAMPLES: dict[str, Callable[[str], Machine]] = {
    "talk": hosts.talk_host,
    "nvswitch": hosts.nvswitch_host,
    "shared": hosts.shared_group_host,
    "epyc": hosts.epyc_host,
    "rhel9": hosts.rhel9_host,
    "rhel8": hosts.rhel8_host,
    "sdboot": hosts.systemd_boot_host,
}
SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}}
  h100: {match: {vendor: "10de", product: "2330"}}
  a4000: {match: {vendor: "10de", product: "24b0"}}
  mi210: {match: {vendor: "1002", product: "740f"}}
hosts:
  "talk*": [k4200]
  "nvswitch*": [h100]
  "shared*": [a4000]
  "epyc*": [mi210]
  "rhel*": [k4200]
  "sdboot*": [k4200]
"""


@dataclass(frozen=True)
class Run:
    """The result of an ansible-playbook run."""

    code: int
    output: str

    def count(self, host: str, counter: str) -> int:
        """A count of the recap, for example of ``changed`` tasks."""
        line = re.search(rf"^{re.escape(host)}\s+:.*$", self.output, re.MULTILINE)
        assert line is not None, self.output
        number = re.search(rf"\b{counter}=(\d+)", line.group(0))
        assert number is not None
        return int(number.group(1))

    def fatal(self, host: str) -> str:
        """The message of a failed host's result."""
        line = re.search(rf"^fatal: \[{re.escape(host)}\]: .*$", self.output, re.MULTILINE)
        assert line is not None, self.output
        return line.group(0)


@dataclass
class Place:
    """A directory with example hosts in ``roots``, a spec and an inventory."""

    path: Path
    templates: Path
    variables: dict[str, dict[str, Any]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def add(self, example: str, name: str | None = None, **variables: Any) -> Path:
        """Add an example host to the inventory; by default it is prepared through its stand-ins."""
        name = name or example
        root = self.path / "roots" / name
        shutil.copytree(self.templates / example, root, symlinks=True)
        prefix = [warm.python(), "-m", "gpustack_demo.examples.standin", "--root", str(root)]
        self.variables[name] = {
            "gpustack_root": str(root),
            "gpustack_command_prefix": prefix,
            "gpustack_reboot_command": [*prefix, "reboot"],
            **variables,
        }
        return root

    def spec(self, text: str, name: str = "gpustack.yaml") -> None:
        (self.path / name).write_text(text, encoding="utf-8")

    def inventory(self) -> None:
        """Write the inventory, with the spec given by a relative path."""
        inventory = {
            "all": {
                "hosts": self.variables,
                "vars": {
                    "gpustack_spec": "gpustack.yaml",
                    "ansible_connection": "local",
                    "ansible_become": False,
                    "ansible_python_interpreter": warm.outside(),
                },
            }
        }
        (self.path / "inventory.json").write_text(json.dumps(inventory), encoding="utf-8")

    def play(self, playbook: str, *arguments: str, **variables: Any) -> Run:
        """Run a playbook from this directory."""
        self.inventory()
        process = warm.run(
            [
                str(Path(sys.executable).with_name("ansible-playbook")),
                "-i",
                "inventory.json",
                str(collection_dir() / "playbooks" / f"{playbook}.yml"),
                "-e",
                json.dumps(variables),
                *arguments,
            ],
            cwd=self.path,
            env={**environment(self.path), **self.environment},
        )
        return Run(code=process.returncode, output=process.stdout + process.stderr)


def environment(home: Path) -> Mapping[str, str]:
    """An environment without this machine's Ansible configuration."""
    configuration = home / "ansible.cfg"
    configuration.touch()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    return (
        branches()
        | inherited
        | {
            "ANSIBLE_CONFIG": str(configuration),
            "ANSIBLE_HOME": str(home / ".ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "COLUMNS": "200",
            "PYTHONWARNINGS": "ignore",
        }
    )


def branches() -> dict[str, str]:
    """The variables with which ``ansible-playbook`` records the branches of conditions, for ``make branches``."""
    plugins = Path(__file__).with_name("callbacks")
    recorded = {"ANSIBLE_CALLBACK_PLUGINS": str(plugins), "ANSIBLE_CALLBACKS_ENABLED": "branches"}
    return recorded if "GPUSTACK_BRANCHES" in os.environ else {}


def tree(root: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below a directory: kind, mode, time of the last change and content of each entry."""
    return {str(path.relative_to(root)): _entry(path) for path in sorted(root.rglob("*"))}


def _entry(path: Path) -> tuple[Any, ...]:
    status = path.lstat()
    content: object = None
    if path.is_symlink():
        content = path.readlink()
    elif path.is_file():
        content = path.read_bytes()
    return (oct(status.st_mode), status.st_mtime_ns, content)


def drivers(root: Path, vendor: str = "10de") -> set[str | None]:
    """The drivers of a vendor's functions."""
    return {f["driver"] for f in collect(str(root))["pci"] if f["vendor"] == vendor}


def configuration(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything in /etc, /boot's menu and gpustack's own files: mode and content, without times."""
    files = {path: (mode, content) for path, (mode, _, content) in tree(root).items()}
    prefixes = ("etc", "boot/grub", "var")
    return {path: entry for path, entry in files.items() if path.startswith(prefixes)}
