"""Each document that a command prints in a test is compared with its schema, which may leave no key out."""

import functools
import json
from collections.abc import Sequence
from typing import Any

from cliff.show import ShowOne
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from gpustack.cli import common
from gpustack.cli.schema import documents as tables
from gpustack.cli.schema import schema


def closed(node: Any) -> Any:
    """The schema without objects that have further keys."""
    if isinstance(node, list):
        return [closed(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    inner = {key: closed(value) for key, value in node.items()}
    return {"additionalProperties": False, **inner} if isinstance(node.get("properties"), dict) else inner


@functools.cache
def validator(command: str) -> Draft202012Validator:
    return Draft202012Validator(closed(schema(command)))


def compare(name: str | None, data: object) -> None:
    """:raises AssertionError: if the data of a command are not those of its schema."""
    command = " ".join((name or "").split())
    if command not in tables()["commands"]:
        command = command.removeprefix("gpu ")  # in openstack
    document = json.loads(json.dumps(data, default=str))
    for error in validator(command).iter_errors(document):
        best = min(error.context or (), key=lambda e: -len(e.absolute_path), default=error)
        raise AssertionError(f"{command} {best.json_path}: {best.message[:400]}")


def install() -> None:
    """Compare the data of all commands from now on; of a list with ``-c``, which is incomplete, none."""
    ran, listed = common.Lister.run, common.Lister.produce_output
    shown, one = common.Command.show_data, ShowOne.produce_output

    def run(self: Any, parsed_args: Any) -> int:
        own = type(self).__module__.startswith("gpustack.")
        self.compared = own and common.is_for_machines(parsed_args) and not parsed_args.columns
        return int(ran(self, parsed_args))

    def show_data(self: Any, data: object, form: str) -> None:
        compare(self.cmd_name, data)
        shown(self, data, form)

    def produce_list(self: Any, parsed_args: Any, names: Sequence[str], data: Any) -> int:
        rows = list(data)
        if self.compared:
            compare(self.cmd_name, [dict(zip(names, row, strict=True)) for row in rows])
        return int(listed(self, parsed_args, names, rows))

    def produce_one(self: Any, parsed_args: Any, names: Sequence[str], data: Any) -> int:
        if isinstance(self, common.ShowOne) and common.is_for_machines(parsed_args) and not parsed_args.columns:
            compare(self.cmd_name, dict(zip(names, data, strict=True)))
        return int(one(self, parsed_args, names, data))

    for kind, name, method in (
        (common.Lister, "run", run),
        (common.Lister, "produce_output", produce_list),
        (common.Command, "show_data", show_data),
        (ShowOne, "produce_output", produce_one),
    ):
        setattr(kind, name, method)
