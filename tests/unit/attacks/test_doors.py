"""Each promise has one door: code elsewhere that goes around it is found here."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOORS = {
    # what only the door may contain: (where to look, the doors)
    r"gpustack_(stopped_for|moved_from|after)\b": ("gpustack", {"cloud/marks.py"}),
    r"/projects\?name=": ("gpustack", {"cloud/identity.py"}),
    r"/images(\?|/)": ("gpustack", {"cloud/image.py"}),
    r"start_http_server|http\.server|socketserver|create_server": ("gpustack", {"base/prometheus.py"}),
    r"fnmatchcase\(self\.name|image\.name (==|in) ": ("gpustack", {"cloud/image.py"}),
    r'\["hostvars"\]|hostvars\[': (
        "playbooks",
        {
            "plugin_utils/gpustack_base.py",
            "action_plugins/gpustack_nova.py",
            "action_plugins/gpustack_options.py",
        },
    ),
    r"\b(un)?chroot\b.*root|unshare": ("playbooks/roles/gpustack_image", set()),
}


@pytest.mark.parametrize("pattern", sorted(DOORS))
def test_only_the_door_does_it(pattern: str) -> None:
    place, doors = DOORS[pattern]
    directory = ROOT / place
    files = [path for path in directory.rglob("*") if path.suffix in (".py", ".yml") and path.is_file()]
    found = {str(path.relative_to(directory)) for path in files if re.search(pattern, path.read_text(encoding="utf-8"))}
    assert found <= doors
    assert not doors or found, "the door has moved"


TABLE = tomllib.loads((ROOT / "gpustack/data/authority.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", sorted(TABLE))
def test_each_row_has_attacks_and_a_mutant_of_each_door(row: str) -> None:
    path = ROOT / f"tests/unit/attacks/test_{row}.py"
    assert str(path.relative_to(ROOT)) in TABLE[row]["tests"]
    made = runpy.run_path(str(path))
    (mark,) = made["test_an_attack_works_without_the_check"].pytestmark
    assert mark.args == ("door", sorted(TABLE[row]["doors"]))
    (mark,) = made["test_an_attack_fails"].pytestmark
    assert len(mark.args[1]) > 1


def test_no_other_file_is_there() -> None:
    present = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert present == {*TABLE, "doors"}
