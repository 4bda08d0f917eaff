"""A guest inside the lab's host: the proof that a GPU can be given away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import recipe
from .machine import Machine

GUEST_TIMEOUT = 900.0
GUEST_SLOT = 5

# No ACPI and no self-tests: an emulated guest in an emulated host is slow enough without.
GUEST_ARGUMENTS = "console=ttyS0 panic=-1 quiet mitigations=off no_timer_check acpi=off audit=0 lsm= cryptomgr.notests"


def functions_in_guest(host: Machine, addresses: Sequence[str]) -> dict[str, str]:
    """Starts a guest in `host` that gets the given functions with vfio-pci, all in one slot.

    Returns what lspci in the guest lists: address to "vendor:product".
    """
    argv = [
        *("qemu-system-x86_64", "-machine", "pc,accel=tcg", "-cpu", "max", "-m", "512"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-kernel", recipe.GUEST_KERNEL, "-initrd", recipe.GUEST_INITRAMFS, "-append", GUEST_ARGUMENTS),
    ]
    for number, address in enumerate(addresses):
        multifunction = ",multifunction=on" if number == 0 else ""
        argv += ["-device", f"vfio-pci,host={address},addr={GUEST_SLOT:x}.{number}{multifunction}"]
    output = host.ssh(argv, timeout=GUEST_TIMEOUT)
    (host.directory / "guest.log").write_text(output)
    listing = output.partition(recipe.GUEST_SPEAKS)[2].partition(recipe.GUEST_IS_DONE)[0]
    lines = re.findall(r"^(\S+) [0-9a-f]{4}: ([0-9a-f]{4}:[0-9a-f]{4})", listing, flags=re.MULTILINE)
    if not lines:
        raise host.error(f"the guest did not list its PCI functions; it said:\n{output[-3000:]}")
    return dict(lines)
