"""The next boot now, and after the operations of a plan. Pure: the input is facts and the desired files.

GRUB's generated menu: ``/etc/grub.d/10_linux`` writes ``root=… ro``, the subvolume, ``GRUB_CMDLINE_LINUX`` and
``GRUB_CMDLINE_LINUX_DEFAULT`` into each ordinary entry. The other scripts' entries stay as they are; a script that was
changed after the menu makes the next menu unknown. Entries that are files change only by grubby and kernel-install.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpustack.base.operations import Operation, RunCommand
from gpustack.hosts.facts.boot_model import BootEntry, MenuPlace, MenuScript, Submenu
from gpustack.hosts.facts.model import Host
from gpustack.linux.cmdline import CommandLine, argument
from gpustack.linux.grub import LINUX, LINUX_DEFAULT, Defaults, read_defaults
from gpustack.prepare.host.next_boot import choice
from gpustack.prepare.host.next_boot.choice import Choice
from gpustack.prepare.host.next_boot.model import GPUSTACK, BootWord, NextBoot, kernel_words, menu_words, variables
from gpustack.prepare.host.own_files import GRUB, OWNED
from gpustack.prepare.host.record import KERNEL_CMDLINE

_LINUX_SCRIPT = "/etc/grub.d/10_linux"
_ID = re.compile(r"gnulinux-(?:simple|.+-advanced)-(.+)")
_FORCED = "GRUB_FORCE_PARTUUID"
# Settings that change the word root= (10_linux, grub-mkconfig), which only grub-probe can compute.
_ROOT_SETTINGS = ("GRUB_DISABLE_LINUX_UUID", "GRUB_DISABLE_LINUX_PARTUUID", "GRUB_DISABLE_UUID", "GRUB_DEVICE", _FORCED)
_INITRDLESS = "panic=-1"  # Ubuntu's 10_linux adds it to its first attempt, without an initramfs
_YES = frozenset({"y", "yes", "true"})


@dataclass(frozen=True, kw_only=True)
class Generated:
    """A generated menu.

    :ivar entries: the entries of this system, those of 10_linux first.
    :ivar words: the words of 10_linux's entries, by position; empty if they are unknown.
    :ivar default: the value of GRUB's variable ``default``.
    :ivar unknown: why the menu is unknown.
    """

    entries: tuple[BootEntry, ...]
    words: Mapping[str, tuple[BootWord, ...]]
    choice: Choice
    default: str
    unknown: tuple[str, ...] = ()


def running(host: Host) -> NextBoot:
    """The boot of the running system; without words for a directory that is not running."""
    line = host.kernel.command_line
    words = None if line is None else kernel_words(line, "/proc/cmdline")
    if words is not None and skips_initramfs(host):
        words = tuple(word for word in words if word.text != _INITRDLESS)
    return NextBoot(loader=host.boot.loader, place="/proc/cmdline", kernel=host.kernel.release, words=words)


def skips_initramfs(host: Host) -> bool:
    """Whether the running kernel was started without an initramfs, by a menu that tries that first."""
    if _INITRDLESS not in (host.kernel.command_line or "").split():
        return False
    is_in_menu = any(_INITRDLESS in entry.arguments.split() for entry in host.boot.entries)
    return not is_in_menu and bool(read_defaults({p: file.text for p, file in host.files.items()}).text(_FORCED))


def now(host: Host) -> NextBoot:
    """The next boot if nothing changes."""
    chosen = choice.chosen(host)
    return _boot(host, chosen, None if chosen.entry is None else _words_of(host, chosen.entry))


def after(host: Host, defaults: Defaults | None, operations: Sequence[Operation], texts: Mapping[str, str]) -> NextBoot:
    """The next boot after operations.

    :param defaults: GRUB's defaults after the operations.
    :param texts: the texts of files after the operations, by path.
    """
    commands = [operation.argv for operation in operations if isinstance(operation, RunCommand)]
    if defaults is not None and any(argv[0] == "update-grub" for argv in commands):
        menu = generated(host, defaults)
        entry = menu.choice.entry
        is_made = entry is not None and _is_by_linux(host, entry)
        words = None if entry is None else menu.words.get(entry.position or "") if is_made else _words_of(host, entry)
        return _boot(host, menu.choice, words, menu.unknown)
    chosen = choice.chosen(host)
    if chosen.entry is None:
        return _boot(host, chosen, None)
    words = _words_of(host, chosen.entry)
    for argv in commands:
        if argv[0] == "grubby" and chosen.entry.is_file:
            words = _by_grubby(words, argv)
        release = argv[2] if argv[:2] == ("kernel-install", "add") else None
        if release is not None and release == release_of(host, chosen.entry) and KERNEL_CMDLINE in texts:
            words = kernel_words(texts[KERNEL_CMDLINE], KERNEL_CMDLINE)
    return _boot(host, chosen, words)


def generated(host: Host, defaults: Defaults) -> Generated:
    """The menu that ``grub-mkconfig`` writes."""
    arguments = defaults.arguments(LINUX, LINUX_DEFAULT)
    unknown = [str(reason) for reason in defaults.unknown(LINUX, LINUX_DEFAULT, "GRUB_DEFAULT")]
    unknown += [f"{script.path} is newer than the menu" for script in _changed_scripts(host)]
    present = [entry for entry in host.boot.ordinary if _is_by_linux(host, entry)]
    menu = host.boot.menu
    if menu is not None and not (menu.generated and menu.complete):
        unknown.append("the present menu is incomplete, or grub-mkconfig did not write it")
    if not present:
        unknown.append(f"the menu has no entries of {_LINUX_SCRIPT}")
    entries, shift = _linux_entries(host, defaults, present)
    old = {place.position for place in present}
    kept = [e for e in host.boot.entries if e.position not in old and not _is_by_linux(host, e)]
    first = min((_top(entry) for entry in present), default=0)
    others = host.boot.menu.others if host.boot.menu is not None else ()
    moved = [choice.moved(entry, shift if _top(entry) > first else 0) for entry in kept]
    places = [choice.moved(place, shift if _top(place) > first else 0) for place in others]
    texts = [(s.argument.text, GPUSTACK if s.file == GRUB else s.place) for s in arguments or ()]
    line = (*_prefix(host, present), *(word for text in texts for word in menu_words(*text)))
    words = {entry.position or "": line for entry in entries if arguments is not None}
    default = _default(host, defaults)
    return Generated(
        entries=(*entries, *moved),
        words=words,
        choice=choice.by_default(host, (*entries, *moved), places, default),
        default="${saved_entry}" if default == "saved" else default,
        unknown=tuple(dict.fromkeys((*unknown, *_unknown_root(host, defaults, present)))),
    )


def _default(host: Host, defaults: Defaults) -> str:
    menu = host.boot.menu
    if menu is not None and menu.default_script not in (None, "/etc/grub.d/00_header"):
        return menu.default or "0"  # a later script sets the variable, too
    return defaults.text("GRUB_DEFAULT") or "0"


def _linux_entries(host: Host, defaults: Defaults, present: Sequence[BootEntry]) -> tuple[tuple[BootEntry, ...], int]:
    """The ordinary entries that 10_linux writes, and by how many entries of the top level the menu grows."""
    if not present:
        return (), 0
    first = present[0]
    start = min(_top(entry) for entry in present)
    kernels = sorted(host.boot.kernels, key=lambda kernel: choice.version_key(kernel.release), reverse=True)
    order = list(dict.fromkeys(release_of(host, entry) for entry in present))
    if {kernel.release for kernel in kernels} == set(order):  # Ubuntu's GRUB_FLAVOUR_ORDER, GRUB_TOP_LEVEL
        kernels.sort(key=lambda kernel: order.index(kernel.release))
    identity = next((m[1] for entry in present if entry.id and (m := _ID.fullmatch(entry.id))), None)
    is_flat = (defaults.text("GRUB_DISABLE_SUBMENU") or "") in _YES
    recovery = (defaults.text("GRUB_DISABLE_RECOVERY") or "") != "true"
    step = 2 if recovery else 1
    system = first.title.partition(", with Linux ")[0]
    english = Submenu(title=f"Advanced options for {system}", id=f"gnulinux-advanced-{identity}" if identity else None)
    submenu = next((entry.submenus for entry in present if entry.submenus), (english,))
    entries = []
    for number, kernel in enumerate(kernels):
        base = {"kernel": kernel.image, "initrd": kernel.initramfs, "source": first.source, "script": first.script}
        if number == 0 and not is_flat:
            simple = f"gnulinux-simple-{identity}" if identity else None
            entries.append(_entry(**base, title=system, position=str(start), id=simple))
        place = str(start + step * number) if is_flat else f"{start + 1}>{step * number}"
        entries.append(
            _entry(
                **base,
                title=f"{system}, with Linux {kernel.release}",
                position=place,
                submenus=() if is_flat else submenu,
                id=f"gnulinux-{kernel.release}-advanced-{identity}" if identity else None,
            )
        )
    height = step * len(kernels) if is_flat else 2
    section = {_top(e) for e in host.boot.entries if _is_by_linux(host, e)}
    return tuple(entries), height - len(section)


def _entry(**fields: object) -> BootEntry:
    return BootEntry.model_construct(None, arguments="", **fields)  # type: ignore[arg-type]  # of known facts


def _top(place: MenuPlace) -> int:
    return int((place.position or "0").partition(">")[0])


def _is_by_linux(host: Host, entry: BootEntry) -> bool:
    """Whether 10_linux wrote an entry; in facts of an older collector, all entries count as its."""
    return host.boot.menu is None or (entry.script or "").startswith(_LINUX_SCRIPT)  # also 10_linux_zfs


def _prefix(host: Host, present: Sequence[BootEntry]) -> list[BootWord]:
    """The words that 10_linux writes itself: those at the start of its present entries."""
    if not present:
        return []
    words = menu_words(present[0].arguments, present[0].script or _LINUX_SCRIPT)
    number = 2 if [word.text.partition("=")[0] for word in words[:2]] == ["root", "ro"] else 0
    root = next((mount for mount in host.boot.mounts or () if mount.path == "/"), None)
    is_btrfs = root is not None and root.filesystem == "btrfs"
    if is_btrfs and number and words[number : number + 1] and words[number].text.startswith("rootflags=subvol="):
        number += 1
    return list(words[:number])


def _unknown_root(host: Host, defaults: Defaults, present: Sequence[BootEntry]) -> list[str]:
    """Settings that the present menu does not show and that change the word ``root=``."""
    root = next((word for word in _prefix(host, present) if word.name == "root"), None)
    by_id = root is not None and (root.value or "").startswith("UUID=")
    set_ones = [name for name in _ROOT_SETTINGS if (defaults.text(name) or "") not in ("", "false")]
    return [f"{name} is set, and the menu has root={root.value}" for name in set_ones[:1] if by_id and root is not None]


def _changed_scripts(host: Host) -> list[MenuScript]:
    made = host.boot.config_mtime
    if host.boot.menu is None or made is None:
        return []
    return [s for s in host.boot.scripts if s.path not in OWNED and s.mtime_ns is not None and s.mtime_ns > made]


def _words_of(host: Host, entry: BootEntry) -> tuple[BootWord, ...]:
    if host.boot.loader == "systemd-boot":
        return kernel_words(entry.arguments, entry.source)
    return menu_words(entry.arguments, entry.source)


def _by_grubby(words: tuple[BootWord, ...], argv: Sequence[str]) -> tuple[BootWord, ...]:
    """The words after a grubby command: ``--args`` replaces words of the same name (grubby(8))."""
    for option in argv:
        name, _, value = option.partition("=")
        texts = [a.text for a in CommandLine(text=value).arguments] if name in ("--args", "--remove-args") else []
        if name == "--args":
            names = {argument(text).name for text in texts}
            added = tuple(BootWord(text=text, source=GPUSTACK) for text in texts)
            words = (*(w for w in words if w.text.partition("=")[0] not in names), *added)
        elif texts:
            words = tuple(word for word in words if word.text not in texts)
    return words


def release_of(host: Host, entry: BootEntry) -> str | None:
    """The release of an entry's kernel; None if the image is not one of the known kernels."""
    kernel = next((k for k in host.boot.kernels if k.image is not None and k.image == entry.kernel), None)
    if kernel is not None:
        return kernel.release
    name = (entry.kernel or "").rpartition("/")[2]
    return next((k.release for k in host.boot.kernels if name == f"vmlinuz-{k.release}"), None)


def _boot(host: Host, chosen: Choice, words: tuple[BootWord, ...] | None, unknown: Iterable[str] = ()) -> NextBoot:
    entry = chosen.entry
    reasons = [*unknown, *([chosen.unknown] if chosen.unknown else [])]
    if words is not None and (names := variables(words)):
        reasons.append(f"the arguments of the entry contain the variable {', '.join(names)}")
    return NextBoot(
        loader=host.boot.loader,
        entry="" if entry is None else entry.title,
        why=chosen.why,
        place="" if entry is None else entry.source,
        kernel=None if entry is None else release_of(host, entry),
        initramfs=None if entry is None else entry.initrd,
        words=words,
        unknown=tuple(reasons),
    )
