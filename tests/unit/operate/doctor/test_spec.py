"""The spec: named, the usual one, or none; and the hosts that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.operate.doctor import spec
from gpustack.operate.doctor.check import State
from gpustack.spec.model import hosts_of

SPEC = """
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {"gpu[1:2]": [k4200], "x*": [k4200]}
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_no_spec_is_no_error() -> None:
    loaded, (check,) = spec.checks(None)
    assert loaded is None
    assert check.state is State.NOT_CONFIGURED


def test_the_usual_spec_and_its_hosts(directory: Path) -> None:
    (directory / "gpustack.yaml").write_text(SPEC)
    loaded, (check,) = spec.checks(None)
    assert check.state is State.OK
    assert check.seen == "gpustack.yaml: valid, 1 model, 2 host patterns"
    assert loaded is not None
    assert hosts_of(loaded, None) == ("gpu1", "gpu2")


def test_a_spec_that_is_not_valid_or_not_there(directory: Path) -> None:
    (directory / "wrong.yaml").write_text("version: 1\nmodel: {}\n")
    for name in ("wrong.yaml", "missing.yaml"):
        loaded, (check,) = spec.checks(Path(name))
        assert loaded is None
        assert (check.state, check.exit_code) == (State.ERROR, 10)


def test_warnings_of_a_valid_spec_are_counted(directory: Path) -> None:
    unused = SPEC.replace("models: {", 'models: {unused: {match: {vendor: "10de", product: "11b5"}}, ')
    (directory / "my spec.yaml").write_text(unused)
    loaded, (check,) = spec.checks(Path("my spec.yaml"))
    assert (loaded is not None, check.state) == (True, State.WARNING)
    assert check.seen == "my spec.yaml: valid, 2 models, 2 host patterns, 1 warning"
    assert check.remedy == "gpustack spec check 'my spec.yaml'"
