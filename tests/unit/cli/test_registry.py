"""The names of commands in both programs, and in texts."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gpustack.base.files import data_table
from gpustack.cli.app import Gpustack
from gpustack.cli.registry import command_class, gpustack_name, typed
from gpustack.cli.scan import ScanCommand


def test_openstack_has_other_names() -> None:
    assert gpustack_name("gpu flavor plan") == "flavor plan"
    assert gpustack_name("gpu disable") == "gpu disable"
    cloud = {"--os-cloud": "my cloud"}
    assert typed("flavor apply", cloud, openstack=True) == "openstack --os-cloud 'my cloud' gpu flavor apply"
    assert typed("gpu show", {"--os-cloud": None, "--os-region-name": ""}, openstack=True) == "openstack gpu show"
    both = {"--os-cloud": "prod", "--os-region-name": "RegionTwo"}
    assert typed("undo", both, openstack=True) == "openstack --os-cloud prod --os-region-name RegionTwo gpu undo"
    assert typed("explain", cloud, openstack=True) == "gpustack explain"
    assert typed("gpu show", {}, openstack=False) == "gpustack gpu show"


def test_a_command_is_found_by_its_name() -> None:
    assert command_class("scan") is ScanCommand


TOP = Path(__file__).resolve().parents[3]
NAMES = frozenset(data_table("commands.toml"))
NAMED = re.compile(r"`(gpustack [a-z][^`\n]*)`|^\s*\$ (gpustack [a-z][^\n]*)", re.MULTILINE)
"""A command in backticks, or after the prompt of an example."""


def texts() -> Iterator[str]:
    """The texts of the product: its strings, tables and playbooks, and the documentation."""
    for path in (path for part in ("gpustack", "playbooks", "demo") for path in (TOP / part).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    for place in ("gpustack/data/**/*.toml", "playbooks/**/*.yml", "playbooks/**/*.md", "docs/**/*.md", "README.md"):
        for path in TOP.glob(place):
            if not re.match(r"docs/(_build|reference/(generated|findings))/", path.relative_to(TOP).as_posix()):
                yield path.read_text(encoding="utf-8")


def lacking(command: str) -> str:
    """What gpustack lacks of a command; empty for one that it has, and for a group of commands."""
    words = command.split()[1:]
    name = next((" ".join(words[:count]) for count in (2, 1) if " ".join(words[:count]) in NAMES), None)
    if name is None:
        groups = {name.split()[0] for name in NAMES}
        whole = len(words) == 1 or "…" in words or re.search(r"\w\|\w", command)
        return "" if words[0] == "help" or (words[0] in groups and whole) else command
    known = command_class(name)(Gpustack(), None, cmd_name=name).get_parser(name)._option_string_actions
    own = re.split(r" (?:\||&&|>) ", command)[0]
    return next(
        (f"{command}: {option}" for option in re.findall(r"(?<!\S)--?[a-z][\w-]*", own) if option not in known), ""
    )


def test_commands_in_texts_exist_with_their_options() -> None:
    named = {"".join(groups) for text in texts() for groups in NAMED.findall(text)}
    assert len(named) > 400
    assert list(filter(None, map(lacking, sorted(named)))) == []
    assert lacking("gpustack flavor sync SPEC")
    assert lacking("gpustack flavor plan SPEC --replaced x")
