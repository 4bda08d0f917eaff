"""What was set up by hand for passthrough before gpustack: every line of it that concerns the devices of the plan.

Guides of many years have people write ids into ``modprobe.d`` and onto the kernel's command line, modules into
``/etc/modules`` and the initramfs, and echo lines into ``/etc/rc.local``. Each such line is a :class:`Trace`: it
says what the plan says, or something else, and either it can be taken over or there is a reason why not.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpustack.facts.cmdline import CommandLine, canonical
from gpustack.facts.model import Host
from gpustack.facts.parameters import fulfils
from gpustack.findings import Finding, Severity, finding
from gpustack.host import iommu
from gpustack.host.binding import DRIVERS, Binding, spared
from gpustack.host.elsewhere import DRIVERCTL, INITRAMFS_MODULES, RC_LOCAL, Elsewhere
from gpustack.host.record import KERNEL_CMDLINE
from gpustack.host.targets import Targets
from gpustack.host.tools import has_entries, has_systemd_boot
from gpustack.pci import catalogue
from gpustack.spec.model import Options

_MODPROBE = "/etc/modprobe.d/"
_MODULES = "/etc/modules"
_MODULES_LOAD = "/etc/modules-load.d/"
_SAME_MODULES = "/etc/modules-load.d/modules.conf"  # Debian's link to /etc/modules
_DRACUT = "/etc/dracut.conf"
_RC_LOCALS = (RC_LOCAL, "/etc/rc.d/rc.local")
_UDEV = "/etc/udev/rules.d/"
_SERVICES = "/etc/systemd/system/"
_INITRAMFS_SCRIPTS = ("/etc/initramfs-tools/scripts/", "/etc/initramfs-tools/hooks/")
_PASSTHROUGH = frozenset({"vfio", "vfio_pci", "vfio_iommu_type1", "vfio_virqfd", "pci_stub"})
_DRIVER = re.compile(r"drivers/([\w-]+)/(?:new_id|bind)\b")
_NEW_ID = re.compile(r"\b([0-9a-f]{4})[ :]([0-9a-f]{4})\b")
_RULE_ID = re.compile(r"""\battrs?\{(vendor|device)\}=="0x([0-9a-f]{4})\"""")
_ACTS = re.compile(r">|\btee\b|driver_override|driverctl|nodedev-detach|modprobe|unbind|new_id")
# Devices that are only named here, for other lines to act on: DEVS="0000:84:00.0", for dev in 0000:84:00.0; do
_NAMES = re.compile(r"(?:(?:export|local|readonly)\s+)?\w+=|for\s+\w+\s+in\s")
_ACTS_ON_NAMED = re.compile(r"(?:/sys/bus/pci/|driver_override|driverctl|nodedev-).*\$|\$.*(?:/sys/bus/pci/|new_id)")
# One plain command on a line of its own: nothing that another line could depend on.
_PLAIN_COMMAND = re.compile(
    r"""\s*(?:sudo\s+)?(?:(?:echo|printf)\s+(?:-n\s+)?["']?[\w.:, -]+["']?\s*>{1,2}\s*["']?[\w/.:-]+["']?"""
    r"""|(?:/usr)?(?:/sbin/)?modprobe\s+[\w -]+)\s*;?\s*(?:\#.*)?"""
)


class Part(enum.Enum):
    """How much of a line (or file) a trace is, which decides how it is taken out."""

    LINE = "line"
    COMMAND = "command"
    ARGUMENT = "argument"
    OPTION = "option"
    FILE = "file"


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A line that somebody wrote for the devices of the plan.

    :ivar line: counted from 1; 0 for a file as a whole.
    :ivar said: what stands there: the line, or the argument on it.
    :ivar agrees: whether it says what the plan says.
    :ivar stays: why it can't be taken over; None when it can.
    """

    path: str
    line: int
    said: str
    part: Part
    agrees: bool
    stays: str | None = None

    @property
    def place(self) -> str:
        """``/etc/modprobe.d/vfio.conf:2``."""
        return f"{self.path}:{self.line}" if self.line else self.path


def traces(host: Host, targets: Targets, binding: Binding, options: Options, other: Elsewhere) -> tuple[Trace, ...]:
    """Every hand-made line that concerns the plan, in the order of files and lines."""
    if not targets.all:
        return ()
    found = {
        (trace.place, trace.said): trace
        for trace in (
            *_ids(host, targets, binding, other),
            *_arguments(host, targets, binding, options, other),
            *_modprobe(host, targets, binding, options, other),
            *_modules(other),
            *_dracut(binding, other),
            *_driverctl(targets, other),
            *_scripts(host, targets, other),
        )
    }
    if has_entries(host):  # what grub's defaults say has been copied into every boot entry
        found = {
            key: replace(trace, stays=trace.stays or _in_entries(host)) if trace.part is Part.ARGUMENT else trace
            for key, trace in found.items()
        }
    return tuple(sorted(found.values(), key=lambda t: (t.path, t.line, t.said)))


def findings(host: Host, targets: Targets, found: tuple[Trace, ...]) -> Iterator[Finding]:
    """What agrees, and what a boot script or a blacklist does; :mod:`gpustack.host.binding` tells of the rest."""
    for trace in found:
        place = f"{host.hostname} {trace.place}"
        if trace.agrees:
            yield finding("GPU170", place=place, said=trace.said[:200])
        elif _is_script(trace.path):
            acts = _acts(trace.path, trace.said)  # or only names devices: what other lines do with them can't be told
            severity = Severity.ERROR if acts and _runs(host, trace.path) else Severity.WARNING
            yield finding("GPU143", place=place, line=trace.said[:200], severity=severity)
        elif trace.part is Part.LINE and trace.path.startswith(_MODPROBE):
            yield from _needed(host, targets, trace, place)


def _needed(host: Host, targets: Targets, trace: Trace, place: str) -> Iterator[Finding]:
    command, module, *_ = trace.said.split()
    function = spared(host, targets).get(canonical(module))
    if command in ("blacklist", "install") and function is not None:
        what = catalogue.describe(function.vendor, function.product, function.pci_class)
        yield finding("GPU173", place=place, said=trace.said[:200], what=f"{function.address} ({what})")


def _parted(place: str) -> tuple[str, int]:
    """A file and its line, 0 where a place is a file as a whole: a boot entry."""
    path, _, line = place.rpartition(":")
    return (path, int(line)) if line.isdigit() else (place, 0)


# --- each kind of file ---------------------------------------------------------------------------------------------


def _ids(host: Host, targets: Targets, binding: Binding, other: Elsewhere) -> Iterator[Trace]:
    ours = {canonical(driver): frozenset(ids) for driver, ids in binding.options.items()}
    for argument in binding.arguments:
        name, _, value = argument.partition("=")
        ours[canonical(name.removesuffix(".ids"))] = frozenset(value.split(","))
    functions = tuple(function for function, _ in targets.functions.values())
    going = {function.ids for function in functions}
    staying = {f.ids for f in host.pci} - going
    by_place = {(s.place, canonical(s.argument.name)): s for name in DRIVERS for s in other.all(f"{name}.ids")}
    for found in other.ids():
        mine = ours.get(found.driver, frozenset())
        if not mine and not found.ids & going:
            continue
        path, line = _parted(found.place)
        sourced = by_place.get((found.place, f"{found.driver}.ids"))
        others = sorted(found.ids & staying)
        part = Part.ARGUMENT if sourced else Part.OPTION if path.startswith(_MODPROBE) else Part.LINE
        said = sourced.argument.text if sourced else _line(other, path, line)
        stays = f"it binds {', '.join(others)}, too, which the spec does not name" if others else _foreign(path)
        agrees = found.ids == mine and found.takes_all(functions)
        yield Trace(path=path, line=line, said=said, part=part, agrees=agrees, stays=stays)


def _foreign(path: str) -> str | None:
    return None if path.startswith("/etc/") else "it is not in /etc: it belongs to a package or to this boot only"


def _line(other: Elsewhere, path: str, line: int) -> str:
    lines = other.texts.get(path, "").split("\n")
    return " ".join(lines[line - 1].split()) if line <= len(lines) else ""


def _arguments(host: Host, targets: Targets, binding: Binding, options: Options, other: Elsewhere) -> Iterator[Trace]:
    wanted = ("intel_iommu=on", "iommu=pt") if options.iommu_pt else ("intel_iommu=on",)
    for argument in wanted:
        for sourced in other.arguments or ():
            if fulfils(CommandLine(text=sourced.argument.text), argument):
                stays: str | None = "an argument that is right stays where it is, and is not repeated"
                yield _argument(sourced.place, sourced.argument.text, agrees=True, stays=stays)
    by_text = {s.argument.text for s in other.arguments or ()}
    for found in iommu.contradictions(host, options, other):
        path, line = _parted(found.place)
        if path.startswith(_MODPROBE):
            yield Trace(path=path, line=line, said=found.text, part=Part.OPTION, agrees=False)
        elif found.text in by_text:
            stays = "it says more than that" if "," in found.text else None
            yield _argument(found.place, found.text, agrees=False, stays=stays)
    for name in ("modprobe.blacklist", "module_blacklist", "rd.driver.blacklist"):
        for sourced in other.all(name):
            modules = {canonical(word) for word in (sourced.argument.value or "").split(",")}
            if modules and modules <= set(binding.blacklist):
                yield _argument(sourced.place, sourced.argument.text, agrees=True)
            elif modules & _needed_modules(binding):
                stays = None if modules <= _PASSTHROUGH else "it says more than that"
                yield _argument(sourced.place, sourced.argument.text, agrees=False, stays=stays)


def _in_entries(host: Host) -> str:
    """Why an argument stays where boot entries are files, and what takes it out."""
    if has_systemd_boot(host):
        return f"take it out of {KERNEL_CMDLINE}, then `kernel-install add RELEASE IMAGE` makes each entry anew"
    return "boot entries are files on this host, and have it as well: grubby --remove-args takes it out of all of them"


_RIGHT = "an argument that is right stays where it is, and is not repeated"


def _needed_modules(binding: Binding) -> set[str]:
    return {*binding.early_modules, *binding.late_modules}


def _argument(place: str, text: str, *, agrees: bool, stays: str | None = None) -> Trace:
    path, line = _parted(place)
    return Trace(path=path, line=line, said=text, part=Part.ARGUMENT, agrees=agrees, stays=stays)


def _modprobe(host: Host, targets: Targets, binding: Binding, options: Options, other: Elsewhere) -> Iterator[Trace]:
    kept = spared(host, targets) if options.blacklist_host_drivers else {}
    needed = _needed_modules(binding)
    for statement in other.modprobe.statements:
        if not statement.file.startswith(_MODPROBE):
            continue
        module = canonical(statement.module)
        is_off = statement.command == "blacklist" or statement.does_nothing
        if is_off and (module in binding.blacklist or module in kept or module in needed):
            agrees = module in binding.blacklist
        elif statement.command == "softdep" and module in binding.softdeps:
            if statement.words[:1] != ("pre:",) or not set(statement.words[1:]) <= _SPELT:
                continue
            agrees = {canonical(w) for w in statement.words[1:]} >= {canonical(d) for d in binding.softdeps[module]}
        else:
            continue
        yield Trace(path=statement.file, line=statement.line, said=str(statement), part=Part.LINE, agrees=agrees)


_SPELT = {name for driver in DRIVERS for name in (driver, canonical(driver))}


def _modules(other: Elsewhere) -> Iterator[Trace]:
    """Passthrough modules that are loaded by name. Where ids follow, :func:`_ids` tells of them."""
    for path, text in other.texts.items():
        if (path not in (INITRAMFS_MODULES, _MODULES) and not path.startswith(_MODULES_LOAD)) or path == _SAME_MODULES:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            words = line.split()
            if words and canonical(words[0]) in _PASSTHROUGH and not any(w.startswith("ids=") for w in words):
                yield Trace(path=path, line=number, said=" ".join(words), part=Part.LINE, agrees=True)


def _dracut(binding: Binding, other: Elsewhere) -> Iterator[Trace]:
    """Passthrough modules in dracut's configuration, which bash reads (``dracut.conf(5)``)."""
    needed = _needed_modules(binding)
    for path, text in other.texts.items():
        for number, line in enumerate(text.split("\n"), 1) if path.startswith(_DRACUT) else ():
            if (found := _DRACUT_LINE.fullmatch(line)) is None:
                continue
            modules = {canonical(word) for word in found[3].split()}
            is_off = found[1] == "omit_drivers"
            if not modules & (needed if is_off else _PASSTHROUGH):
                continue
            stays = None if modules <= _PASSTHROUGH else "it says more than that"
            said = line.strip()
            yield Trace(path=path, line=number, said=said, part=Part.COMMAND, agrees=not is_off, stays=stays)


_DRACUT_LINE = re.compile(r"""\s*(add_drivers|force_drivers|omit_drivers)\+?=(["'])([\w\s-]*)\2\s*(?:\#.*)?""")


def _driverctl(targets: Targets, other: Elsewhere) -> Iterator[Trace]:
    for path, text in other.texts.items():
        address = path.removeprefix(DRIVERCTL).removeprefix("pci-")
        if path.startswith(DRIVERCTL) and address in targets.functions:
            said = f"driverctl override {text.strip() or 'none'}"
            agrees = text.strip() == targets.functions[address][1]
            yield Trace(path=path, line=0, said=said, part=Part.FILE, agrees=agrees)


# --- boot scripts --------------------------------------------------------------------------------------------------


def _is_script(path: str) -> bool:
    return path in _RC_LOCALS or path.startswith((_UDEV, _SERVICES, *_INITRAMFS_SCRIPTS))


def _runs(host: Host, path: str) -> bool:
    """Whether a script is run at boot: systemd's rc-local generator and initramfs-tools run what is executable."""
    if path.startswith((_UDEV, _SERVICES)):
        return True
    return bool(int(host.files[path].mode, 8) & 0o111)


def _acts(path: str, line: str) -> bool:
    """Whether a line of a script may do something to a device; a rule of udev's is taken for one that does."""
    return path.startswith(_UDEV) or _ACTS.search(line) is not None


def _scripts(host: Host, targets: Targets, other: Elsewhere) -> Iterator[Trace]:
    there = {(f.vendor, f.product) for f in host.pci}
    for path, text in other.texts.items():
        if not _is_script(path) or (path == RC_LOCAL and text == other.texts.get(_RC_LOCALS[1])):
            continue  # on Red Hat's systems the first is a link to the second
        lines = text.split("\n")
        acts_on_named = any(_ACTS_ON_NAMED.search(line) for line in lines)
        for number, line in enumerate(lines, 1):
            code = line.strip()
            if not code or code.startswith(("#", ": #")):
                continue
            if not _acts(path, code) and not (acts_on_named and _NAMES.match(code)):
                continue
            said = code.lower()
            drivers = _touched(said, targets)
            if not drivers and not _is_of_no_device(said, there):
                continue
            agrees = _means(said, drivers)
            stays = _why_not(path, lines, number)
            yield Trace(path=path, line=number, said=code, part=_part(path), agrees=agrees, stays=stays)


def _touched(line: str, targets: Targets) -> set[str]:
    """The drivers that the devices named on a line shall have; empty when it names none of them."""
    return {
        driver
        for address, (function, driver) in targets.functions.items()
        if address in line
        or address.removeprefix("0000:") in re.findall(r"[0-9a-f.:]+", line)
        or (function.vendor, function.product) in (*_NEW_ID.findall(line), _of_a_rule(line))
    }


def _of_a_rule(line: str) -> tuple[str, str]:
    """The ids by which a rule of udev's that acts on a device knows it: ``ATTR{vendor}=="0x10de"`` and so on."""
    known = dict(_RULE_ID.findall(line)) if _ACTS.search(line) else {}
    return known.get("vendor", ""), known.get("device", "")


def _is_of_no_device(line: str, there: set[tuple[str, str]]) -> bool:
    """Whether a line gives pci-stub or vfio-pci an id that no device of the host has: a misspelt one, a card gone."""
    drivers = {canonical(name) for name in _DRIVER.findall(line)}
    ids = _NEW_ID.findall(line.partition(">")[0])
    return bool(ids) and "new_id" in line and drivers <= _PASSTHROUGH and not set(ids) & there


def _means(line: str, wanted: set[str]) -> bool:
    """Whether a line gives the devices it names to the driver that they shall have, and does nothing else."""
    if "unbind" in line or len(wanted) != 1:
        return False
    driver = canonical(next(iter(wanted)))
    named = {canonical(name) for name in _DRIVER.findall(line)}
    named |= {canonical(name) for name in DRIVERS if "driver_override" in line and name in line}
    return named == {driver}


def _part(path: str) -> Part:
    return Part.COMMAND if path in _RC_LOCALS else Part.LINE


def _why_not(path: str, lines: list[str], number: int) -> str | None:
    """Why a line of a script can't be taken out by itself."""
    if not path.startswith((_UDEV, *_RC_LOCALS)):
        return "only a person can tell what else this script is for"
    if lines[number - 1].endswith("\\") or (number > 1 and lines[number - 2].endswith("\\")):
        return "it is a part of a longer statement"
    if path in _RC_LOCALS and (any("<<" in line for line in lines) or not _PLAIN_COMMAND.fullmatch(lines[number - 1])):
        return "it is more than one plain command"
    return None
