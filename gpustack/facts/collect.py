#!/usr/bin/env python3
"""Read everything that GPU passthrough depends on from one host and print it as JSON.

One file, standard library only, Python 3.6 or later, so that it runs on a host's own Python, from a file or
from standard input::

    python3 collect.py [--root DIR]
    python3 - < collect.py

It executes nothing and writes nothing. ``--root`` reads another directory as if it were ``/`` (a mounted disk,
a copied tree); its symbolic links are resolved inside it, so nothing outside it is ever read.

What the result means:

* A scalar that could not be read, or that does not exist, is ``null``. A list or mapping is empty instead.
* Whatever exists but could not be read (no permission, input/output error, unexpected content, too large) is
  listed in ``unread``, with its path as seen from the root. A path that does not exist is no failure.
* A PCI function that goes away while it is read is left out, and noted in ``unread``.

Sources of the facts: ``Documentation/ABI/testing/sysfs-bus-pci``, ``sysfs-class-iommu`` and
``sysfs-kernel-iommu_groups`` of the Linux kernel for sysfs; the Boot Loader Specification for ``loader/entries``;
PCI Express Base Specification 7.9.3 for the Device Serial Number capability; UEFI 2.10, 3.3 for ``SecureBoot``.
"""

import bisect
import errno
import fnmatch
import json
import os
import re
import stat
import struct
import sys
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Pattern, Set, Tuple

Reader = Callable[[int, int], bytes]

VERSION = 1

VALUE_LIMIT = 4096  # a sysfs attribute is one page at most (kernel: Documentation/filesystems/sysfs.rst)
TEXT_LIMIT = 256 * 1024  # a configuration file
TABLE_LIMIT = 32 * 1024 * 1024  # modules.alias, modules.dep, /proc/interrupts, grub.cfg
LINE_LIMIT = 16384
LINK_LIMIT = 40  # as the kernel's MAXSYMLINKS

PCI = "/sys/bus/pci/devices"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
CONTROL_BUT_TAB = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
MODULE_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}")
HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,253}")

# Modules whose presence in a kernel decides what a plan may name; names with "vfio_pci" in them (variant drivers
# such as nvgrace_gpu_vfio_pci or mlx5_vfio_pci) and the candidates of the GPUs' own functions come on top.
PASSTHROUGH_MODULES = ("vfio", "vfio_pci", "vfio_pci_core", "vfio_iommu_type1", "vfio_virqfd", "pci_stub")
KVM_MODULES = ("kvm", "kvm_intel", "kvm_amd")
GPU_MODULES = (
    "nouveau",
    "nvidia",
    "nvidia_drm",
    "nvidia_modeset",
    "nvidia_peermem",
    "nvidia_uvm",
    "nvidiafb",
    "nova_core",
    "nova_drm",
    "amdgpu",
    "radeon",
    "i915",
    "xe",
    "snd_hda_intel",
)
NAMED_MODULES = PASSTHROUGH_MODULES + KVM_MODULES + GPU_MODULES

RELEVANT = re.compile(
    r"\bblacklist\b|vfio|pci[-_]stub|nouveau|nvidia|nova[-_](?:core|drm)|amdgpu|radeon|\bi915\b|\bxe\b|snd[-_]hda[-_]intel"
)


# --- Reading ---------------------------------------------------------------------------------------------------


class Host:
    """Reads files below one root directory and remembers what could not be read.

    Paths are given as seen from the root (``/proc/cmdline``). No method raises for what a path holds or lacks.

    :param root: the directory to read as ``/``.
    :raises NotADirectoryError: when it is no directory.
    """

    def __init__(self, root: str = "/") -> None:
        self.root = os.path.realpath(os.fsencode(root))
        if not os.path.isdir(self.root):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), root)
        self.running = self.root == b"/"
        self.unread: List[Dict[str, str]] = []
        self._noted: Set[Tuple[str, str]] = set()
        self._directories: Dict[bytes, bytes] = {}
        # O_NOFOLLOW in a foreign root: its links were resolved before, by _walk.
        self._flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        if not self.running:
            self._flags |= os.O_NOFOLLOW

    def note(self, path: str, error: str) -> None:
        """Remember that a path could not be read, once for each reason."""
        if (path, error) not in self._noted:
            self._noted.add((path, error))
            self.unread.append({"path": path, "error": error})

    def forget(self, mark: int) -> None:
        """Drop the notes after the first ``mark``."""
        for entry in self.unread[mark:]:
            self._noted.discard((entry["path"], entry["error"]))
        del self.unread[mark:]

    def data(self, path: str, limit: int = TABLE_LIMIT) -> Optional[bytes]:
        """The bytes of a regular file; those beyond ``limit`` are left out, with a note."""
        try:
            found = self._read(path, limit)
        except OSError as error:
            self._failed(path, error)
            return None
        if len(found) > limit:
            self.note(path, f"larger than {limit} bytes; the rest was not read")
            return found[:limit]
        return found

    def head(self, path: str, length: int) -> Optional[bytes]:
        """What one read of at most ``length`` bytes gives: the start of a file, all of a sysfs attribute."""
        try:
            descriptor = self._open(path)
            try:
                return os.read(descriptor, length)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._failed(path, error)
            return None

    def text(self, path: str, limit: int = TABLE_LIMIT) -> Optional[str]:
        """The text of a regular file; bytes that are not UTF-8 become U+FFFD."""
        found = self.data(path, limit)
        return None if found is None else found.decode("utf-8", "replace")

    def value(self, path: str) -> Optional[str]:
        """The single line that a sysfs attribute holds, without surrounding blanks."""
        found = self.head(path, VALUE_LIMIT + 1)
        if found is None:
            return None
        text = found.decode("utf-8", "replace").strip(" \t\r\n\0")
        if len(found) > VALUE_LIMIT or CONTROL.search(text):
            self.note(path, "unexpected content")
            return None
        return text

    def word(self, path: str, pattern: Pattern[str]) -> Optional[str]:
        """A value that has to match ``pattern`` as a whole; an empty one is ``None``."""
        text = self.value(path)
        if not text:
            return None
        if not pattern.fullmatch(text):
            self.note(path, "unexpected content")
            return None
        return text

    def number(self, path: str) -> Optional[int]:
        """A decimal number."""
        text = self.word(path, _NUMBER)
        return None if text is None else int(text)

    def flag(self, path: str) -> Optional[bool]:
        """A boolean as the kernel prints it: ``1``/``0`` or ``Y``/``N``."""
        text = self.word(path, _FLAG)
        return None if text is None else text in "1Yy"

    def names(self, path: str) -> List[str]:
        """The sorted names in a directory; empty when it does not exist."""
        try:
            found = os.listdir(self._real(path))
        except OSError as error:
            self._failed(path, error)
            return []
        names = []
        for raw in found:
            try:
                name = raw.decode("utf-8")
            except UnicodeDecodeError:
                name = "\0"
            if CONTROL.search(name):
                self.note(path, "holds a name that is not plain text")
            else:
                names.append(name)
        return sorted(names)

    def link(self, path: str) -> Optional[str]:
        """Where a symbolic link points to, unresolved; ``None`` when it is none."""
        try:
            target = os.readlink(self._real(path, follow=False))
        except OSError as error:
            if error.errno != errno.EINVAL:  # EINVAL: not a link
                self._failed(path, error)
            return None
        text = target.decode("utf-8", "replace")
        return None if CONTROL.search(text) else text

    def status(self, path: str) -> Optional[os.stat_result]:
        """The status of what a path leads to."""
        try:
            return self._locate(path)[1]
        except OSError as error:
            self._failed(path, error)
            return None

    def exists(self, path: str) -> bool:
        """Whether a path leads to something."""
        return self.status(path) is not None

    def real(self, path: str) -> str:
        """A path as seen from the root, with every link in it resolved; as it is when it leads nowhere."""
        try:
            found = os.path.realpath(os.fsencode(path)) if self.running else self._walk(b"", os.fsencode(path))
        except OSError as error:
            self._failed(path, error)
            return path
        return found.decode("utf-8", "replace")

    def pieces(self, path: str, read: Callable[[Reader], Optional[str]]) -> Optional[str]:
        """What ``read`` makes of a file, given a function ``(offset, length) -> bytes`` on it."""
        try:
            descriptor = self._open(path)
        except OSError as error:
            self._failed(path, error)
            return None
        try:
            return read(lambda offset, length: os.pread(descriptor, length, offset))
        except OSError as error:
            self._failed(path, error)
            return None
        finally:
            os.close(descriptor)

    def _locate(self, path: str) -> Tuple[bytes, os.stat_result]:
        """Where a path leads to. Most paths end in no link: one call is enough for them."""
        real = self._real(path, follow=False)
        status = os.lstat(real)
        if stat.S_ISLNK(status.st_mode):
            real = self._real(path)
            status = os.stat(real)
        return real, status

    def _open(self, path: str) -> int:
        real, status = self._locate(path)
        mode = status.st_mode
        if not stat.S_ISREG(mode):  # a FIFO would block, a device node could act
            kind = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(kind, "is a directory" if stat.S_ISDIR(mode) else "not a regular file")
        return os.open(real, self._flags)

    def _read(self, path: str, limit: int) -> bytes:
        descriptor = self._open(path)
        try:
            chunks = []
            left = limit + 1
            while left > 0:
                chunk = os.read(descriptor, min(left, 1 << 20))
                if not chunk:
                    break
                chunks.append(chunk)
                left -= len(chunk)
            return b"".join(chunks)
        finally:
            os.close(descriptor)

    def _failed(self, path: str, error: OSError) -> None:
        if error.errno != errno.ENOENT:
            self.note(path, error.strerror or str(error))

    def _real(self, path: str, follow: bool = True) -> bytes:
        """The path on the running system; in a foreign root with every link resolved inside that root."""
        raw = path.encode("utf-8", "replace")
        if b"\0" in raw:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        if self.running:
            return raw
        parent, _, name = raw.rpartition(b"/")
        base = self._directories.get(parent)
        if base is None:
            base = self._directories[parent] = self._walk(b"", parent)
        return self.root + (self._walk(base, name) if follow else base + b"/" + name)

    def _walk(self, current: bytes, path: bytes) -> bytes:
        todo = path.split(b"/")[::-1]
        links = 0
        while todo:
            part = todo.pop()
            if part in (b"", b"."):
                continue
            if part == b"..":
                current = current.rpartition(b"/")[0]
                continue
            try:
                target = os.readlink(self.root + current + b"/" + part)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                current += b"/" + part
                continue
            links += 1
            if links > LINK_LIMIT:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith(b"/"):
                current = b""
            todo.extend(target.split(b"/")[::-1])
        return current


_NUMBER = re.compile(r"-?[0-9]{1,18}")
_FLAG = re.compile(r"[01YyNn]")


def version_key(release: str) -> List[Tuple[int, int, str]]:
    """Sort key of a kernel release: ``6.1.0-9`` comes before ``6.1.0-37``."""
    parts = re.findall(r"([0-9]+)|([a-zA-Z]+)", release)
    return [(1, int(digits), "") if digits else (0, 0, word) for digits, word in parts]


# --- The host as a whole ---------------------------------------------------------------------------------------


def hostname(host: Host) -> Optional[str]:
    """The name of the running system; of another root what its ``/etc/hostname`` says."""
    if host.running:
        return host.word("/proc/sys/kernel/hostname", HOST_NAME)
    for line in (host.text("/etc/hostname", VALUE_LIMIT) or "").splitlines():  # hostname(5): comments are allowed
        name = line.strip()
        if name and not name.startswith("#"):
            if HOST_NAME.fullmatch(name):
                return name
            host.note("/etc/hostname", "unexpected content")
    return host.word("/proc/sys/kernel/hostname", HOST_NAME)


# e_machine of an ELF header (System V ABI), little endian as every host that Nova's libvirt driver runs on but s390x.
ELF_MACHINES = {3: "i686", 21: "ppc64le", 22: "s390x", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


def architecture(host: Host) -> Optional[str]:
    """The machine's architecture, as ``uname -m`` prints it."""
    if host.running:
        return os.uname().machine
    told = host.word("/proc/sys/kernel/arch", MODULE_NAME)
    if told:
        return told
    for path in ("/usr/bin/env", "/bin/sh", "/usr/bin/python3"):
        header = host.head(path, 20) or b""
        if len(header) == 20 and header[:4] == b"\x7fELF":
            order = "<H" if header[5] == 1 else ">H"
            return ELF_MACHINES.get(struct.unpack(order, header[18:20])[0])
    return None


def os_release(host: Host) -> Dict[str, str]:
    """``os-release(5)``: the fields of ``/etc/os-release``, else of ``/usr/lib/os-release``."""
    text = host.text("/etc/os-release", TEXT_LIMIT)
    if text is None:
        text = host.text("/usr/lib/os-release", TEXT_LIMIT) or ""
    found = {}
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
        found[match.group(1)] = value
    return found


def container(host: Host) -> Optional[str]:
    """The kind of container that the root is inside of; ``None`` when nothing says that it is one.

    The marks are those of ``systemd-detect-virt`` (``src/basic/virt.c``): ``/run/systemd/container``, the files
    of Docker and Podman, and the ``container`` variable of process 1.
    """
    named = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
    told = host.word("/run/systemd/container", named)
    if told:
        return told
    if host.exists("/run/.containerenv"):
        return "podman"
    if host.exists("/.dockerenv"):
        return "docker"
    environment = host.data("/proc/1/environ", TEXT_LIMIT) or b""
    for entry in environment.split(b"\0"):
        if entry.startswith(b"container="):
            value = entry[len(b"container=") :].decode("utf-8", "replace")
            if named.fullmatch(value):
                return value
    groups = host.text("/proc/1/cgroup", TEXT_LIMIT) or ""
    match = re.search(r"/(lxc|docker|kubepods|libpod)\b", groups)
    return {"libpod": "podman", "kubepods": "kubernetes"}.get(match.group(1), match.group(1)) if match else None


def machine(host: Host) -> Dict[str, Optional[str]]:
    """Maker and model from the firmware's DMI tables, else the device tree's model."""
    vendor = host.value("/sys/class/dmi/id/sys_vendor") or None
    product = host.value("/sys/class/dmi/id/product_name") or None
    if vendor is None and product is None:
        product = host.value("/proc/device-tree/model") or None
    return {"vendor": vendor, "product": product}


def count_range(text: str) -> Optional[int]:
    """How many numbers a kernel list such as ``0-31,64-95`` names."""
    total = 0
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", part.strip())
        if not match:
            return None
        total += int(match.group(2) or match.group(1)) - int(match.group(1)) + 1
    return total


CPU_FLAGS = ("vmx", "svm", "ept", "npt", "hypervisor")


def cpu(host: Host) -> Dict[str, Any]:
    """The first processor of ``/proc/cpuinfo`` and how many are online."""
    # The first part is enough and cheap: for each further processor the kernel has to ask that processor.
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


def numa_nodes(host: Host) -> List[Dict[str, Any]]:
    """The NUMA nodes with their processors and memory."""
    base = "/sys/devices/system/node"
    found = []
    for name in host.names(base):
        if re.fullmatch(r"node[0-9]{1,6}", name):
            path = f"{base}/{name}"
            found.append(
                {
                    "node": int(name[4:]),
                    "cpus": host.value(path + "/cpulist"),
                    "memory_mib": memory_mib(host.text(path + "/meminfo", TEXT_LIMIT)),
                }
            )
    return sorted(found, key=lambda node: node["node"])


# --- The running kernel and its IOMMU --------------------------------------------------------------------------

EFIVARS = "/sys/firmware/efi/efivars"
SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
LOADER_INFO = "LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"


def secure_boot(host: Host) -> Optional[bool]:
    """Whether the firmware enforces Secure Boot.

    An EFI variable file holds four bytes of attributes, then the data: one byte here. A firmware without EFI, or
    without that variable, has no Secure Boot; ``None`` when the variables are not mounted or not readable.
    """
    if not host.exists("/sys/firmware/efi"):
        return False if host.exists("/sys/firmware") else None
    path = f"{EFIVARS}/{SECURE_BOOT}"
    if not host.exists(path):
        return False if host.names(EFIVARS) else None
    content = host.data(path, VALUE_LIMIT)
    if content is None:
        return None
    if len(content) != 5 or content[4] not in (0, 1):
        host.note(path, "unexpected content")
        return None
    return content[4] == 1


def lockdown(host: Host) -> Optional[str]:
    """The kernel's lockdown mode: the bracketed word of ``[none] integrity confidentiality``."""
    match = re.search(r"\[([a-z]+)\]", host.value("/sys/kernel/security/lockdown") or "")
    return match.group(1) if match else None


def running_release(host: Host) -> Optional[str]:
    """The release of the running kernel."""
    return host.word("/proc/sys/kernel/osrelease", RELEASE)


def loaded_modules(host: Host) -> List[str]:
    """The names of the loaded modules, from ``/proc/modules``."""
    lines = (host.text("/proc/modules") or "").splitlines()
    names = {line.split(" ", 1)[0] for line in lines}
    return sorted(name for name in names if MODULE_NAME.fullmatch(name))


def kernel(host: Host) -> Dict[str, Any]:
    """The running kernel."""
    command_line = host.text("/proc/cmdline", LINE_LIMIT)
    if command_line is not None:
        command_line = command_line.rstrip("\n\0")
        if CONTROL_BUT_TAB.search(command_line):
            host.note("/proc/cmdline", "unexpected content")
            command_line = None
    booted = re.search(r"^btime ([0-9]{1,12})$", host.text("/proc/stat") or "", re.MULTILINE)
    return {
        "release": running_release(host),
        "command_line": command_line,
        "booted_at": int(booted.group(1)) if booted else None,
        "lockdown": lockdown(host),
        "secure_boot": secure_boot(host),
        "loaded_modules": loaded_modules(host),
    }


def interrupt_remapping(interrupts: str) -> Optional[bool]:
    """Whether interrupts are remapped, told by the interrupt chips that ``/proc/interrupts`` names.

    With remapping every I/O APIC and PCI MSI interrupt goes through a chip whose name starts with ``IR-``
    (``IR-IO-APIC``, ``IR-PCI-MSI``, ``IR-PCI-MSIX-0000:01:00.0``); Intel (``drivers/iommu/intel/irq_remapping.c``)
    and AMD (``drivers/iommu/amd/iommu.c``) name them alike. Without it the names are bare. The ACPI tables only
    say that the firmware supports it, and the kernel log is not always there to be read.

    :returns: ``None`` when neither kind of chip is there (no such interrupts, another architecture).
    """
    if re.search(r"\sv?IR-(?:IO-APIC|PCI-MSI)", interrupts):
        return True
    return False if re.search(r"\s(?:IO-APIC|PCI-MSI)", interrupts) else None


IOMMU_TABLES = ("DMAR", "IVRS", "IORT", "VIOT")  # Intel, AMD, Arm SMMU, virtio-iommu


def iommu(host: Host) -> Dict[str, Any]:
    """The IOMMU: what the firmware announces and what the kernel made of it."""
    tables = host.names("/sys/firmware/acpi/tables")
    # The kernel numbers a table's name where the firmware has several of them (DMAR1, DMAR2).
    kinds = {name.rstrip("0123456789") for name in tables}
    return {
        "acpi_tables": [name for name in IOMMU_TABLES if name in kinds],
        "units": host.names("/sys/class/iommu"),
        "group_count": sum(1 for name in host.names("/sys/kernel/iommu_groups") if name.isdigit()),
        "interrupt_remapping": interrupt_remapping(host.text("/proc/interrupts") or ""),
        "unsafe_interrupts": host.flag("/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"),
    }


# --- PCI functions ---------------------------------------------------------------------------------------------


def address_key(address: str) -> Tuple[int, int, int, int]:
    """Sort key of an address: domains, buses and so on as numbers."""
    domain, bus, rest = address.split(":")
    device, function = rest.split(".")
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)


def last_address(path: str) -> Optional[str]:
    """The innermost PCI function in a sysfs path."""
    for part in reversed(path.split("/")):
        if ADDRESS.fullmatch(part):
            return part
    return None


# Resource flags (kernel: include/linux/ioport.h).
IORESOURCE_IO = 0x100
IORESOURCE_MEM = 0x200
IORESOURCE_PREFETCH = 0x2000
IORESOURCE_MEM_64 = 0x100000

_RESOURCE = re.compile(r"0x([0-9a-fA-F]{1,16}) 0x([0-9a-fA-F]{1,16}) 0x([0-9a-fA-F]{1,16})")


def bars(resource: str) -> List[Dict[str, Any]]:
    """The base address registers (the first six lines) of a ``resource`` file: start, end and flags of each.

    A register that the kernel found no room for keeps its size and starts at 0.
    """
    found = []
    for index, line in enumerate(resource.splitlines()[:6]):
        match = _RESOURCE.fullmatch(line.strip())
        if not match:
            continue
        start, end, flags = (int(field, 16) for field in match.groups())
        if not flags & (IORESOURCE_IO | IORESOURCE_MEM) or end < start or end == 0:
            continue
        found.append(
            {
                "index": index,
                "start": start,
                "size": end - start + 1,
                "prefetchable": bool(flags & IORESOURCE_PREFETCH),
                "bits": 64 if flags & IORESOURCE_MEM_64 else 32,
                "io": bool(flags & IORESOURCE_IO),
            }
        )
    return found


EXTENDED_CONFIG = 0x100
CONFIG_SIZE = 4096
SERIAL_NUMBER_CAPABILITY = 0x0003


def serial_number(read: Reader) -> Optional[str]:
    """The Device Serial Number (extended capability 3), written as ``lspci`` writes it.

    Only the headers of the capability list and the number itself are read, never undefined registers, which some
    devices answer badly. An erased number (all zeros or all ones) is none.

    :param read: reads ``(offset, length)`` of the function's configuration space.
    """
    offset = EXTENDED_CONFIG
    seen: Set[int] = set()
    while EXTENDED_CONFIG <= offset <= CONFIG_SIZE - 4 and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(read(offset, 4), "little")
        if header == 0xFFFFFFFF:
            return None
        if header & 0xFFFF == SERIAL_NUMBER_CAPABILITY:
            number = read(offset + 4, 8)
            if len(number) != 8 or number in (bytes(8), b"\xff" * 8):
                return None
            return "-".join(f"{byte:02x}" for byte in reversed(number))
        offset = header >> 20 & 0xFFC
    return None


def config_serial(host: Host, path: str) -> Optional[str]:
    """The serial number in a ``config`` file.

    A function with extended configuration space has 4096 bytes there; without CAP_SYS_ADMIN the kernel gives only
    the first 64, and the number stays unknown.
    """
    status = host.status(path)
    return host.pieces(path, serial_number) if status is not None and status.st_size == CONFIG_SIZE else None


def slot_names(host: Host) -> Dict[str, str]:
    """The physical slots by the address they hold: ``0000:88:00``, or ``0000:88`` for a whole bus."""
    base = "/sys/bus/pci/slots"
    found = {}
    for name in host.names(base):
        address = host.word(f"{base}/{name}/address", _SLOT_ADDRESS)
        if address:
            found[address.lower()] = name
    return found


_SLOT_ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2})?")


def class_devices(host: Host, directory: str, names: Pattern[str]) -> Iterator[Tuple[str, str, str]]:
    """The devices of a class that hang off PCI functions: name, place in the device tree, function.

    Each device's link names its place. It belongs to the innermost function on that path, so a disk behind a USB
    controller is the controller's, and nothing is a bridge's.
    """
    for name in host.names(directory):
        if names.fullmatch(name):
            path = f"{directory}/{name}"
            place = host.link(path) or host.link(path + "/device") or ""
            address = last_address(place)
            if address:
                yield name, place, address


def usb_label(host: Host, path: str) -> str:
    """A USB device's maker and product, as it names itself, else its identifiers."""
    maker, product = (host.value(f"{path}/{name}") or "" for name in ("manufacturer", "product"))
    if not product:
        identifiers = [host.value(f"{path}/{name}") or "?" for name in ("idVendor", "idProduct")]
        return " ".join(part for part in (maker, ":".join(identifiers)) if part)
    return product if product.lower().startswith(maker.lower()) else f"{maker} {product}"


_ANY = re.compile(r".+")
_CARD = re.compile(r"card[0-9]+")
_EVENT = re.compile(r"event[0-9]+")
_USB_DEVICE = re.compile(r"[0-9]+-[0-9.]+")
USB_HUB = "09"


def uses(host: Host) -> Dict[str, Dict[str, List[Any]]]:
    """What the running host makes of each PCI function: network interfaces, disks, USB devices and so on."""
    found: Dict[str, Dict[str, List[Any]]] = {}

    def add(address: str, kind: str, value: object) -> None:
        values = found.setdefault(address, {}).setdefault(kind, [])
        if value not in values:
            values.append(value)

    for name, _, address in class_devices(host, "/sys/class/net", _ANY):
        add(address, "net", {"name": name, "state": host.value(f"/sys/class/net/{name}/operstate")})
    disks: Set[str] = set()
    for name, place, address in class_devices(host, "/sys/class/block", _ANY):
        disks.add(name)
        if ("/" + place).split("/")[-2] not in disks:  # else a partition, which sorts after its disk
            # With native multipath the function has a hidden path nvme0c1n1 to the disk nvme0n1.
            add(address, "block", re.sub(r"^(nvme[0-9]+)c[0-9]+(n[0-9]+)$", r"\1\2", name))
    for name, _, address in class_devices(host, "/sys/bus/usb/devices", _USB_DEVICE):
        path = "/sys/bus/usb/devices/" + name
        if host.value(path + "/bDeviceClass") != USB_HUB:
            add(address, "usb", usb_label(host, path))
    for name, place, address in class_devices(host, "/sys/class/input", _EVENT):
        if "/sound/" not in place:  # the jack switches of a sound card are nothing that a person types on
            add(address, "input", name)
    for kind in ("drm", "sound"):
        for name, _, address in class_devices(host, "/sys/class/" + kind, _CARD):
            add(address, kind, name)
    return found


class Claims:
    """The named memory ranges of ``/proc/iomem``.

    A boot framebuffer (``BOOTFB``, ``efifb``, ``simpledrm``) on a card's memory keeps vfio-pci from reserving the
    region; a driver's own name tells who holds it. Without privilege the kernel shows zeros for all addresses.
    """

    def __init__(self, iomem: str) -> None:
        ranges = []
        for line in iomem.splitlines():
            match = _IOMEM.fullmatch(line)
            if match and not CONTROL.search(match.group(3)):
                ranges.append((int(match.group(1), 16), int(match.group(2), 16), match.group(3)))
        self.hidden = bool(ranges) and all(end == 0 for _, end, _ in ranges)
        # The names of functions and buses are the kernel's own book-keeping of the same ranges.
        self._ranges = sorted(r for r in ranges if not _BOOK_KEEPING.match(r[2]))
        self._starts = [start for start, _, _ in self._ranges]

    def within(self, found: Iterable[Dict[str, Any]]) -> List[str]:
        """The names in the memory BARs of one function."""
        names: List[str] = []
        for bar in found:
            if bar["io"] or not bar["start"]:
                continue
            last = bar["start"] + bar["size"] - 1
            first = bisect.bisect_left(self._starts, bar["start"])
            for index in range(first, bisect.bisect_right(self._starts, last)):
                _, end, name = self._ranges[index]
                if end <= last and name not in names:
                    names.append(name)
        return names


_IOMEM = re.compile(r" *([0-9a-f]{1,16})-([0-9a-f]{1,16}) : (.*?)\s*")
_BOOK_KEEPING = re.compile(ADDRESS.pattern + r"|PCI (?:Bus|ECAM|MMCONFIG|CardBus)\b")


def claims(host: Host) -> Claims:
    """The claims of ``/proc/iomem``, with a note when the kernel hides the addresses."""
    found = Claims(host.text("/proc/iomem") or "")
    if found.hidden:
        host.note("/proc/iomem", "the kernel hides addresses from unprivileged users")
    return found


class Aliases:
    """The module aliases of one kernel, indexed by the vendor and device that their patterns begin with."""

    def __init__(self, pairs: Iterable[Tuple[str, str]]) -> None:
        self._buckets: Dict[str, List[Tuple[str, str]]] = {}
        self._matches: Dict[str, List[str]] = {}
        for pattern, module in pairs:
            self._buckets.setdefault(self._key(pattern), []).append((pattern, module))

    @staticmethod
    def _key(pattern: str) -> str:
        """What every name that ``pattern`` matches starts with: vendor and device, vendor, or nothing."""
        match = _PCI_ALIAS.match(pattern)
        return match.group(0) if match else ""

    def candidates(self, modalias: str) -> List[str]:
        """The modules whose aliases match, sorted."""
        found = self._matches.get(modalias)
        if found is None:
            modules = set()
            for key in {"", modalias[:_VENDOR_END], modalias[:_DEVICE_END]}:
                for pattern, module in self._buckets.get(key, ()):
                    if alias_matches(pattern, modalias):
                        modules.add(module)
            found = self._matches[modalias] = sorted(modules)
        return found


_PCI_ALIAS = re.compile(r"pci:v[0-9A-F]{8}(?:d[0-9A-F]{8}|(?=d))")
_VENDOR_END = len("pci:v00000000")
_DEVICE_END = len("pci:v00000000d00000000")


def alias_matches(pattern: str, name: str) -> bool:
    """``fnmatch(3)``, quick for the patterns that have no wildcard but ``*``."""
    if "[" in pattern or "?" in pattern:
        return fnmatch.fnmatchcase(name, pattern)
    first, star, rest = pattern.partition("*")
    if not star:
        return pattern == name
    *middle, last = rest.split("*")
    position, end = len(first), len(name) - len(last)
    if position > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in middle:
        position = name.find(part, position, end)
        if position < 0:
            return False
        position += len(part)
    return True


def modules_directory(host: Host) -> Optional[str]:
    """Where the modules of the running kernel are; of the newest kernel in a root that runs none."""
    release = running_release(host)
    if release is None:
        releases = [name for name in host.names("/lib/modules") if RELEASE.fullmatch(name)]
        if not releases:
            return None
        release = max(releases, key=version_key)
    return "/lib/modules/" + release


def aliases(host: Host) -> Aliases:
    """The PCI aliases of ``modules.alias`` and, for built-in modules, of ``modules.builtin.modinfo``."""
    directory = modules_directory(host)
    if directory is None:
        return Aliases(())
    loadable = _ALIAS_LINE.findall(host.data(directory + "/modules.alias") or b"")
    built_in = _BUILTIN_ALIAS.findall(host.data(directory + "/modules.builtin.modinfo") or b"")
    pairs = loadable + [(pattern, module) for module, pattern in built_in]
    return Aliases((pattern.decode("ascii"), normalised(module.decode("ascii"))) for pattern, module in pairs)


_ALIAS_LINE = re.compile(rb"^alias (pci:[!-~]+) ([A-Za-z0-9_.+-]{1,64})$", re.MULTILINE)
_BUILTIN_ALIAS = re.compile(rb"(?:\A|(?<=\0))([A-Za-z0-9_.+-]{1,64})\.alias=(pci:[!-~]+)(?=\0|\Z)")


def normalised(module: str) -> str:
    """A module's name as ``/proc/modules`` spells it."""
    return module.replace("-", "_")


_HEX4 = re.compile(r"0x([0-9a-fA-F]{4})")
_HEX6 = re.compile(r"0x([0-9a-fA-F]{6})")
_HEX2 = re.compile(r"0x([0-9a-fA-F]{2})")


class FunctionFiles:
    """The attributes of one function; those that its directory does not list are not asked for."""

    def __init__(self, host: Host, address: str) -> None:
        self.host = host
        self.base = f"{PCI}/{address}"
        self.present = set(host.names(self.base))

    def path(self, name: str) -> str:
        """The path of one attribute."""
        return f"{self.base}/{name}"

    def value(self, name: str) -> Optional[str]:
        """A value; ``None`` when it is empty."""
        return (self.host.value(self.path(name)) or None) if name in self.present else None

    def number(self, name: str) -> Optional[int]:
        """A number; ``None`` when it is negative, which is the kernel's "none"."""
        found = self.host.number(self.path(name)) if name in self.present else None
        return found if found is not None and found >= 0 else None

    def flag(self, name: str) -> Optional[bool]:
        """A boolean."""
        return self.host.flag(self.path(name)) if name in self.present else None

    def hexadecimal(self, name: str, pattern: Pattern[str]) -> Optional[str]:
        """The digits of a hexadecimal number."""
        found = self.host.word(self.path(name), pattern) if name in self.present else None
        return found[2:].lower() if found else None

    def link(self, name: str) -> Optional[str]:
        """The last name of a link's target."""
        target = self.host.link(self.path(name)) if name in self.present else None
        return target.rpartition("/")[2] if target else None

    def function(self, name: str) -> Optional[str]:
        """The function that a link leads to."""
        target = self.link(name)
        return target if target and ADDRESS.fullmatch(target) else None


def express_link(files: FunctionFiles) -> Optional[Dict[str, Any]]:
    """The PCI Express link; what the kernel calls ``Unknown`` is ``None``, and so are 0 and 255 lanes."""
    if "current_link_speed" not in files.present:
        return None

    def speed(name: str) -> Optional[str]:
        value = files.value(name)
        return value if value and not value.startswith("Unknown") else None

    def width(name: str) -> Optional[int]:
        value = files.number(name)
        return value if value and value < 255 else None

    return {
        "speed": speed("current_link_speed"),
        "width": width("current_link_width"),
        "max_speed": speed("max_link_speed"),
        "max_width": width("max_link_width"),
    }


def reset_methods(files: FunctionFiles) -> List[str]:
    """How the kernel can reset a function, in its order; empty when it can't.

    Kernels before 5.15 have ``reset`` but no ``reset_method``: the way is then ``unspecified``.
    """
    if "reset_method" in files.present:
        return (files.value("reset_method") or "").split()
    return ["unspecified"] if "reset" in files.present else []


def virtual_functions(files: FunctionFiles) -> List[str]:
    """The virtual functions, in the order of their numbers."""
    links = sorted((int(name[6:]), name) for name in files.present if re.fullmatch(r"virtfn[0-9]{1,5}", name))
    return [address for address in (files.function(name) for _, name in links) if address]


class Tables:
    """What is read once for all functions."""

    def __init__(self, host: Host) -> None:
        self.aliases = aliases(host)
        self.claims = claims(host)
        self.slots = slot_names(host)
        self.uses = uses(host)


def function(host: Host, address: str, tables: Tables) -> Optional[Dict[str, Any]]:
    """One PCI function; ``None``, with a note, when it went away or says not even what it is."""
    mark = len(host.unread)
    files = FunctionFiles(host, address)
    vendor, product = files.hexadecimal("vendor", _HEX4), files.hexadecimal("device", _HEX4)
    class_code = files.hexadecimal("class", _HEX6)
    if vendor is None or product is None or class_code is None:
        gone = not host.exists(files.base) or any(
            entry["error"] == os.strerror(errno.ENODEV) for entry in host.unread[mark:]
        )
        if gone:
            host.forget(mark)
        host.note(files.base, VANISHED if gone else "left out: its vendor, device or class could not be read")
        return None
    modalias = files.value("modalias")
    override = files.value("driver_override")
    group = files.link("iommu_group")
    found_bars = bars(host.text(files.path("resource"), VALUE_LIMIT) or "") if "resource" in files.present else []
    domain_bus, _, _ = address.rpartition(":")
    path = (host.link(files.base) or "").split("/")
    found = {
        "address": address,
        "vendor": vendor,
        "product": product,
        "subsystem_vendor": files.hexadecimal("subsystem_vendor", _HEX4),
        "subsystem_product": files.hexadecimal("subsystem_device", _HEX4),
        "class": class_code,
        "revision": files.hexadecimal("revision", _HEX2),
        "driver": files.link("driver"),
        "driver_override": None if override == "(null)" else override,
        "modalias": modalias,
        "modules": tables.aliases.candidates(modalias) if modalias else [],
        "iommu_group": int(group) if group and group.isdigit() else None,
        "numa_node": files.number("numa_node"),
        "boot_vga": files.flag("boot_vga"),
        "sriov_totalvfs": files.number("sriov_totalvfs"),
        "sriov_numvfs": files.number("sriov_numvfs"),
        "physical_function": files.function("physfn"),
        "virtual_functions": virtual_functions(files),
        "reset_methods": reset_methods(files),
        "bars": found_bars,
        "link": express_link(files),
        "slot": tables.slots.get(address.rpartition(".")[0], tables.slots.get(domain_bus)),
        "serial": config_serial(host, files.path("config")) if "config" in files.present else None,
        "parent": path[-2] if len(path) > 1 and ADDRESS.fullmatch(path[-2]) else None,
        "uses": tables.uses.get(address, {}),
        "claims": tables.claims.within(found_bars),
    }
    if not host.exists(files.base):
        host.forget(mark)
        host.note(files.base, VANISHED)
        return None
    return found


VANISHED = "the device went away while it was read"


def pci(host: Host) -> List[Dict[str, Any]]:
    """Every PCI function, in the order of the addresses."""
    addresses = []
    for name in host.names(PCI):
        if ADDRESS.fullmatch(name):
            addresses.append(name)
        else:
            host.note(f"{PCI}/{name}", "not a PCI address")
    if not addresses:
        return []
    tables = Tables(host)
    found = (function(host, address, tables) for address in sorted(addresses, key=address_key))
    return [entry for entry in found if entry is not None]


# --- What uses a card right now --------------------------------------------------------------------------------

GPU_BASE = ("03", "12")
NVSWITCH = ("10de", "0680")
FOR_GUESTS = re.compile(r"vfio.*|.*vfio[_-]pci|pci-stub|pcieport")
_NODE = re.compile(r"(?:card|renderD|fb)[0-9]+")
_DEVICE_NODE = re.compile(r"/dev/(?:dri|snd|nvidia|kfd|fb)")
_MINOR = re.compile(r"Device Minor:\s*([0-9]+)")
_NVIDIA_NODE = re.compile(r"/dev/nvidia([0-9]+)")


def near_gpus(functions: List[Dict[str, Any]]) -> Set[str]:
    """The addresses of GPUs and NVSwitches, and of what shares a slot or an IOMMU group with one."""
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


def device_nodes(host: Host, functions: List[Dict[str, Any]]) -> Dict[str, Set[str]]:
    """The addresses of the functions behind each device node, by the node's path.

    NVIDIA's control nodes and ``/dev/kfd`` belong to every card that its driver has: which of them a process uses
    can't be told.
    """
    nodes: Dict[str, Set[str]] = {}

    def add(node: str, addresses: Iterable[str]) -> None:
        nodes.setdefault(node, set()).update(addresses)

    for kind, prefix, names in (
        ("drm", "/dev/dri/", _NODE),
        ("graphics", "/dev/", _NODE),
        ("sound", "/dev/snd/", _ANY),
    ):
        for name, _, address in class_devices(host, "/sys/class/" + kind, names):
            add(prefix + name, [address])
    nvidia = {entry["address"] for entry in functions if (entry["driver"] or "").startswith("nvidia")}
    minors = set()
    for address in sorted(nvidia):
        match = _MINOR.search(host.text(f"/proc/driver/nvidia/gpus/{address}/information", VALUE_LIMIT) or "")
        if match:
            minors.add(match.group(1))
            add("/dev/nvidia" + match.group(1), [address])
    add("/dev/nvidia", nvidia)  # stands for all of its nodes that are not one card's
    add("/dev/kfd", (entry["address"] for entry in functions if entry["driver"] == "amdgpu"))
    return nodes


def behind(node: str, nodes: Dict[str, Set[str]]) -> Set[str]:
    """The functions behind a node that a process has open."""
    if node in nodes:
        return nodes[node]
    return nodes["/dev/nvidia"] if node.startswith("/dev/nvidia") else set()


def open_nodes(host: Host, process: str) -> Optional[Set[str]]:
    """The device nodes that a process has open or mapped; ``None`` when that can't be seen."""
    found = set()
    try:
        for name in os.listdir(host._real(f"/proc/{process}/fd")):
            try:
                target = os.readlink(host._real(f"/proc/{process}/fd/{os.fsdecode(name)}", follow=False))
            except OSError:
                continue  # closed in the meantime
            found.add(os.fsdecode(target))
        maps = host._read(f"/proc/{process}/maps", TABLE_LIMIT)
        found.update(line.split(None, 5)[5] for line in os.fsdecode(maps).splitlines() if " /dev/" in line)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESRCH, errno.ENOTDIR):
            return None
    return {node for node in found if _DEVICE_NODE.match(node)}


def processes(host: Host, nodes: Dict[str, Set[str]]) -> Tuple[Dict[str, List[str]], bool]:
    """What has nodes open, by function; and whether every process could be looked at."""
    found: Dict[str, List[str]] = {}
    complete = True
    for process in sorted((name for name in host.names("/proc") if name.isdigit()), key=int):
        opened = open_nodes(host, process)
        if opened is None:
            complete = False
            continue
        for node in sorted(opened):
            for address in behind(node, nodes):
                name = host.value(f"/proc/{process}/comm") or "?"
                found.setdefault(address, []).append(f"process {name} ({process}) has {node} open")
    return found, complete


def consoles(host: Host, functions: List[Dict[str, Any]]) -> Iterator[Tuple[str, str]]:
    """The functions that the kernel's console is drawn on, each with what it is.

    The kernel puts a frame buffer console on the frame buffer of the primary display when that has one, else on the
    first (``drivers/video/fbdev/core/fbcon.c``); with ``fbcon=map:`` it may be on any.
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
        owner = {name: address for name, _, address in class_devices(host, "/sys/class/graphics", _NODE)}
        if "fbcon=map:" not in (host.value("/proc/cmdline") or ""):
            names = [name for name in names if owner.get(name) in primary] or names[:1]
        for name in names:
            if name in owner:
                yield owner[name], f"the host's console is on {name}"
    if any("VGA" in name for name in bound):
        for address in sorted(primary):
            yield address, "the host's text console is on it"


def sounding(host: Host) -> Set[str]:
    """The sound cards (``card0``) that play or record."""
    found = set()
    for card in host.names("/proc/asound"):
        if not _CARD.fullmatch(card):
            continue
        for stream in host.names("/proc/asound/" + card):
            if stream.startswith("pcm"):
                for sub in host.names(f"/proc/asound/{card}/{stream}"):
                    state = host.text(f"/proc/asound/{card}/{stream}/{sub}/status", VALUE_LIMIT)
                    if state is not None and state.strip() != "closed":
                        found.add(card)
    return found


def storage_in_use(host: Host) -> Iterator[Tuple[str, str]]:
    """The functions whose disks are mounted, swapped to or a part of something else, each with what it is."""
    table = host.text("/proc/1/mountinfo")
    mounted: Dict[str, str] = {}
    for line in ((host.text("/proc/self/mountinfo") if table is None else table) or "").splitlines():
        words = line.split()
        if len(words) > 4:
            mounted.setdefault(words[2], words[4])
    swaps = {line.split()[0] for line in (host.text("/proc/swaps") or "").splitlines()[1:] if line.split()}
    for name, _, address in class_devices(host, "/sys/class/block", _ANY):
        number = host.value(f"/sys/class/block/{name}/dev")
        if number in mounted:
            yield address, f"{name} is mounted on {mounted[number]}"
        if "/dev/" + name in swaps:
            yield address, f"{name} is swapped to"
        for holder in host.names(f"/sys/class/block/{name}/holders"):
            yield address, f"{name} is a part of {holder}"


def holders(host: Host, functions: List[Dict[str, Any]]) -> Dict[str, Optional[List[str]]]:
    """What uses each function of a GPU's slot or group right now, by address: an unbind would wait for it, or break it.

    ``None`` for a function where that could not be found out; those that no host driver has are left out.
    """
    near = near_gpus(functions)
    held = [e for e in functions if e["address"] in near and e["driver"] and not FOR_GUESTS.fullmatch(e["driver"])]
    if not held:
        return {}
    found: Dict[str, List[str]] = {entry["address"]: [] for entry in held}
    by_process, complete = processes(host, device_nodes(host, functions))
    playing = sounding(host)
    others = [*consoles(host, functions), *storage_in_use(host)]
    for entry in held:
        about = found[entry["address"]]
        about += by_process.get(entry["address"], [])
        about += [what for address, what in others if address == entry["address"]]
        uses = entry["uses"]
        about += [f"sound {card} is playing or recording" for card in uses.get("sound", []) if card in playing]
        about += [f"a {thing} is plugged into it" for thing in uses.get("usb", [])]
        for interface in uses.get("net", []):
            flags = host.value(f"/sys/class/net/{interface['name']}/flags")
            if interface["state"] == "up" or (flags and re.fullmatch(r"0x[0-9a-f]+", flags) and int(flags, 16) & 1):
                about.append(f"the interface {interface['name']} is up")
        if entry["sriov_numvfs"]:
            about.append(f"{entry['sriov_numvfs']} virtual functions are enabled")
    return {address: about if complete or about else None for address, about in found.items()}


# --- How the host boots ----------------------------------------------------------------------------------------

GRUB_LIMIT = 4 * 1024 * 1024
GRUB_DIRECTORIES = ("/boot/grub", "/boot/grub2")
BOOT_PARTITIONS = ("/boot", "/efi", "/boot/efi")

_BLANK = re.compile(r"[ \t]+")
_GRUB_WORD = re.compile(
    r"""(?:[^\s{}|&$;<>'"\\]+|\\.|\$\{[^}\n]*\}|\$|'[^']*'|"(?:[^"\\]|\\.)*")+""",
    re.DOTALL,
)
_GRUB_PIECE = re.compile(r"""\\(.)|'([^']*)'|"((?:[^"\\]|\\.)*)"|([^'"\\]+)""", re.DOTALL)


def grub_unquoted(word: str) -> str:
    """A word of GRUB's script language without its quotes; variables stay as they are."""
    pieces = []
    for escaped, single, double, plain in _GRUB_PIECE.findall(word):
        pieces.append(escaped or single or re.sub(r'\\([\\"$])', r"\1", double) or plain)
    return "".join(pieces)


GRUB_KEYWORDS = ("if", "then", "elif", "else", "while", "until", "do", "!")  # a command follows them


def grub_statements(text: str) -> Iterator[Tuple[List[str], str, str]]:
    """The statements of a GRUB script: their words, the text after the second word, and what ends them.

    The end is ``{`` (a block begins), ``}`` (one ends) or a line's end or ``;``. The grammar is that of
    ``grub-core/script/yylex.l``: a comment starts where a word could, braces count wherever they are unquoted.
    """
    text = text.replace("\\\n", "")
    words: List[str] = []
    rest = position = 0
    while position < len(text):
        blank = _BLANK.match(text, position)
        if blank:
            position = blank.end()
            continue
        word = None if text[position] == "#" else _GRUB_WORD.match(text, position)
        if word:
            position = word.end()
            if words or word.group(0) not in GRUB_KEYWORDS:
                words.append(grub_unquoted(word.group(0)))
            if len(words) == 2 and not rest:
                rest = position
            continue
        character = text[position]
        if character in "#\n;{}&|":
            yield words, text[rest:position] if rest else "", character if character in "{}" else "\n"
            words, rest = [], 0
        if character == "#":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        position += 1
    yield words, text[rest:] if rest else "", "\n"


LINUX_COMMANDS = ("linux", "linux16", "linuxefi")
INITRD_COMMANDS = ("initrd", "initrd16", "initrdefi")
# What single-user and rescue entries add (kernel-parameters.txt: single; systemd(1): rescue, emergency, 1, s, S;
# Ubuntu's 10_linux: recovery). Titles are translated, so they tell less.
RECOVERY_ARGUMENTS = frozenset(
    ("single", "recovery", "rescue", "emergency", "1", "s", "S", "systemd.unit=rescue.target")
)
_MEMORY_TEST = re.compile(r"(?:memtest|mt86)", re.IGNORECASE)


def is_recovery(title: str, image: str, arguments: str) -> bool:
    """Whether an entry boots to single-user mode or a rescue image."""
    return (
        not RECOVERY_ARGUMENTS.isdisjoint(arguments.split())
        or "(recovery mode)" in title
        or os.path.basename(image).startswith("vmlinuz-0-rescue")
    )


def boot_path(host: Host, path: str) -> str:
    """A file that a boot loader names, as the running host names it.

    The loader sees the file system that holds the file: ``/vmlinuz-6.1`` on a boot partition, ``/@/boot/vmlinuz-6.1``
    in a btrfs subvolume, ``($root)/boot/vmlinuz-6.1``.
    """
    plain = re.sub(r"^\([^)]*\)", "", path)
    inside = plain.find("/boot/")
    if inside >= 0:
        return plain[inside:]
    if not plain.startswith("/"):
        plain = "/" + plain
    for partition in BOOT_PARTITIONS:
        if host.exists(partition + plain):
            return partition + plain
    return plain


def boot_entry(
    host: Host, source: str, title: str, image: str, initrds: List[str], arguments: str
) -> Optional[Dict[str, Any]]:
    """One entry of the boot menu; ``None``, with a note, when it holds what no boot loader would take."""
    kernel_path = boot_path(host, image)
    initrd = boot_path(host, initrds[-1]) if initrds else None
    title = re.sub(r"\s+", " ", title).strip()
    strings = (title, kernel_path, initrd or "")
    if any(CONTROL.search(s) for s in strings) or CONTROL_BUT_TAB.search(arguments):
        host.note(source, "an entry with control characters was left out")
        return None
    if max(len(title), len(kernel_path), len(initrd or ""), len(arguments)) > LINE_LIMIT:
        host.note(source, "an entry with an endless line was left out")
        return None
    return {
        "source": source,
        "title": title,
        "kernel": kernel_path,
        "initrd": initrd,
        "arguments": arguments,
        "recovery": is_recovery(title, kernel_path, arguments),
    }


def grub_entries(host: Host, source: str, text: str) -> List[Dict[str, Any]]:
    """The menu entries of a ``grub.cfg`` that boot this system's Linux kernels.

    Memory tests and the entries that os-prober made for other systems are none of them.
    """
    found = []
    blocks: List[bool] = []
    entries: List[Dict[str, Any]] = []
    for words, rest, end in grub_statements(text):
        if end == "{":
            is_entry = len(words) > 1 and words[0] == "menuentry"
            blocks.append(is_entry)
            if is_entry:
                other = any(word.startswith("osprober-") for word in words)
                entries.append({"title": words[1], "other": other, "image": None, "initrds": [], "arguments": ""})
            continue
        if entries and len(words) > 1:
            if words[0] in LINUX_COMMANDS and entries[-1]["image"] is None:
                entries[-1].update(image=words[1], arguments=rest.lstrip(" \t"))
            elif words[0] in INITRD_COMMANDS:
                entries[-1]["initrds"] = words[1:]
        if end == "}" and blocks and blocks.pop():
            entry = entries.pop()
            image = entry["image"]
            if image is None or entry["other"] or _MEMORY_TEST.match(os.path.basename(image)):
                continue
            found.append(boot_entry(host, source, entry["title"], image, entry["initrds"], entry["arguments"]))
    return [entry for entry in found if entry is not None]


def grub_environment(host: Host, configuration: str, text: str) -> Dict[str, str]:
    """The variables that a boot entry's options may name: those of ``grubenv``, then those that ``grub.cfg`` sets.

    ``grubenv`` has a line for each variable, with a backslash before a backslash and a line's end, and is filled up
    with ``#`` (``grub-core/lib/envblk.c``).
    """
    found: Dict[str, str] = {}
    for name, value in re.findall(r'^\s*set (\w+)="([^"\n]*)"\s*$', text, re.MULTILINE):
        found.setdefault(name.replace("default_kernelopts", "kernelopts"), value)
    directory = configuration.rpartition("/")[0]
    block = host.text(directory + "/grubenv", TEXT_LIMIT) or ""
    for name, value in re.findall(r"^(\w+)=((?:[^\\\n]|\\.)*)$", block, re.MULTILINE | re.DOTALL):
        found[name] = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
    return found


def grub_environment_block(host: Host, configuration: str, text: str) -> Dict[str, Any]:
    """``grubenv``, in which GRUB keeps what holds for one boot only, and whether GRUB can write it.

    :param configuration: the path of GRUB's menu, whose directory it is in.
    :param text: the menu.
    """
    path = configuration.rpartition("/")[0] + "/grubenv"
    status = host.status(path)
    block = host.text(path, TEXT_LIMIT) or ""
    variables = dict(re.findall(r"^(\w+)=([^\n]*)$", block, re.MULTILINE))
    filesystem, device = mounted(host, path)
    return {
        "path": path,
        "exists": status is not None and bool(status.st_size),
        "read": re.search(r"^\s*load_env\b", text, re.MULTILINE) is not None and "next_entry" in text,
        "saved_entry": variables.get("saved_entry") or None,
        "next_entry": variables.get("next_entry") or None,
        "filesystem": filesystem,
        "device": device,
    }


def mounted(host: Host, path: str) -> Tuple[Optional[str], Optional[str]]:
    """The kind of file system that holds a path, and of its block device (``disk`` when nothing lies between).

    See ``Documentation/filesystems/proc.rst``, 3.5, and ``Documentation/ABI/testing/sysfs-block-dm``.
    """
    table = host.text("/proc/self/mountinfo") or ""
    real = host.real(path)
    best = None
    for line in table.splitlines():
        left, separator, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if not separator or len(fields) < 5 or not kind:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), fields[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best[0])):  # a later mount hides an earlier one
            best = (point, kind[0], fields[2])
    if best is None:
        return None, None
    block = "/sys/dev/block/" + best[2]
    if not host.exists(block):
        return best[1], None
    if host.exists(block + "/md"):
        return best[1], "raid"
    mapped = host.value(block + "/dm/uuid")
    if mapped is None:
        return best[1], "mapped" if host.exists(block + "/dm") else "disk"
    for start, device in (("LVM-", "lvm"), ("CRYPT-", "crypt"), ("mpath-", "disk"), ("part", "disk")):
        if mapped.startswith(start):
            return best[1], device
    return best[1], "mapped"


def expanded(text: str, variables: Dict[str, str]) -> str:
    """Options with GRUB's variables replaced; an unknown one is empty, as GRUB has it."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda m: variables.get(m.group(1) or m.group(2), ""), text)


def loader_entries(host: Host, variables: Dict[str, str]) -> List[Dict[str, Any]]:
    """The entries of the Boot Loader Specification, type 1: ``loader/entries/*.conf`` of the boot partition."""
    found = []
    for partition in BOOT_PARTITIONS:
        directory = partition + "/loader/entries"
        for name in host.names(directory):
            if not name.endswith(".conf"):
                continue
            path = f"{directory}/{name}"
            fields: Dict[str, List[str]] = {}
            for line in (host.text(path, TEXT_LIMIT) or "").split("\n"):
                match = re.match(r"[ \t]*([a-z][a-z0-9-]*)[ \t]+(.*)", line)
                if match:
                    fields.setdefault(match.group(1), []).append(match.group(2))
            if "linux" not in fields:
                continue
            initrds = [word for line in fields.get("initrd", []) for word in line.split() if word[:1] != "$"]
            options = " ".join(fields.get("options", []))
            if "$" in options:
                options = expanded(options, variables)
            title = fields.get("title", [name])[0]
            found.append(boot_entry(host, path, title, fields["linux"][0].strip(), initrds, options))
    return [entry for entry in found if entry is not None]


def grub_configuration(host: Host) -> Optional[str]:
    """The ``grub.cfg`` that the host boots from; on some EFI systems it is on the EFI system partition only."""
    for directory in GRUB_DIRECTORIES:
        if host.exists(directory + "/grub.cfg"):
            return directory + "/grub.cfg"
    for vendor in host.names("/boot/efi/EFI"):
        path = f"/boot/efi/EFI/{vendor}/grub.cfg"
        if host.exists(path):
            return path
    return None


def boot_loader(host: Host, grub: bool) -> Optional[str]:
    """The boot loader: what started this system according to its ``LoaderInfo`` variable, else what is configured.

    ``LoaderInfo`` (systemd.io/BOOT_LOADER_INTERFACE) holds UTF-16 after four bytes of attributes.
    """
    told = host.data(f"{EFIVARS}/{LOADER_INFO}", VALUE_LIMIT) or b""
    if told[4:].decode("utf-16-le", "replace").startswith("systemd-boot"):
        return "systemd-boot"
    if grub or host.exists("/etc/default/grub"):
        return "grub"
    if any(host.exists(partition + "/loader/loader.conf") for partition in BOOT_PARTITIONS):
        return "systemd-boot"
    return None


BOOT_TOOLS = ("bootctl", "grub2-mkconfig", "grubby", "kernel-install", "update-grub")


def firmware(host: Host, machine_type: Optional[str]) -> Optional[str]:
    """``efi`` or ``bios``; ``None`` where neither can be told."""
    if host.exists("/sys/firmware/efi"):
        return "efi"
    if machine_type in ("x86_64", "i686", "i386") and host.exists("/sys/firmware"):
        return "bios"
    return None


def initramfs_of(host: Host, candidates: Iterable[str]) -> Tuple[Optional[str], Optional[int]]:
    """The first initramfs image that exists, and when it was written (ns)."""
    for path in candidates:
        status = host.status(path)
        if status is not None and stat.S_ISREG(status.st_mode):
            return path, status.st_mtime_ns
    return None, None


def kernel_images(host: Host) -> Dict[str, Tuple[str, List[str]]]:
    """The kernel images by release, each with the paths that its initramfs may have.

    ``/boot/vmlinuz-RELEASE`` and ``vmlinux-RELEASE`` (Debian, Ubuntu, Red Hat, SUSE), the same below
    ``/boot/ostree/*`` (image mode), ``/boot/vmlinuz-PKGBASE`` (Arch Linux, whose modules' directory names its package)
    and ``MACHINE-ID/RELEASE/linux`` on a boot partition (kernel-install(8)). Rescue images are left out.
    """
    found: Dict[str, Tuple[str, List[str]]] = {}
    packages = {}
    for release in host.names("/lib/modules"):
        package = host.word(f"/lib/modules/{release}/pkgbase", RELEASE)
        if package and RELEASE.fullmatch(release):
            packages[package] = release
    ostree = ["/boot/ostree/" + name for name in host.names("/boot/ostree")]
    for directory in ["/boot", *ostree]:
        for name in host.names(directory):
            match = re.fullmatch(r"vmlinu[xz]-(.+)", name)
            if not match or _NO_KERNEL.search(name) or not RELEASE.fullmatch(match.group(1)):
                continue
            told = match.group(1)
            names = (
                f"initrd.img-{told}",
                f"initramfs-{told}.img",
                f"initrd-{told}",
                f"initramfs-{told}",
                f"initrd-{told}.img",
            )
            paths = [f"{directory}/{initramfs}" for initramfs in names]
            found[packages.get(told, told)] = (f"{directory}/{name}", paths)
    tokens = {host.word(path, RELEASE) for path in ("/etc/machine-id", "/etc/kernel/entry-token")} - {None}
    for partition in BOOT_PARTITIONS:
        for token in tokens:
            for release in host.names(f"{partition}/{token}"):
                base = f"{partition}/{token}/{release}"
                if RELEASE.fullmatch(release) and release not in found and host.exists(base + "/linux"):
                    found[release] = (base + "/linux", [base + "/initrd"])
    return found


_NO_KERNEL = re.compile(r"-0-rescue|\.(?:old|bak|gz|sig|hmac|signed|dpkg-\w+|rpm\w+)$")
_VARIANT = re.compile(rb"/([A-Za-z0-9_-]*vfio[_-]pci[A-Za-z0-9_-]*)\.ko\b")


def kernel_modules(host: Host, release: str, wanted: Iterable[str]) -> Dict[str, str]:
    """Which of the modules that matter a kernel has, loadable (``modules.dep``) or built in (``modules.builtin``)."""
    found = {}
    for listing, kind in (("modules.dep", "module"), ("modules.builtin", "builtin")):
        content = host.data(f"/lib/modules/{release}/{listing}") or b""
        for name in wanted:
            if any(f"/{spelt}.ko".encode() in content for spelt in (name, name.replace("_", "-"))):
                found[name] = kind
        for match in set(_VARIANT.findall(content)):
            found[normalised(match.decode("ascii"))] = kind
    return found


def vfio_aliases(host: Host, release: str) -> List[Dict[str, str]]:
    """The aliases of a kernel's VFIO variant drivers: those with ``vfio_pci:`` in the place of ``pci:``.

    vfio-pci's own alias, which matches everything, is none of them.
    """
    directory = "/lib/modules/" + release
    pairs = set(_VFIO_ALIAS_LINE.findall(host.data(directory + "/modules.alias") or b""))
    built_in = _VFIO_BUILTIN_ALIAS.findall(host.data(directory + "/modules.builtin.modinfo") or b"")
    pairs.update((pattern, module) for module, pattern in built_in)
    found = sorted((pattern.decode("ascii"), normalised(module.decode("ascii"))) for pattern, module in pairs)
    return [{"pattern": pattern, "module": module} for pattern, module in found if module != "vfio_pci"]


_VFIO_ALIAS_LINE = re.compile(rb"^alias (vfio_pci:[!-~]{1,256}) ([A-Za-z0-9_.+-]{1,64})$", re.MULTILINE)
_VFIO_BUILTIN_ALIAS = re.compile(rb"(?:\A|(?<=\0))([A-Za-z0-9_.+-]{1,64})\.alias=(vfio_pci:[!-~]{1,256})(?=\0|\Z)")


def boot(host: Host, machine_type: Optional[str], gpu_modules: Iterable[str]) -> Dict[str, Any]:
    """Firmware, boot loader, its entries and the kernels that can boot.

    :param gpu_modules: further modules whose presence matters: the host drivers of the GPUs that are there.
    """
    configuration = grub_configuration(host)
    text = (host.text(configuration, GRUB_LIMIT) or "") if configuration else ""
    status = host.status(configuration) if configuration else None
    loader = boot_loader(host, configuration is not None)
    # Where grub.cfg has the command blscfg, GRUB reads the entries itself.
    reads_entries = loader == "systemd-boot" or re.search(r"^\s*blscfg\b", text, re.MULTILINE) is not None
    entries = []
    if configuration and loader == "grub":
        entries += grub_entries(host, configuration, text)
    listed = loader_entries(host, grub_environment(host, configuration or "", text)) if reads_entries else []
    wanted = sorted(set(NAMED_MODULES).union(gpu_modules))
    kernels = []
    for release, (image, candidates) in kernel_images(host).items():
        initramfs, written = initramfs_of(host, candidates)
        kernels.append(
            {
                "release": release,
                "image": image,
                "initramfs": initramfs,
                "initramfs_mtime_ns": written,
                "modules": kernel_modules(host, release, wanted),
                "vfio_aliases": vfio_aliases(host, release),
            }
        )
    return {
        "firmware": firmware(host, machine_type),
        "loader": loader,
        "bls": reads_entries,
        "entries": entries + listed,
        "config_mtime": status.st_mtime_ns if status is not None else None,
        "tools": [name for name in BOOT_TOOLS if any_of(host, name)],
        "environment": grub_environment_block(host, configuration, text)
        if configuration and loader == "grub"
        else None,
        "kernels": sorted(kernels, key=lambda found: version_key(found["release"])),
    }


# --- Configuration files ---------------------------------------------------------------------------------------


def any_of(host: Host, *names: str) -> bool:
    """Whether one of the programs is installed."""
    return any(host.exists(directory + name) for name in names for directory in ("/usr/sbin/", "/usr/bin/", "/sbin/"))


def initramfs_tool(host: Host) -> Optional[str]:
    """What builds the initramfs.

    Debian's dracut package brings an ``update-initramfs`` of its own, and initramfs-tools-core may stay installed
    beside it: the kernel hook tells which one acts.
    """
    hooks = host.names("/etc/kernel/postinst.d")
    if any_of(host, "update-initramfs") and any_of(host, "mkinitramfs") and "dracut" not in hooks:
        return "initramfs-tools"
    if any_of(host, "dracut"):
        return "dracut"
    if any_of(host, "mkinitcpio"):
        return "mkinitcpio"
    for path, tool in (
        ("/etc/initramfs-tools/initramfs.conf", "initramfs-tools"),
        ("/etc/dracut.conf", "dracut"),
        ("/etc/mkinitcpio.conf", "mkinitcpio"),
    ):
        if host.exists(path):
            return tool
    return None


OURS = "*gpustack*"
CONFIGURATION = (
    "/etc/default/grub",
    "/etc/default/grub.d/*.cfg",
    "/etc/grub.d/" + OURS,
    "/etc/modprobe.d/*.conf",
    "/etc/modules",
    "/etc/modules-load.d/*.conf",
    "/etc/initramfs-tools/modules",
    "/etc/initramfs-tools/initramfs.conf",
    "/etc/initramfs-tools/update-initramfs.conf",
    "/etc/initramfs-tools/conf.d/*",
    "/etc/initramfs-tools/hooks/" + OURS,
    "/etc/initramfs-tools/scripts/*/" + OURS,
    "/etc/dracut.conf",
    "/etc/dracut.conf.d/*.conf",
    "/usr/lib/dracut/modules.d/" + OURS + "/*",
    "/etc/mkinitcpio.conf",
    "/etc/mkinitcpio.conf.d/*.conf",
    "/etc/kernel/cmdline",
    "/etc/kernel/install.conf",
    "/etc/driverctl.d/*",
    "/etc/rc.local",
    "/etc/rc.d/rc.local",
    "/etc/udev/rules.d/" + OURS,
    "/etc/systemd/system/" + OURS,
    "/usr/local/sbin/" + OURS,
    "/run/gpustack/*",
    "/var/lib/gpustack/*",
)
# Where distributions put theirs: only what speaks of passthrough or of a GPU's driver matters there.
VENDOR_CONFIGURATION = tuple(
    f"{directory}/{name}"
    for name in ("modprobe.d/*.conf", "modules-load.d/*.conf", "dracut/dracut.conf.d/*.conf")
    for directory in ("/run", "/usr/local/lib", "/usr/lib", "/lib")
)
# Where people bind devices by hand, beside the places above: only what does that matters there.
SCRIPTS = (
    "/etc/udev/rules.d/*.rules",
    "/etc/systemd/system/*.service",
    "/etc/initramfs-tools/hooks/*",
    "/etc/initramfs-tools/scripts/*/*",
)
HAND_MADE = re.compile(r"vfio|pci[-_]stub|driver_override|/sys/bus/pci/|/drivers_probe\b")


def matching(host: Host, pattern: str) -> List[str]:
    """The paths that match a shell pattern, one directory at a time."""
    found = [""]
    for part in pattern.split("/")[1:]:
        if "*" in part:
            found = [
                f"{base}/{name}"
                for base in found
                for name in (host.names(base) if is_directory(host, base) else ())
                if fnmatch.fnmatchcase(name, part)
            ]
        else:
            found = [f"{base}/{part}" for base in found]
    return found


def is_directory(host: Host, path: str) -> bool:
    """Whether a path leads to a directory."""
    status = host.status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def configuration_file(host: Host, path: str) -> Optional[Dict[str, Any]]:
    """One file: text, mode, time. A link to ``/dev/null``, which masks a vendor's file, counts as an empty one."""
    if host.link(path) == "/dev/null":
        return {"text": "", "mode": "0666", "mtime_ns": None}
    status = host.status(path)
    if status is None or stat.S_ISDIR(status.st_mode):
        return None
    text = host.text(path, TEXT_LIMIT)
    if text is None:
        return None
    return {"text": text, "mode": f"{stat.S_IMODE(status.st_mode):04o}", "mtime_ns": status.st_mtime_ns}


def configuration_files(host: Host) -> Dict[str, Dict[str, Any]]:
    """The configuration files that passthrough depends on."""
    found: Dict[str, Dict[str, Any]] = {}
    merged = host.link("/lib") is not None  # /lib is /usr/lib: the same files under a second name
    for pattern in CONFIGURATION + VENDOR_CONFIGURATION + SCRIPTS:
        if merged and pattern.startswith("/lib/"):
            continue
        for path in matching(host, pattern):
            entry = configuration_file(host, path) if path not in found else None
            wanted = HAND_MADE if pattern in SCRIPTS else RELEVANT
            if entry is not None and (pattern in CONFIGURATION or wanted.search(entry["text"])):
                found[path] = entry
    return found


# --- The whole -------------------------------------------------------------------------------------------------

# Display controllers, processing accelerators, audio devices, USB controllers and the UCSI function of a USB-C port
# ("other serial bus"): what a GPU's slot has.
GPU_CLASSES = ("03", "12", "0403", "0c03", "0c80")


def collect(root: str = "/") -> Dict[str, Any]:
    """Everything about one host, as plain data for JSON.

    :param root: the directory to read as ``/``.
    :raises NotADirectoryError: when ``root`` is no directory.
    """
    host = Host(root)
    machine_type = architecture(host)
    functions = pci(host)
    in_use = holders(host, functions)
    for entry in functions:
        entry["holders"] = in_use.get(entry["address"])
    drivers = (
        name
        for entry in functions
        if entry["class"].startswith(GPU_CLASSES)
        for name in [entry["driver"], *entry["modules"]]
    )
    gpu_modules = {normalised(name) for name in drivers if name and MODULE_NAME.fullmatch(name)}
    return {
        "version": VERSION,
        "collected_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "hostname": hostname(host),
        "root": host.root.decode("utf-8", "replace"),
        "privileged": os.geteuid() == 0,
        "architecture": machine_type,
        "os_release": os_release(host),
        "container": container(host),
        "machine": machine(host),
        "cpu": cpu(host),
        "memory_mib": memory_mib(host.text("/proc/meminfo", TEXT_LIMIT)),
        "numa_nodes": numa_nodes(host),
        "kernel": kernel(host),
        "iommu": iommu(host),
        "boot": boot(host, machine_type, gpu_modules),
        "initramfs_tool": initramfs_tool(host),
        "files": configuration_files(host),
        "pci": functions,
        "unread": host.unread,
    }


def main(arguments: List[str]) -> int:
    """Print the JSON of the host; the exit status is 2 when the root is no directory."""
    root = "/"
    if arguments:
        import argparse  # only here: it takes a tenth of the whole time

        parser = argparse.ArgumentParser(prog="collect.py", description="Print the facts of this host as JSON.")
        parser.add_argument("--root", default="/", metavar="DIR", help="read this directory as if it were /")
        root = parser.parse_args(arguments).root
    try:
        found = collect(root)
    except OSError as error:
        sys.stderr.write(f"collect.py: {root}: {error.strerror or error}\n")
        return 2
    json.dump(found, sys.stdout, sort_keys=True)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
