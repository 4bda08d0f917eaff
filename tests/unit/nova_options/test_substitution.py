"""Options that name one another without measure, as a hostile host's nova.conf may have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.errors import NovaConfigError
from gpustack.nova_options.config import read_files

TENFOLD = "\n".join(f"a{n} = {f'$a{n + 1}' * 10}" for n in range(7))


@pytest.mark.parametrize(
    "text",
    [
        f"[DEFAULT]\n{TENFOLD}\na7 = xxxxxxxx\n",
        f"[DEFAULT]\n{TENFOLD}\na7 =\n",
        f"[DEFAULT]\n{TENFOLD}\n",
        f"[DEFAULT]\na = {'x' * 60_000}\n" + "b = $a\n" * 60_000,
    ],
    ids=["long", "empty", "unknown", "wide"],
)
def test_references_that_multiply_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text(text)
    with pytest.raises(NovaConfigError, match="name one another"):
        read_files([tmp_path / "nova.conf"])
