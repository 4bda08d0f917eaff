"""Arguments in files of others: put at the end, taken out again, and nothing else changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpustack.linux.cmdline import CommandLine
from gpustack.linux.grub import DEFAULTS
from gpustack.prepare.host.desired import PARAMETERS
from gpustack.prepare.host.own_files import RECORD
from gpustack.prepare.host.plan import plan_host
from gpustack.prepare.host.record import KERNEL_CMDLINE, MADE, PLACES, edited, recorded, value_of
from gpustack.prepare.host.render import render_record
from gpustack.prepare.host.undo import plan_undo
from support.host_cases import load

WORDS = st.sampled_from(
    ["ro", "quiet", "iommu=pt", "intel_iommu=on", "amd_iommu=on", "x=a=b", "vfio-pci.ids=10de:11b4"]
)
OURS = ("intel_iommu=on", "iommu=pt")


@given(st.lists(WORDS, max_size=5), st.sampled_from(["'", '"']), st.sampled_from(["", " ", "  # mine", "\t"]))
def test_what_was_added_is_taken_out_byte_for_byte(arguments: list[str], quote: str, after: str) -> None:
    line = " ".join(arguments)
    texts = {
        DEFAULTS: f"GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX={quote}{line}{quote}{after}\n#GRUB_CMDLINE_LINUX=\nGRUB_X=1\n",
        KERNEL_CMDLINE: f"root=/dev/sda1 {line}\n",
    }
    for path, text in texts.items():
        before = CommandLine(text=value_of(path, text) or "")
        added = tuple(a for a in OURS if not before.has(a))
        longer = edited(path, text, added=added)
        assert longer is not None
        now = CommandLine(text=value_of(path, longer) or "")
        assert [a.text for a in now.arguments] == [*(a.text for a in before.arguments), *added]
        assert edited(path, longer, without=added) == text
        assert edited(path, longer, without=added, added=added) == longer


def test_the_shell_reads_what_was_written(tmp_path: Path) -> None:
    text = edited(DEFAULTS, 'GRUB_CMDLINE_LINUX="rhgb quiet"\n', added=OURS)
    assert text is not None
    (tmp_path / "grub").write_text(text, encoding="utf-8")
    script = f'. {tmp_path}/grub; printf %s "$GRUB_CMDLINE_LINUX"'
    process = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert process == "rhgb quiet intel_iommu=on iommu=pt"


_LINES = st.sampled_from(
    [
        'GRUB_CMDLINE_LINUX="rhgb quiet"',
        "GRUB_CMDLINE_LINUX='quiet'  # mine",
        'GRUB_CMDLINE_LINUX="intel_iommu=on"',
        "GRUB_CMDLINE_LINUX=quiet",
        'export GRUB_CMDLINE_LINUX="ro"',
        'GRUB_CMDLINE_LINUX+=" more"',
        'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX b"',
        "GRUB_CMDLINE_LINUX='$tuned_params'",
        'GRUB_EDPM_KERNEL_ARGS=" hugepages=1 "',
        'GRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX:+$GRUB_CMDLINE_LINUX }${GRUB_EDPM_KERNEL_ARGS}"',
        'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX d"',
        'if [ -e /nowhere ]; then\n  GRUB_CMDLINE_LINUX="debug"\nfi',
        "GRUB_X='\nGRUB_CMDLINE_LINUX=\"x\"\n'",
        '# GRUB_CMDLINE_LINUX=""',
        'GRUB_DISTRIBUTOR="$(echo x)"',
        "unset GRUB_CMDLINE_LINUX",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_LINES, min_size=1, max_size=6))
@example(['GRUB_CMDLINE_LINUX="rhgb quiet"', "GRUB_CMDLINE_LINUX=quiet"])
def test_arguments_arrive_in_a_real_shell_or_are_not_added(lines: list[str]) -> None:
    text = "\n".join(lines) + "\n"
    longer = edited(DEFAULTS, text, added=("iommu=pt",))
    if longer is None:
        return
    command = 'printf %s "$GRUB_CMDLINE_LINUX"'
    before, after = (
        subprocess.run(["bash", "-c", f"{t}{command}"], capture_output=True).stdout for t in (text, longer)
    )
    assert sorted(after.split()) == sorted([*before.split(), b"iommu=pt"])
    changed = [line for line in longer.split("\n") if line not in text.split("\n")]
    assert len(changed) == 1
    assert "$" not in changed[0]
    assert edited(DEFAULTS, longer, without=("iommu=pt",)) == text


def test_arguments_on_a_line_with_variables_move_to_the_plain_line() -> None:
    plain, joined = 'GRUB_CMDLINE_LINUX="quiet"', 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX $GRUB_EDPM_KERNEL_ARGS'
    moved = edited(DEFAULTS, f'{plain}\n{joined} a=b"\n', without=("a=b",), added=("a=b",))
    assert moved == f'GRUB_CMDLINE_LINUX="quiet a=b"\n{joined}"\n'


@pytest.mark.parametrize(
    "text", ["", "GRUB_CMDLINE_LINUX=quiet\n", 'X="GRUB_CMDLINE_LINUX="\n', '#GRUB_CMDLINE_LINUX=""\n']
)
def test_where_there_is_no_line_in_quotes_nothing_is_added(text: str) -> None:
    assert edited(DEFAULTS, text, added=OURS) is None


def test_of_two_lines_the_last_counts() -> None:
    text = 'GRUB_CMDLINE_LINUX="old"\nGRUB_CMDLINE_LINUX="new"\n'
    assert edited(DEFAULTS, text, added=("a=b",)) == 'GRUB_CMDLINE_LINUX="old"\nGRUB_CMDLINE_LINUX="new a=b"\n'


@pytest.mark.parametrize("without", [("iommu",), ("intel_iommu",), ("on",)])
def test_only_whole_arguments_are_taken_out(without: tuple[str, ...]) -> None:
    text = "ro amd_iommu=on vfio_iommu_type1.allow_unsafe_interrupts=1 iommu=pt\n"
    assert edited(KERNEL_CMDLINE, text, without=without) == text


def test_the_record_gives_back_what_was_added() -> None:
    added = [*(f"{name}=10de:11b4,1" for name in PARAMETERS), "intel_iommu=on"]
    _, _, machine = load(Path(__file__).parent / "cases" / "rhel-9.yaml")
    lines = [*(f"{place} {a}" for place in PLACES if place != MADE for a in added), f"{MADE} sha256:{'0f' * 32}"]
    machine.raw["files"][RECORD] = {"text": render_record(lines), "mode": "0644", "mtime_ns": 1}
    record = recorded(machine.host)
    assert [f"{place} {a}" for place in PLACES for a in record[place]] == lines


@pytest.mark.parametrize(
    "line",
    ["entries quiet splash", "entries ", "entries --", 'entries "', "entries $(id)", "entries root=UUID=1", "made x y"],
)
def test_what_somebody_else_wrote_into_the_record_is_taken_out_of_nothing(line: str) -> None:
    _, spec, machine = load(Path(__file__).parent / "cases" / "rhel-9.yaml")
    for entry in machine.raw["boot"]["entries"]:
        entry["arguments"] += " root=UUID=1 quiet splash"
    text = render_record(["entries iommu=pt"])
    machine.raw["files"][RECORD] = {"text": f"{text}{line}\n", "mode": "0644", "mtime_ns": 1}
    assert recorded(machine.host) == {"entries": ("iommu=pt",)}
    assert not plan_host(spec, machine.host).refused
    arguments = [argument for op in plan_undo(machine.host).operations for argument in getattr(op, "argv", ())]
    assert not any("root=" in argument or "quiet" in argument for argument in arguments)
