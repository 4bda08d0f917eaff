"""What the host looks like from inside: its PCI functions, and the state of its disk."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .machine import Machine

READ_FUNCTIONS = """
import json, os
base = "/sys/bus/pci/devices"
def text(*names):
    with open(os.path.join(base, *names)) as file:
        return file.read().strip()
def link(*names):
    try:
        return os.path.basename(os.readlink(os.path.join(base, *names)))
    except FileNotFoundError:
        return None
print(json.dumps([
    {
        "address": address,
        "id": text(address, "vendor")[2:] + ":" + text(address, "device")[2:],
        "driver": link(address, "driver"),
        "group": link(address, "iommu_group"),
    }
    for address in sorted(os.listdir(base))
]))
"""

# Directories that a running system writes in by itself, or Ansible for its own purposes.
VOLATILE = ("/tmp", "/var/log", "/var/tmp", "/var/lib/systemd", "/root/.ansible", "/home/deploy/.ansible")


@dataclass(frozen=True, kw_only=True)
class Function:
    """One PCI function as the host's kernel has it now."""

    address: str
    id: str
    driver: str | None
    group: str | None


def functions(host: Machine) -> list[Function]:
    """Every PCI function, in the order of the addresses."""
    return [Function(**item) for item in json.loads(host.ssh(["python3", "-"], stdin=READ_FUNCTIONS))]


def disk_state(host: Machine) -> frozenset[str]:
    """A line for every file and directory on the root disk; any write to a file changes its line.

    The time of the last inode change cannot be set by a program, so it tells of every write; of a directory, which
    changes with a temporary name in it, the contents are on other lines already.
    """
    pruned = [argument for path in VOLATILE for argument in ("-path", path, "-o")][:-1]
    command = ["find", "/", "-xdev", "(", *pruned, ")", "-prune", "-o"]
    command += ["(", "-type", "d", "-printf", r"%p %y %m %U:%G\n", ")", "-o", "-printf"]
    command += [r"%p %y %m %U:%G %i %s %C@ %l\n"]
    return frozenset(host.ssh(command).splitlines())
