"""Report which PCI functions the instances of a host use, as JSON.

The program runs under the host's own Python (3.6 or later, standard library only), sent over SSH. It reads two sources
that do not depend on Nova: libvirt's status files of running domains, and the processes that have a VFIO group or
device open.

    {"used": {"0000:81:00.0": ["UUID OF THE DOMAIN"]}, "unread": [["/run/libvirt/qemu/x.xml", "why"]],
     "functions": {"0000:81:00.0": "10de:11b4"}, "libvirt": true, "nova_compute": [4711],
     "age": 86400.5, "names": ["gpu01"]}

A user is an empty string if its domain is unknown. If ``unread`` is not empty, the answer is incomplete. ``functions``,
``libvirt`` and ``names`` identify the machine. ``nova_compute`` lists the processes of nova-compute, none of which is
older than ``age`` (in seconds; null if unknown).
"""

import glob
import json
import os
import re
import sys
from typing import Dict, List, Optional, Set, Tuple
from xml.etree import ElementTree

Used = Dict[str, Set[str]]
Unread = List[Tuple[str, str]]

STATUS = "run/libvirt/qemu"
# The kernel appends "(deleted)" to the path of an open file that was removed (fs/d_path.c).
_GROUP = re.compile(r"/dev/vfio/([0-9]+)(?: \(deleted\))?\Z")
_DEVICE = re.compile(r"/dev/vfio/devices/(vfio[0-9]+)(?: \(deleted\))?\Z")
_BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PARTS = ("domain", "bus", "slot", "function")
_BRIDGE = b"0x0604"


def from_libvirt(root: str, used: Used, unread: Unread) -> None:
    """Add the functions of running domains from libvirt's status files (``/run/libvirt/qemu/NAME.xml``)."""
    directory = os.path.join(root, STATUS)
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".xml"))
    except FileNotFoundError:
        return
    except OSError as error:
        unread.append((directory, error.strerror or str(error)))
        return
    for name in names:
        path = os.path.join(directory, name)
        try:
            tree = ElementTree.parse(path)  # noqa: S314 - libvirt's own file, in a directory that only root writes
        except FileNotFoundError:
            continue  # the domain ended meanwhile
        except (OSError, ElementTree.ParseError) as error:
            unread.append((path, str(error)))
            continue
        for domain in tree.iter("domain"):
            uuid = (domain.findtext("uuid") or "").strip()
            for interface in domain.iter("interface"):
                for function in _of_interface(root, interface):
                    used.setdefault(function, set()).add(uuid)
            for source in domain.iter("source"):
                for address in source.findall("address"):
                    numbers = [address.get(part) for part in _PARTS]
                    if all(numbers):
                        used.setdefault(_address(numbers), set()).add(uuid)
                    elif address.get("uuid"):
                        mdev = os.path.join(root, "sys/bus/mdev/devices", os.path.basename(address.get("uuid", "")))
                        used.setdefault(_card_of(mdev), set()).add(uuid)
                        if not os.path.exists(mdev):
                            unread.append((mdev, "the card of this mediated device is not known"))


def _of_interface(root: str, interface: ElementTree.Element) -> Set[str]:
    """Return the virtual function of an interface that is not a hostdev: macvtap in passthrough mode, or vDPA.

    The kernel does not show these as VFIO devices.
    """
    source = interface.find("source")
    name = os.path.basename(source.get("dev", "")) if source is not None else ""
    if source is None or not name:
        return set()
    if interface.get("type") == "vdpa":
        links = glob.glob(os.path.join(root, "sys/bus/vdpa/devices/*", glob.escape(name)))
    elif interface.get("type") == "direct" and source.get("mode") == "passthrough":
        links = [os.path.join(root, "sys/class/net", name, "device")]
    else:
        return set()
    return {address for link in links for address in _BDF.findall(os.path.realpath(link))[-1:]}


def _address(numbers: List) -> str:  # type: ignore[type-arg]
    domain, bus, slot, function = (int(number, 0) for number in numbers)
    return "%04x:%02x:%02x.%x" % (domain, bus, slot, function)


def from_kernel(root: str, used: Used, unread: Unread) -> None:
    """Add the functions of every VFIO group or device that a process has open (``/proc/PID/fd``)."""
    proc = os.path.join(root, "proc")
    pids = [name for name in sorted(os.listdir(proc)) if name.isdecimal()]
    if "1" not in pids:  # process 1 always exists; with hidepid=2, /proc lists only the user's own processes
        unread.append((proc, "the processes of other users are hidden"))
    for pid in pids:
        directory = os.path.join(proc, pid, "fd")
        try:
            links = os.listdir(directory)
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process ended meanwhile
        except OSError as error:
            unread.append((directory, error.strerror or str(error)))
            continue
        addresses = set()  # type: Set[str]
        for link in links:
            try:
                addresses |= _functions(root, os.readlink(os.path.join(directory, link)), unread)
            except OSError:
                continue  # closed meanwhile
        for address in addresses:
            used.setdefault(address, set()).add(_domain_of(os.path.join(proc, pid, "cmdline")))


def _functions(root: str, target: str, unread: Unread) -> Set[str]:
    """Return the functions behind the target of an open file; none if it is not a VFIO file."""
    device = _DEVICE.match(target)
    if device:
        return {_card_of(os.path.join(root, "sys/class/vfio-dev", device.group(1), "device"))}
    group = _GROUP.match(target)
    if not group:
        return set()
    directory = os.path.join(root, "sys/kernel/iommu_groups", group.group(1), "devices")
    try:
        devices = [os.path.join(directory, name) for name in os.listdir(directory)]
        return {_card_of(d) for d in devices if not _read(os.path.join(d, "class")).startswith(_BRIDGE)}
    except OSError as error:
        unread.append((directory, error.strerror or str(error)))
        return set()


def _card_of(device: str) -> str:
    """Return the PCI function of a sysfs device; for a mediated device (mdev), that of its card."""
    if _BDF.match(os.path.basename(device)):
        return os.path.basename(device)
    addresses = _BDF.findall(os.path.realpath(device))  # type: List[str]
    return addresses[-1] if addresses else os.path.basename(device)


def _domain_of(path: str) -> str:
    """Return the domain's UUID from QEMU's command line; empty if there is none."""
    arguments = _read(path).split(b"\0")
    if b"-uuid" in arguments[:-1]:
        return arguments[arguments.index(b"-uuid") + 1].decode("ascii", "replace")
    return ""


def _read(path: str) -> bytes:
    """Return the content of a file; empty if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def functions(root: str) -> Dict[str, str]:
    """Return vendor and product of every PCI function, by address."""
    directory = os.path.join(root, "sys/bus/pci/devices")
    models = {}
    for address in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        try:
            models[address] = ":".join(_number(os.path.join(directory, address, name)) for name in ("vendor", "device"))
        except OSError:
            continue  # the function is gone
    return models


def _number(path: str) -> str:
    with open(path, encoding="ascii") as stream:
        return stream.read().strip()[2:].lower()


def nova_compute(root: str) -> List[int]:
    """Return the processes of nova-compute, in containers too: the program itself, or an interpreter that runs it."""
    proc = os.path.join(root, "proc")
    processes = []
    for pid in os.listdir(proc):
        if pid.isdecimal():
            arguments = _read(os.path.join(proc, pid, "cmdline")).split(b"\0")
            is_python = b"python" in os.path.basename(arguments[0])
            programs = (
                [argument for argument in arguments if not argument.startswith(b"-")][:3]
                if is_python
                else arguments[:1]
            )
            # Without its script, nova-compute is started as a module: python3 -m nova.cmd.compute.
            if any(os.path.basename(argument) in (b"nova-compute", b"nova.cmd.compute") for argument in programs):
                processes.append(int(pid))
    return sorted(processes)


def age(root: str) -> Optional[float]:
    """Return the seconds since the oldest nova-compute process started, or since boot if none runs; None if unknown.

    Uses the kernel's time since boot, because the host's clock may be wrong.
    """
    try:
        with open(os.path.join(root, "proc/uptime"), encoding="ascii") as stream:
            uptime = float(stream.read().split()[0])
        ticks = []
        for pid in nova_compute(root):
            with open(os.path.join(root, "proc", str(pid), "stat"), encoding="utf-8", errors="replace") as stream:
                # The program's name is in parentheses and may contain any; the start time is field 22 of all.
                ticks.append(int(stream.read().rpartition(")")[2].split()[19]))
    except (OSError, ValueError, IndexError):
        return None
    return uptime - min(ticks) / os.sysconf("SC_CLK_TCK") if ticks else uptime


def names(root: str) -> List[str]:
    """Return the machine's hostname and the other names on its line of /etc/hosts."""
    name = _read(os.path.join(root, "proc/sys/kernel/hostname")).decode("utf-8", "replace").strip()
    hostnames = {name}
    for line in _read(os.path.join(root, "etc/hosts")).decode("utf-8", "replace").split("\n"):
        others = line.partition("#")[0].split()[1:]
        if name in others:
            hostnames.update(other for other in others if not other.startswith("localhost"))
    return sorted(filter(None, hostnames))


def look(root: str = "/") -> Dict[str, object]:
    """Return the answer of both sources, and the data that identify the machine."""
    used, unread = {}, []  # type: Used, Unread
    from_libvirt(root, used, unread)
    from_kernel(root, used, unread)
    for users in used.values():
        if len(users) > 1:
            users.discard("")  # the unknown process belongs to the domain that libvirt names
    return {
        "used": {address: sorted(users) for address, users in sorted(used.items())},
        "unread": unread,
        "functions": functions(root),
        "libvirt": os.path.isdir(os.path.join(root, STATUS)),
        "nova_compute": nova_compute(root),
        "age": age(root),
        "names": names(root),
    }


if __name__ == "__main__":
    json.dump(look(*sys.argv[2:3]), sys.stdout)  # --root DIR, as for the program that scans a host
