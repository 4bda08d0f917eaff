"""Collect the facts of one host, and print them."""

import json
import os
import sys
import time
from typing import Any, Dict, Iterable, List, Set

from .aliases import add_modules, normalised
from .boot import boot
from .configuration import configuration_files
from .functions import GPU_CLASSES, pci
from .groups import groups, without_iommu
from .images import kernel_modules
from .kernel import iommu, kernel
from .limits import MODULE_NAME, TEXT_LIMIT
from .machine import architecture, container, cpu, hostname, machine, memory_mib, numa_nodes, os_release
from .names import NAMED_MODULES
from .open_by import holders
from .reader import HostRoot
from .start import needed_modules
from .tools import initramfs_tool, libvirt_version
from .tpm import tpm
from .vgpus import domains

VERSION = 1

PASSED_CLASSES = ("03", "12", "0680")  # GPUs and NVSwitches


def collect(root: str = "/") -> Dict[str, Any]:
    """Return the facts of one host as plain data for JSON.

    :param root: the directory to read as ``/``.
    :raises NotADirectoryError: if ``root`` is not a directory.
    """
    host = HostRoot(root)
    machine_type = architecture(host)
    functions = pci(host)
    started = boot(host, machine_type)
    add_modules(host, functions, started["kernels"])
    wanted = sorted({*NAMED_MODULES, *gpu_modules(functions), *needed_modules(functions)})
    for installed in started["kernels"]:
        installed["modules"] = kernel_modules(host, installed["release"], wanted)
    in_use = holders(host, functions)
    no_iommu = without_iommu(host)
    for entry in functions:
        entry["holders"] = in_use.get(entry["address"])
        if entry["iommu_group"] in no_iommu:
            entry["iommu_group"] = None
    offered = [entry for entry in functions if entry["class"].startswith(PASSED_CLASSES)]
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
        "iommu": {**iommu(host, no_iommu), "groups": groups(host, offered)},
        "boot": started,
        "initramfs_tool": initramfs_tool(host),
        "tpm": tpm(host),
        "files": configuration_files(host),
        "pci": functions,
        "libvirt": libvirt_version(host, machine_type),
        "domains": domains(host, functions),
        "unread": host.unread,
    }


def gpu_modules(functions: Iterable[Dict[str, Any]]) -> Set[str]:
    """The current drivers of functions with a class of GPU cards, and those that match in any bootable kernel."""
    gpus = [entry for entry in functions if entry["class"].startswith(GPU_CLASSES)]
    names = [name for entry in gpus for name in [entry["driver"], *entry["modules"], *entry["other_modules"]] if name]
    return {normalised(name) for name in names if MODULE_NAME.fullmatch(name)}


def main(arguments: List[str]) -> int:
    """Print the facts as JSON; return the exit status, 2 if the root is not a directory."""
    root = "/"
    if arguments:
        import argparse  # only here: the import takes a tenth of the run time

        parser = argparse.ArgumentParser(prog="collect.py", description="Print the facts of this host as JSON.")
        parser.add_argument("--root", default="/", metavar="DIR", help="read this directory as if it were /")
        root = parser.parse_args(arguments).root
    try:
        document = collect(root)
    except OSError as error:
        sys.stderr.write(f"collect.py: {root}: {error.strerror or error}\n")
        return 2
    json.dump(document, sys.stdout, sort_keys=True)
    sys.stdout.write("\n")
    return 0
