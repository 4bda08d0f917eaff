"""The next command after each command, by outcome: one table, next_steps.toml. A command prints none itself.

The next command gets the options and arguments of the present one that it has too.
"""

import argparse
import re
from collections.abc import Callable, Mapping

from gpustack.base.files import data_table
from gpustack.base.text import quoted

NEXT: Mapping[str, Mapping[str, str]] = data_table("next_steps.toml")
IN_TEXT = re.compile(
    r"gpustack (cleanup (?:plan|apply|explain)|gpu (?:list|show|disable|enable)|why (?:flavor|host|instance))\b"
    r"(?! does| shows)([^`;\n]*)"
)
"""A command in a text, and its own arguments."""
PLACEHOLDER = re.compile(r" --([a-z-]+) [A-Z]+\b")
_EQUIVALENT = {"private_key": "identity", "identity": "private_key"}
"""Options with another name in the next command."""
_DROPPED = frozenset({"check", "diff", "yes", "journal", "log", "formatter", "format", "columns", "sort_columns"})
"""Options that the next command does not get."""
_PRIVATE = frozenset({"db_url", "extra_vars"})
"""Options whose values may be secret: without them, the next command would be another one, so it is not printed."""
_CHOICES = ("out", "metrics", "findings", "exit_code", "host", "instance", "project", "users", "model", "state")
_SOURCES = ("root", "kernel_log")
"""Hosts that only some commands can read."""
_READ_HERE = frozenset({"local", "root", "snapshot"})
"""Sources of facts, of which a command takes one."""
_REPLACED = _READ_HERE | frozenset(
    ["hosts", "limit", "inventory", "user", "port", "identity", "ssh_config", "known_hosts", "sudo", "timeout", "jobs"]
)
"""The hosts and the ways to read them, which a saved snapshot replaces: it has these hosts only."""


def step_of(command: str, outcome: str, values: Mapping[str, object]) -> tuple[str, Mapping[str, str]] | None:
    """The next command, and the arguments that it gets from the table; None if there is none."""
    if outcome == "blocked" and values.get("code"):
        return "explain", {"subject": str(values["code"])}
    for row, step in NEXT.get(command, {}).items():
        wanted, *given = row.split(" ")
        ended_well = outcome not in ("blocked", "failed")
        fits = wanted == outcome or (not wanted and ended_well) or (wanted, outcome) == ("done", "warned")
        if fits and all(values.get(name) for name in given):
            words = step.split(" ")
            own = dict(word.split("=", 1) for word in words if "=" in word)
            names = {name: text.format_map(values) for name, text in own.items()}
            return (" ".join(word for word in words if "=" not in word), names) if step else None
    return None


def arguments(
    own: Mapping[str, object],
    values: Mapping[str, object],
    defaults: Callable[[str], object],
    following: argparse.ArgumentParser,
    typed: str | None = None,
) -> str | None:
    """The arguments of the next command, quoted for a shell; None if it can't get all that the present one had.

    :param own: the arguments from the table, by name.
    :param values: the parsed arguments of the present command.
    :param defaults: their defaults by name.
    :param following: the parser of the next command.
    :param typed: the arguments that a text has, to which those are added that it lacks.
    """
    known = {action.dest for action in following._actions}
    if any(values.get(name) for name in _PRIVATE) or any(values.get(n) and n not in known for n in _SOURCES):
        return None
    words: list[str] = []
    for action in sorted(following._actions, key=lambda action: bool(action.option_strings)):
        name, spelled = action.dest, {*action.option_strings}
        if typed is not None and (not spelled or name in _CHOICES or spelled.intersection(typed.split())):
            continue
        given = name if name in values else _EQUIVALENT.get(name, name)
        value = values.get(given) if given not in _DROPPED and values.get(given) != defaults(given) else None
        value = own.get(name, value)
        value = None if name in _REPLACED and _READ_HERE & own.keys() and name not in own else value
        if value in (None, False, []) and not action.option_strings and action.required:
            return None
        words += _words(action, value)
    return " ".join(map(quoted, words))


def _words(action: argparse.Action, value: object) -> list[str]:
    """An argument as the command line has it."""
    if value in (None, "", []):
        return []
    several = value if isinstance(value, list | tuple) else [value]
    texts = ["/".join(one) if isinstance(one, tuple) else str(one) for one in several]  # a tuple is HOST/ADDRESS
    if not action.option_strings:
        return texts
    if action.nargs == 0:
        return [action.option_strings[0 if value else -1]] if value or len(action.option_strings) > 2 else []
    return [word for text in texts for word in (action.option_strings[-1], text)]
