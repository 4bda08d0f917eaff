"""Environment variables for options and arguments, in one place for all commands.

A variable is used if the command line omits the option, and only by commands that have the option.
"""

import argparse
import os
from collections.abc import Callable
from typing import Any

from gpustack.base.errors import UsageError

SPEC = "GPUSTACK_SPEC"
COLOR = "GPUSTACK_COLOR"
VARIABLES = {
    "spec": SPEC,
    "inventory": "GPUSTACK_INVENTORY",
    "user": "GPUSTACK_USER",
    "identity": "GPUSTACK_IDENTITY",
    "private_key": "GPUSTACK_IDENTITY",
    "ssh_config": "GPUSTACK_SSH_CONFIG",
    "known_hosts": "GPUSTACK_KNOWN_HOSTS",
}
"""The variable of each option, by the option's name in the parsed arguments."""
_NO_INVENTORY = ("local", "root", "snapshot", "kernel_log")
"""The options for hosts outside an inventory."""
_SPEC_ENDINGS = (".yaml", ".yml", ".json")


class Variables:
    """The variables of a command's options and arguments; adds their names to its help."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._types: dict[str, Callable[[str], Any]] = {}
        self._actions = [a for a in parser._actions if a.dest in VARIABLES and a.default is None]
        for action in self._actions:
            name = VARIABLES[action.dest]
            self._types[action.dest] = action.type if callable(action.type) else str
            action.help = f"{action.help}; environment: {name}"
            if not action.option_strings and os.environ.get(name):
                action.nargs, action.required = "?", False
                action.type = str  # the text as typed: a Path would lose the slash of ./spec

    def complete(self, parsed_args: argparse.Namespace) -> None:
        """Set options that the command line omits from the environment.

        :raises UsageError: when the option rejects the value of its variable.
        """
        for action in self._actions:
            dest, name = action.dest, VARIABLES[action.dest]
            given, value = getattr(parsed_args, dest), os.environ.get(name)
            if dest == "inventory" and any(getattr(parsed_args, other, None) for other in _NO_INVENTORY):
                continue
            if dest == "spec" and not getattr(parsed_args, "instances", True):
                continue  # only the instances of a health check need it
            if value and not action.option_strings and given is not None:
                if hasattr(parsed_args, "hosts") and "/" not in given and not given.endswith(_SPEC_ENDINGS):
                    parsed_args.hosts, given = [given, *parsed_args.hosts], None
                else:
                    given = self._types[dest](given)
            parsed_args.__dict__[dest] = self._converted(dest, name, value) if value and given is None else given

    def _converted(self, dest: str, name: str, value: str) -> Any:  # noqa: ANN401 - what the option's type makes
        try:
            converted = self._types[dest](value)
        except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
            raise UsageError(f"{name} is {value!r}: {error}") from error
        return [converted] if dest == "inventory" else converted


def spec_at_hand() -> str | None:
    """The spec of the variable, or ``gpustack.yaml`` in the current directory if it exists."""
    usual = "gpustack.yaml"
    return os.environ.get(SPEC) or (usual if os.path.isfile(usual) else None)  # noqa: PTH113


def color(option: str | None, choices: tuple[str, ...]) -> str:
    """The value of ``--color``: the option, else its variable, else the default.

    :raises UsageError: when the variable has another value.
    """
    chosen = option or os.environ.get(COLOR) or choices[0]
    if chosen not in choices:
        raise UsageError(f"{COLOR} is {chosen!r}, expected {', '.join(choices)}")
    return chosen
