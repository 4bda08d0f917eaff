"""The markers of gpustack's lines: which lines are its own, and the text without them."""

import pytest

from gpustack.base.errors import NovaConfigError
from gpustack.nova_options.markers import BEGIN, END, MARK, own_lines, without_block, without_ours

BLOCK = f"[pci]\na = 1\n{BEGIN}\nb = 2\n{END}\nc = 3\n"


def test_lines_of_a_block_are_own_lines() -> None:
    assert own_lines(BLOCK) == [False, False, True, True, False, False, False]


def test_all_lines_of_a_marked_file_are_own_lines() -> None:
    assert own_lines(f"{MARK}: x\na = 1") == [True, True]


def test_a_block_without_end_owns_no_line() -> None:
    assert not any(own_lines(f"{BEGIN}\nb = 2\n"))


def test_the_text_around_a_block_stays() -> None:
    assert without_block(BLOCK, "nova.conf") == "[pci]\na = 1\nc = 3\n"
    assert without_ours(BLOCK, "nova.conf") == "[pci]\na = 1\nc = 3\n"
    assert without_ours(f"{MARK}: x\na = 1\n", "nova.conf") == ""


@pytest.mark.parametrize("text", [BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}\n{BEGIN}\n{END}\n{END}"])
def test_damaged_markers_are_refused_with_the_file(text: str) -> None:
    with pytest.raises(NovaConfigError, match="one of the two lines is missing") as caught:
        without_block(f"{text}\nown = 1\n", "/etc/nova/nova.conf")
    assert caught.value.where == "/etc/nova/nova.conf"
