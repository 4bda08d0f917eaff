"""Arguments in files of others: put at the end, taken out again, and nothing else changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.facts.cmdline import CommandLine
from gpustack.facts.grub import DEFAULTS
from gpustack.host.record import KERNEL_CMDLINE, edited, value_of

WORDS = st.sampled_from(
    ["ro", "quiet", "iommu=pt", "intel_iommu=on", "amd_iommu=on", "x=a=b", "vfio-pci.ids=10de:11b4"]
)
OURS = ("intel_iommu=on", "iommu=pt")


@given(st.lists(WORDS, max_size=5), st.sampled_from(["'", '"']), st.sampled_from(["", " ", "  # mine", "\t"]))
def test_what_was_added_is_taken_out_byte_for_byte(words: list[str], quote: str, after: str) -> None:
    line = " ".join(words)
    texts = {
        DEFAULTS: f"GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX={quote}{line}{quote}{after}\n#GRUB_CMDLINE_LINUX=\nGRUB_X=1\n",
        KERNEL_CMDLINE: f"root=/dev/sda1 {line}\n",
    }
    for path, text in texts.items():
        before = CommandLine(text=value_of(path, text) or "")
        added = tuple(a for a in OURS if not before.has(a))
        there = edited(path, text, added=added)
        assert there is not None
        now = CommandLine(text=value_of(path, there) or "")
        assert [a.text for a in now.arguments] == [*(a.text for a in before.arguments), *added]
        assert edited(path, there, without=added) == text
        assert edited(path, there, without=added, added=added) == there


def test_the_shell_reads_what_was_written(tmp_path: Path) -> None:
    text = edited(DEFAULTS, 'GRUB_CMDLINE_LINUX="rhgb quiet"\n', added=OURS)
    assert text is not None
    (tmp_path / "grub").write_text(text, encoding="utf-8")
    script = f'. {tmp_path}/grub; printf %s "$GRUB_CMDLINE_LINUX"'
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said == "rhgb quiet intel_iommu=on iommu=pt"


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
