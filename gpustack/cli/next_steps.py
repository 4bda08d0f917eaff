"""The next command after each command, by outcome: one table, next_steps.toml. A command prints none itself.

The next command gets the options and arguments of the present one that it has too.
"""

import argparse
import re
from collections.abc import Callable, Mapping

from gpustack.base.files import data_table
from gpustack.base.text import quoted
from gpustack.cli.environment import spec_at_hand

NEXT: Mapping[str, Mapping[str, str]] = data_table("next_steps.toml")
IN_TEXT = re.compile(rf"gpustack ({'|'.join(sorted(NEXT, reverse=True))})\b(?! does| shows)([^`;\n]*)")
"""A command in a text, and its own arguments."""
PLACEHOLDER = re.compile(r" --([a-z-]+) [A-Z]+\b")
SPEC = re.compile(r"(?<!--spec) SPEC\b")
_EQUIVALENT = {"private_key": "identity", "identity": "private_key"}
"""Options with another name in the next command."""
_DROPPED = frozenset({"check", "diff", "yes", "journal", "log", "formatter", "format", "columns", "sort_columns"})
"""Options that the next command does not get."""
_PRIVATE = frozenset({"db_url", "extra_vars"})
"""Options whose values may be secret: without them, the next command would be another one, so it is not printed."""
_SHARED = {
    *("spec", "snapshot", "hosts", "paths", "local", "root", "os_cloud", "config_file", "region", "cell", "reason"),
    *("release", "deployment", "path", "grace", "stopped", "stuck_after", "service_down_time", "unblock"),
    *("inventory", "limit", "user", "port", "identity", "private_key", "ssh_config", "known_hosts", "sudo"),
    "no_hypervisor",
}
"""What a command in a text gets: hosts, cloud, files and how to read them. The text chooses what the command does."""
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
    """The arguments of the next command, quoted for a shell; None if it can't get all that this one had.

    :param own: the arguments from the table, by name.
    :param values: the parsed arguments of the present command.
    :param defaults: their defaults by name.
    :param following: the parser of the next command.
    :param typed: the arguments that a text has, to which those are added that it lacks.
    """
    known = {action.dest for action in following._actions}
    if "subject" not in own and any(map(values.get, _PRIVATE | {*_SOURCES} - known)):  # a code alone is explained
        return None
    words, named = list[str](), own.keys() | {name for name in _READ_HERE if f"--{name}" in (typed or "")}
    for action in sorted(following._actions, key=lambda action: bool(action.option_strings)):
        name = action.dest
        if typed is not None and _is_typed(action, typed, following):
            continue
        given = name if name in values else _EQUIVALENT.get(name, name)
        value = values.get(given) if given not in _DROPPED and values.get(given) != defaults(given) else None
        again = name == "snapshot" and (following.prog == "scan" or "--sudo" in (typed or ""))  # reads hosts again
        value = own.get(name, value) if typed is None or (name in _SHARED and not again) else None
        if value is None and typed is not None and (name, action.option_strings) == ("spec", []):
            value = spec_at_hand()
        value = None if name in _REPLACED and _READ_HERE & named and name not in named else value
        if value in (None, False, []) and not action.option_strings and action.required and action.nargs != "*":
            return None
        words += _words(action, value)
    is_read_once = any(word.startswith(("/dev/", "/proc/")) for word in words)  # standard input, <(zcat FILE)
    return None if is_read_once else " ".join(map(quoted, words))


def _is_typed(action: argparse.Action, text: str, parser: argparse.ArgumentParser) -> bool:
    """Whether a command in a text, which has these arguments, has an argument already."""
    words, takes_value = list[str](), False
    for word in re.findall(r"'[^']*'|\S+", text):
        option = parser._option_string_actions.get(word)
        if option is action:
            return True
        if not (option or takes_value):
            words.append(word)
        takes_value = option is not None and option.nargs != 0
    is_open = words in ([], ["SPEC"]) or (action.dest, words[0]) == ("spec", "SPEC")
    return not (action.option_strings or is_open)


def _words(action: argparse.Action, value: object) -> list[str]:
    """An argument as the command line has it."""
    if value in (None, "", []) or (action.nargs == 0 and isinstance(value, list)):  # --hosts is no list of hosts
        return []
    several = value if isinstance(value, list | tuple) else [value]
    texts = list(map(_text, several))
    if not action.option_strings:
        return texts
    if action.nargs == 0:
        return [action.option_strings[0 if value else -1]] if value or len(action.option_strings) > 2 else []
    return [word for text in texts for word in (action.option_strings[-1], text)]


def _text(value: object) -> str:
    """A value as one types it: a tuple is HOST/ADDRESS, and 120 seconds are no 120.0."""
    if isinstance(value, tuple):
        return "/".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
