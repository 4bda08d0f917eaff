"""Detect hand-made passthrough configuration: all lines that concern the devices of the plan.

Common guides put ids into ``modprobe.d`` and onto the kernel's command line, modules into ``/etc/modules`` and the
initramfs, and ``echo`` commands into ``/etc/rc.local``. Each such line becomes a :class:`Trace`. It agrees with the
plan or not, and it can be adopted or has a reason why not.
"""

import fnmatch
from collections.abc import Iterator
from dataclasses import replace

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.hosts.facts.model import Function, Host
from gpustack.linux.cmdline import CommandLine, canonical
from gpustack.linux.drivers import BY_ID, is_host_driver
from gpustack.linux.grub import TUNED
from gpustack.linux.modprobe import fulfils
from gpustack.pci import catalogue
from gpustack.prepare.host.decide import iommu
from gpustack.prepare.host.decide.binding import Binding, kept_functions, spared, switched_off
from gpustack.prepare.host.decide.targets import Targets
from gpustack.prepare.host.foreign_config import DRIVERCTL, INITRAMFS_MODULES, Elsewhere
from gpustack.prepare.host.prior_setup import scripts
from gpustack.prepare.host.prior_setup.traces import PASSTHROUGH, Part, Trace, binds_others
from gpustack.prepare.host.record import KERNEL_CMDLINE
from gpustack.prepare.host.tools import has_systemd_boot
from gpustack.spec.model import Options

_MODPROBE = "/etc/modprobe.d/"
_MODULES = "/etc/modules"
_MODULES_LOAD = "/etc/modules-load.d/"
_SAME_MODULES = "/etc/modules-load.d/modules.conf"  # Debian's link to /etc/modules
Off = frozenset[tuple[str, str]]
"""Places and texts of settings that prevent passthrough modules from loading."""


def traces(host: Host, targets: Targets, binding: Binding, options: Options, other: Elsewhere) -> tuple[Trace, ...]:
    """All hand-made lines that concern the plan, sorted by file and line."""
    if not targets.exist:
        return ()
    off = frozenset((place, said) for place, said, _ in switched_off(host, targets, other))
    by_key = {
        (trace.place, trace.said): trace
        for trace in (
            *_ids(host, targets, binding, other),
            *_arguments(host, binding, options, other, off),
            *_modprobe(host, targets, binding, options, other, off),
            *_modules(other),
            *_dracut(other, off),
            *_driverctl(targets, other),
            *scripts.traces(host, targets, other),
        )
    }
    if host.boot.bls:  # the arguments of GRUB's defaults were copied into all boot entries
        by_key = {
            key: replace(trace, stays=trace.stays or _in_entries(host)) if trace.part is Part.ARGUMENT else trace
            for key, trace in by_key.items()
        }
    return tuple(sorted(by_key.values(), key=lambda t: (t.path, t.line, t.said)))


def findings(host: Host, targets: Targets, prior_traces: tuple[Trace, ...], other: Elsewhere) -> Iterator[Finding]:
    """Findings about lines that agree, scripts and blacklists; other modules report the other lines."""
    for trace in prior_traces:
        place = host.at(trace.place)
        if trace.agrees:
            yield finding(Code.PRIOR_SETUP_AGREES, place=place, said=trace.said[:200])
        elif scripts.is_script(trace.path, other.texts.get(trace.path, "")):
            acts = scripts.acts(trace.path, trace.said)  # a line that only names devices may do nothing
            severity = Severity.ERROR if acts and scripts.runs(host, trace.path) else Severity.WARNING
            effect, line = "changes devices" if acts else "may change devices", trace.said[:200]
            yield finding(Code.SCRIPT_TOUCHES_DEVICES, place=place, line=line, effect=effect, severity=severity)
        elif trace.part is Part.LINE and trace.path.startswith(_MODPROBE):
            yield from _needed(host, targets, trace, place)
    for name, line in scripts.of_any_device(other) if targets.exist else ():
        yield finding(Code.SCRIPT_TOUCHES_DEVICES, place=host.at(name), line=line[:200], effect="may change devices")


def _needed(host: Host, targets: Targets, trace: Trace, place: str) -> Iterator[Finding]:
    command, module, *_ = trace.said.split()
    function = _unserved(host, targets).get(canonical(module))
    if command in ("blacklist", "install") and function is not None:
        what = f"{function.address} ({catalogue.describe(function.vendor, function.product, function.pci_class)})"
        yield finding(Code.HOST_DRIVER_DISABLED, place=place, said=trace.said[:200], what=what)


def _unserved(host: Host, targets: Targets) -> dict[str, Function]:
    """The same as :func:`spared`, without functions that are on another driver, such as NVIDIA's instead of nouveau."""
    pairs = (
        (module, f, {canonical(name or "") for name in (f.driver, f.driver_module)})
        for module, f in spared(host, targets).items()
    )
    return {module: f for module, f, names in pairs if not is_host_driver(f.driver) or module in names}


def _parted(place: str) -> tuple[str, int]:
    """Split a place into file and line; the line is 0 if the place is only a file (a boot entry)."""
    path, _, line = place.rpartition(":")
    return (path, int(line)) if line.isdecimal() else (place, 0)


# --- each kind of file ---------------------------------------------------------------------------------------------


def _ids(host: Host, targets: Targets, binding: Binding, other: Elsewhere) -> Iterator[Trace]:
    own_ids = {canonical(driver): frozenset(ids) for driver, ids in binding.options.items()}
    for argument in binding.arguments:
        name, _, value = argument.partition("=")
        own_ids[canonical(name.removesuffix(".ids"))] = frozenset(value.split(","))
    functions = tuple(function for function, _ in targets.functions.values())
    staying = tuple(kept_functions(host, targets))
    by_place = {(s.place, canonical(s.argument.name)): s for name in BY_ID for s in other.all(f"{name}.ids")}
    for assignment in other.ids():
        of_driver = own_ids.get(assignment.driver, frozenset())
        if not of_driver and not assignment.concerns(functions):
            continue
        path, line = _parted(assignment.place)
        sourced = by_place.get((assignment.place, f"{assignment.driver}.ids"))
        part = Part.ARGUMENT if sourced else Part.OPTION if path.startswith(_MODPROBE) else Part.LINE
        text = sourced.argument.text if sourced else _line(other, path, line)
        stays = binds_others(f for f in staying if assignment.binds(f)) or _foreign(path)
        agrees = assignment.ids == of_driver and assignment.takes_all(functions)
        yield Trace(path=path, line=line, said=text, part=part, agrees=agrees, stays=stays)


def _foreign(path: str) -> str | None:
    return None if path.startswith("/etc/") else "it is not in /etc: it belongs to a package or to this boot only"


def _line(other: Elsewhere, path: str, line: int) -> str:
    lines = other.texts.get(path, "").split("\n")
    return " ".join(lines[line - 1].split()) if line <= len(lines) else ""


def _arguments(host: Host, binding: Binding, options: Options, other: Elsewhere, off: Off) -> Iterator[Trace]:
    wanted = ("intel_iommu=on", "iommu=pt") if options.iommu_pt else ("intel_iommu=on",)
    for argument in wanted:
        for sourced in other.arguments or ():
            if fulfils(CommandLine(text=sourced.argument.text), argument):
                stays: str | None = "an argument that is right stays where it is, and is not repeated"
                yield _argument(sourced.place, sourced.argument.text, agrees=True, stays=stays)
    by_text = {s.argument.text for s in other.arguments or ()}
    for place, text, _ in iommu.contradictions(host, options, other):
        path, line = _parted(place)
        if path.startswith(_MODPROBE):
            yield Trace(path=path, line=line, said=text, part=Part.OPTION, agrees=False)
        elif text in by_text:
            stays = "it contains more than that" if "," in text else None
            yield _argument(place, text, agrees=False, stays=stays)
    for name in ("modprobe.blacklist", "module_blacklist", "rd.driver.blacklist"):
        for sourced in other.all(name):
            modules = {canonical(module) for module in (sourced.argument.value or "").split(",")}
            if modules and modules <= set(binding.blacklist):
                yield _argument(sourced.place, sourced.argument.text, agrees=True)
    for sourced in other.arguments or ():
        if (sourced.place, sourced.argument.text) in off:
            modules = {canonical(module) for module in (sourced.argument.value or "").split(",")}
            stays = None if modules <= PASSTHROUGH else "it contains more than that"
            yield _argument(sourced.place, sourced.argument.text, agrees=False, stays=stays)


def _in_entries(host: Host) -> str:
    """Why an argument can't be adopted if boot entries are files, and how to remove it."""
    if has_systemd_boot(host):
        return f"take it out of {KERNEL_CMDLINE}, then `kernel-install add RELEASE IMAGE` rewrites each entry"
    return "boot entries are files on this host, and have it as well: grubby --remove-args takes it out of all of them"


def _argument(place: str, text: str, *, agrees: bool, stays: str | None = None) -> Trace:
    path, line = _parted(place)
    if path == TUNED:
        stays = stays or "tuned writes this file from its profile"
    return Trace(path=path, line=line, said=text, part=Part.ARGUMENT, agrees=agrees, stays=stays)


def _modprobe(
    host: Host, targets: Targets, binding: Binding, options: Options, other: Elsewhere, off: Off
) -> Iterator[Trace]:
    spared_drivers = _unserved(host, targets) if options.blacklist_host_drivers else {}
    for statement in other.modprobe.statements:
        if not statement.file.startswith(_MODPROBE):
            continue
        module = canonical(statement.module)
        is_off = statement.command == "blacklist" or statement.does_nothing
        is_against = (statement.place, str(statement)) in off
        if is_off and (module in binding.blacklist or module in spared_drivers or is_against):
            agrees = module in binding.blacklist
        elif statement.command == "softdep" and (of := fnmatch.filter(binding.softdeps, module)):
            words = frozenset(map(canonical, statement.words[1:]))
            if statement.words[:1] != ("pre:",) or not words <= PASSTHROUGH:
                continue
            agrees = all(words >= set(map(canonical, binding.softdeps[name])) for name in of)
        else:
            continue
        yield Trace(path=statement.file, line=statement.line, said=str(statement), part=Part.LINE, agrees=agrees)


def _modules(other: Elsewhere) -> Iterator[Trace]:
    """Passthrough modules that are loaded by name; :func:`_ids` handles lines with ids."""
    for path, text in other.texts.items():
        if (path not in (INITRAMFS_MODULES, _MODULES) and not path.startswith(_MODULES_LOAD)) or path == _SAME_MODULES:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            fields = line.split()
            if fields and canonical(fields[0]) in PASSTHROUGH and not any(w.startswith("ids=") for w in fields):
                yield Trace(path=path, line=number, said=" ".join(fields), part=Part.LINE, agrees=True)


def _dracut(other: Elsewhere, off: Off) -> Iterator[Trace]:
    """Passthrough modules in dracut's configuration."""
    for place, said, variable, modules, is_alone in other.of_dracut():
        path, line = _parted(place)
        is_off = variable == "omit_drivers"
        if (place, said) in off if is_off else modules & PASSTHROUGH:
            stays = None if modules <= PASSTHROUGH and is_alone else "it contains more than that"
            yield Trace(path=path, line=line, said=said, part=Part.COMMAND, agrees=not is_off, stays=stays)


def _driverctl(targets: Targets, other: Elsewhere) -> Iterator[Trace]:
    for path, text in other.texts.items():
        address = path.removeprefix(DRIVERCTL).removeprefix("pci-")
        if path.startswith(DRIVERCTL) and address in targets.functions:
            override = f"driverctl override {text.strip() or 'none'}"
            agrees = text.strip() == targets.functions[address][1]
            yield Trace(path=path, line=0, said=override, part=Part.FILE, agrees=agrees)
