"""The undo plan: remove gpustack's files, arguments and notes, restore adopted configuration, change nothing else.

An undo writes a journal first and removes it near the end. If an undo is interrupted, the removed files leave no trace.
So if the journal exists, the next undo rebuilds all initramfs images and the boot menu.
"""

from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, errors, finding
from gpustack.base.operations import Operation, RemoveFile, RunCommand, WriteFile
from gpustack.hosts.facts.gpus import gpus
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.readiness.assessment import of_instances
from gpustack.linux.cmdline import CommandLine, canonical
from gpustack.linux.drivers import is_passthrough_driver
from gpustack.linux.grub import paths as grub_paths
from gpustack.prepare.host import own_files, record, support
from gpustack.prepare.host.decide import virtual_functions
from gpustack.prepare.host.decide.addresses import kept_at_boot
from gpustack.prepare.host.decide.vgpus import with_mig
from gpustack.prepare.host.desired import PARAMETERS
from gpustack.prepare.host.foreign_config import Elsewhere, elsewhere
from gpustack.prepare.host.next_boot import bls as entries
from gpustack.prepare.host.next_boot import difference as differences
from gpustack.prepare.host.next_boot import kernel_install, tpm
from gpustack.prepare.host.next_boot.reboot import reboot
from gpustack.prepare.host.next_boot.rebuild import MADE_FROM
from gpustack.prepare.host.plan import HostPlan
from gpustack.prepare.host.prior_setup.adopt import give_back
from gpustack.prepare.host.tools import has_systemd_boot, rebuild, update_grub

LAST = (own_files.ADOPTED, own_files.AGAIN, own_files.RECORD, own_files.JOURNAL, record.KERNEL_CMDLINE)
"""The files that are removed after the commands: an interrupted undo needs them to continue."""
_JOURNAL = f"{own_files.MARK}\n#\n# An undo has begun, and has not ended: run undo.yml again.\n"


def plan_undo(host: Host, *, force: bool = False) -> HostPlan:
    """Plan the undo of a host's preparation.

    :param force: whether to remove gpustack's files even if they were modified.
    """
    skipped = dict(_left(host, force=force))
    removed = [path for path in own_files.OWNED if path in host.files and path not in skipped]
    given_back, restore_findings, host_then = give_back(host)
    findings = [*skipped.values(), *restore_findings]
    operations: list[Operation] = []
    if removed or given_back or host.files.keys() & {own_files.ADOPTED, own_files.AGAIN, own_files.JOURNAL}:
        findings += support.findings(host, removed)
        operations += _operations(host, removed, given_back)
        findings += support.inexact(host, operations)
        tools = {op.argv[0] for op in operations if isinstance(op, RunCommand)}
        findings += entries.several_lines(host) if "grubby" in tools else ()
        findings += kernel_install.undo_findings(host) if "kernel-install" in tools else ()
    why = tuple(reasons(host_then, skipped=frozenset(skipped)))
    findings += _shared(host, host_then, frozenset(skipped))
    if given_back and host.kernel.booted_at is not None:
        why = (*why, "the configuration by hand is restored, and applies from the next boot on")
    if why and not operations and not _made_since_boot(host):
        findings.append(finding(Code.UNDO_BOOT_WITHOUT_EFFECT, place=host.hostname, reasons="; ".join(why)))
        why = ()
    change = None
    if operations or why:
        drop_in = host.files[own_files.GRUB].text if own_files.GRUB in skipped else None
        change = differences.difference(host, differences.after(host, operations, drop_in))
        findings += differences.findings(host, change)
        findings += tpm.findings(host, operations, accepted=force)
    refused = bool(errors(findings))
    if why and not refused:
        operations.append(reboot(why))
    return HostPlan(
        host=host.hostname,
        gpus=(),
        operations=() if refused else tuple(operations),
        findings=tuple(sorted(findings, key=lambda f: (-f.severity.rank, f.code, f.place))),
        reboot=() if refused else why,
        refused=refused,
        next_boot=change,
    )


def _shared(host: Host, then: Host, skipped: frozenset[str]) -> Iterator[Finding]:
    """Cards that the undo takes from their passthrough driver although instances use their virtual functions."""
    released = {function.address for function in still_kept(then, elsewhere(then), skipped=skipped)}
    used = {}
    if not _creates_on(host, skipped):
        used = {function.address: users for function, users in virtual_functions.lost(host)}
    for gpu in gpus(host):
        if gpu.main.address in released and (users := "; ".join(of_instances(gpu.virtual))):
            used[gpu.main.address] = users
    for address in with_mig(host.text(own_files.VFS_SCRIPT)):
        yield finding(Code.MIG_MODE_STAYS, place=host.at(address), address=address)
    for address, users in used.items():
        yield finding(Code.UNDO_WITH_VIRTUAL_FUNCTIONS, place=host.at(address), functions=users)


def _creates_on(host: Host, skipped: frozenset[str]) -> bool:
    """Whether the next boots still create virtual functions, because all files that do this are skipped."""
    files = frozenset(path for path in own_files.VFS if path in host.files)
    return bool(files) and files <= skipped


def _left(host: Host, *, force: bool) -> Iterator[tuple[str, Finding]]:
    """The files at gpustack's paths that are skipped (foreign or modified), each with its finding."""
    for path in own_files.OWNED:
        if (file := host.files.get(path)) is None:
            continue
        place = host.at(path)
        if not own_files.is_ours(file.text):
            yield path, finding(Code.FOREIGN_FILE_SKIPPED, place=place)
        elif not force and not own_files.is_untouched(file.text):
            yield path, finding(Code.OWN_FILE_MODIFIED, place=place)


def _operations(host: Host, removed: list[str], given_back: tuple[Operation, ...]) -> Iterator[Operation]:
    is_unfinished = own_files.JOURNAL in host.files
    # The record serves as a journal too: it is removed after the arguments that it lists.
    has_journal = is_unfinished or bool(given_back) or any(path != own_files.RECORD for path in removed)
    if has_journal and not is_unfinished:
        yield WriteFile(path=own_files.JOURNAL, content=_JOURNAL, before=None, why="marks an unfinished undo")
    yield from given_back
    yield from _without_arguments(host, removed)
    # The record is removed last: an interrupted undo needs its list of arguments.
    yield from (_removed(host, path) for path in removed if path != own_files.RECORD)
    yield from _regenerated(host, removed, {op.path for op in given_back if isinstance(op, WriteFile)})
    yield from _notes(host, removed, has_journal=has_journal)


def _removed(host: Host, path: str, why: str = "gpustack wrote it") -> RemoveFile:
    return RemoveFile(path=path, before=host.files[path].text, why=why)


def _without_arguments(host: Host, removed: list[str]) -> Iterator[Operation]:
    """Remove gpustack's kernel arguments from the recorded files of others."""
    for path, text in record.plain(host).items() if own_files.RECORD in removed else ():
        file = host.files[path]
        if text != file.text:
            yield WriteFile(path=path, content=text, before=file.text, mode=file.mode, why="removes kernel arguments")


def _regenerated(host: Host, removed: list[str], changed: set[str]) -> Iterator[Operation]:
    """The commands that apply removed and changed files: rebuild initramfs images, then the boot menu."""
    is_unfinished = own_files.JOURNAL in host.files
    verb = "applies" if changed else "applies the removal of"
    made_from = [path for path in own_files.IN_INITRAMFS if path in removed]
    made_from += sorted(path for path in changed if path.startswith(MADE_FROM))
    rebuilt: set[tuple[str, ...]] = set()
    for kernel in host.boot.kernels if made_from or is_unfinished else ():
        commands = tuple(rebuild(host, kernel, _because(verb, made_from)))
        rebuilt.update(command.argv for command in commands)
        yield from commands
    made_from = [path for path in (*grub_paths(changed), *own_files.IN_MENU) if path in changed or path in removed]
    if host.boot.bls:
        undo = kernel_install.undo_commands if has_systemd_boot(host) else entries.undo_commands
        yield from (c for c in (undo(host) if own_files.RECORD in removed else ()) if c.argv not in rebuilt)
    elif made_from or is_unfinished:
        yield update_grub(_because(verb, made_from))


def _because(verb: str, paths: list[str]) -> str:
    return f"{verb} {' and '.join(paths)}" if paths else "an earlier undo was interrupted"


def _notes(host: Host, removed: list[str], *, has_journal: bool) -> Iterator[Operation]:
    """Remove gpustack's notes: adopted files, second boot, record, journal."""
    if own_files.ADOPTED in host.files:
        yield _removed(host, own_files.ADOPTED, "everything that it names is restored")
    if own_files.AGAIN in host.files:
        yield _removed(host, own_files.AGAIN)
    is_made = own_files.RECORD in removed and kernel_install.is_made(host)
    if own_files.RECORD in removed and not is_made:
        yield _removed(host, own_files.RECORD, "all files and arguments that it lists are removed")
    if has_journal:
        before = host.files[own_files.JOURNAL].text if own_files.JOURNAL in host.files else _JOURNAL
        yield RemoveFile(path=own_files.JOURNAL, before=before, why="the undo is complete")
    # After the journal, because a repeated undo would regenerate the boot entries from this file.
    if is_made:
        before = record.plain(host)[record.KERNEL_CMDLINE]
        yield RemoveFile(path=record.KERNEL_CMDLINE, before=before, why="gpustack made it")
        yield _removed(host, own_files.RECORD, "all files and arguments that it lists are removed")


def reasons(host: Host, *, skipped: frozenset[str] = frozenset()) -> Iterator[str]:
    """The effects of gpustack that are left on the running host; empty if none.

    :param skipped: the files of gpustack that are not removed.
    """
    other = elsewhere(host)
    for text in too_many(host, other, host.kernel.command_line or "", skipped=skipped):
        yield f"the running kernel was started with {text}, which is no longer wanted"
    if not _creates_on(host, skipped):
        yield from virtual_functions.surplus(host)
    for function in still_kept(host, other, skipped=skipped):
        yield f"{function.address} is on {function.driver}, which is no longer wanted"


def too_many(host: Host, other: Elsewhere, text: str, *, skipped: frozenset[str] = frozenset()) -> list[str]:
    """The arguments on a command line with parameters that gpustack sets, and that no other configuration adds."""
    drop_in = host.files[own_files.GRUB].text if own_files.GRUB in skipped else None
    if (line := other.line(drop_in)) is None:
        return []
    current = CommandLine(text=text)
    return [argument.text for name in PARAMETERS for argument in current.all(name) if not line.has(argument.text)]


def still_kept(host: Host, other: Elsewhere, *, skipped: frozenset[str] = frozenset()) -> tuple[Function, ...]:
    """The functions on a passthrough driver that only gpustack can have bound.

    A ``driver_override`` that gpustack did not set belongs to driverctl, or to libvirt for an instance. gpustack binds
    no virtual function.
    """
    by_script = kept_at_boot(host)
    others = tuple(other.ids())
    stay = own_files.ids_of(host) if own_files.MODPROBE in skipped else set()
    return tuple(
        function
        for function in sorted(host.pci, key=lambda f: f.bdf)
        if is_passthrough_driver(function.driver)
        and function.physical_function is None
        and function.ids not in stay
        and not any(ids.driver == canonical(function.driver or "") and ids.binds(function) for ids in others)
        and (
            not function.driver_override
            or (function.address in by_script and not skipped & set(own_files.IN_INITRAMFS))
        )
    )


def _made_since_boot(host: Host) -> bool:
    """Whether a reboot can have an effect: an initramfs or the boot menu is newer than the last boot.

    Virtual functions of this boot have one too: nothing creates them at the next.
    """
    if any(virtual_functions.surplus(host)):
        return True
    booted = host.kernel.booted_at
    times = [host.boot.config_mtime, *(kernel.initramfs_mtime_ns for kernel in host.boot.kernels)]
    return booted is None or any(time is None or time > booted * 1_000_000_000 for time in times)
