"""The file changes for the next boot, and the commands that rebuild initramfs images and GRUB's menu."""

from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.operations import Operation, RemoveFile, RunCommand, WriteFile
from gpustack.hosts.facts.boot_model import BootEntry, BootKernel
from gpustack.hosts.facts.model import Host
from gpustack.linux.cmdline import CommandLine
from gpustack.linux.grub import paths as grub_paths
from gpustack.linux.modprobe import fulfils
from gpustack.prepare.host.desired import MANAGED, Desired, withdrawn
from gpustack.prepare.host.next_boot.model import compared, menu_words
from gpustack.prepare.host.next_boot.trial import TITLE as TRIAL_TITLE
from gpustack.prepare.host.own_files import IN_INITRAMFS, IN_MENU, OWNED, TRIAL_ENTRY
from gpustack.prepare.host.prior_setup.adopt import journalled
from gpustack.prepare.host.tools import rebuild, update_grub

MADE_FROM = ("/etc/modprobe.d/", "/etc/initramfs-tools/", "/etc/dracut.conf")
"""Path prefixes of files of others that are inputs of an initramfs."""


def file_operations(host: Host, desired: Desired) -> Iterator[Operation]:
    """The operations that bring owned files, and files with boot arguments, to their desired content."""
    for path in OWNED:
        file, wanted = host.files.get(path), desired.files.get(path)
        if wanted is not None:
            if file is None or (file.text, file.mode.zfill(4)) != (wanted.content, wanted.mode.zfill(4)):
                why = wanted.why
                if file is not None and file.text == wanted.content:
                    why = f"its mode is {file.mode} instead of {wanted.mode}"
                before = None if file is None else file.text
                yield WriteFile(path=path, content=wanted.content, before=before, mode=wanted.mode, why=why)
        elif file is not None:
            yield RemoveFile(path=path, before=file.text, why="it would be empty")
    for path, edit in desired.entries.edits.items() if desired.entries is not None else ():
        before = host.files[path].text if path in host.files else None
        if edit.content != before:
            yield WriteFile(path=path, content=edit.content, before=before, mode=edit.mode, why=edit.why)


def commands(host: Host, desired: Desired, files: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The commands that apply changed files, and files that an earlier run left unapplied, to the next boot."""
    changed = {op.path for op in files if isinstance(op, WriteFile | RemoveFile)}
    if desired.entries is not None:
        rebuilt = tuple(_initramfs_commands(host, changed))
        covered = {command.argv for command in rebuilt}
        return (*rebuilt, *(command for command in desired.entries.commands if command.argv not in covered))
    return (*_initramfs_commands(host, changed), *_grub_commands(host, desired, changed))


def _initramfs_commands(host: Host, changed: set[str]) -> Iterator[RunCommand]:
    touched = [path for path in IN_INITRAMFS if path in changed]
    touched += sorted(path for path in changed - {*IN_INITRAMFS} if path.startswith(MADE_FROM))
    sources = [*IN_INITRAMFS, *(path for path in journalled(host) if path.startswith(MADE_FROM))]
    for kernel in host.boot.kernels:
        if touched:
            yield from rebuild(host, kernel, f"applies {' and '.join(touched)}")
        elif not (present := [path for path in sources if path in host.files]):
            continue
        elif kernel.initramfs is None:
            yield from rebuild(host, kernel, f"kernel {kernel.release} has no initramfs")
        elif stale := [path for path in present if _is_newer(host, path, kernel)]:
            yield from rebuild(host, kernel, f"{kernel.initramfs} is older than {' and '.join(stale)}")


def _is_newer(host: Host, path: str, kernel: BootKernel) -> bool:
    """Whether a file may have changed since the initramfs was built; True if a time is unknown."""
    written, image_made = host.files[path].mtime_ns, kernel.initramfs_mtime_ns
    return written is None or image_made is None or written > image_made


def _grub_commands(host: Host, desired: Desired, changed: set[str]) -> Iterator[RunCommand]:
    menu = {*IN_MENU, *grub_paths({*host.files, *changed})}
    if touched := [path for path in sorted(menu) if path in changed]:
        yield update_grub(f"applies {' and '.join(touched)}")
    elif TRIAL_ENTRY not in host.files and any(entry.title == TRIAL_TITLE for entry in host.boot.entries):
        yield update_grub("GRUB's menu still has the entry of a trial that is over")
    elif _has_wrong_entries(host, desired) and changed:
        # A file that was restored with an old mtime makes the menu look current.
        yield update_grub("GRUB's menu has other arguments than its configuration")
    elif _has_wrong_entries(host, desired) and _is_menu_stale(host):
        yield update_grub("GRUB's menu is older than its configuration, and has other arguments")


def _is_menu_stale(host: Host) -> bool:
    """Whether GRUB's configuration may have changed since its menu was generated; True if a time is unknown.

    A run that broke before it generated the menu has left newer files of gpustack.
    """
    menu_made, own = host.boot.config_mtime, (path for path in OWNED if path in host.files)
    written = [host.files[path].mtime_ns for path in (*grub_paths(host.files), *own)]
    return menu_made is None or any(time is None or time > menu_made for time in written)


def _has_wrong_entries(host: Host, desired: Desired) -> bool:
    """Whether a normal boot entry has other values of ``PARAMETERS`` than the next command line."""
    if desired.next_line is None:
        return False
    wanted = menu_words(desired.next_line.text)
    changes = (c for entry in host.boot.ordinary for c in compared(menu_words(entry.arguments), wanted))
    return any(word.name in MANAGED for _, word in changes)


def lacking(line: CommandLine, desired: Desired) -> list[str]:
    """The desired arguments that are missing on a command line."""
    return [argument for argument in desired.arguments if not fulfils(line, argument)]


def entry_faults(entry: BootEntry, desired: Desired) -> str:
    """How the arguments of a boot entry differ from the desired ones; empty if they do not."""
    line = CommandLine(text=entry.arguments)
    faults = [f"{argument} is missing" for argument in lacking(line, desired)]
    return ", ".join((*faults, *(f"{text} is no longer wanted" for text in withdrawn(line, desired.next_line))))


def entry_findings(host: Host, desired: Desired) -> Iterator[Finding]:
    """Findings about entries of GRUB's menu with other arguments although it is newer than its configuration."""
    if desired.entries is not None or _is_menu_stale(host):
        return
    for entry in host.boot.ordinary:
        if different := entry_faults(entry, desired):
            code = Code.FIRST_ENTRY_DIFFERS if entry is host.boot.ordinary[0] else Code.ENTRY_DIFFERS
            yield finding(code, place=host.at(entry.source), title=entry.title, different=different)
