"""Module aliases: which drivers a function may get."""

from __future__ import annotations

import fnmatch
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.collector.aliases import Aliases, add_modules, alias_matches, read_aliases
from gpustack.hosts.facts.collector.limits import TABLE_LIMIT
from gpustack.hosts.facts.collector.reader import HostRoot
from support.sysroot import SysRoot, talk_host

HEX = st.sampled_from("0123456789ABCDEF")


ID = st.text(st.sampled_from("01AF"), min_size=8, max_size=8) | st.sampled_from(["000010DE", "00008086"])


@st.composite
def modaliases(draw: st.DrawFn) -> str:
    cls = draw(st.sampled_from(["bc03sc00i00", "bc03sc02i00", "bc04sc03i00", "bc0Csc03i30"]))
    return f"pci:v{draw(ID)}d{draw(ID)}sv{draw(ID)}sd{draw(ID)}{cls}"


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """Patterns made from a name, so that they often match, and patterns that only look like some."""
    name = draw(modaliases())
    if draw(st.booleans()):
        fields = [draw(st.sampled_from([field, "*"])) for field in (name[5:13], name[14:22], name[24:32], name[34:42])]
        cls = draw(st.sampled_from([name[42:], "bc03sc*i*", "bc*sc*i*", "bc03sc*i00*"]))
        return "pci:v{}d{}sv{}sd{}".format(*fields) + cls
    return draw(st.text(st.sampled_from("pci:v0d1AF*?[]-!sbE8"), max_size=24).map(lambda t: "pci:" + t))


@given(st.lists(patterns(), max_size=12), modaliases() | st.text(st.sampled_from("pci:v0d1AF*[]sb"), max_size=30))
def test_the_index_of_aliases_finds_what_fnmatch_finds(pattern_list: list[str], name: str) -> None:
    pairs = [(pattern, f"module{number}") for number, pattern in enumerate(pattern_list)]
    naive = sorted(module for pattern, module in pairs if fnmatch.fnmatchcase(name, pattern))
    assert Aliases(pairs).candidates(name) == naive


@given(st.text(st.sampled_from("ab*"), max_size=8), st.text(st.sampled_from("ab"), max_size=10))
def test_one_pattern_matches_as_fnmatch_does(pattern: str, name: str) -> None:
    assert alias_matches(pattern, name) == fnmatch.fnmatchcase(name, pattern)


def test_aliases_of_modules_and_of_the_kernel_itself(tmp_path: Path) -> None:
    root = SysRoot(tmp_path).host().kernel(aliases=[("pci:v00001234d00001111sv*sd*bc*sc*i*", "bochs-drm")])
    root.write(
        "/lib/modules/6.1.0-37-amd64/modules.builtin.modinfo",
        b"xhci_pci.license=GPL\0xhci_pci.alias=pci:v*d*sv*sd*bc0Csc03i30*\0snd.alias=char-major-116-*\0",
    )
    root.kernel("6.9.9-newer", aliases=[("pci:v*d*sv*sd*bc*sc*i*", "any")])
    root.function("0000:01:00.0", vendor="1234", product="1111")
    root.function("0000:02:00.0", vendor="1b21", product="2142", cls="0c0330")
    functions = collect(str(root.path))["pci"]
    assert [entry["modules"] for entry in functions] == [["bochs_drm"], ["xhci_pci"]]
    assert [entry["other_modules"] for entry in functions] == [["any"], ["any"]]
    root.at("/proc/sys/kernel/osrelease").unlink()  # nothing runs: the newest kernel's aliases
    functions = collect(str(root.path))["pci"]
    assert [entry["modules"] for entry in functions] == [["any"], ["any"]]
    assert [entry["other_modules"] for entry in functions] == [["bochs_drm"], ["xhci_pci"]]


@given(st.lists(patterns(), max_size=12), st.lists(modaliases(), min_size=1, max_size=3))
def test_aliases_of_other_vendors_are_skipped_without_a_loss(pattern_list: list[str], names: list[str]) -> None:
    pairs = [(pattern, f"module{number}") for number, pattern in enumerate(pattern_list)]
    with tempfile.TemporaryDirectory() as directory:
        SysRoot(Path(directory)).kernel("6.1.0", aliases=pairs)
        table, _ = read_aliases(HostRoot(directory), "6.1.0", names)
    readable = [(pattern, module) for pattern, module in pairs if len(pattern) > len("pci:")]
    for name in names:
        assert table.candidates(name) == Aliases(readable).candidates(name)


def test_modules_that_only_another_bootable_kernel_has(tmp_path: Path) -> None:
    root = talk_host(tmp_path).kernel("6.12.1-cloud").kernel("6.9.9-old", image="/root/vmlinuz-{}")
    aliases = "alias pci:v000010DEd*sv*sd*bc04sc03i00* wrong\n"  # its image is not in /boot
    root.write("/lib/modules/6.9.9-old/modules.alias", aliases)
    for running, mine, others in (
        ("6.1.0-37-amd64", ["snd_hda_intel"], []),
        ("6.12.1-cloud", [], ["snd_hda_intel"]),
    ):
        root.write("/proc/sys/kernel/osrelease", f"{running}\n")
        facts = collect(str(root.path))
        audio = next(entry for entry in facts["pci"] if entry["address"] == "0000:88:00.1")
        assert (audio["modules"], audio["other_modules"]) == (mine, others)


def test_a_driver_that_only_another_kernel_has_is_looked_for_in_each_kernel(tmp_path: Path) -> None:
    usb = [("pci:v*d*sv*sd*bc0Csc80i*", "ucsi_example")]
    root = talk_host(tmp_path).kernel("6.12.1-cloud", aliases=usb, builtin=["usb/typec/ucsi-example"])
    root.function("0000:88:00.3", vendor="10de", product="1ad9", cls="0c8000", group=7)
    kernels = {kernel["release"]: kernel["modules"] for kernel in collect(str(root.path))["boot"]["kernels"]}
    assert kernels["6.12.1-cloud"]["ucsi_example"] == "builtin"
    assert "ucsi_example" not in kernels["6.1.0-37-amd64"]


class CountingRoot(HostRoot):
    """A root that counts how often each file is read."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.counts: Counter[str] = Counter()

    def data(self, path: str, limit: int = TABLE_LIMIT) -> bytes | None:
        self.counts[path] += 1
        return super().data(path, limit)


def test_the_aliases_of_each_kernel_are_read_once(tmp_path: Path) -> None:
    releases = ["6.1.0-37-amd64", "6.12.1-cloud"]
    root = CountingRoot(str(talk_host(tmp_path).kernel("6.12.1-cloud").path))
    functions = [{"modalias": "pci:v000010DEd000011B4sv*"}, {"modalias": None}]
    add_modules(root, functions, [{"release": release} for release in releases])
    assert functions[1] == {"modalias": None, "modules": [], "other_modules": []}
    names = ("modules.alias", "modules.builtin.modinfo")
    assert root.counts == {f"/lib/modules/{release}/{name}": 1 for release in releases for name in names}
