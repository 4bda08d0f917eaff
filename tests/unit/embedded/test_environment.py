"""How the environments of OpenStack's releases are made."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpustack_demo.embedded import environment


def test_nothing_of_the_current_directory_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, mark, pins = tmp_path / "here", tmp_path / "mark", tmp_path / "pins"
    directory.mkdir()
    pins.touch()
    for name in ("venv", "pip", "ensurepip"):
        (directory / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write('{name}\\n')\n", encoding="utf-8")
    monkeypatch.chdir(directory)
    entry = cast("Any", SimpleNamespace(name="2025.2", pins=pins))
    environment._make(entry, Path(sys.executable), tmp_path / "made", lambda text: None)
    assert (tmp_path / "made/bin/pip").exists()
    assert not mark.exists(), mark.read_text(encoding="utf-8")
