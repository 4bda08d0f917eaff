"""The configuration of a host without gpustack's files: kernel arguments, modprobe, ids, with file and line."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpustack.hosts.facts.model import Host
from gpustack.linux.cmdline import Argument, CommandLine, canonical
from gpustack.linux.grub import DEFAULTS, LINUX, LINUX_DEFAULT, TUNED, Defaults, Sourced, read_defaults
from gpustack.linux.modprobe import ModprobeConfig, fulfils, read_modprobe
from gpustack.prepare.host import record
from gpustack.prepare.host.decide.ids import Ids
from gpustack.prepare.host.own_files import GRUB, OWNED

INITRAMFS_MODULES = "/etc/initramfs-tools/modules"
UPDATE_INITRAMFS = "/etc/initramfs-tools/update-initramfs.conf"
DRIVERCTL = "/etc/driverctl.d/"
RC_LOCAL = "/etc/rc.local"
_DRACUT = re.compile(r"/(etc|usr/lib/dracut)/dracut\.conf(\.d/.*\.conf)?")
_DRIVERS = re.compile(
    r"""^[ \t]*(?P<name>(?:add|force|omit)_drivers)\+?=(?P<quote>["'])?"""
    r"""(?P<modules>(?(quote)[^"']*|[^\s;#]*))(?(quote)(?P=quote))(?P<rest>.*)$""",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """The configuration of a host without gpustack's own files.

    :ivar texts: the files' texts by path.
    :ivar defaults: GRUB's defaults.
    :ivar arguments: the kernel arguments of a normal menu entry; None if unknown.
    :ivar modprobe: modprobe's configuration, without the kernel's command line.
    :ivar from_entries: whether boot entries are files; then ``arguments`` are from all entries and their sources.
    """

    texts: dict[str, str]
    defaults: Defaults
    arguments: tuple[Sourced, ...] | None
    modprobe: ModprobeConfig
    from_entries: bool = False

    def all(self, name: str) -> tuple[Sourced, ...]:
        """All occurrences of a kernel parameter."""
        return tuple(s for s in self.arguments or () if s.argument.is_for(name))

    def fulfils(self, argument: str) -> bool:
        """Whether the configuration already has this argument, or one with the same effect."""
        return fulfils(CommandLine.of(s.argument.text for s in self.arguments or ()), argument)

    def line(self, drop_in: str | None) -> CommandLine | None:
        """The command line without gpustack's arguments, except those of ``drop_in``; None if unknown."""
        if self.from_entries:
            return CommandLine.of(s.argument.text for s in self.arguments or ())
        texts = self.texts if drop_in is None else {**self.texts, GRUB: drop_in}
        return read_defaults(texts).line(LINUX, LINUX_DEFAULT)

    def of_dracut(self) -> Iterator[tuple[str, str, str, frozenset[str], bool]]:
        """Place, text, variable and modules of each statement about drivers in dracut's files, which are of bash.

        The last item is whether the statement is one line, without another command (dracut.conf(5)).
        """
        for path, text in sorted(self.texts.items()):
            is_read = _DRACUT.fullmatch(path) and (path.startswith("/etc/") or f"/etc/{path[16:]}" not in self.texts)
            for match in _DRIVERS.finditer(text) if is_read else ():
                place, said = f"{path}:{text.count(chr(10), 0, match.start()) + 1}", " ".join(match[0].split())
                modules = frozenset(map(canonical, match["modules"].replace("\\\n", "").split()))
                is_alone = "\n" not in match[0] and not match["rest"].partition("#")[0].strip()
                yield place, said, match["name"], modules, is_alone

    def ids(self) -> Iterator[Ids]:
        """The ids that hand-made configuration gives to vfio-pci and pci-stub."""
        for module in ("vfio_pci", "pci_stub"):
            for option in self.modprobe.option(module, "ids"):
                if option.value:
                    yield Ids(driver=module, text=option.value, place=option.place)
            for sourced in self.all(f"{module}.ids"):
                if sourced.argument.value:
                    yield Ids(driver=module, text=sourced.argument.value, place=sourced.place)
        # initramfs-tools passes the words after a module's name to modprobe (initramfs-tools(7)).
        for number, line in enumerate(self.texts.get(INITRAMFS_MODULES, "").split("\n"), 1):
            driver, *words = map(canonical, line.split() or [""])
            for word in words if driver in ("vfio_pci", "pci_stub") else ():
                if word.startswith("ids=") and word != "ids=":
                    yield Ids(driver=driver, text=word.removeprefix("ids="), place=f"{INITRAMFS_MODULES}:{number}")


def elsewhere(host: Host) -> Elsewhere:
    """Read the configuration of a host without gpustack's files and recorded arguments."""
    texts = {path: file.text for path, file in host.files.items() if path not in OWNED}
    if entries := host.boot.bls:
        texts |= record.plain(host)
    defaults = read_defaults(texts)
    return Elsewhere(
        texts=texts,
        defaults=defaults,
        arguments=tuple(_in_entries(host, texts)) if entries else defaults.arguments(LINUX, LINUX_DEFAULT),
        modprobe=read_modprobe(texts),
        from_entries=entries,
    )


def _in_entries(host: Host, texts: dict[str, str]) -> Iterator[Sourced]:
    """The arguments of the boot entries, and of the files from which future entries are made."""
    lines = record.in_entries(host, without=record.recorded(host).get(record.ENTRIES, ()))
    for path in record.files(host):
        if path == DEFAULTS:
            yield from record.evaluated(texts[path]).arguments(LINUX) or ()
        else:
            lines[path] = CommandLine(text=texts[path])
    tuned = {s.argument.text: s for s in by_tuned(texts)}
    yielded: set[tuple[str, Argument]] = set()
    for source, line in lines.items():
        for argument in line.arguments:
            if (source, argument) not in yielded:
                yielded.add((source, argument))
                yield tuned.get(argument.text) or Sourced(argument=argument, file=source, line=0)


def by_tuned(texts: Mapping[str, str]) -> tuple[Sourced, ...]:
    """tuned's arguments, which entries contain as GRUB's variable ``tuned_params``."""
    files = {TUNED: texts[TUNED], DEFAULTS: f"{LINUX}='$tuned_params'\n"} if TUNED in texts else {}
    return read_defaults(files).arguments(LINUX) or ()
