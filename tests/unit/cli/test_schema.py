"""The schemas of the data of commands: complete, valid, and compatible with those recorded."""

import argparse
import json
import os
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from gpustack.cli.app import Gpustack, main
from gpustack.cli.schema import documents, schema
from support.documents import compare

RECORDED = Path(__file__).parent / "golden" / "documents.json"


def test_each_command_with_data_has_a_schema() -> None:
    app = Gpustack()
    app.options = argparse.Namespace(debug=False, verbose_level=1, color="auto")
    printing = set()
    for name, entry in app.commands:
        options = entry.load()(app, app.options, cmd_name=name).get_parser(name)._option_string_actions
        form = options.get("--format")
        if form is not None:
            assert {"json", "yaml"} <= {*form.choices}
            printing.add(name)
    assert printing - {"complete"} == documents()["commands"].keys()


@pytest.mark.parametrize("command", documents()["commands"])
def test_schemas_are_valid_and_complete(command: str) -> None:
    made = schema(command)
    Draft202012Validator.check_schema(made)
    assert all(f"#/$defs/{name}" in json.dumps(made) for name in made["$defs"])
    for kind in made["$defs"].values():
        assert all(entry.get("description") for entry in kind["properties"].values())


def test_schemas_keep_what_was_recorded() -> None:
    """``GPUSTACK_GOLDEN=write`` adds new keys to the record; it removes and changes none."""
    present = {
        f"{name}.{key.removesuffix('?')}": text.partition(": ")[0] + "?" * key.endswith("?")
        for name, keys in documents().items()
        for key, text in keys.items()
    }
    recorded = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    assert {key: present.get(key) for key in recorded} == recorded, "a key was removed, or its type changed"
    if os.environ.get("GPUSTACK_GOLDEN") == "write":
        RECORDED.write_text(json.dumps(present, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        recorded = present
    assert present.keys() == recorded.keys(), "record new keys: GPUSTACK_GOLDEN=write"


@pytest.mark.parametrize(
    "data",
    [
        {"key": 1},
        [{"name": "ssh", "state": "ok", "seen": "", "remedy": None}],
        [{"name": "ssh", "state": "ok", "seen": ""}],
        [{"name": "ssh", "state": "ok", "seen": "", "remedy": "", "more": 1}],
    ],
)
def test_documents_of_tests_are_compared(data: object) -> None:
    compare("doctor", [{"name": "ssh", "state": "ok", "seen": "", "remedy": ""}])
    with pytest.raises(AssertionError):
        compare("doctor", data)


def test_a_schema_is_printed_for_commands_with_data_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "host", "plan"]) == 0
    assert json.loads(capsys.readouterr().out)["$defs"]["host_plan"]["required"][:2] == ["host", "refused"]
    assert main(["schema", "gpu", "watch"]) == 2
    assert "commands with data: " in capsys.readouterr().err


def test_explanations_are_data(capsys: pytest.CaptureFixture[str]) -> None:
    for subject, kind, key in (("GPU112", "finding", "remedy"), ("B", "class", "letter"), ("K4200", "card", "cards")):
        assert main(["explain", subject, "-f", "json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert (data["subject"], data["kind"]) == (subject, kind)
        assert data[key]
        assert data["text"]
