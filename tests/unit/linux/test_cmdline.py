"""The kernel's command line: the kernel's own rules, and nothing foreign is changed."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpustack.linux.cmdline import CommandLine, argument, is_plain, same_name

LINES = st.text(alphabet='ab-_=." \t,:/é"', max_size=60)


@pytest.mark.parametrize(
    ("raw", "name", "value"),
    [
        ("quiet", "quiet", None),
        ("root=UUID=1234-abcd", "root", "UUID=1234-abcd"),
        ("amd_iommu=off", "amd_iommu", "off"),
        ("vfio-pci.ids=10de:11b4,10de:0e0a", "vfio-pci.ids", "10de:11b4,10de:0e0a"),
        ('dyndbg="file a.c +p; file b.c +p"', "dyndbg", "file a.c +p; file b.c +p"),
        ('"dyndbg=file a.c +p"', "dyndbg", "file a.c +p"),
        ('"quiet"', "quiet", None),
        ("empty=", "empty", ""),
        ('half="', "half", ""),
        ('mid=a"b c"d', "mid", 'a"b c"d'),
        ('mixed="a b"c', "mixed", 'a b"c'),
        ("=odd=1", "=odd", "1"),
    ],
)
def test_one_argument_is_taken_apart_as_the_kernel_does(raw: str, name: str, value: str | None) -> None:
    parsed = argument(raw)
    assert (parsed.text, parsed.name, parsed.value) == (raw, name, value)


def test_a_name_is_compared_whole_and_never_as_a_part() -> None:
    line = CommandLine(text="amd_iommu=on vfio_iommu_type1.allow_unsafe_interrupts=1 iommufoo=1 xiommu=2")
    assert line.all("iommu") == ()
    assert line.last("intel_iommu") is None
    assert not line.has("iommu=on")


def test_dash_and_underscore_are_the_same_in_names_but_not_in_values() -> None:
    line = CommandLine(text="vfio_pci.ids=10de:11b4 console=tty-1")
    assert line.has("vfio-pci.ids=10de:11b4")
    assert not line.has("console=tty_1")
    assert same_name("pci-stub", "pci_stub")


def test_duplicates_are_all_found_and_the_last_one_wins() -> None:
    line = CommandLine(text="intel_iommu=off quiet intel_iommu=on")
    assert [a.value for a in line.all("intel_iommu")] == ["off", "on"]
    assert (line.last("intel_iommu") or pytest.fail("nothing found")).value == "on"


def test_what_follows_a_lone_double_dash_is_for_init() -> None:
    line = CommandLine(text="ro quiet -- intel_iommu=on splash")
    assert not line.has("intel_iommu=on")
    assert [a.text for a in line.for_init or ()] == ["intel_iommu=on", "splash"]
    assert CommandLine(text="ro --x=1").for_init is None


def test_offsets_point_at_the_argument() -> None:
    text = '  ro  a="b c" d'
    assert [text[a.offset :][: len(a.text)] for a in CommandLine(text=text).arguments] == ["ro", 'a="b c"', "d"]


@pytest.mark.parametrize("text", ["", " ", "a b", " a", 'a" b'])
def test_what_is_not_one_argument_is_no_argument(text: str) -> None:
    if text == 'a" b':
        assert argument(text).text == text
    else:
        with pytest.raises(ValueError, match="not one kernel argument"):
            argument(text)


@given(LINES)
@example('a="b')
@example(" \t")
def test_a_line_is_kept_byte_for_byte(text: str) -> None:
    line = CommandLine(text=text)
    assert "".join(space + raw for space, raw in line.pieces) == text
    for parsed in line.arguments:
        assert text[parsed.offset : parsed.offset + len(parsed.text)] == parsed.text


@given(LINES)
def test_every_argument_stands_for_itself(text: str) -> None:
    for parsed in CommandLine(text=text).arguments:
        alone = argument(parsed.text)
        assert (alone.name, alone.value) == (parsed.name, parsed.value)
        assert CommandLine(text=text).has(parsed.text)


@given(st.lists(st.from_regex(r"[a-z][a-z_.-]{0,8}(=[A-Za-z0-9:,=]{0,8})?", fullmatch=True), max_size=6))
def test_plain_arguments_survive_being_joined(arguments: list[str]) -> None:
    assert all(is_plain(argument) for argument in arguments)
    assert [a.text for a in CommandLine.of(arguments).arguments] == arguments


@pytest.mark.parametrize("text", ["a b", "a$b", "a`b", 'a"b', "a\\b", "a;b", "a\nb", "a'b", "é", ""])
def test_what_a_shell_would_touch_is_not_plain(text: str) -> None:
    assert not is_plain(text)
