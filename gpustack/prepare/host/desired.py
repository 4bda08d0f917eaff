"""The desired state of a host, which the plan compares with the facts, and which verification checks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import quoted
from gpustack.hosts.facts.gpus import is_gpu
from gpustack.hosts.facts.model import Function, Host
from gpustack.linux.cmdline import CommandLine, canonical
from gpustack.linux.drivers import IDS_ARGUMENTS, is_passthrough_driver
from gpustack.linux.grub import DEFAULTS, LINUX, LINUX_DEFAULT
from gpustack.linux.modprobe import fulfils
from gpustack.pci import classes
from gpustack.prepare.host import record, support
from gpustack.prepare.host.decide import addresses, iommu, vgpus, virtual_functions
from gpustack.prepare.host.decide.binding import Binding, bind
from gpustack.prepare.host.decide.targets import Targets, choose
from gpustack.prepare.host.foreign_config import Elsewhere, elsewhere
from gpustack.prepare.host.next_boot import bls as entries
from gpustack.prepare.host.next_boot import kernel_install
from gpustack.prepare.host.next_boot.bls import OPEN_QUOTE, Entries
from gpustack.prepare.host.own_files import DRACUT_SCRIPT, GRUB, MODPROBE, SCRIPT, OwnedFile, ids_of, is_ours
from gpustack.prepare.host.prior_setup import detect as handmade
from gpustack.prepare.host.prior_setup.traces import Part, Trace
from gpustack.prepare.host.render import render, render_virtual_functions
from gpustack.prepare.host.tools import family, has_dracut, has_systemd_boot, in_image_mode
from gpustack.spec.assignment import mediated_cards
from gpustack.spec.model import Spec, options_for
from gpustack.spec.vgpu_use import types_in_use

PARAMETERS = (*iommu.NAMES, *IDS_ARGUMENTS)
"""All kernel parameters that gpustack sets or removes."""
MANAGED = frozenset(map(canonical, PARAMETERS))
LONGEST_COMMAND_LINE = 2047  # COMMAND_LINE_SIZE of x86 is 2048 (arch/x86/include/asm/setup.h)
_BREAK = "\n"
BOOT_IMAGE = 128  # reserve for GRUB's own arguments: BOOT_IMAGE=/boot/vmlinuz-… root=UUID=… ro


@dataclass(frozen=True, kw_only=True)
class Desired:
    """The desired state of a host.

    :ivar arguments: kernel arguments that must be on the command line, from any configuration.
    :ivar next_line: the command line of a normal menu entry after GRUB's menu is regenerated, as far as GRUB's defaults
        determine it; None if unknown.
    :ivar files: the files that gpustack owns, by path.
    :ivar by_hand: hand-made configuration for the same devices.
    :ivar entries: the desired boot entries, if they are files (Boot Loader Specification); else None.
    """

    targets: Targets
    binding: Binding
    arguments: tuple[str, ...]
    next_line: CommandLine | None
    files: dict[str, OwnedFile]
    by_hand: tuple[Trace, ...]
    entries: Entries | None
    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, object]:
        """The state that verification checks, as plain data."""
        return {
            "arguments": list(self.arguments),
            "functions": {address: driver for address, (_, driver) in sorted(self.targets.functions.items())},
            "files": {path: {"content": file.content, "mode": file.mode} for path, file in self.files.items()},
            "initramfs": {
                "modules": list(self.binding.early_modules),
                "files": [path for path in (MODPROBE, SCRIPT, DRACUT_SCRIPT) if path in self.files],
            },
        }


def desire(spec: Spec, host: Host) -> Desired:
    """Compute the desired state of a host, and the findings about it."""
    options = options_for(spec, host.hostname)
    targets = choose(spec, host)
    other = elsewhere(host)
    binding = bind(host, options, targets, other)
    is_image = in_image_mode(host)
    by_hand = handmade.traces(host, targets, binding, options, other) if family(host) is not None else ()
    if is_image:  # the arguments are the image's
        by_hand = tuple(trace for trace in by_hand if trace.part is not Part.ARGUMENT or not trace.agrees)
    wanted = (*iommu.arguments(host, options), *binding.arguments) if targets.exist else ()
    added = tuple(argument for argument in wanted if not other.fulfils(argument))
    planned = None if is_image else _entries(host, wanted)
    files = render(() if planned or is_image else added, binding, dracut=has_dracut(host)) | (
        planned.files if planned else {}
    )
    created = [entry for entry in targets.shared if entry.is_created]
    cards = [virtual_functions.arguments(entry) for entry in created if not entry.is_network]
    network_cards = [virtual_functions.arguments(entry) for entry in created if entry.is_network]
    files |= render_virtual_functions(cards, network_cards)
    drop_in = files.get(GRUB)
    next_line = planned.next_line if planned else other.line(drop_in.content if drop_in else None)
    findings = [*targets.findings]
    if targets.exist:
        findings += support.findings(host, [path for path, file in files.items() if host.text(path) != file.content])
    if targets.exist and family(host) is not None:
        findings += [*iommu.findings(host, options, other), *binding.findings]
        if not is_image:
            findings += planned.findings if planned else _grub(host, other, added, next_line)
            findings += _uneven(host, planned) if planned and not has_systemd_boot(host) else ()
        findings += _not_ours(host, files)
        findings += _moved(host)
        findings += _in_use_elsewhere(host, targets)
        findings += _mediated(host, targets)
        findings += handmade.findings(host, targets, by_hand, other)
    # Also on a host that the spec no longer has.
    findings += _lost(host, targets)
    types = {card.function.address: card.type.number for card in mediated_cards(spec, host)}
    findings += types_in_use(spec, host, types.get)
    return Desired(
        targets=targets,
        binding=binding,
        arguments=wanted,
        next_line=next_line,
        files=files,
        by_hand=by_hand,
        entries=planned,
        findings=tuple(dict.fromkeys(findings)),
    )


def _entries(host: Host, wanted: tuple[str, ...]) -> Entries | None:
    """The desired boot entries, if they are files; None if GRUB generates a menu."""
    if has_systemd_boot(host):
        return kernel_install.plan_entries(host, wanted)
    return entries.plan_entries(host, wanted) if host.boot.bls else None


def _uneven(host: Host, planned: Entries) -> Iterator[Finding]:
    """Arguments of an earlier setup, with parameters of gpustack, that only some entries of GRUB have."""
    for source, line in record.in_entries(host, without=record.recorded(host).get(record.ENTRIES, ())).items():
        for text in withdrawn(line, planned.next_line):
            how = f"`grubby --update-kernel=ALL --remove-args={quoted(text)}` removes it"
            yield finding(Code.ARGUMENT_IN_SOME_ENTRIES, place=host.at(source), argument=text, how=how)


def withdrawn(line: CommandLine, next_line: CommandLine | None) -> list[str]:
    """The arguments on a line with parameters of gpustack that the next boot will not have."""
    if next_line is None:
        return []
    present = [current.text for name in PARAMETERS for current in line.all(name)]
    return [text for text in present if not (next_line.has(text) or fulfils(next_line, text))]


def _grub(host: Host, other: Elsewhere, added: tuple[str, ...], next_line: CommandLine | None) -> Iterator[Finding]:
    unknown = other.defaults.unknown(LINUX, LINUX_DEFAULT)
    for reason in unknown:
        yield finding(Code.GRUB_DEFAULTS_NOT_EVALUABLE, place=host.at(f"{reason.file}:{reason.line}"), why=reason.why)
    if unknown:
        return
    current = other.defaults.line(LINUX, LINUX_DEFAULT)
    if current is not None and current.for_init is not None:
        yield finding(Code.ARGUMENTS_FOR_INIT, place=host.at(DEFAULTS))
        return
    line = "" if next_line is None else next_line.text
    lost = [a for a in added if next_line is None or _BREAK in line or not next_line.has(a)]
    if next_line is None or lost:
        why = _why_lost(lost, line)
        yield finding(Code.ARGUMENTS_LOST, place=host.hostname, arguments=", ".join(lost), path=GRUB, why=why)
    elif len(next_line.text) + BOOT_IMAGE > LONGEST_COMMAND_LINE:
        length, longest = len(next_line.text), LONGEST_COMMAND_LINE
        yield finding(Code.COMMAND_LINE_TOO_LONG, place=host.hostname, length=length, longest=longest)


def _why_lost(arguments: Iterable[str], line: str) -> str:
    """Why GRUB's menu would not pass arguments to the kernel."""
    if _BREAK in line:  # 10_linux does not escape it, so the rest becomes another GRUB command
        return "a value before them goes over the end of a line, and there the menu entry's arguments end"
    if all(argument in line for argument in arguments):
        return OPEN_QUOTE
    return "a file that is read later replaces GRUB_CMDLINE_LINUX_DEFAULT"


def _not_ours(host: Host, files: dict[str, OwnedFile]) -> Iterator[Finding]:
    for path in files:
        file = host.files.get(path)
        if file is not None and file.text.strip() and not is_ours(file.text):
            yield finding(Code.FOREIGN_FILE_AT_OWN_PATH, place=host.at(path))


def _in_use_elsewhere(host: Host, targets: Targets) -> Iterator[Finding]:
    """Functions in a GPU's group that other software (DPDK) has bound to a passthrough driver."""
    ids = ids_of(host)
    listed = {device.address for device in addresses.listed(host)}
    functions = targets.functions
    for target in targets.gpus:
        for f in target.gpu.neighbours:
            is_ours = f.address in listed or (f.ids in ids and not f.driver_override)
            if not is_gpu(f) and f.address not in functions and is_passthrough_driver(f.driver) and not is_ours:
                place, what = host.at(target.address), f"{f.address} ({classes.word(f.pci_class)})"
                code, group = Code.GROUP_CONTROLLER_BOUND_BY_OTHERS, f.iommu_group
                yield finding(code, place=place, group=group, what=what, driver=f.driver)


def _lost(host: Host, targets: Targets) -> Iterator[Finding]:
    """Virtual functions of instances that the next boot would not create."""
    for function, users in virtual_functions.lost(host, targets.shared):
        yield finding(Code.VIRTUAL_FUNCTIONS_LOST, place=host.at(function.address), functions=users)


def _moved(host: Host) -> Iterator[Finding]:
    """Devices that are bound by address, but are no longer at that address."""
    for device in addresses.listed(host):
        if (stranger := device.stranger(host)) is not None:
            place = host.at(device.address)
            yield finding(Code.ANOTHER_DEVICE_AT_ADDRESS, place=place, expected=device.identity, there=stranger)


def _mediated(host: Host, targets: Targets) -> Iterator[Finding]:
    """Findings about active mediated devices, and about those that mdevctl starts at boot."""
    going = targets.functions
    parents = [f for f in host.pci if f.address in going or f.physical_function in going]
    for function in sorted(parents, key=lambda f: f.bdf):
        if function.mediated_devices or function.vgpu_type:
            yield finding(Code.MEDIATED_DEVICES_ACTIVE, place=host.at(function.address), devices=_vgpus(function))
    for path in vgpus.defined(host, {function.address for function in parents}):
        *_, address, uuid = path.split("/")
        yield finding(Code.MEDIATED_DEVICE_AT_BOOT, place=host.at(path), uuid=uuid, address=address)


def _vgpus(function: Function) -> str:
    """The vGPUs of a function, with their users: mediated devices, or its type."""
    devices = [f"{device.uuid} ({device.user})" if device.user else device.uuid for device in function.mediated_devices]
    users = f" ({', '.join(function.holders)})" if function.holders else ""
    return ", ".join(devices) or f"vGPU type {function.vgpu_type}{users}"
