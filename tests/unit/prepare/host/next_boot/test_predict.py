"""The predicted menu is the one that the real grub-mkconfig writes, for configurations at random."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gpustack.hosts.facts.boot_model import BootEntry
from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.collector.menu import differences
from gpustack.hosts.facts.collector.reader import HostRoot
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import parse_host
from gpustack.linux.grub import read_defaults
from gpustack.prepare.host.next_boot import choice, predict
from gpustack.prepare.host.next_boot.model import BootWord, menu_words
from gpustack_demo.examples.host import write_host
from gpustack_demo.examples.hosts import rhel9_host
from support.grub_mkconfig import UUID, Grub

RELEASES = ("6.1.0-9-amd64", "6.1.0-37-amd64", "6.1.0-37-cloud-amd64", "6.12.3", "5.10.0-8-amd64", "6.1.0-10-rt-amd64")
WORDS = ("quiet", "splash", "net.ifnames=0", "console=tty0", "console=ttyS0,115200n8", "mitigations=off", 'x=\\"a b\\"')
CUSTOM = """\
#!/bin/sh
exec tail -n +3 $0
menuentry 'Rescue' --id rescue {{
	linux /boot/vmlinuz-{0} root=UUID={1} ro rescue-mode=1
	initrd /boot/initrd.img-{0}
}}
"""


def write_configuration(root: Path, rng: random.Random, releases: list[str]) -> None:
    """A configuration at random: defaults, drop-ins and an entry of 40_custom."""
    newest = max(releases, key=choice.version_key)
    defaults = [
        "0",
        "1>0",
        f"1>{rng.randrange(len(releases) * 2)}",
        "saved",
        "rescue",
        f"gnulinux-advanced-{UUID}>gnulinux-{newest}-advanced-{UUID}",
        f"Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux {newest}",
        "nothing",
    ]
    lines = [
        f'GRUB_DEFAULT="{rng.choice(defaults)}"',
        "GRUB_DISTRIBUTOR=Debian",
        f'GRUB_CMDLINE_LINUX_DEFAULT="{" ".join(rng.sample(WORDS, rng.randrange(4)))}"',
        f'GRUB_CMDLINE_LINUX="{" ".join(rng.sample(WORDS, rng.randrange(3)))}"',
        *(["GRUB_DISABLE_RECOVERY=true"] if rng.random() < 0.3 else []),
        *(["GRUB_DISABLE_SUBMENU=y"] if rng.random() < 0.3 else []),
    ]
    (root / "etc/default/grub").write_text("\n".join([*lines, ""]))
    drop_in = root / "etc/default/grub.d/50-site.cfg"
    drop_in.unlink(missing_ok=True)
    if rng.random() < 0.5:
        drop_in.write_text(f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {rng.choice(WORDS)}"\n')


def read(root: Path) -> Host:
    (root / "etc/os-release").write_text("ID=debian\n")
    return parse_host({**collect(str(root)), "hostname": "gpu01"}, "test")


def described(entry: BootEntry, words: tuple[BootWord, ...]) -> tuple[object, ...]:
    return entry.position, entry.id, entry.title, entry.kernel, tuple(word.text for word in words)


@pytest.fixture
def grub(tmp_path: Path) -> Grub:
    return Grub(tmp_path / "host")


@pytest.mark.parametrize("seed", range(12))
def test_the_predicted_menu_is_the_generated_one(seed: int, grub: Grub) -> None:
    rng = random.Random(seed)  # noqa: S311 - no secret
    root, menu = grub.root, grub.root / "boot/grub/grub.cfg"
    releases = rng.sample(RELEASES, rng.randint(1, 4))
    for release in releases:
        (root / f"boot/vmlinuz-{release}").write_text("x")
        (root / f"boot/initrd.img-{release}").write_text("x")
    custom = root / "etc/grub.d/40_custom"
    if rng.random() < 0.6:
        custom.write_text(CUSTOM.format(releases[0], UUID))
    write_configuration(root, rng, releases)
    (root / "boot/grub/grubenv").write_text("# GRUB Environment Block\nsaved_entry=rescue\n" + "#" * 900)
    menu.write_text(grub.generate())
    write_configuration(root, rng, releases)
    host = read(root)
    texts = {path: file.text for path, file in host.files.items()}
    predicted = predict.generated(host, read_defaults(texts))
    assert not [reason for reason in predicted.unknown if "newer than the menu" not in reason]
    menu.write_text(grub.generate())
    real = read(root)
    ordinary = [e for e in real.boot.entries if not e.recovery and e.script == "/etc/grub.d/10_linux"]
    assert [
        described(e, predicted.words[e.position or ""]) for e in predicted.entries if e.position in predicted.words
    ] == [described(entry, menu_words(entry.arguments)) for entry in ordinary]
    chosen, booted = predicted.choice, choice.chosen(real)
    assert (chosen.unknown == "") == (booted.unknown == "")
    if chosen.entry is not None and booted.entry is not None:
        assert (chosen.entry.position, chosen.entry.kernel) == (booted.entry.position, booted.entry.kernel)
    expected = {
        "words": [word.text for word in predicted.words[predicted.entries[0].position or ""]],
        "default": predicted.default,
        "first": (predicted.entries[0].kernel or "").rpartition("/")[2],
    }
    assert differences(HostRoot(str(root)), "/boot/grub/grub.cfg", expected) == []
    assert differences(HostRoot(str(root)), "/boot/grub/grub.cfg", {**expected, "words": ["ro"]}) != []
    assert differences(HostRoot(str(root)), "/boot/grub/grub.cfg", {**expected, "default": "9"}) != []


def test_entries_that_are_files_have_the_order_of_the_boot_loader(tmp_path: Path) -> None:
    """The kernel of a release of RHEL is older than its updates, whose names are longer."""
    newest_first = ["5.14.0-427.42.1.el9_4", "5.14.0-427.el9", "5.14.0-427.el9~debug", "5.14.0-70.el9", "0-rescue-5f3"]
    assert sorted(newest_first, key=choice.entry_key) == newest_first[::-1]
    root = write_host(tmp_path / "gpu", rhel9_host("gpu"))
    (entry,) = (root / "boot/loader/entries").glob("*-427.13.1.el9_4*")
    entry.rename(entry.with_name(entry.name.replace("427.13.1.el9_4", "427.el9")))
    chosen = choice.chosen(parse_host(collect(str(root)), "test")).entry
    assert chosen is not None
    assert "-427.42.1.el9_4" in chosen.source
