"""The files of a bundle within its limit, and the manifest."""

import hashlib
import json

import pytest

from gpustack.nova_options.masking import Masking
from gpustack.operate.support import bundle
from gpustack.operate.support.bundle import BundlePart, files


def test_what_exceeds_the_size_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MOST", bundle._MANIFEST + 8000)
    made = files(
        [BundlePart(path="a", data="x"), BundlePart(path="b", data="y" * 9000), BundlePart(path="c", data="z")],
        Masking(),
    )
    assert [(file.path, file.omitted != "") for file in made[:3]] == [("a", False), ("b", True), ("c", False)]
    assert "larger than the rest" in made[1].omitted
    assert made[-1].path == "manifest.json"
    rows = json.loads(made[-1].content)["files"]
    assert rows[0]["sha256"] == hashlib.sha256(b"x").hexdigest()
    assert [row["size"] for row in rows] == [1, None, 1]
