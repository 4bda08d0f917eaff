"""A host whose answers to Ansible are those of an attacker, beside an honest host that must not notice."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpustack.base.files import collection_dir
from gpustack.connect.playbooks.inventory import interpreter
from support import warm
from support.lowest_ansible import environment_of
from support.playbook_place import Place, environment

COLLECTION = collection_dir()
MAGIC = ("inventory_hostname", "inventory_hostname_short", "group_names", "inventory_dir", "omit", "ansible_facts")
PROGRAM = """\
#!{interpreter}
import json, subprocess, sys
kind, facts, template = json.loads({attack!r})
module = sys.stdin.buffer.read() if len(sys.argv) < 2 else b""  # with pipelining
ran = subprocess.run([{interpreter!r}, *sys.argv[1:]], input=module, stdout=subprocess.PIPE)
module += " ".join(sys.argv).encode()
try:
    answer = json.loads(ran.stdout)
except ValueError:
    sys.stdout.buffer.write(ran.stdout)
    sys.exit(ran.returncode)


def spoiled(value):
    if isinstance(value, dict):
        return {{key: spoiled(inner) for key, inner in value.items()}}
    if isinstance(value, list):
        return [spoiled(inner) for inner in value]
    return value + "\\n" + template if isinstance(value, str) and " " in value else value


if kind == "templates":
    answer = spoiled(answer)
    answer["guests"] = [template]
elif kind == "first" or kind == "later" and b"gpustack_facts" not in module:
    answer["ansible_facts"] = facts
print(json.dumps(answer))
"""


def variables() -> set[str]:
    """Every variable that the playbooks read: options, results of tasks, loop variables, Ansible's own ones."""
    texts = [
        path.read_text(encoding="utf-8")
        for place in ("playbooks", "roles")
        for path in (COLLECTION / place).rglob("*.yml")
    ]
    own = {"groups", "hostvars", "playbook_dir", "play_hosts", "role_path", "vars", "environment", "item"}
    return own.union(*(re.findall(r"\b(?:gpustack|ansible)_[a-z_]+\b", text) for text in texts))


def forged(honest: Path) -> dict[str, Any]:
    """Facts that pose as another host, whose root is ``honest``, and choose each option."""
    values: dict[str, Any] = dict.fromkeys((*variables(), *MAGIC), "talk")
    for path in COLLECTION.glob("roles/*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            values |= {name: _choice(option) for name, option in entry["options"].items()}
    roots = {name: str(honest) for name in values if name.endswith("root")}
    return {**values, **roots, "gpustack_settings": {"root": str(honest)}}


def _choice(option: dict[str, Any]) -> Any:
    """A value of an option that Ansible accepts, and that differs from the default."""
    if "choices" in option:
        return option["choices"][-1]
    return {"bool": True, "int": 7, "list": ["talk"]}.get(option["type"], "talk")


@dataclass
class Hostile:
    """The hosts ``talk``, which is honest, and ``evil``."""

    place: Place
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def mark(self) -> Path:
        """The file that a template of the attacker would make on the controller."""
        return self.place.path / "templated"

    def arm(self, kind: str) -> None:
        """Write the program that answers.

        :param kind: ``first`` puts the facts into each answer, ``later`` into all but those of ``gpustack_facts``;
            ``templates`` puts templates into texts, ``none`` changes nothing.
        """
        template = f"{{{{ lookup('pipe', 'touch {self.mark}') }}}}"
        attack = json.dumps([kind, self.facts, template])
        program = self.place.path / "python"
        program.write_text(PROGRAM.format(interpreter=interpreter(), attack=attack), encoding="utf-8")
        program.chmod(0o755)

    def cache(self, host: str = "evil") -> dict[str, str]:
        """Write the facts into a cache, as an earlier play would have done; return Ansible's settings of it."""
        directory = self.place.path / "facts"
        directory.mkdir(exist_ok=True)
        text = json.dumps(self.facts)
        for name, content in (
            (host, text),
            (f"s1_{host}", json.dumps({"__payload__": text})),
        ):  # as of ansible-core 2.19
            (directory / name).write_text(content, encoding="utf-8")
        return {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(directory)}

    def play(
        self, playbook: str, version: str, *arguments: str, cached: bool = False, stale: str = "", **values: Any
    ) -> str:
        """Run a playbook as the documentation prints it on ``evil`` only, and return its output.

        :param cached: put the facts into a cache of Ansible's first.
        :param stale: another host of the run, whose facts are in the cache.
        """
        self.place.inventory()
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        command = [
            program,
            "-i",
            "inventory.json",
            "-l",
            ",".join(filter(None, ("evil", stale))),
            str(COLLECTION / "playbooks" / f"{playbook}.yml"),
            *arguments,
        ]
        process = warm.run(
            [*command, "-e", json.dumps(values)],
            cwd=self.place.path,
            env={
                **environment(self.place.path),
                **environment_of(version),
                **(self.cache(stale or "evil") if cached or stale else {}),
            },
        )
        return process.stdout + process.stderr
