"""The host's name, distribution, processors and memory."""

import os
import re
import struct
from typing import Any, Dict, List, Optional

from .limits import CONTROL, HOST_NAME, LINE_LIMIT, MODULE_NAME, TEXT_LIMIT, VALUE_LIMIT
from .reader import HostRoot


def hostname(host: HostRoot) -> Optional[str]:
    """The host name of the running system; in another root, the name in its ``/etc/hostname``."""
    if host.running:
        return host.word("/proc/sys/kernel/hostname", HOST_NAME)
    for line in (host.text("/etc/hostname", VALUE_LIMIT) or "").splitlines():  # hostname(5): comments are allowed
        name = line.strip()
        if name and not name.startswith("#"):
            if HOST_NAME.fullmatch(name):
                return name
            host.note("/etc/hostname", "unexpected content")
    return host.word("/proc/sys/kernel/hostname", HOST_NAME)


# e_machine of an ELF header (System V ABI). ppc64 is little endian on hosts of Nova's libvirt driver.
ELF_MACHINES = {3: "i686", 21: "ppc64le", 22: "s390x", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


def architecture(host: HostRoot) -> Optional[str]:
    """The machine's architecture, as ``uname -m`` prints it."""
    if host.running:
        return os.uname().machine
    kernel_name = host.word("/proc/sys/kernel/arch", MODULE_NAME)
    if kernel_name:
        return kernel_name
    for path in ("/usr/bin/env", "/bin/sh", "/usr/bin/python3"):
        header = host.head(path, 20) or b""
        if len(header) == 20 and header[:4] == b"\x7fELF":
            order = "<H" if header[5] == 1 else ">H"
            return ELF_MACHINES.get(struct.unpack(order, header[18:20])[0])
    return None


def os_release(host: HostRoot) -> Dict[str, str]:
    """``os-release(5)``: the fields of ``/etc/os-release``, else of ``/usr/lib/os-release``."""
    text = host.text("/etc/os-release", TEXT_LIMIT)
    if text is None:
        text = host.text("/usr/lib/os-release", TEXT_LIMIT) or ""
    fields = {}
    for line in text.splitlines():
        match = re.fullmatch(r"\s*([A-Z][A-Z0-9_]*)=(.*?)\s*", line)
        if not match or CONTROL.search(match.group(2)) or len(line) > LINE_LIMIT:
            continue
        value = match.group(2)
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            quote = value[0]
            value = value[1:-1]
            if quote == '"':
                value = re.sub(r'\\(["$`\\])', r"\1", value)
        fields[match.group(1)] = value
    return fields


_FIRST_PROCESSES = "pid:[4026531836]"
"""The namespace of the host's own processes: ``PROC_PID_INIT_INO`` of ``include/linux/proc_ns.h``, since Linux 3.8."""


def container(host: HostRoot) -> Optional[str]:
    """The container type (``docker``, ``podman``, ``lxc``, ...); ``None`` if no container was detected.

    Detected as in ``systemd-detect-virt`` (``src/basic/virt.c``): by ``/run/systemd/container``, the files of Docker
    and Podman, and the variable ``container`` of process 1; then by the control group of process 1. A virtual machine
    whose root file system was made from a container image has these files too, so none counts in the host's own root
    directory.
    """
    if _in_first_root(host):
        return None
    name_pattern = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
    name = host.word("/run/systemd/container", name_pattern)
    if name:
        return name
    if host.exists("/run/.containerenv"):
        return "podman"
    if host.exists("/.dockerenv"):
        return "docker"
    environment = host.data("/proc/1/environ", TEXT_LIMIT) or b""
    for entry in environment.split(b"\0"):
        if entry.startswith(b"container="):
            value = entry[len(b"container=") :].decode("utf-8", "replace")
            if name_pattern.fullmatch(value):
                return value
    groups = host.text("/proc/1/cgroup", TEXT_LIMIT) or ""
    match = re.search(r"/(lxc|docker|kubepods|libpod)\b", groups)
    return {"libpod": "podman", "kubepods": "kubernetes"}.get(match.group(1), match.group(1)) if match else None


def _in_first_root(host: HostRoot) -> bool:
    """Whether this process sees the processes of the host, and has the root mount of the first of them."""
    if not host.running or host.link("/proc/self/ns/pid") != _FIRST_PROCESSES:
        return False
    first, own = (_root_mount(host.text("/proc/{}/mountinfo".format(name)) or "") for name in ("1", "self"))
    return first is not None and first == own


def _root_mount(mounts: str) -> Optional[str]:
    """The mount id, a number that no other mount has, of the mount at ``/`` (``proc_pid_mountinfo(5)``)."""
    ids = [fields[0] for fields in map(str.split, mounts.splitlines()) if len(fields) > 4 and fields[4] == "/"]
    return ids[-1] if ids else None


def machine(host: HostRoot) -> Dict[str, Optional[str]]:
    """Vendor and product from the firmware's DMI tables, else the model in the device tree."""
    vendor = host.value("/sys/class/dmi/id/sys_vendor") or None
    product = host.value("/sys/class/dmi/id/product_name") or None
    if vendor is None and product is None:
        product = host.value("/proc/device-tree/model") or None
    return {"vendor": vendor, "product": product}


def count_range(text: str) -> Optional[int]:
    """The number of elements of a kernel list such as ``0-31,64-95``."""
    total = 0
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", part.strip())
        if not match:
            return None
        total += int(match.group(2) or match.group(1)) - int(match.group(1)) + 1
    return total


CPU_FLAGS = ("vmx", "svm", "ept", "npt", "hypervisor")


def cpu(host: HostRoot) -> Dict[str, Any]:
    """The first processor in ``/proc/cpuinfo``, and the number of online processors."""
    # The start of the file is enough: reading on makes the kernel query each further processor.
    first = host.head("/proc/cpuinfo", 65536) or b""
    fields: Dict[str, str] = {}
    for line in first.decode("utf-8", "replace").splitlines():
        key, colon, value = line.partition(":")
        if colon and not CONTROL.search(value.strip()):
            fields.setdefault(key.strip(), value.strip()[:LINE_LIMIT])
    bits = re.match(r"([0-9]{1,3}) bits physical, ([0-9]{1,3}) bits virtual", fields.get("address sizes", ""))
    flags = set(fields.get("flags", "").split()) | set(fields.get("vmx flags", "").split())
    online = host.value("/sys/devices/system/cpu/online")
    processors = 0 if online else len(re.findall(r"^processor\s*:", host.text("/proc/cpuinfo") or "", re.MULTILINE))
    return {
        "vendor": fields.get("vendor_id") or None,
        "model_name": fields.get("model name") or None,
        "physical_address_bits": int(bits.group(1)) if bits else None,
        "virtual_address_bits": int(bits.group(2)) if bits else None,
        "logical": count_range(online) if online else processors or None,
        "flags": [flag for flag in CPU_FLAGS if flag in flags],
    }


def memory_mib(text: Optional[str]) -> Optional[int]:
    """``MemTotal`` of a ``meminfo`` file, in MiB."""
    match = re.search(r"\bMemTotal:\s*([0-9]{1,15}) kB", text or "")
    return int(match.group(1)) // 1024 if match else None


def huge_pages(host: HostRoot, base: str) -> List[Dict[str, Optional[int]]]:
    """The pools of huge pages of a NUMA node, by size in KiB; empty if the kernel has no huge pages."""
    sizes = (re.fullmatch(r"hugepages-([0-9]{1,12})kB", name) for name in host.names(base))
    pools = (
        {
            "size_kib": int(size.group(1)),
            "total": host.number(f"{base}/{size.group(0)}/nr_hugepages"),
            "free": host.number(f"{base}/{size.group(0)}/free_hugepages"),
        }
        for size in sizes
        if size
    )
    return sorted(pools, key=lambda pool: pool["size_kib"] or 0)


def numa_nodes(host: HostRoot) -> List[Dict[str, Any]]:
    """The NUMA nodes with their processors and memory."""
    base = "/sys/devices/system/node"
    nodes = []
    for name in host.names(base):
        if re.fullmatch(r"node[0-9]{1,6}", name):
            path = f"{base}/{name}"
            nodes.append(
                {
                    "node": int(name[4:]),
                    "cpus": host.value(path + "/cpulist"),
                    "memory_mib": memory_mib(host.text(path + "/meminfo", TEXT_LIMIT)),
                    "huge_pages": huge_pages(host, path + "/hugepages"),
                }
            )
    return sorted(nodes, key=lambda node: node["node"])
