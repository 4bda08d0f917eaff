"""The module that writes gpustack's block into nova.conf: the operator's lines stay."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpustack.nova_options.markers import BEGIN, END
from support import warm
from support.collection_modules import PLUGINS, imported
from support.playbook_place import environment

THEIRS = "[database]\nconnection = mysql://nova\n"


@pytest.fixture
def module() -> ModuleType:
    """The module, without Ansible."""
    return imported(f"{PLUGINS}modules.gpustack_nova_config")


@pytest.mark.parametrize("marker", [BEGIN, END])
def test_no_file_is_written_if_one_lacks_a_marker(tmp_path: Path, marker: str) -> None:
    """Without END, all that follows BEGIN would be replaced with the block in the second run."""
    intact, damaged = tmp_path / "etc/whole.conf", tmp_path / "etc/damaged.conf"
    intact.parent.mkdir()
    texts = {intact: THEIRS, damaged: f"{BEGIN}\n[pci]\n{END}\n".replace(marker, "") + THEIRS}
    for path, text in texts.items():
        path.write_text(text)
    blocks = [{"path": f"/etc/{path.name}", "text": "[pci]\n"} for path in texts]
    process = warm.run(
        [
            str(Path(sys.executable).with_name("ansible")), "localhost", "-i", "localhost,", "-c", "local", "-o",
            "-e", f"ansible_python_interpreter={warm.outside()}",
            "-m", "nova_gpustack.passthrough.gpustack_nova_config",
            "-a", json.dumps({"root": str(tmp_path), "blocks": blocks}),
        ],
        cwd=tmp_path,
        env=environment(tmp_path),
    )  # fmt: skip
    assert process.returncode != 0
    assert "/etc/damaged.conf: one of the two lines is missing" in process.stdout
    assert {path: path.read_text() for path in texts} == texts


def test_a_failed_write_leaves_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """It would have all options of the file, with their passwords."""
    path = tmp_path / "nova.conf"
    path.write_text(THEIRS)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "replace", full)
    ansible: Any = SimpleNamespace(check_mode=False)
    with pytest.raises(OSError, match="No space left"):
        module.write(ansible, {"path": "/nova.conf", "text": "[pci]\n"}, str(path), THEIRS)
    assert [file.name for file in tmp_path.iterdir()] == ["nova.conf"]


@pytest.mark.parametrize("header", ["[database]", "[DEFAULT]", "[database] # x", "[Database]"])
def test_passwords_stay_on_the_host(header: str, module: ModuleType) -> None:
    """Also in a file that Nova refuses: an indented line below a header continues no option."""
    lines = (
        " connection = mysql://nova:geheim7@db",
        "connection = a",
        "  geheim7",
        "[pci]",
        " alias = {}",
        "alias = b",
    )
    text = module.blanked("\n".join((header, *lines)) + "\n")
    assert text == f"{header}\n\n\n\n[pci]\n alias = {{}}\nalias = b\n"
