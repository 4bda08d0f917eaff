"""The check as a guest runs it: exit codes, the expected GPUs, and the consoles that get the report."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpustack.offer.guest.check import Promise, data
from gpustack.offer.guest.inside.program import main, promised, write
from support.guest_root import guest_root

DATA = data({"g1.a100.2": Promise(count=2, ids=("10de:20b5",))})
ONE = "1 GPU, driver bound (nvidia 580.95.05)"


def made(root: Path, gpus: int = 1, **fields: Any) -> str:
    return str(guest_root(root, gpus=["10de:20b5"] * gpus, **{"driver": "nvidia", **fields}))


@pytest.mark.parametrize(
    ("gpus", "fields", "options", "status", "text"),
    [
        (2, {}, [], 0, "2 GPUs, driver bound (nvidia 580.95.05)\n"),
        (1, {}, ["--gpus", "1"], 0, f"{ONE}\n"),
        (1, {"flavor": "other"}, [], 0, f"{ONE}\n"),
        (
            1,
            {},
            [],
            1,
            "1 of 2 GPUs, driver bound (nvidia 580.95.05); GPU845\nERROR GPU845 PCI: number of GPUs: 1, expected 2\n",
        ),
        (1, {"driver": None}, ["--gpus", "1"], 1, "1 GPU, no driver bound; GPU847\nERROR GPU847 0000:00:05.0: "),
        (0, {"flavor": "other"}, [], 0, "0 GPUs\n"),
        (0, {}, ["--gpus", "0"], 0, "0 GPUs\n"),
    ],
)
def test_problems_are_printed_and_in_the_exit_code(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    gpus: int,
    fields: dict[str, Any],
    options: list[str],
    status: int,
    text: str,
) -> None:
    assert main(["--root", made(tmp_path, gpus, **fields), *options], DATA) == status
    output = capsys.readouterr().out
    assert output.startswith(text)
    assert ("\n  -> " in output) is (status == 1)


@pytest.mark.parametrize(("severity", "status"), [("info", 0), ("warning", 1)])
def test_information_alone_is_no_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], severity: str, status: int
) -> None:
    root = made(tmp_path, 2)
    (tmp_path / "dev/kmsg").unlink()
    texts = {**DATA["texts"], "unknown": {**DATA["texts"]["unknown"], "severity": severity}}
    assert main(["--root", root], {**DATA, "texts": texts}) == status
    assert f"{severity.upper()} GPU859 guest: " in capsys.readouterr().out


def test_facts_are_printed_as_json_whatever_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", made(tmp_path), "--facts"], DATA) == 0
    assert json.loads(capsys.readouterr().out)["flavor"] == "g1.a100.2"


@pytest.mark.parametrize("number", ["-1", "x"])
def test_the_number_of_gpus_is_a_natural_number(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f"--gpus={number}"], DATA)
    assert ended.value.code == 2
    assert f"--gpus: invalid count value: '{number}'" in capsys.readouterr().err


def test_a_root_that_is_no_directory_has_its_own_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(tmp_path / "none")], DATA) == 2
    assert f"{tmp_path}/none: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gpus", "fields", "reported"),
    [(1, {}, True), (0, {}, True), (0, {"flavor": "other"}, False), (1, {"flavor": "other"}, True)],
)
def test_a_report_is_for_guests_with_gpus_or_a_promise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gpus: int, fields: dict[str, Any], reported: bool
) -> None:
    root = made(tmp_path, gpus, **fields)
    (tmp_path / "dev/console").touch()
    assert main(["--root", root, "--report"], DATA) == 0
    text = (tmp_path / "dev/console").read_text()
    assert text.startswith("gpustack guest check: ") is reported
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("count", "flavor", "expected"),
    [
        (1, "g1.a100.2", {"count": 1, "ids": []}),
        (0, "g1.a100.2", {"count": 0, "ids": []}),
        (None, "g1.a100.2", {"count": 2, "ids": ("10de:20b5",)}),
        (None, "other", None),
        (None, None, None),
    ],
)
def test_a_number_replaces_the_promise_of_the_flavor(count: int | None, flavor: str | None, expected: Any) -> None:
    assert promised({"flavor": flavor}, count, DATA) == expected
    assert promised({"flavor": flavor}, None, {}) is None


@pytest.mark.parametrize(
    ("ports", "active", "written"),
    [
        (["console", "ttyS0"], "tty0\n", ["console", "ttyS0"]),
        (["console", "ttyS0"], "tty0 ttyS0\n", ["console"]),  # the console is that port
        (["console", "ttyS0"], "ttyS0 tty0\n", ["console", "ttyS0"]),
        (["console", "ttyAMA0"], None, ["console", "ttyAMA0"]),
        (["hvc0"], None, ["hvc0"]),
        ([], None, []),
    ],
)
def test_each_console_gets_the_line_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ports: list[str], active: str | None, written: list[str]
) -> None:
    (tmp_path / "dev").mkdir()
    for port in ports:
        (tmp_path / "dev" / port).write_text("before\n")
    if active is not None:
        (tmp_path / "sys/class/tty/console").mkdir(parents=True)
        (tmp_path / "sys/class/tty/console/active").write_text(active)
    write("line ü\n", f"{tmp_path}/")
    texts = {port: (tmp_path / "dev" / port).read_text() for port in ports}
    assert texts == {port: "before\nline ?\n" if port in written else "before\n" for port in ports}
    assert capsys.readouterr().out == ("" if written else "line ü\n")


def test_a_port_without_a_listener_does_not_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/console")
    write("line\n", str(tmp_path))
    assert capsys.readouterr().out == "line\n"
