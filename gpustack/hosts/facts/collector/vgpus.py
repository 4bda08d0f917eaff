"""vGPUs of a function: the types that its driver supports, mediated devices, and GPU instances (MIG).

Since Linux 6.8, NVIDIA's driver has a directory ``nvidia`` on virtual functions, whose ``creatable_vgpu_types`` lists
the types that it can create at present, and whose ``current_vgpu_type`` is 0 without a type (NVIDIA Virtual GPU
Software User Guide, Creating an NVIDIA vGPU on a Linux with KVM Hypervisor that Uses a Vendor-Specific VFIO Framework).
Other drivers create mediated devices (``Documentation/driver-api/vfio-mediated-device.rst``).
"""

import re
from typing import Any, Dict, List, Optional

from .limits import TEXT_LIMIT, VALUE_LIMIT
from .reader import HostRoot

RECORD = "/run/gpustack/virtual-functions"
"""The record of the unit that prepares cards at boot. Only NVIDIA's program knows the MIG mode; the unit runs it."""
MOST_TYPES = 4096
# libvirt's domains, also of a container by Kolla. They can contain passwords: only devices are collected.
DOMAINS = (
    "/etc/libvirt/qemu",
    "/var/lib/docker/volumes/nova_libvirt_qemu/_data",
    "/var/lib/containers/storage/volumes/nova_libvirt_qemu/_data",
)
_DIRECTORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}")
_TYPE = re.compile(r"\s*([0-9]{1,9})\s*:?\s+(\S.*?)\s*")
_NUMBER = re.compile(r"[0-9]{1,9}")
_MEMORY = re.compile(r"framebuffer=([0-9]{1,9})M")
_MOST = re.compile(r"max_instance=([0-9]{1,9})")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DOMAIN_UUID = re.compile(r"<uuid>(%s)</uuid>" % _UUID.pattern)
_SOURCE = re.compile(r"<hostdev [^>]*>(?:(?!</hostdev>).)*?<source[^>]*>\s*(<address [^>]*>)", re.DOTALL)
_ATTRIBUTE = re.compile(r"\b(domain|bus|slot|function|uuid)='(?:0x)?([0-9a-f-]{1,36})'")
_VIRTUAL = re.compile(r"virtfn[0-9]{1,5}")
_MINOR = re.compile(r"Device Minor:\s*([0-9]+)")
_INSTANCE = re.compile(r"gi([0-9]{1,4})")
_MODE = re.compile(r"(\S+) MIG mode (Enabled|Disabled), pending (Enabled|Disabled)")
_PROFILE = re.compile(r"(\S+) GPU instance ([0-9]{1,4}) of ([\w.+-]{1,64}) at ([0-9]{1,4}:[0-9]{1,4})")


def vgpus(host: HostRoot, base: str, names: List[str], driver: Optional[str]) -> Dict[str, Any]:
    """The vGPUs of a function.

    :param base: its directory.
    :param names: the names in the directory.
    """
    types: List[Dict[str, Any]] = []
    framework = current = None
    parts = [base + "/" + name for name in names if _VIRTUAL.fullmatch(name)]
    if "mdev_supported_types" in names:
        framework, types = "mdev", mediated_types(host, base + "/mdev_supported_types")
    elif "nvidia" in names:
        framework, current = "vfio", host.word(base + "/nvidia/current_vgpu_type", _NUMBER)
    elif driver == "nvidia" and parts:
        types = creatable_types(host, parts)
    return {
        "vgpu_framework": framework,
        "vgpu_types": types,
        "vgpu_type": current if current != "0" else None,
        "mediated_devices": [mediated_device(host, base, name) for name in names if _UUID.fullmatch(name)],
        "mig": mig(host, base.rpartition("/")[2]) if driver == "nvidia" else None,
    }


def mediated_types(host: HostRoot, directory: str) -> List[Dict[str, Any]]:
    """The types of mediated devices that a driver supports: a directory each."""
    types: List[Dict[str, Any]] = []
    for number in host.names(directory):
        if not _DIRECTORY.fullmatch(number) or len(types) == MOST_TYPES:
            host.note(f"{directory}/{number[:128]}", "left out: not a type, or one too many")
            continue
        description = host.text(f"{directory}/{number}/description", VALUE_LIMIT) or ""
        memory, most = _MEMORY.search(description), _MOST.search(description)
        entry = {
            "number": number,
            "name": host.value(f"{directory}/{number}/name") or None,
            "available": host.number(f"{directory}/{number}/available_instances"),
            "memory_mib": int(memory.group(1)) if memory else None,
            "of_card": int(most.group(1)) if most else None,
        }
        types.append(entry)
    return types


def creatable_types(host: HostRoot, parts: List[str]) -> List[Dict[str, Any]]:
    """The types that NVIDIA's driver can create on at least one of the virtual functions, by number."""
    types: Dict[str, Dict[str, Any]] = {}
    for part in parts:
        path = part + "/nvidia/creatable_vgpu_types"
        text = host.text(path, VALUE_LIMIT) or ""
        for line in text.splitlines()[: -1 if len(text) >= VALUE_LIMIT else None]:  # the last one is incomplete
            match = _TYPE.fullmatch(line)
            if match and match.group(2).isprintable():
                types.setdefault(match.group(1), {"number": match.group(1), "name": match.group(2)})
            elif match:
                host.note(path, "unexpected content")
    return [types[number] for number in sorted(types, key=int)]


def mediated_device(host: HostRoot, base: str, uuid: str) -> Dict[str, Any]:
    """An active mediated device with its type; its user is found later, by its group."""
    kind = (host.link(f"{base}/{uuid}/mdev_type") or "").rpartition("/")[2]
    return {"uuid": uuid, "type": kind if _DIRECTORY.fullmatch(kind) else None, "user": None}


def domains(host: HostRoot, functions: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The domains that libvirt has defined, running or not, with their mediated devices and virtual functions.

    A function that the host lacks may be a virtual one.
    """
    physical = {entry["address"] for entry in functions if not entry["physical_function"]}
    found: List[Dict[str, Any]] = []
    for path in (f"{base}/{name}" for base in DOMAINS for name in host.names(base) if name.endswith(".xml")):
        text = host.text(path, TEXT_LIMIT) or ""
        uuid, sources = _DOMAIN_UUID.search(text), (dict(_ATTRIBUTE.findall(part)) for part in _SOURCE.findall(text))
        known = [of for of in sources if "uuid" in of or len(of) == 4]
        names = [of.get("uuid") or "{domain}:{bus}:{slot}.{function}".format(**of) for of in known]
        devices = [name for name in names if name not in physical]
        if uuid and devices and len(found) < MOST_TYPES:
            found.append({"uuid": uuid.group(1), "devices": devices[:MOST_TYPES]})
    return found


def nvidia_minor(host: HostRoot, address: str) -> Optional[str]:
    """The minor number of a GPU's device node, if NVIDIA's driver serves it."""
    match = _MINOR.search(host.text("/proc/driver/nvidia/gpus/%s/information" % address, VALUE_LIMIT) or "")
    return match.group(1) if match else None


def mig(host: HostRoot, address: str) -> Optional[Dict[str, Any]]:
    """MIG mode and GPU instances of a GPU; ``None`` if its driver does not report them.

    The driver lists the instances (NVIDIA, Multi-Instance GPU User Guide, Device Nodes and Capabilities); modes and
    profiles are from the unit's last start.
    """
    minor = nvidia_minor(host, address)
    if minor is None:
        return None
    names = map(_INSTANCE.fullmatch, host.names("/proc/driver/nvidia/capabilities/gpu%s/mig" % minor))
    numbers = sorted(int(match.group(1)) for match in names if match)
    modes: List[Optional[bool]] = [None, None]
    profiles: Dict[int, Any] = {}
    for line in (host.text(RECORD) or "").splitlines():
        mode, profile = _MODE.fullmatch(line), _PROFILE.fullmatch(line)
        if mode and mode.group(1) == address:
            modes = [word == "Enabled" for word in mode.group(2, 3)]
            profiles = {}  # each start lists all of them
        elif profile and profile.group(1) == address:
            profiles[int(profile.group(2))] = profile.group(3, 4)
    known = (profiles.get(number, (None, None)) for number in numbers)
    instances = [{"profile": name, "placement": place} for name, place in known]
    return {"current": modes[0], "pending": modes[1], "instances": instances}
