"""Module aliases: which drivers a function may get."""

from __future__ import annotations

import fnmatch
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.collector.aliases import Aliases, alias_matches
from support.sysroot import SysRoot

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
    root.kernel("6.9.9-newer", aliases=[("pci:v*d*sv*sd*bc*sc*i*", "wrong")])
    root.function("0000:01:00.0", vendor="1234", product="1111")
    root.function("0000:02:00.0", vendor="1b21", product="2142", cls="0c0330")
    assert [entry["modules"] for entry in collect(str(root.path))["pci"]] == [["bochs_drm"], ["xhci_pci"]]
    root.at("/proc/sys/kernel/osrelease").unlink()  # nothing runs: the newest kernel's aliases
    assert [entry["modules"] for entry in collect(str(root.path))["pci"]] == [["wrong"], ["wrong"]]
