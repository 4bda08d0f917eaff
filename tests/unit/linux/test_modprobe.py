"""modprobe's configuration: the rules of kmod, every statement with its file and line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.linux.cmdline import CommandLine, argument
from gpustack.linux.modprobe import (
    INTEL_IOMMU,
    PASSTHROUGH,
    ModuleOption,
    contradicts,
    fulfils,
    parse,
    paths,
    read_modprobe,
    switched,
    truth,
    words,
)

VFIO = """\
# by hand
options vfio-pci ids=10de:11b4,10de:0e0a \\
    disable_vga=1
blacklist nouveau
  softdep nouveau pre: vfio-pci drm post: foo
install nvidia /bin/false
alias pci:v000010DEd* vfio_pci
 # options vfio-pci ids=ffff:ffff
nonsense here
blacklist
"""


def test_statements_come_with_their_lines() -> None:
    assert [(s.line, str(s)) for s in parse(VFIO, "f")] == [
        (2, "options vfio-pci ids=10de:11b4,10de:0e0a disable_vga=1"),
        (4, "blacklist nouveau"),
        (5, "softdep nouveau pre: vfio-pci drm post: foo"),
        (6, "install nvidia /bin/false"),
        (7, "alias vfio_pci pci:v000010DEd*"),
    ]


def test_lines_of_windows_have_another_module() -> None:
    """``modprobe -c`` of kmod 30 prints ``blacklist nouveau^M``; the kernel and the shell read the other words."""
    text = "blacklist nouveau\r\noptions vfio-pci ids=10de:11b4\r\nsoftdep nouveau pre: vfio-pci\r\nalias a b\r\n"
    config = read_modprobe({"/etc/modprobe.d/a.conf": text})
    assert config.about("blacklist", "nouveau") == ()
    assert [option.value for option in config.option("vfio-pci", "ids")] == ["10de:11b4"]
    assert [s.words for s in config.about("softdep", "nouveau")] == [("pre:", "vfio-pci")]
    assert config.about("alias", "b") == ()
    assert [str(s) for s in parse("blacklist\vnouveau\nblacklist bar\fbaz", "f")] == ["blacklist bar\fbaz"]


def test_questions_about_a_module_take_either_spelling() -> None:
    config = read_modprobe({"/etc/modprobe.d/vfio.conf": VFIO})
    assert config.option("vfio_pci", "ids") == (
        ModuleOption(name="ids", value="10de:11b4,10de:0e0a", place="/etc/modprobe.d/vfio.conf:2"),
    )
    assert config.options("vfio") == ()
    assert [s.place for s in config.about("blacklist", "nouveau")] == ["/etc/modprobe.d/vfio.conf:4"]
    assert config.about("blacklist", "nvidia") == ()
    assert [str(s) for s in config.about("install", "nvidia")] == ["install nvidia /bin/false"]


def test_options_have_the_kernels_quotes() -> None:
    text = 'options vfio-pci ids="10de:11b4, 10de:0e0a" disable_vga=1 "nointxmask=1"'
    options = read_modprobe({"/etc/modprobe.d/a.conf": text}).options("vfio_pci")
    assert [(o.name, o.value) for o in options] == [
        ("ids", "10de:11b4, 10de:0e0a"),
        ("disable_vga", "1"),
        ("nointxmask", "1"),
    ]


def test_files_are_read_by_name_and_the_earlier_directory_wins() -> None:
    files = {
        "/lib/modprobe.d/a.conf": "options m p=1",
        "/etc/modprobe.d/b.conf": "options m p=3",
        "/etc/modprobe.d/a.conf": "options m p=2",
        "/etc/modprobe.d/c.conf.bak": "options m p=4",
        "/etc/modprobe.d/sub/d.conf": "options m p=5",
        "/usr/lib/modprobe.d/z.conf": "options m q",
    }
    assert paths(files) == ("/etc/modprobe.d/a.conf", "/etc/modprobe.d/b.conf", "/usr/lib/modprobe.d/z.conf")
    config = read_modprobe(files)
    assert [o.value for o in config.option("m", "p")] == ["2", "3"]
    assert [o.value for o in config.option("m", "q")] == [None]


@given(st.text(alphabet="optins blacktfdevip-=:#\\\n\t", max_size=200))
def test_any_text_is_read_and_every_line_number_is_real(text: str) -> None:
    lines = text.split("\n")
    for statement in parse(text, "f"):
        assert 1 <= statement.line <= len(lines)


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("quiet", None),
        ("intel_iommu=sm_on,on", True),
        ("intel_iommu=onto", None),
        ("intel_iommu=on intel_iommu=off", False),
        ("intel_iommu=off,on", True),
        ("intel_iommu=offline", False),
    ],
)
def test_the_last_word_decides_a_switch(line: str, state: bool | None) -> None:
    assert switched(CommandLine(text=line).arguments, INTEL_IOMMU) is state


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("iommu.passthrough=1", True),
        ("iommu=pt iommu.passthrough=0", False),
        ("iommu=pt iommu.passthrough=maybe", True),
        ("iommu=usedac,nopt", None),
    ],
)
def test_a_boolean_sets_the_same_feature(line: str, state: bool | None) -> None:
    assert switched(CommandLine(text=line).arguments, PASSTHROUGH) is state


def test_no_word_counts_after_usedac() -> None:
    assert [*words(argument("iommu=pt,usedac,nopt"))] == ["pt", "usedac"]
    assert [*words(argument("intel_iommu=usedac,on"))] == ["usedac", "on"]


@pytest.mark.parametrize(("text", "value"), [("Yes", True), ("on", True), ("of", False), ("0", False), ("o", None)])
def test_booleans_are_read_by_their_first_letters(text: str, value: bool | None) -> None:
    assert truth(text) is value
    assert truth(None) is None


@pytest.mark.parametrize(
    ("line", "wanted", "holds"),
    [
        ("intel_iommu=sm_on,on", "intel_iommu=on", True),
        ("intel_iommu=on,off", "intel_iommu=on", False),
        ("vfio-pci.ids=10de:11b4,10de:0e0a", "vfio_pci.ids=10DE:0E0A,10de:11b4", True),
        ("vfio-pci.ids=10de:11b4 vfio-pci.ids=10de:0e0a", "vfio-pci.ids=10de:11b4", False),
        ("", "vfio-pci.ids=10de:11b4", False),
        ("quiet splash", "quiet", True),
    ],
)
def test_lines_fulfil_wanted_arguments(line: str, wanted: str, holds: bool) -> None:
    assert fulfils(CommandLine(text=line), wanted) is holds


@pytest.mark.parametrize(
    ("text", "wanted", "against"),
    [
        ("iommu=nopt", "iommu=pt", True),
        ("iommu=off", "iommu=pt", True),
        ("iommu=soft", "iommu=pt", True),
        ("iommu=pt", "iommu=pt", False),
        ("iommu=soft", "intel_iommu=on", False),
        ("intel_iommu=off", "intel_iommu=on", True),
        ("quiet", "splash", False),
    ],
)
def test_arguments_contradict_wanted_ones(text: str, wanted: str, against: bool) -> None:
    assert contradicts(argument(text), wanted) is against
