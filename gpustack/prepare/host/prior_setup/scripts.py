"""Boot scripts, udev rules, units, cron tables and tmpfiles that bind devices of the plan, line by line."""

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from gpustack.base.text import quoted
from gpustack.hosts.facts.model import Function, Host
from gpustack.linux.cmdline import canonical
from gpustack.linux.drivers import BY_ID
from gpustack.prepare.host.decide.binding import kept_functions
from gpustack.prepare.host.decide.ids import Ids
from gpustack.prepare.host.decide.targets import Targets
from gpustack.prepare.host.foreign_config import RC_LOCAL, Elsewhere
from gpustack.prepare.host.prior_setup.traces import PASSTHROUGH, Part, Trace, binds_others

_RC_LOCALS = (RC_LOCAL, "/etc/rc.d/rc.local")
_UDEV = "/udev/rules.d/"
_UNITS = "/systemd/system/"
_TMPFILES = "/tmpfiles.d/"  # noqa: S108  (tmpfiles.d(5): a directory of configuration)
_CRON = ("/etc/crontab", "/etc/cron.d/", "/var/spool/cron/")
_INITRAMFS_SCRIPTS = ("/etc/initramfs-tools/scripts/", "/etc/initramfs-tools/hooks/")
# Files whose lines are independent of each other.
_BY_LINE = (f"/etc{_UDEV}", f"/etc{_TMPFILES}", *_RC_LOCALS)
_DRIVER = re.compile(r"drivers/([\w-]+)/(?:new_id|bind)\b")
_NEW_ID = re.compile(r"\b([0-9a-f]{4})[ :]([0-9a-f]{4})\b")
_ADDRESS = re.compile(r"\b[0-9A-Fa-f]{2}:[01][0-9A-Fa-f]\.[0-7]\b")
_ANY = "ffffffff"  # PCI_ANY_ID: echo 10de ffffffff > .../new_id, modprobe vfio-pci ids=10de:ffffffff
_WITH_ANY = re.compile(r"(?<![\w.:])(?:0x)?[0-9a-f]{1,8}(?:[ :](?:0x)?[0-9a-f]{1,8}){1,5}(?![\w.:])")
_CONDITION = re.compile(r'\b(?:attrs?\{(\w+)\}|(kernels?|env\{pci_id\}|env\{pci_slot_name\}))=="([^"]*)"')
_BINDS = re.compile(
    r"driver_override|driverctl|nodedev-detach|unbind|new_id|drivers/\S+/bind\b|attr\{remove\}=", re.IGNORECASE
)
_ACTS = re.compile(rf">|\btee\b|modprobe|{_BINDS.pattern}", re.IGNORECASE)
# Lines that only name devices, for other lines to act on: DEVS="0000:84:00.0", for dev in 0000:84:00.0; do
_NAMES = re.compile(r"(?:(?:export|local|readonly)\s+)?\w+=|for\s+\w+\s+in\s")
_ACTS_ON_NAMED = re.compile(r"(?:/sys/bus/pci/|driver_override|driverctl|nodedev-).*\$|\$.*(?:/sys/bus/pci/|new_id)")
# A line with one plain command, on which no other line can depend.
_PLAIN_COMMAND = re.compile(
    r"""\s*(?:sudo\s+)?(?:(?:echo|printf)\s+(?:-n\s+)?["']?[\w.:, -]+["']?\s*>{1,2}\s*["']?[\w/.:-]+["']?"""
    r"""|(?:/usr)?(?:/sbin/)?modprobe\s+[\w -]+)\s*;?\s*(?:\#.*)?"""
)


def is_script(path: str, text: str) -> bool:
    """Whether a file contains commands or rules, by its path or its ``#!`` line."""
    directories = (_UDEV, _UNITS, _TMPFILES)
    is_named = path in _RC_LOCALS or path.startswith((*_CRON, *_INITRAMFS_SCRIPTS))
    return is_named or any(directory in path for directory in directories) or text.startswith("#!")


def runs(host: Host, path: str) -> bool:
    """Whether a script runs at boot: systemd's rc-local generator and initramfs-tools run only executable files."""
    if path in _RC_LOCALS or path.startswith(_INITRAMFS_SCRIPTS):
        return bool(int(host.files[path].mode, 8) & 0o111)
    return True


def acts(path: str, line: str) -> bool:
    """Whether a line may act on a device; all udev rules and tmpfiles.d lines count as acting."""
    return _UDEV in path or _TMPFILES in path or _ACTS.search(line) is not None


def traces(host: Host, targets: Targets, other: Elsewhere) -> Iterator[Trace]:
    """The lines that touch devices of the plan."""
    present = {(f.vendor, f.product) for f in host.pci}
    staying = tuple(kept_functions(host, targets))
    for path, text in other.texts.items():
        if not is_script(path, text) or (path == RC_LOCAL and text == other.texts.get(_RC_LOCALS[1])):
            continue  # on RHEL and derivatives, the first is a link to the second
        if ".wants/" in path:
            yield from _instance(path, targets)
            continue
        lines = text.split("\n")
        acts_on_named = any(_ACTS_ON_NAMED.search(line) for line in lines)
        for number, line in enumerate(lines, 1):
            code = line.strip()
            if not code or code.startswith(("#", ": #")):
                continue
            if not acts(path, code) and not _is_command(path, code) and not (acts_on_named and _NAMES.match(code)):
                continue
            lowered = code.lower()
            touches = _named_by(lowered)
            drivers = {driver for function, driver in targets.functions.values() if touches(function)}
            if not drivers and not _is_of_no_device(lowered, present):
                continue
            agrees = _means(lowered, drivers)
            stays = _why_not(path, lines, number) or binds_others(filter(touches, staying))
            part = Part.COMMAND if path in _RC_LOCALS else Part.LINE
            yield Trace(path=path, line=number, said=code, part=part, agrees=agrees, stays=stays)


def of_any_device(other: Elsewhere) -> Iterator[tuple[str, str]]:
    """Place and text of lines that bind devices which an administrator's script finds itself, as it names none."""
    for path, text in other.texts.items():
        if text.startswith("#!") and not path.startswith(("/lib/", "/usr/lib/")) and not _ADDRESS.search(text):
            for number, line in enumerate(text.split("\n"), 1):
                if {"$", ">"} <= set(line) and _BINDS.search(line) and not line.lstrip().startswith("#"):
                    yield f"{path}:{number}", line.strip()


def _instance(path: str, targets: Targets) -> Iterator[Trace]:
    """A unit instance that is enabled for an address: ``bind-vfio@0000:84:00.0.service``."""
    if any(address in path for address in targets.functions):
        unit = path.rpartition("/")[2]
        stays = f"systemctl disable {quoted(unit)}"
        yield Trace(path=path, line=0, said=unit, part=Part.FILE, agrees=False, stays=stays)


def _is_command(path: str, code: str) -> bool:
    """Whether a line of a unit or a cron table runs a program, which may act on devices in its arguments."""
    return path.startswith(_CRON) or (_UNITS in path and code.startswith("Exec"))


def _named_by(line: str) -> Callable[[Function], bool]:
    """Whether a line names a function: by address, by id, or in the match keys of a udev rule."""
    conditions = _conditions(line)
    addresses = set(re.findall(r"[0-9a-f.:]+", line))
    ids = set(_NEW_ID.findall(line))
    is_list = "new_id" in line or "ids=" in line
    with_any = [text for text in _WITH_ANY.findall(line) if _ANY in text] if is_list else []
    any_ids = Ids(driver="", text=",".join(with_any).replace(" ", ":"), place="")
    return lambda function: (
        function.address in line
        or function.address.removeprefix("0000:") in addresses
        or (function.vendor, function.product) in ids
        or any_ids.binds(function)
        or (bool(conditions) and all(_fits(function, name, value) for name, value in conditions))
    )


def _conditions(line: str) -> list[tuple[str, str]]:
    """The match keys of a udev rule that acts on devices: ``ATTR{vendor}=="0x10de"``.

    A rule for all devices of a vendor or class matters only if it binds, unbinds or removes them.
    """
    conditions = [(attribute or key.removesuffix("s"), value) for attribute, key, value in _CONDITION.findall(line)]
    known = [(name, value) for name, value in conditions if name in _ATTRIBUTES and (name != "kernel" or ":" in value)]
    is_exact = {"kernel", "device", "env{pci_id}", "env{pci_slot_name}"} & {name for name, _ in known}
    return known if (_ACTS if is_exact else _BINDS).search(line) else []


_ATTRIBUTES: dict[str, Callable[[Function], str]] = {
    "vendor": lambda f: f"0x{f.vendor}",
    "device": lambda f: f"0x{f.product}",
    "class": lambda f: f"0x{f.pci_class}",
    "subsystem_vendor": lambda f: f"0x{f.subsystem_vendor}",
    "subsystem_device": lambda f: f"0x{f.subsystem_product}",
    "kernel": lambda f: f.address,
    "env{pci_slot_name}": lambda f: f.address,
    "env{pci_id}": lambda f: f.ids,
}


def _fits(function: Function, name: str, value: str) -> bool:
    return any(fnmatchcase(_ATTRIBUTES[name](function), pattern) for pattern in value.split("|"))


def _is_of_no_device(line: str, present: set[tuple[str, str]]) -> bool:
    """Whether a line adds an id to pci-stub or vfio-pci that no device of the host has (typo, removed card)."""
    drivers = {canonical(name) for name in _DRIVER.findall(line)}
    ids = _NEW_ID.findall(line.partition(">")[0])
    return bool(ids) and "new_id" in line and drivers <= PASSTHROUGH and not set(ids) & present


def _means(line: str, wanted: set[str]) -> bool:
    """Whether a line only binds the devices that it names to their assigned driver."""
    if "unbind" in line or len(wanted) != 1:
        return False
    driver = canonical(next(iter(wanted)))
    drivers = {canonical(name) for name in _DRIVER.findall(line)}
    drivers |= {canonical(name) for name in BY_ID if "driver_override" in line and name in line}
    return drivers == {driver}


def _why_not(path: str, lines: list[str], number: int) -> str | None:
    """Why a line of a script can't be removed alone; None if it can."""
    if not path.startswith(_BY_LINE):
        return "the other purposes of this script are unknown"
    if lines[number - 1].endswith("\\") or (number > 1 and lines[number - 2].endswith("\\")):
        return "it is a part of a longer statement"
    if path in _RC_LOCALS and (any("<<" in line for line in lines) or not _PLAIN_COMMAND.fullmatch(lines[number - 1])):
        return "it is more than one plain command"
    return None
