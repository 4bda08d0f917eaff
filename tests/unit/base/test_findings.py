"""Each finding's code has a name in code and a definition in data; each use gives the values that the texts name."""

from __future__ import annotations

import ast
import functools
import re
import shlex
import string
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gpustack.base.codes import Code
from gpustack.base.files import data_table
from gpustack.base.findings import Definition, Severity, definitions, finding, once
from gpustack.hosts.health.kernel_log import table

PACKAGE = Path(__file__).parents[3] / "gpustack"
PATHS = [path for path in PACKAGE.rglob("*.py") if path.name != "codes.py"]


OF_A_GPU = re.compile(r"`gpustack gpu (?:disable|enable|show) +([^`]+)`")


def test_remedies_name_the_gpu_of_a_command() -> None:
    """An option alone is no command: it lacks host and address."""
    named = [words for definition in definitions().values() for words in OF_A_GPU.findall(definition.remedy)]
    assert len(named) > 10
    assert [words for words in named if not re.match(r"({host}|HOST) ({address}|ADDRESS)", words)] == []


OPTIONS = {
    f"gpustack_{name}": f"--{name}" for name in ["adopt", "live", "trial", "force", "reboot", "serial", "guests"]
}
OPTIONS |= {"gpustack_device_guests": "--device-guests", "gpustack_cloud": "--os-cloud"}
"""The options of `gpustack host apply` and `undo`, by the variables of a play that they set."""
COMMANDS = {"prepare": "apply", "undo": "undo", "verify": "verify"}


def test_remedies_name_the_option_beside_the_variable_of_a_play() -> None:
    """Who runs `gpustack host apply` knows neither the variables nor the playbooks."""
    paired = 0
    for code, definition in definitions().items():
        for text in (definition.message, definition.remedy):
            wanted = [OPTIONS[name] for name in re.findall(r"gpustack_\w+", text) if name in OPTIONS]
            wanted += [f"`gpustack host {COMMANDS[name]}" for name in re.findall(r"(prepare|undo|verify)\.yml", text)]
            assert [words for words in wanted if words not in text] == [], code
            paired += len(wanted)
    assert paired > 30


def fields(definition: Definition) -> set[str]:
    """The values that a definition's message and remedy name in braces."""
    parsed = string.Formatter().parse(definition.message + definition.remedy)
    return {re.split(r"[.!\[]", name)[0] for _, name, _, _ in parsed if name}


@functools.cache
def nodes() -> dict[str, list[ast.AST]]:
    """All nodes of the syntax trees of all modules."""
    return {str(path.relative_to(PACKAGE)): list(ast.walk(ast.parse(path.read_text()))) for path in PATHS}


def uses() -> Iterator[tuple[str, Code, set[str]]]:
    """Each call of finding() with the code by its name and all values by theirs: place, code, values."""
    for path, node in ((path, node) for path, of_module in nodes().items() for node in of_module):
        match node:
            case ast.Call(func=ast.Name(id="finding"), args=[ast.Attribute(value=ast.Name(id="Code"), attr=name)]):
                values = {keyword.arg for keyword in node.keywords}
                if None not in values:
                    yield f"{path}:{node.lineno}", Code[name], {*map(str, values)}


def test_codes_and_definitions_are_the_same() -> None:
    files = (PACKAGE / "data/findings").glob("*.toml")
    defined = {code for path in files for code in tomllib.loads(path.read_text())}
    undefined, unnamed = {*Code} - defined, defined - {*Code}
    assert (undefined, unnamed) == (set(), set())


def test_every_code_is_used() -> None:
    attributes = (node for of_module in nodes().values() for node in of_module if isinstance(node, ast.Attribute))
    used = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "Code"}
    in_table = {Code(code).name for code in table().codes} | set(data_table("guest_problems.toml").values())
    in_table |= {str(entry.get("code")) for entry in data_table("reasons.toml").values()}
    assert {code.name for code in Code} - used - in_table == set()


def test_code_names_findings_by_symbol_only() -> None:
    """Comments may name the printed code, expressions may not."""
    constants = ((path, node) for path, of_module in nodes().items() for node in of_module)
    assert [
        f"{path}:{node.lineno}"
        for path, node in constants
        if isinstance(node, ast.Constant) and re.fullmatch(r"GPU\d{3}", str(node.value))
    ] == []


def test_texts_get_their_values() -> None:
    lacking = {place: fields(definitions()[code]) - values for place, code, values in uses()}
    assert len(lacking) > len(Code) / 2  # the calls are recognised
    assert {place: names for place, names in lacking.items() if names} == {}


def test_a_finding_of_two_severities_counts_once() -> None:
    lost, other = (finding(Code.DEVICE_NOT_RESPONDING, place=f"gpu1 {name}", functions="the GPU") for name in "ab")
    mild = replace(lost, severity=Severity.WARNING)
    assert once([mild, other, lost, lost]) == [lost, other]
    assert once([lost, mild]) == [lost]


def test_no_value_leaves_its_word_in_the_command_of_a_remedy() -> None:
    """An operator pastes the command; hosts, databases and clouds choose the values."""
    attacked = 0
    for code, definition in definitions().items():
        remedy = finding(code, place="p", **dict.fromkeys(fields(definition), "x; pwned")).remedy
        for template, command in zip(definition.remedy.split("`")[1::2], remedy.split("`")[1::2], strict=True):
            if " " in template and '"' not in template:
                attacked += "pwned" in command
                assert not {"pwned", "x;"} & {*shlex.split(command)}, code
    assert attacked > 30
