"""What a hostile host can cost: processor time and memory stay in proportion to what it sends."""

from __future__ import annotations

import json
import time

import pytest

from gpustack.base.errors import HostError, SnapshotError
from gpustack.connect.ssh import program as ssh_program
from gpustack.hosts.facts.collector.limits import TEXT_LIMIT
from gpustack.hosts.facts.store import MOST_VALUES, parse_host
from gpustack.linux import grub, shell
from gpustack.prepare.host.next_boot.choice import entry_key, version_key
from support.host_samples import function, raw_host

SECONDS = 15
"""Some twenty times what each takes; without its bound each takes minutes, or all of the memory."""


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "'a\nb'",
        '"a"',
        "$a",
        "${a-",
        "${a-\\}",
        "$a$a$a\n",
        "GRUB_A=$GRUB_A$GRUB_A-\n",
        "GRUB_A+='x y'\n",
        ":\n",
        "`",
    ],
)
def test_grubs_defaults_are_read_in_proportion(unit: str) -> None:
    text = "GRUB_A=word\n" + unit * ((TEXT_LIMIT - 12) // len(unit))
    began = time.process_time()
    defaults = grub.read_defaults({grub.DEFAULTS: text}, bash=True)
    defaults.arguments("GRUB_A")
    assert time.process_time() - began < SECONDS


def test_no_line_has_a_number_that_python_refuses() -> None:
    """Names of kernels and positions in menus are compared as numbers."""
    longest = parse_host(raw_host(architecture="9" * 4096), "gpu1").architecture
    assert version_key(longest or "") < version_key(f"1{longest}")
    assert entry_key(f"a-{longest}")
    with pytest.raises(SnapshotError, match="architecture"):
        parse_host(raw_host(architecture="9" * 4097), "gpu1")


@pytest.mark.parametrize("text", ["a" * (1 << 20), "$" + "a" * (1 << 18)], ids=["word", "name"])
def test_long_words_are_read_in_proportion(text: str) -> None:
    began = time.process_time()
    assert len(list(shell.tokens(text))) == 1
    assert time.process_time() - began < SECONDS


def test_variables_that_double_are_unknown() -> None:
    lines = ["GRUB_A=xxxxxxxx", *["GRUB_A=$GRUB_A$GRUB_A"] * 12, *[f"GRUB_{n}=$GRUB_A" for n in range(64)]]
    defaults = grub.read_defaults({grub.DEFAULTS: "\n".join(lines)})
    assert defaults.text("GRUB_A") is not None
    assert defaults.text("GRUB_63") is None
    assert "in all" in str(defaults.unknown("GRUB_63")[0])


def test_expansions_nested_without_end_are_unreadable() -> None:
    defaults = grub.read_defaults({grub.DEFAULTS: "GRUB_A=" + "${a:-" * 10_000})
    assert "nested too deeply" in str(defaults.unknown("GRUB_A")[0])


@pytest.mark.parametrize(
    "more",
    [
        {"files": {"/etc/rc.local": {"text": "x" * (TEXT_LIMIT + 1)}}},
        {"files": {f"/etc/modprobe.d/{n}.conf": {"text": "x" * TEXT_LIMIT} for n in range(17)}},
        {"aura": [[] for _ in range(MOST_VALUES)]},
        {"memory_mib": 10**400},
        {"unread": [{"path": "/x", "error": "x" * 100_000}]},
    ],
    ids=["file", "files", "values", "number", "error"],
)
def test_facts_beyond_all_measure_are_refused(more: dict[str, object]) -> None:
    with pytest.raises(SnapshotError) as caught:
        parse_host(raw_host(**more), "gpu01")
    assert len(str(caught.value)) < 1000


def test_more_functions_than_a_host_can_have_are_refused() -> None:
    functions = [function(f"{n:04x}:00:00.0") for n in range(8193)]
    with pytest.raises(SnapshotError, match="at most 8192"):
        parse_host(raw_host(*functions), "gpu01")


def test_json_of_many_small_values_is_refused_before_it_is_read() -> None:
    output = json.dumps({"pci": [[]] * 1_000_001}).encode()
    with pytest.raises(HostError, match="values"):
        ssh_program._document(output, "gpu01")
