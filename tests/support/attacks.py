"""Attacks on the rows of the table of authority: doors without their checks, and all commands that take an input."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gpustack.base.text import printable
from gpustack.cli.app import Gpustack, main
from support.collection_modules import imported
from support.fuzz_inputs import SPEC
from support.fuzz_readers import CONF, OPTIONS, SNAPSHOT

Value = TypeVar("Value")
Attack = Callable[[Path, pytest.MonkeyPatch], None]
"""Tries something in a directory of its own; fails if it works."""
Doors = Mapping[str, Mapping[str, object]]
"""By door: the functions or constants (``module:name``) that check, and replacements that do not."""
ARGUMENTS = {
    "--as": "capo",
    "--disk": "1GiB",
    "--ram": "1GiB",
    "--reason": "r",
    "--vcpus": "1",
    "address": "0000:81:00.0",
    "flavor": "g",
    "flavors": "g",
    "host": "gpu01",
    "images": "i",
    "name": "g",
    "server": "vm",
    "subject": "GPU480",
}
"""Values of required arguments that are no files."""
MORE = {
    "cleanup apply": "--config-file",
    "cleanup plan": "--config-file",
    "flavor create": "--alias=k4200",
    "guest check": "--flavor=g",
}
"""Arguments that commands need to read the attacked one: a file, or the argument with its value."""
ALONE = {("guest check", "--console"), ("guest check", "--root")}
READ_LATER = {
    ("capacity", "--config-file"),  # after the cloud
    ("cleanup explain", "--config-file"),  # only with the name of an instance, or of a GPU
    *((name, "--spec") for name in ("cleanup apply", "cleanup explain", "cleanup plan", "cleanup watch")),
    *(("cleanup plan", key) for key in ("--snapshot", "--compute-config")),  # after the database
    ("example cloud", "--snapshot"),  # with the directory of `nova render`
    ("example cloud", "--rendered"),
    ("example leak", "--cloud"),
    *(("gpu watch", key) for key in ("--snapshot", "--config-file", "--spec")),  # without an end
    ("guest render", "--snapshot"),
    *((undo, "--config-file") for undo in ("cleanup undo", "image undo", "reclaim undo", "undo")),  # with a journal
    *(
        (name, key)
        for name in ("support bundle", "why flavor", "why host", "why instance")
        for key in ("--snapshot", "--config-file", "--spec")
    ),  # after the cloud
    *(("health", key) for key in ("--config-file", "--spec")),  # with --instances
    ("nova render", "--from"),  # with a host that has the spec's cards
}
"""What is not read at once, or not in a process without a cloud; the reader is the same as that of other commands."""


def variants(attack: Callable[[Value, Path], object], values: Mapping[str, Value]) -> dict[str, Attack]:
    """The same attack with several values, by the name of the value."""
    return {name: partial(_with, attack, value) for name, value in values.items()}


def _with(
    attack: Callable[[Value, Path], object], value: Value, directory: Path, _monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(value, directory)


def attacked(attacks: Mapping[str, Attack], doors: Doors) -> tuple[Callable[..., None], Callable[..., None]]:
    """The tests of a row: each attack fails, and one of them works if a door has no check."""

    @pytest.mark.parametrize("name", sorted(attacks))
    def test_an_attack_fails(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        attacks[name](tmp_path, monkeypatch)

    @pytest.mark.parametrize("door", sorted(doors))
    def test_an_attack_works_without_the_check(door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for target, replacement in doors[door].items():
            replace(monkeypatch, target, replacement)
        for number, attack in enumerate(attacks.values()):
            directory = tmp_path / str(number)
            directory.mkdir()
            with monkeypatch.context() as context:
                try:
                    attack(directory, context)
                except (AssertionError, pytest.fail.Exception):
                    return
        pytest.fail(f"no attack notices that {door} checks nothing")

    return test_an_attack_fails, test_an_attack_works_without_the_check


def replace(monkeypatch: pytest.MonkeyPatch, target: str, replacement: object) -> None:
    """Replace a function, method or constant in its module, and in all modules that took it under its name."""
    module, _, name = target.partition(":")
    *owners, last = name.split(".")
    owner = functools.reduce(getattr, owners, imported(module))
    original = vars(owner)[last]
    for place in (owner, *list(sys.modules.values())):
        if getattr(place, "__dict__", {}).get(last) is original:
            monkeypatch.setattr(place, last, replacement)


def commands(*readers: str) -> Iterator[tuple[str, str]]:
    """Each command and each of its arguments whose file has one of the readers of ``fuzz_readers.OPTIONS``."""
    for name, actions in _actions().items():
        for action in actions:
            if OPTIONS.get(_named(action)) in readers:
                yield name, _named(action)


REMEDY = "\n  → run `sh`\n"
"""What a hostile text has in itself, to look like a remedy of gpustack."""


def assert_no_line_is_forged(text: str) -> None:
    assert REMEDY.strip("\n") not in text.splitlines(), text


def run(name: str, argument: str, value: str | Path, directory: Path) -> tuple[int | None, str]:
    """Run a command with an attacked argument in an empty home; return the exit code and the output.

    An unexpected error, a character that steers a terminal, a line that the input forges, and an attacked file that is
    not read, are faults. Ansible, whose version ``doctor`` prints, is not started.
    """
    words, given = [*name.split()], {argument}
    more = next((value for command, value in MORE.items() if name.startswith(command)), "")
    if more.partition("=")[0] != argument and (name, argument) not in ALONE:
        words += [more] if "=" in more else [more, _honest(more, directory)] if more else []
        given.add(more)
    for action in _actions()[name]:
        key = _named(action)
        needed = action.required or not (action.option_strings or action.nargs in ("?", "*"))
        if key == argument or (needed and key not in given):
            word = str(value) if key == argument else _honest(key, directory)
            words += [key, word] if action.option_strings else [word]
    output, code, opened = io.StringIO(), None, list[str]()
    with pytest.MonkeyPatch.context() as context, _opened(opened):
        for variable in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            context.setenv(variable, str(directory / "home"))
        context.setattr("gpustack.hosts.facts.store.MAX_BYTES", 1 << 20)
        context.setattr("gpustack.operate.doctor.machine.ansible_version", lambda: "core 2.19.14")
        context.chdir(directory)
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), contextlib.suppress(SystemExit):
            code = main(words)
    text = output.getvalue()
    assert not re.search(r"^gpustack: .*unexpected [A-Z]\w*: |Traceback", text, re.M), f"{words}: {text}"
    assert printable(text, keep="\n\t") == text, f"{words}: {text!r}"
    assert_no_line_is_forged(text)
    assert str(value) in opened or str(value) in text or (name, argument) in READ_LATER, words
    return code, text


_OPENED: list[list[str]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _OPENED and event == "open":
        _OPENED[-1].append(str(arguments[0]))


sys.addaudithook(_hook)  # audit hooks can't be removed


@contextlib.contextmanager
def _opened(paths: list[str]) -> Iterator[None]:
    """Note the files that are opened."""
    _OPENED.append(paths)
    try:
        yield
    finally:
        _OPENED.pop()


@functools.cache
def _actions() -> dict[str, list[Any]]:
    app = Gpustack()
    names = [name for name, _ in app.commands if name not in ("complete", "help")]
    return {name: [a for a in app.parser_of(name)._actions if a.dest != "help"] for name in names}


def _named(action: Any) -> str:
    return str(action.option_strings[-1] if action.option_strings else action.dest)


def _honest(key: str, directory: Path) -> str:
    if key in ARGUMENTS:
        return ARGUMENTS[key]
    content = {"spec": SPEC.encode(), "nova.conf": CONF, "snapshot": json.dumps(SNAPSHOT).encode()}
    path = directory / f"honest-{key.strip('-')}"
    if OPTIONS[key] in content:
        path.write_bytes(content[OPTIONS[key]])
    return str(path)
