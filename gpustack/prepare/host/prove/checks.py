"""The checks of a verification; each compares one property of the running host with the desired state."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.text import counted
from gpustack.hosts.facts.boot_model import BootKernel
from gpustack.hosts.facts.gpus import Gpu, forwards
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.facts.vgpus import knows_domains, missing
from gpustack.linux.cmdline import CommandLine, canonical
from gpustack.linux.drivers import BY_ID, VFIO, is_held, is_passthrough_driver
from gpustack.pci import classes
from gpustack.prepare.host.decide.addresses import kept_at_boot, listed
from gpustack.prepare.host.decide.binding import identical
from gpustack.prepare.host.decide.targets import Targets
from gpustack.prepare.host.decide.virtual_functions import described, explained, surplus
from gpustack.prepare.host.desired import Desired, withdrawn
from gpustack.prepare.host.next_boot import predict
from gpustack.prepare.host.next_boot.model import compared
from gpustack.prepare.host.next_boot.rebuild import entry_faults, lacking
from gpustack.prepare.host.next_boot.trial import is_running as is_trial
from gpustack.prepare.host.own_files import DRACUT_SCRIPT, MODPROBE, OWNED, SCRIPT
from gpustack.prepare.host.tools import by_hand, has_dracut
from gpustack.spec.assignment import Assigned
from gpustack.spec.model import Options

Images = Mapping[str, Mapping[str, Any]]
_LOADED_IN_INITRAMFS = "/conf/modules"
_INIT_TOP = "/scripts/init-top"
_PRE_UDEV = "/hooks/pre-udev/"
_RD_DRIVER_PRE = "rd.driver.pre"


class CheckStatus(enum.StrEnum):
    """The result of a check."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class HostCheck:
    """One check.

    :ivar what: the expected state.
    :ivar seen: the actual state; empty if it would only repeat ``what``.
    :ivar finding: the finding if the check did not pass; None if it did.
    """

    what: str
    place: str
    status: CheckStatus
    seen: str
    finding: Finding | None = None

    def to_dict(self) -> dict[str, object]:
        """The check as plain data, for JSON."""
        return {"what": self.what, "place": self.place, "status": self.status.value, "seen": self.seen}


def ok(what: str, place: str, seen: str = "") -> HostCheck:
    return HostCheck(what=what, place=place, status=CheckStatus.OK, seen=seen)


def failed(code: Code, what: str, place: str, seen: str, severity: Severity | None = None, **more: str) -> HostCheck:
    failure = finding(code, place=place, severity=severity, what=what, seen=seen, **more)
    return HostCheck(what=what, place=place, status=CheckStatus.FAILED, seen=seen, finding=failure)


def judged(
    code: Code, what: str, place: str, wrong: str | None, seen: str = "", severity: Severity | None = None
) -> HostCheck:
    """A check that fails if something is wrong; ``seen`` is for one that passes."""
    return failed(code, what, place, wrong, severity) if wrong else ok(what, place, seen)


def unknown(what: str, place: str, seen: str, severity: Severity | None = None) -> HostCheck:
    doubt = finding(Code.VERIFY_UNPROVED, place=place, severity=severity, what=what, seen=seen)
    return HostCheck(what=what, place=place, status=CheckStatus.UNKNOWN, seen=seen, finding=doubt)


def iommu(host: Host, options: Options) -> Iterator[HostCheck]:
    """Check that the IOMMU has units and groups, and that interrupts are remapped."""
    what, place = "the IOMMU is active", host.hostname
    units, groups = len(host.iommu.units), host.iommu.group_count
    seen = f"{counted(units, 'unit')}, {counted(groups, 'group')}"
    yield judged(Code.VERIFY_IOMMU_INACTIVE, what, place, None if units and groups else seen, seen)
    what = "interrupts are remapped"
    remapping, unsafe = host.iommu.interrupt_remapping, host.iommu.unsafe_interrupts
    if remapping:
        yield ok(what, place)
    elif remapping is None:
        yield unknown(what, place, "nothing on the host shows it", Severity.WARNING)
    elif options.allow_unsafe_interrupts and unsafe:
        yield ok(what, place, "they are not, and vfio is configured to accept that (allow_unsafe_interrupts)")
    else:
        yield failed(Code.VERIFY_INTERRUPTS_NOT_REMAPPED, what, place, "they are not")


def arguments(host: Host, desired: Desired) -> Iterator[HostCheck]:
    """Check the arguments of the running kernel."""
    place = host.at("/proc/cmdline")
    if host.kernel.command_line is None:
        yield unknown("the running kernel has its arguments", place, "its command line could not be read")
    else:
        line = CommandLine(text=host.kernel.command_line)
        missing = set(lacking(line, desired))
        for argument in desired.arguments:
            wrong = "it has not" if argument in missing else None
            yield judged(Code.VERIFY_RUNNING_ARGUMENTS_WRONG, f"the running kernel has {argument}", place, wrong)
        for argument in withdrawn(line, desired.next_line):
            what = f"the running kernel does not have {argument}"
            seen = "it was started with it, and it is no longer wanted"
            yield failed(Code.VERIFY_RUNNING_ARGUMENTS_WRONG, what, place, seen)


def not_in_trial(host: Host) -> Iterator[HostCheck]:
    """Check that the current boot is not a trial."""
    if is_trial(host):
        yield failed(Code.VERIFY_TRIAL_BOOT, "this boot is no trial", host.hostname, "the next boot is the old one")


def menu(host: Host, desired: Desired) -> Iterator[HostCheck]:
    """Check the arguments of all normal boot entries."""
    if not (ordinary := host.boot.ordinary):
        yield unknown("the next boot has the arguments", host.hostname, "no entry of the boot menu was found")
    for entry in ordinary:
        what = f"the menu entry {entry.title!r} has the arguments"
        different = entry_faults(entry, desired)
        # Of entries that are files, the newest kernel's or the saved one is the default, so any may boot next.
        severity = None if entry is ordinary[0] or entry.is_file else Severity.WARNING
        seen = ", ".join(desired.arguments) or "none needed"
        yield judged(Code.VERIFY_NEXT_ARGUMENTS_WRONG, what, host.at(entry.source), different, seen, severity)


def running_boot(host: Host) -> Iterator[HostCheck]:
    """Check that the running boot is the one that the menu starts by default: kernel and arguments."""
    running, now = predict.running(host), predict.now(host)
    if host.boot.mounts is None or running.words is None or now.words is None or now.unknown:
        return  # an older collector, a mounted disk, or a menu that is not evaluated
    what, place = "the running boot is the default entry's", host.at("/proc/cmdline")
    seen = [f"{sign} {word.text}" for sign, word in compared(running.words, now.words)]
    if now.kernel is not None and running.kernel not in (None, now.kernel):
        seen.append(f"Linux {now.kernel} instead of {running.kernel}")
    yield judged(Code.VERIFY_BOOT_DIFFERS, what, place, ", ".join(seen), now.why)


def files(host: Host, desired: Desired) -> Iterator[HostCheck]:
    """Check that content and mode of gpustack's files are as planned."""
    for path in OWNED:
        wanted, file = desired.files.get(path), host.files.get(path)
        place = host.at(path)
        if wanted is None:
            if file is not None:
                yield failed(Code.VERIFY_FILE_WRONG, "there is no such file", place, "it is still there")
            continue
        wrong = "it is missing" if file is None else "its content differs" if file.text != wanted.content else ""
        if file is not None and not wrong and file.mode.zfill(4) != wanted.mode:
            wrong = f"its mode is {file.mode}, not {wanted.mode}"
        seen = f"{counted(len(wanted.content.splitlines()), 'line')}, mode {wanted.mode}"
        yield judged(Code.VERIFY_FILE_WRONG, "the file is as planned", place, wrong, seen)


def future(host: Host, desired: Desired) -> Iterator[HostCheck]:
    """Check the files from which entries of future kernels are made."""
    for path, wanted in desired.entries.edits.items() if desired.entries is not None else ():
        what, place = "kernels to come get the arguments", host.at(path)
        is_right = path in host.files and host.files[path].text == wanted.content
        wrong, seen = "it lacks some, or has some too many", ", ".join(desired.arguments) or "none needed"
        yield judged(Code.VERIFY_FUTURE_ARGUMENTS_WRONG, what, place, None if is_right else wrong, seen)


def addresses(host: Host, desired: Desired) -> Iterator[HostCheck]:
    """Check the devices that are bound by address, and that host devices with the same ids are not bound."""
    for device in listed(host):
        what, place = f"the device to be bound here is {device.identity}", host.at(device.address)
        stranger = device.stranger(host)
        yield judged(Code.VERIFY_ANOTHER_DEVICE, what, place, stranger and f"there is {stranger}")
    by_script = kept_at_boot(host)
    for function in identical(host, desired.targets):
        what, place = f"this {function.ids} stays with the host", host.at(function.address)
        if function.driver not in BY_ID:
            yield ok(what, place, f"it is on {function.driver or 'no driver'}")
        elif function.driver_override and function.address not in by_script:
            yield ok(what, place, f"it is on {function.driver}, by an override that is not gpustack's")
        else:
            yield failed(Code.VERIFY_HOST_DEVICE_TAKEN, what, place, f"it is on {function.driver}")


def gpu(host: Host, target: Assigned) -> Iterator[HostCheck]:
    """Check that each function of a GPU has its driver and unclaimed memory, and that the IOMMU group is viable."""
    for function in target.gpu.functions:
        place = host.at(function.address)
        driver = target.driver_of(function)
        what = f"the {classes.word(function.pci_class)} is on {driver}"
        path = f"/sys/bus/pci/devices/{function.address}/driver"
        if any(entry.path == path for entry in host.unread):
            yield unknown(what, place, "its driver could not be read")
        elif is_held(function.driver, driver):
            yield ok(what, place)
        else:
            yield failed(Code.VERIFY_DRIVER_WRONG, what, place, f"it is on {function.driver or 'no driver'}")
        yield from _claims(host, function, place)
    yield _group(host, target)


def virtual_functions(host: Host, targets: Targets) -> Iterator[HostCheck]:
    """Check the virtual functions of cards, and that neither a driver of the host nor an IOMMU group blocks them.

    libvirt takes virtual functions of others from their driver for an instance; those of gpustack have none.
    """
    created = {shared.address for shared in targets.shared}
    for shared in targets.shared:
        what, place = f"the card has {described(shared)}", host.at(shared.address)
        reason = explained(host, shared)
        if shared.is_network:
            for part in shared.parts(host):
                target = Assigned(host=host, gpu=Gpu(main=part), model=shared.model, driver=VFIO)
                yield _group(host, target, part.driver)
        if reason is None:
            yield ok(what, place)
            continue
        if shared.vgpu is None:
            about = finding(Code.VIRTUAL_FUNCTIONS_NOT_CREATED, place=place, reason=reason, count=shared.count)
        else:
            severity, code = Severity.ERROR, Code.VGPU_CARD_LEFT_OUT
            about = finding(code, place=place, severity=severity, wanted=f"model {shared.model}", reason=reason)
        yield HostCheck(what=what, place=place, status=CheckStatus.FAILED, seen=reason, finding=about)
    for reason in surplus(host, targets.shared):
        yield failed(Code.VERIFY_TRACE_LEFT, "no other card has virtual functions by gpustack", host.hostname, reason)
    for target in targets.virtual:
        driver, place = target.gpu.main.driver, host.at(target.address)
        is_ours = target.gpu.main.physical_function in created
        if is_ours:
            what = "no driver of the host has the virtual function"
            is_free = driver in (None, target.variant) or is_passthrough_driver(driver)
            seen = f"it is on {driver or 'no driver'}"
            yield judged(Code.VERIFY_DRIVER_WRONG, what, place, None if is_free else seen, seen)
        yield _group(host, target, target.variant if is_ours else driver)


def instances(host: Host, targets: Targets) -> Iterator[HostCheck]:
    """Check that the host has the vGPUs and virtual functions of its instances, also of stopped ones."""
    absent = dict(missing(host))
    shared = [entry for entry in targets.shared if entry.vgpu is not None or entry.vgpu_type is not None]
    typed = {part.address for entry in shared for part in entry.parts(host) if entry.has_type(part)}
    untyped = {part.address for entry in shared for part in host.virtual.get(entry.address, ())} - typed
    what = "the host has the devices of the instance"
    if shared and not knows_domains(host):
        yield unknown(f"{what}s", host.hostname, "not all domains of libvirt could be read")
    for domain in host.domains or ():
        faults = [f"{name} has another vGPU type" for name in domain.devices if name in untyped]
        # Nova creates mediated devices again, which may take until nova-compute has started.
        severity = None if faults or any("." in name for name in absent.get(domain.uuid, ())) else Severity.WARNING
        faults += [f"{name} does not exist" for name in absent.get(domain.uuid, ())]
        seen = ", ".join(domain.devices)
        yield judged(Code.VGPU_OF_INSTANCE_MISSING, what, host.at(domain.uuid), ", ".join(faults), seen, severity)


def _claims(host: Host, function: Function, place: str) -> Iterator[HostCheck]:
    memory = [bar for bar in function.bars if not bar.io and bar.size]
    if not memory or (function.claims and function.driver and not is_passthrough_driver(function.driver)):
        return  # the check of the driver has its finding; some drivers hold memory by another name ("ICH HD audio")
    what = "no host driver holds its memory"
    others = [claim for claim in function.claims if not is_passthrough_driver(claim)]
    if any(entry.path == "/proc/iomem" for entry in host.unread):
        yield unknown(what, place, "/proc/iomem could not be read")
    else:
        wrong, seen = f"held by {', '.join(others)}", f"{counted(len(memory), 'memory BAR')}, none held"
        yield judged(Code.VERIFY_MEMORY_HELD, what, place, wrong if others else None, seen)


def _group(host: Host, target: Assigned, own: str | None = None) -> HostCheck:
    """Check the IOMMU group as vfio does: each other driver makes it not viable (``vfio_dev_viable``).

    :param own: a host driver that the target may have: that of NVIDIA's vGPUs, or one that libvirt replaces.
    """
    place = host.at(target.address)
    what = "its IOMMU group is viable"
    if (number := target.gpu.main.iommu_group) is None:
        return failed(Code.VERIFY_GROUP_NOT_VIABLE, what, place, "it is in no IOMMU group")
    members = host.groups[number]
    others = [
        f"{f.address} is on {f.driver}"
        for f in members
        if f.driver is not None and not is_passthrough_driver(f.driver) and not forwards(f)
        if f.address != target.address or f.driver != own
    ]
    apart = [
        f"{f.address} is in group {f.iommu_group}"
        for f in target.gpu.functions
        if f.iommu_group is None and f.address != target.address
    ]
    wrong = f"group {number}: {', '.join([*others, *apart])}" if others or apart else None
    seen = f"group {number}: {', '.join(f.address for f in members)}"
    return judged(Code.VERIFY_GROUP_NOT_VIABLE, what, place, wrong, seen)


def initramfs(host: Host, desired: Desired, images: Images | None) -> Iterator[HostCheck]:
    """Check that the initramfs of each bootable kernel contains the files and modules that bind the GPUs."""
    if images is None:
        yield unknown("every initramfs binds the GPUs", host.hostname, "no initramfs was read", Severity.WARNING)
        return
    for kernel in host.boot.kernels:
        yield _image(host, desired, kernel, images.get(kernel.release))


def _image(host: Host, desired: Desired, kernel: BootKernel, image: Mapping[str, Any] | None) -> HostCheck:
    what = f"the initramfs of Linux {kernel.release} binds the GPUs"
    place = host.at(kernel.initramfs or kernel.release)
    tool = by_hand(host, kernel)
    early = [name for name in desired.binding.early_modules if kernel.modules.get(name) == "module"]
    modprobe = desired.files.get(MODPROBE)
    script = desired.files.get(SCRIPT) or desired.files.get(DRACUT_SCRIPT)
    if not early and modprobe is None and script is None:
        return ok(what, place, "nothing is needed in it")
    if image is None:
        return failed(Code.VERIFY_INITRAMFS_WRONG, what, place, "this kernel has no initramfs", tool=tool)
    if "error" in image:
        return unknown(what, place, f"it could not be read: {image['error']}")
    faults: list[str] = []
    if early and kernel.release not in image.get("releases", ()):
        faults.append(f"it has no modules of Linux {kernel.release}")
    faults += [f"the module {name} is missing" for name in early if name not in image.get("modules", ())]
    loaded = _loaded(image)
    faults += [f"{name} is not loaded" for name in early if name not in loaded]
    if modprobe is not None and _text(image, MODPROBE) is None:
        faults.append(f"{MODPROBE} is missing")
    elif modprobe is not None and _text(image, MODPROBE) != modprobe.content:
        faults.append(f"{MODPROBE} differs from the one that is planned")
    if script is not None:
        faults += (_wrong_hook if has_dracut(host) else _wrong_script)(image, script.content)
    if faults:
        return failed(Code.VERIFY_INITRAMFS_WRONG, what, place, "; ".join(faults), tool=tool)
    observed = [*(f"{name} is in it and loaded" for name in early), *([f"{MODPROBE} as planned"] if modprobe else [])]
    observed += ["the script that binds by address runs before udev"] if script else []
    return ok(what, place, ", ".join(observed))


def _wrong_script(image: Mapping[str, Any], content: str) -> Iterator[str]:
    """The faults of the script that binds by address: it must run before udev loads drivers."""
    name = f"{_INIT_TOP}/{PurePosixPath(SCRIPT).name}"
    if (text := _text(image, name)) is None:
        yield f"{name} is missing"
    elif text != content:
        yield f"{name} differs from the one that is planned"
    lines = (_text(image, f"{_INIT_TOP}/ORDER") or "").splitlines()
    order = [fields[0] for line in lines if (fields := line.split())]
    udev = f"{_INIT_TOP}/udev"
    if name not in order:
        yield f"{name} is not run"
    elif udev in order and order.index(udev) < order.index(name):
        yield f"{name} is run after udev, which has loaded the host drivers by then"


def _wrong_hook(image: Mapping[str, Any], content: str) -> Iterator[str]:
    """The same for dracut's images; their pre-udev hooks run before udev starts (dracut.modules(7))."""
    name = PurePosixPath(DRACUT_SCRIPT).name
    if not (hooks := [p for p in image.get("files", {}) if _PRE_UDEV in p and p.endswith(name)]):
        yield f"{name} is not among its pre-udev hooks"
    elif _text(image, hooks[0]) != content:
        yield f"{hooks[0]} differs from the one that is planned"


def _text(image: Mapping[str, Any], path: str) -> str | None:
    file = image.get("files", {}).get(path)
    return None if file is None else str(file["text"])


def _loaded(image: Mapping[str, Any]) -> set[str]:
    lines = (_text(image, _LOADED_IN_INITRAMFS) or "").splitlines()
    names = {fields[0] for line in lines if (fields := line.split()) and not fields[0].startswith("#")}
    # dracut stores the modules to load before udev as its own arguments (dracut.cmdline(7)).
    texts = [str(f["text"]) for path, f in image.get("files", {}).items() if path.startswith("/etc/cmdline.d/")]
    for argument in CommandLine.of(field for text in texts for field in text.split()).all(_RD_DRIVER_PRE):
        names.update((argument.value or "").split(","))
    return {canonical(name) for name in names}
