"""A spec brings code, an endless text, or names that steer a terminal: each command with a spec refuses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.base.errors import SpecError
from gpustack.spec.document import MAX_BYTES
from gpustack.spec.load import load_spec
from support.attacks import REMEDY, attacked, commands, run, variants
from support.fuzz_inputs import SPEC

COMMANDS = sorted(commands("spec"))
DEEP = "hosts: " + "[" * 20_000
PATH = SPEC.replace("gpu01", '"../../etc"')
BOMB = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [*{last}, *{last}]\n"
    for last, name in zip("abcdefghijklmnopqrst", "bcdefghijklmnopqrstu", strict=True)
)
LINE = json.dumps(REMEDY)
CONTENTS: dict[str, str | bytes] = {
    "names": f"""version: 1
models: {{"\\e]0;owned\\a\\u202e": 5, {LINE}: 5}}
hosts: {{"\\e[2Jx\\n": ["\\u2028", {LINE}]}}
""",
    "raw": b"version: 1\nmodels: {\xff\xfe\x00: 1}\n\x1b]52;c;aGk=\x07",
}


def everywhere(content: str | bytes, directory: Path) -> None:
    path = directory / "hostile.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for name, argument in COMMANDS:
        code, text = run(name, argument, path, directory)
        assert code, (name, text)
        assert not (directory / "mark").exists(), name


def one_reader(content: str, directory: Path) -> None:
    path = directory / "hostile.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SpecError):
        load_spec(path)


def code(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere(f"version: 1\nmodels: !!python/object/apply:os.mkdir [{directory / 'mark'}]\n", directory)


def endless(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory / "zero"
    path.symlink_to("/dev/zero")
    for name, argument in COMMANDS:
        assert run(name, argument, path, directory)[0]
    (directory / "large").write_text(SPEC + "# x\n" * (MAX_BYTES // 4), encoding="utf-8")
    with pytest.raises(SpecError):
        load_spec(directory / "large")


def unsafe(text: bytes, _where: str) -> Any:
    yaml.unsafe_load(text)
    raise SpecError("no spec")


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {
        "code": code,
        **variants(everywhere, CONTENTS),
        **variants(one_reader, {"alias bomb": BOMB + SPEC, "deep": DEEP, "path": PATH}),
        "endless": endless,
    },
    {"gpustack.spec.load:load_spec": {"gpustack.spec.load:examine": unsafe}},
)
