"""Current users of a card: processes, instances, consoles, sound, mounts, interfaces. They prevent an unbind."""

import errno
import os
import re
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from .addresses import PCI
from .class_devices import ANY, CARD, class_devices
from .limits import TABLE_LIMIT, VALUE_LIMIT
from .reader import HostRoot
from .vgpus import nvidia_minor

GPU_BASE = ("03", "12")
NVSWITCH = ("10de", "0680")
FOR_GUESTS = re.compile(r"vfio.*|.*vfio[_-]pci|pci-stub|pcieport")
_NODE = re.compile(r"(?:card|renderD|fb)[0-9]+")
_DEVICE_NODE = re.compile(r"/dev/(?:dri|snd|nvidia|kfd|fb|vfio/)")
_VFIO = "/dev/vfio/"
# The kernel appends this to the path of an open file that was removed (fs/d_path.c), as in libvirt's private /dev.
_REMOVED = " (deleted)"
_GUEST = re.compile(r"(?:guest=)?([\w.-]{1,128})(?:,.*)?")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def near_gpus(functions: List[Dict[str, Any]]) -> Set[str]:
    """The addresses of GPUs and NVSwitches, and of functions in the same slot or IOMMU group."""
    mains = [
        entry
        for entry in functions
        if entry["class"].startswith(GPU_BASE) or (entry["vendor"], entry["class"][:4]) == NVSWITCH
    ]
    slots = {entry["address"].rpartition(".")[0] for entry in mains}
    groups = {entry["iommu_group"] for entry in mains} - {None}
    return {
        entry["address"]
        for entry in functions
        if entry["address"].rpartition(".")[0] in slots or entry["iommu_group"] in groups
    }


def device_nodes(host: HostRoot, functions: List[Dict[str, Any]]) -> Dict[str, Set[str]]:
    """The addresses of the functions behind each device node, by the node's path.

    NVIDIA's control nodes and ``/dev/kfd`` are assigned to all cards of the driver, because the card that a process
    uses is unknown.
    """
    nodes: Dict[str, Set[str]] = {}

    def add(node: str, addresses: Iterable[str]) -> None:
        nodes.setdefault(node, set()).update(addresses)

    for kind, prefix, names in (("drm", "/dev/dri/", _NODE), ("graphics", "/dev/", _NODE), ("sound", "/dev/snd/", ANY)):
        for name, _path, address in class_devices(host, "/sys/class/" + kind, names):
            add(prefix + name, [address])
    virtual = [entry for entry in functions if entry["physical_function"]]
    for entry in virtual:
        if entry["iommu_group"] is not None:
            add(f"{_VFIO}{entry['iommu_group']}", [entry["address"]])
        for name in host.names(f"{PCI}/{entry['address']}/vfio-dev"):
            add(f"{_VFIO}devices/{name}", [entry["address"]])
    for device in (device for entry in functions for device in entry["mediated_devices"]):
        base = "/sys/bus/mdev/devices/" + device["uuid"]
        add(_VFIO + (host.link(base + "/iommu_group") or "").rpartition("/")[2], [device["uuid"]])
        for name in host.names(base + "/vfio-dev"):
            add(f"{_VFIO}devices/{name}", [device["uuid"]])
    # On virtual functions, NVIDIA's driver serves vGPUs: its nodes are those of the card.
    cards = [entry for entry in functions if entry not in virtual]
    nvidia = {entry["address"] for entry in cards if (entry["driver"] or "").startswith("nvidia")}
    minors = set()
    for address in sorted(nvidia):
        minor = nvidia_minor(host, address)
        if minor:
            minors.add(minor)
            add("/dev/nvidia" + minor, [address])
    add("/dev/nvidia", nvidia)  # for all nodes that are not specific to one card
    add("/dev/kfd", (entry["address"] for entry in functions if entry["driver"] == "amdgpu"))
    return nodes


def behind(node: str, nodes: Dict[str, Set[str]]) -> Set[str]:
    """The addresses of the functions behind a device node."""
    if node in nodes:
        return nodes[node]
    return nodes["/dev/nvidia"] if node.startswith("/dev/nvidia") else set()


def open_nodes(host: HostRoot, process: str) -> Optional[Set[str]]:
    """The device nodes that a process has open or mapped; ``None`` if they could not be read."""
    nodes = set()
    try:
        for name in os.listdir(host._real(f"/proc/{process}/fd")):
            try:
                target = os.readlink(host._real(f"/proc/{process}/fd/{os.fsdecode(name)}", follow=False))
            except OSError:
                continue  # closed in the meantime
            nodes.add(os.fsdecode(target))
        maps = host._read(f"/proc/{process}/maps", TABLE_LIMIT)
        nodes.update(line.split(None, 5)[5] for line in os.fsdecode(maps).splitlines() if " /dev/" in line)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESRCH, errno.ENOTDIR):
            return None
    nodes = {node[: -len(_REMOVED)] if node.endswith(_REMOVED) else node for node in nodes}
    return {node for node in nodes if _DEVICE_NODE.match(node)}


def processes(host: HostRoot, nodes: Dict[str, Set[str]]) -> Tuple[Dict[str, List[str]], bool]:
    """The processes with open nodes, by function; and whether all processes could be inspected."""
    by_function: Dict[str, List[str]] = {}
    complete = True
    for process in sorted((name for name in host.names("/proc") if name.isdecimal()), key=int):
        opened = open_nodes(host, process)
        if opened is None:
            complete = False
            continue
        for node in sorted(opened):
            for address in behind(node, nodes):
                user = instance(host, process) if node.startswith(_VFIO) else None
                if user is None:
                    name = host.value(f"/proc/{process}/comm") or "?"
                    user = f"process {name} ({process}) has {node} open"
                users = by_function.setdefault(address, [])
                if user not in users:  # an instance can have several nodes of a function open
                    users.append(user)
    return by_function, complete


def instance(host: HostRoot, process: str) -> Optional[str]:
    """The instance that a process of QEMU runs, by the name and the UUID of its domain; ``None`` without a UUID."""
    arguments = (host.text(f"/proc/{process}/cmdline") or "").split("\0")
    name, uuid = (argument_after(option, arguments) for option in ("-name", "-uuid"))
    guest = _GUEST.fullmatch(name)
    if not _UUID.fullmatch(uuid):
        return None
    return f"instance {uuid}" + (f" ({guest.group(1)})" if guest else "")


def argument_after(option: str, arguments: List[str]) -> str:
    """The argument after an option; empty if there is none."""
    return arguments[arguments.index(option) + 1] if option in arguments[:-1] else ""


def consoles(host: HostRoot, functions: List[Dict[str, Any]]) -> Iterator[Tuple[str, str]]:
    """The functions that display the kernel's console, each with a description.

    The kernel puts the frame buffer console on the frame buffer of the primary display, else on the first one
    (``drivers/video/fbdev/core/fbcon.c``); with ``fbcon=map:``, on any.
    """
    primary = {entry["address"] for entry in functions if entry["boot_vga"]}
    bound = [
        host.value(f"/sys/class/vtconsole/{name}/name") or ""
        for name in host.names("/sys/class/vtconsole")
        if host.value(f"/sys/class/vtconsole/{name}/bind") == "1"
    ]
    if any("frame buffer" in name for name in bound):
        names = [name for name in host.names("/sys/class/graphics") if re.fullmatch(r"fb[0-9]+", name)]
        names.sort(key=lambda name: int(name[2:]))
        owner = {name: address for name, _path, address in class_devices(host, "/sys/class/graphics", _NODE)}
        if "fbcon=map:" not in (host.value("/proc/cmdline") or ""):
            names = [name for name in names if owner.get(name) in primary] or names[:1]
        for name in names:
            if name in owner:
                yield owner[name], f"the host's console is on {name}"
    if any("VGA" in name for name in bound):
        for address in sorted(primary):
            yield address, "the host's text console is on it"


def sounding(host: HostRoot) -> Set[str]:
    """The sound cards (``card0``) that play or record."""
    cards = set()
    for card in host.names("/proc/asound"):
        if not CARD.fullmatch(card):
            continue
        for stream in host.names("/proc/asound/" + card):
            if stream.startswith("pcm"):
                for sub in host.names(f"/proc/asound/{card}/{stream}"):
                    state = host.text(f"/proc/asound/{card}/{stream}/{sub}/status", VALUE_LIMIT)
                    if state is not None and state.strip() != "closed":
                        cards.add(card)
    return cards


def storage_in_use(host: HostRoot) -> Iterator[Tuple[str, str]]:
    """The functions whose disks are mounted, used as swap, or part of another device, each with a description."""
    table = host.text("/proc/1/mountinfo")
    mounted: Dict[str, str] = {}
    for line in ((host.text("/proc/self/mountinfo") if table is None else table) or "").splitlines():
        words = line.split()
        if len(words) > 4:
            mounted.setdefault(words[2], words[4])
    swaps = {line.split()[0] for line in (host.text("/proc/swaps") or "").splitlines()[1:] if line.split()}
    for name, _path, address in class_devices(host, "/sys/class/block", ANY):
        number = host.value(f"/sys/class/block/{name}/dev")
        if number in mounted:
            yield address, f"{name} is mounted on {mounted[number]}"
        if "/dev/" + name in swaps:
            yield address, f"{name} is swapped to"
        for holder in host.names(f"/sys/class/block/{name}/holders"):
            yield address, f"{name} is a part of {holder}"


def holders(host: HostRoot, functions: List[Dict[str, Any]]) -> Dict[str, Optional[List[str]]]:
    """The current users of functions in slots and groups of GPUs, and of virtual functions, by address.

    An unbind would hang or break them. Functions without a driver are left out, and physical functions without a host
    driver. ``None`` if the users of a function are unknown.
    """
    near = near_gpus(functions)
    held = [
        entry
        for entry in functions
        if entry["driver"]
        and (entry["physical_function"] or (entry["address"] in near and not FOR_GUESTS.fullmatch(entry["driver"])))
    ]
    if not held:
        return {}
    by_address: Dict[str, List[str]] = {entry["address"]: [] for entry in held}
    by_process, complete = processes(host, device_nodes(host, functions))
    for device in (device for entry in functions for device in entry["mediated_devices"]):
        users = by_process.get(device["uuid"], [])
        device["user"] = ", ".join(users) or (None if complete else "its users are unknown")
    playing = sounding(host)
    others = [*consoles(host, functions), *storage_in_use(host)]
    for entry in held:
        about = by_address[entry["address"]]
        about += by_process.get(entry["address"], [])
        about += [use for address, use in others if address == entry["address"]]
        uses = entry["uses"]
        about += [f"sound {card} is playing or recording" for card in uses.get("sound", []) if card in playing]
        about += [f"a {device} is plugged into it" for device in uses.get("usb", [])]
        for interface in uses.get("net", []):
            flags = host.value(f"/sys/class/net/{interface['name']}/flags")
            if interface["state"] == "up" or (flags and re.fullmatch(r"0x[0-9a-f]+", flags) and int(flags, 16) & 1):
                about.append(f"the interface {interface['name']} is up")
        if entry["sriov_numvfs"]:
            about.append(f"virtual functions are enabled: {entry['sriov_numvfs']}")
    return {address: about if complete or about else None for address, about in by_address.items()}
