"""``gpustack schema``: the JSON Schema of the data of each command, made from the table of documents."""

import argparse
import json
import re
from collections.abc import Mapping
from typing import Any

from gpustack.base.errors import UsageError
from gpustack.base.files import data_table
from gpustack.cli.common import Command

_SCALARS = ("string", "integer", "number", "boolean")
_NAME = re.compile(r"[a-z_]+")
_ANY = "*"


def documents() -> Mapping[str, Mapping[str, str]]:
    """The table of documents: the type and the meaning of each key, by the name of an object; and ``commands``."""
    return data_table("documents.toml")


def schema(command: str) -> dict[str, Any]:
    """The JSON Schema of the data that a command prints with ``-f json`` and ``-f yaml``.

    :param command: the words of the command.
    :raises UsageError: if the command prints no data.
    """
    known = documents()["commands"]
    if command not in known:
        remedy = f"commands with data: {', '.join(known)}"
        raise UsageError(f"{command!r} is no command with -f json", remedy=remedy)
    waiting, used = _NAME.findall(known[command]), dict[str, Any]()
    while waiting:
        name = waiting.pop()
        if name in documents() and name not in used:
            used[name] = _object(documents()[name])
            waiting += [word for text in documents()[name].values() for word in _NAME.findall(text.partition(":")[0])]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpustack {command}",
        **_typed(known[command]),
        "$defs": dict(sorted(used.items())),
    }


def _object(keys: Mapping[str, str]) -> dict[str, Any]:
    properties = {}
    for key, text in keys.items():
        kind, _, meaning = text.partition(": ")
        properties[key.removesuffix("?")] = {**_typed(kind), "description": meaning}
    more = properties.pop(_ANY, None)
    required = [key for key in keys if key != _ANY and not key.endswith("?")]
    document = {"type": "object", "properties": properties, "required": required}
    return document if more is None else {**document, "additionalProperties": more}


def _typed(text: str) -> dict[str, Any]:
    """The schema of a type, in the notation of the table."""
    if " | " in text:
        return {"anyOf": [_typed(part) for part in text.split(" | ")]}
    if text.endswith("?"):
        return {"anyOf": [_typed(text.removesuffix("?")), {"type": "null"}]}
    if text.startswith("["):
        return {"type": "array", "items": _typed(text[1:-1])}
    if text.startswith("{"):
        return {"type": "object", "additionalProperties": _typed(text[1:-1])}
    return {"type": text} if text in _SCALARS else {} if text == "any" else {"$ref": f"#/$defs/{text}"}


class SchemaCommand(Command):
    """Print the JSON Schema of the data of a command, which it prints with -f json and -f yaml.

    Later versions add keys; they do not remove any, and do not change their types.
    """

    epilog = "gpustack schema scan; gpustack schema host plan > plan.schema.json"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("command", nargs="+", metavar="COMMAND", help="a command, such as host plan")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        print(json.dumps(schema(" ".join(parsed_args.command)), indent=2), file=self.app.stdout)
