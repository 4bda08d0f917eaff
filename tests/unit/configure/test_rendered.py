"""Files of deployment tools that are no YAML."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from gpustack.base.errors import NovaConfigError
from gpustack.configure.rendered import documents


@pytest.mark.parametrize(
    "text",
    [
        'database_password: "geheim7\n  x: [',
        "database_password: *geheim7",
        "database_password: geheim7: x",
        "passwords: [geheim7",
        "database_password: !geheim7 x\ny: [",
    ],
)
def test_no_error_quotes_a_line(text: str, tmp_path: Path) -> None:
    """Also not the traceback of ``--debug``: the files have passwords."""
    path = tmp_path / "passwords.yml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(NovaConfigError, match=r"line \d: ") as caught:
        documents(path)
    assert "geheim7" not in "".join(traceback.format_exception(caught.value))
