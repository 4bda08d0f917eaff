"""The entry that a boot loader starts by default.

GRUB: ``get_entry_number`` and ``menuentry_eq`` of ``grub-core/normal/menu.c``; the variable ``default`` is that of
``/etc/grub.d/00_header``. If entries are files, blscfg sorts them by name, the highest version first
(``grub-core/commands/blscfg.c``). systemd-boot: ``config_default_entry_select`` of ``src/boot/efi/boot.c``.
"""

import fnmatch
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import TypeVar

from gpustack.hosts.facts.boot_model import BootEntry, MenuPlace
from gpustack.hosts.facts.model import Host

_Place = TypeVar("_Place", bound=MenuPlace)
_DIGITS = re.compile(r"[0-9]+")
_DEFAULT = re.compile(r"^\s*default\s+(\S+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The chosen entry.

    :ivar entry: None if it is unknown, or not an entry of this system; then ``unknown`` has the reason.
    :ivar why: the setting that chooses it.
    """

    entry: BootEntry | None
    why: str
    unknown: str = ""


@functools.lru_cache(maxsize=1024)
def version_key(release: str) -> tuple[tuple[tuple[int, ...], int], ...]:
    """A sort key of releases in the order of ``sort -V``, which ``10_linux`` uses (``version_test_gt``).

    As in dpkg, ``~`` sorts before the end, the end before letters, and letters before other characters.
    """
    text = re.sub(r"[._-](pre|rc|test|git|old|trunk)", r"~\1", release)
    parts = re.findall(r"([^0-9]*)([0-9]*)", text)
    return tuple(((*tuple(_order(c) for c in word), 0), int(digits or 0)) for word, digits in parts)


def _order(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256


def entry_key(name: str) -> tuple[tuple[tuple[int, int, str], ...], ...]:
    """A sort key of names of entries that are files, as blscfg (``vercmp``) and systemd-boot compare them.

    In each part between ``-``, ``~`` sorts before the end, the end before letters, and letters before digits: so
    ``427.el9`` is older than ``427.13.1.el9_4``.
    """
    parts = ([*re.findall(r"~|[0-9]+|[A-Za-z]+", part), ""] for part in name.split("-"))
    return tuple(tuple(map(_rank, words)) for words in parts)


def _rank(word: str) -> tuple[int, int, str]:
    return (2, int(word), "") if word.isdecimal() else ({"~": -1, "": 0}.get(word, 1), 0, word)


def chosen(host: Host) -> Choice:
    """The entry that boots next if nothing changes."""
    if host.boot.loader == "systemd-boot":
        return _of_systemd_boot(host)
    menu = host.boot.menu
    if menu is None and not host.boot.bls:
        return of_menu(host.boot.entries, (), "0", "the first entry")  # facts of an older collector
    environment = host.boot.environment
    if environment is not None and environment.read and environment.next_entry:
        return of_menu(_entries(host), _others(host), environment.next_entry, f"next_entry={environment.next_entry}")
    # If entries are files, the menu only reads them.
    if menu is not None and not (menu.complete and (menu.generated or menu.default is not None or host.boot.bls)):
        return Choice(entry=None, why="", unknown="the menu is incomplete, or grub-mkconfig did not write it")
    default = (menu.default if menu is not None else None) or "0"
    return by_default(host, _entries(host), _others(host), default)


def by_default(host: Host, entries: Sequence[BootEntry], others: Sequence[MenuPlace], default: str) -> Choice:
    """The entry that a value of GRUB's variable ``default`` chooses.

    :param default: as ``00_header`` writes it: ``${saved_entry}`` for the saved entry.
    """
    why = f"GRUB_DEFAULT={default}"
    if default in ("saved", "${saved_entry}"):
        environment = host.boot.environment
        saved = environment.saved_entry if environment is not None and environment.exists else None
        default, why = saved or "0", f"saved_entry={saved}" if saved else "GRUB_DEFAULT=saved, and no entry is saved"
    return of_menu(entries, others, default, why)


def of_menu(entries: Sequence[BootEntry], others: Sequence[MenuPlace], default: str, why: str) -> Choice:
    """The entry that a number, id or title chooses; parts for submenus are separated by ``>``."""
    if "$" in default:
        return Choice(entry=None, why=why, unknown=f"the default entry is the variable {default}")
    parts = [part.replace("\0", ">") for part in default.replace(">>", "\0").split(">")]
    if (entry := _named(entries, parts)) is not None:
        return Choice(entry=entry, why=why)
    other = _named(others, parts)
    what = f"{why} names {other.title!r}, which does not boot this system's Linux" if other is not None else ""
    return Choice(entry=None, why=why, unknown=what or f"{why} names no entry of the menu")


def _named(places: Sequence[_Place], parts: Sequence[str]) -> _Place | None:
    return next((place for place in places if _is_named(place, parts)), None)


def _is_named(place: MenuPlace, parts: Sequence[str]) -> bool:
    numbers = (place.position or "").split(">") if place.position else []
    if not numbers:  # an older collector: only the first entry is known by number
        return list(parts) == ["0"]
    levels = [*((menu.id, menu.title) for menu in place.submenus), (place.id, place.title)]
    if len(levels) != len(parts) or len(numbers) != len(parts):
        return False
    matches = zip_longest(parts, numbers, levels)
    return all(part == n if _DIGITS.fullmatch(part) else part in level for part, n, level in matches)


def _entries(host: Host) -> Sequence[BootEntry]:
    """All entries, those in files with their places: blscfg adds them before the entries of the menu's scripts."""
    files = [entry for entry in host.boot.entries if entry.is_file]
    ordered = sorted(files, key=lambda entry: entry_key(PurePosixPath(entry.source).stem), reverse=True)
    placed = [
        entry.model_copy(update={"position": str(n), "id": entry.id or PurePosixPath(entry.source).stem})
        for n, entry in enumerate(ordered)
    ]
    return (*placed, *(moved(entry, len(placed)) for entry in host.boot.entries if not entry.is_file))


def _others(host: Host) -> Sequence[MenuPlace]:
    menu = host.boot.menu
    shift = sum(entry.is_file for entry in host.boot.entries)
    return () if menu is None else tuple(moved(place, shift) for place in menu.others)


def moved(place: _Place, shift: int) -> _Place:
    """A place in the menu after ``shift`` more entries were added before it."""
    if not shift or place.position is None:
        return place
    first, separator, rest = place.position.partition(">")
    return place.model_copy(update={"position": f"{int(first) + shift}{separator}{rest}"})


def _of_systemd_boot(host: Host) -> Choice:
    efi, releases = host.boot.efi, {kernel.image: kernel.release for kernel in host.boot.kernels}
    ordered = sorted(host.boot.ordinary, key=lambda e: entry_key(releases.get(e.kernel) or e.source), reverse=True)
    loader = next((f.text for path, f in host.files.items() if path.endswith("/loader/loader.conf")), "")
    in_file = _DEFAULT.findall(loader)[-1:]
    settings = [("LoaderEntryOneShot", efi.once), ("LoaderEntryDefault", efi.default)]
    for why, pattern in (*settings, *(("loader.conf", pattern) for pattern in in_file)):
        wanted = efi.selected if pattern == "@saved" else pattern
        names = ((entry, PurePosixPath(entry.source).name.lower()) for entry in ordered if wanted)
        found = next((entry for entry, name in names if fnmatch.fnmatchcase(name, (wanted or "").lower())), None)
        if found is not None:
            return Choice(entry=found, why=f"{why}: {pattern}")
        if pattern is not None and why != "loader.conf":
            return Choice(entry=None, why=why, unknown=f"{why} names {pattern}, which is no entry that is a file")
    unknown = "" if ordered else "there are no boot entries"
    return Choice(entry=next(iter(ordered), None), why="the newest version", unknown=unknown)
