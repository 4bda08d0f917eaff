"""Tables fit 80 columns, and an address or a uuid is never broken."""

from __future__ import annotations

import argparse
import io
import subprocess
from pathlib import Path

import pytest

from gpustack.base.text import printable
from gpustack.cli.app import Gpustack
from gpustack.cli.common import ShowOne
from gpustack.cli.tables import FittingTable
from gpustack.repair.classes import label

ADDRESS = "0000:05:00.0"
UUID = "5f0c1b8e-6f5e-4b5f-9a55-1e1d6a1c2b3d"
SCAN = ("Host", "Address", "Card", "Driver", "IOMMU group", "NUMA", "Ready")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def table(names, rows, *, stream: io.StringIO | None = None, max_width: int = 0) -> str:
    stream = Terminal() if stream is None else stream
    options = argparse.Namespace(max_width=max_width, fit_width=False, print_empty=False)
    FittingTable().emit_list(names, rows, stream, options)
    return stream.getvalue()


class Fields(ShowOne):
    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], tuple[object, ...]]:
        name: str = parsed_args.name
        return ("name", "holder"), (name, [name, name])


@pytest.mark.parametrize(
    "name", ["$(touch hit)", "`touch hit`", '\\\\"; touch hit; "', "a\\\\", "$HOME \"x\" 'y'", "vm\nx=1"]
)
def test_a_shell_runs_no_part_of_a_value(name: str, tmp_path: Path) -> None:
    command = Fields(Gpustack(), None)
    command.app.stdout = io.StringIO()
    arguments = command.get_parser("gpustack x").parse_args(["-f", "shell", "--prefix", "gpu_"])
    arguments.name = name
    command.run(arguments)
    script = 'eval "$1"; printf "%s\\0" "$gpu_name" "$gpu_holder" "$x"'
    words = ["/bin/sh", "-euc", f"x=0; {script}", "-", command.app.stdout.getvalue()]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    shown = printable(name, keep="")
    assert run.stdout.split("\0") == [shown, f"{shown}\n{shown}", "0", ""]
    assert list(tmp_path.iterdir()) == []


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_texts_wrap_between_words() -> None:
    row = ("gpu-amd01", ADDRESS, "AMD Instinct MI300X", "amdgpu", "70", 0, "GPU010")
    output = table(SCAN, [row])
    assert widest(output) <= 80
    assert f" {ADDRESS} " in output
    assert " Instinct " in output
    assert table(SCAN, [row], stream=io.StringIO()).count("\n") == 5  # in a pipe nothing wraps


def test_rows_become_blocks_where_words_leave_no_room() -> None:
    names = ("Class", "Status", "Cell", "Host", "Devices", "Instance", "Repair")
    row = (label("B"), "stale", "cell1", "gpu01", f"{ADDRESS} {ADDRESS}", UUID, "fail-migration")
    output = table(names, [row, row])
    assert output.split("\n\n")[0].splitlines() == [
        "Class     B (migration-pinned)",
        "Status    stale",
        "Cell      cell1",
        "Host      gpu01",
        f"Devices   {ADDRESS} {ADDRESS}",
        f"Instance  {UUID}",
        "Repair    fail-migration",
    ]


def test_a_table_that_fits_is_as_cliff_prints_it() -> None:
    assert table(("Name", "GPUs"), [("g1", 2)]) == (
        "+------+------+\n| Name | GPUs |\n+------+------+\n| g1   |    2 |\n+------+------+\n"
    )


def test_the_option_limits_a_pipe_as_well() -> None:
    output = table(("A", "B"), [("one two three", "four five six")], stream=io.StringIO(), max_width=20)
    assert widest(output) <= 20
    assert "three" in output


def test_lines_of_a_cell_stay_lines() -> None:
    output = table(("Field", "Value"), [("hosts", "gpu01\ngpu02")])
    assert "| hosts | gpu01 |\n|       | gpu02 |" in output


def test_no_rows() -> None:
    assert table(("Name",), []).strip() == ""
