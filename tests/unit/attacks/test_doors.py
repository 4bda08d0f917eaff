"""Each promise has one door: code elsewhere that goes around it is found here."""

from __future__ import annotations

import ast
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
    r"yaml\.(safe_|full_|unsafe_)?(load|parse|compose|scan)\b|\b(C?Safe|Base|Full|Unsafe)Loader\(": (
        "gpustack",
        {"base/limited_yaml.py", "spec/document.py"},
    ),
    r"fnmatchcase\(self\.name|image\.name (==|in) ": ("gpustack", {"cloud/image.py"}),
    r'\["hostvars"\]|hostvars\[': (
        "playbooks",
        {
            "plugin_utils/gpustack_base.py",
            "action_plugins/gpustack_nova.py",
            "action_plugins/gpustack_save.py",
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


FILES = {
    # who opens files beside the door, base/files.py
    "changes/guardian.py": "the log and the pipe of the child that releases a lock",
    "changes/journal.py": "journals, which grow line by line",
    "changes/lock.py": "locks",
    "cli/app.py": "/dev/null",
    "cli/capacity.py": "a new table of events, not opened if it exists",
    "cli/host_playbooks.py": "the private directory of a run",
    "configure/installed/launch.py": "the programs that it sends",
    "connect/playbooks/inventory.py": "the private directory in which Ansible is imported",
    "connect/playbooks/run.py": "ansible.cfg, read by Ansible next, or an empty one; pipes; the log that it writes",
    "hosts/facts/store.py": "snapshots, up to MAX_BYTES",
    "linux/initramfs/image.py": "images of hosts, in pieces",
    "operate/support/collect.py": "an archive in memory",
    "repair/hypervisor.py": "the program that it sends",
    "spec/load.py": "specs, up to MAX_BYTES",
}
PROGRAMS = ("configure/installed/program.py", "hosts/facts/collector/", "offer/guest/inside/", "repair/domains.py")
"""Run on hosts and in guests, with limits of their own, and import nothing of the product."""
OPENERS = re.compile(
    r"(?:^|\.)(?:open|fdopen|read_bytes|write_text|write_bytes|touch|mkstemp|mkdtemp|mktemp|mmap|sendfile|mkfifo|openat)$"
    r"|\.read_text$|^shutil\.(?!which|get_terminal_size)\w+$|^tempfile\.\w+$|^(?:tarfile|zipfile|fileinput|linecache)\."
    r"|^os\.(?:read|write|replace|rename|link|symlink|truncate|pread|pwrite|readv|mknod|copy_file_range|splice)$"
    r"|^(?:Rotating)?FileHandler$|logging\.(?:handlers\.)?\w*FileHandler$|^parser\.read$|fromfile$|^tomllib\.load$"
)
WORDS = re.compile(
    r"open\(|_bytes\(|_text\(|touch\(|temp|shutil\.|mmap|sendfile|mkfifo|openat|(?:tar|zip)file|fileinput|linecache"
    r"|FileHandler|parser\.read|fromfile|tomllib|os\.(?:read|write|re|link|sym|trunc|p|mknod|copy|splice)"
)
"""In each module that has such a call: the others are not parsed."""
OWN = re.compile(r"\b(?:data_dir|share_dir|_path)\(|^(?:SCHEMA_FILE|page)\.|^Path\(file\)|^path\.read_text$")
"""Data of the package itself."""
DATA = ("base/findings.py", "cli/explanation.py", "cli/spec.py", "configure/installed/verdicts.py", "spec/schema.py")
"""Modules in which a plain ``path`` is data of the package."""


def opened(source: str, path: str) -> list[str]:
    """The calls of a module that open, write or replace a file, other than data of the package."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    names = [ast.unparse(call.func) for call in calls]
    found = [name for name in names if OPENERS.search(name)]
    plain = OWN if path in DATA else re.compile(r"\b(?:data_dir|share_dir|_path)\(")
    return [name for name in found if not plain.search(name)]


def test_files_are_opened_by_the_door_only() -> None:
    top = ROOT / "gpustack"
    paths = {path.relative_to(top).as_posix(): path for path in top.rglob("*.py")}
    texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items() if not name.startswith(PROGRAMS)}
    found = {name for name, text in texts.items() if WORDS.search(text) and opened(text, name)}
    assert found - {"base/files.py"} == FILES.keys()


@pytest.mark.parametrize(
    "line",
    [
        "os.open(path, os.O_RDONLY)",
        "os.fdopen(number)",
        "open(path)",
        "io.open(path)",
        "codecs.open(path)",
        "path.open()",
        "path.read_text()",
        "Path(name).read_bytes()",
        "path.write_text(text)",
        "path.touch()",
        "os.replace(path, other)",
        "shutil.copyfile(path, other)",
        "tempfile.NamedTemporaryFile()",
        "mmap.mmap(number, 0)",
        "gzip.open(path)",
        "tarfile.open(path)",
        "linecache.getlines(path)",
        "logging.FileHandler(path)",
        "parser.read(path)",
    ],
)
def test_another_way_to_a_file_breaks_the_rule(line: str) -> None:
    assert opened(line, "cli/new.py")
    assert not opened("read_text(path)\ndata_dir('x').read_text()", "cli/new.py")


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
