"""mtty, the kernel's sample of a driver with mediated devices, for the lab's hosts: no GPU has a driver that runs here.

Debian's kernels have the core of mediated devices and no sample, so this builds it from ``linux-source``. Its parent is
no PCI function, but Nova names parents by their PCI address: a patch registers it on the function that the parameter
``parent`` names, with room for a few devices. They are serial ports.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from . import recipe
from .errors import LabError
from .image import Reporter, in_cache, run
from .machine import Machine

DEVICE_ID = "4348:3253"
"""What a guest sees (``mtty_create_config_space``)."""
ROOM = 2
"""The most devices of two ports each."""
SOURCE = "linux-source-6.1"
_FILE = f"./usr/src/{SOURCE}.tar.xz"
_MTTY = f"{SOURCE}/samples/vfio-mdev/mtty.c"
_PARENT = """\
#include <linux/pci.h>
static char *parent;
module_param(parent, charp, 0444);
static unsigned int domain, bus, slot, number;
static struct pci_dev *card;

"""
_LOOK_UP = """\
	ret = -ENODEV;
	if (!parent || sscanf(parent, "%x:%x:%x.%x", &domain, &bus, &slot, &number) != 4)
		goto err_device;
	card = pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, number));
	if (!card)
		goto err_device;
"""
_REGISTER = "\tret = mdev_register_parent(&mtty_dev.parent, &mtty_dev.dev,"
_PATCH = (
    ("struct mdev_region_info {", f"{_PARENT}struct mdev_region_info {{"),
    ("#define MAX_MTTYS\t24", f"#define MAX_MTTYS\t{2 * ROOM}"),
    (_REGISTER, _LOOK_UP + _REGISTER.replace("mtty_dev.dev", "card->dev")),
)


def built(release: str, report: Reporter) -> Path:
    """The module for a kernel of the lab's image, from Debian's packages or from the cache."""

    def build(directory: Path) -> None:
        tree = directory / "tree"
        tree.mkdir()
        headers = f"linux-headers-{release}"
        hook = f"""--extract-hook=tar -C "$1" -cf - usr/src usr/lib/linux-kbuild-6.1 | tar -C '{tree}' -xf -"""
        argv = ["mmdebstrap", "--quiet", "--variant=extract", "--format=null", f"--include={headers},{SOURCE}"]
        run(*argv, hook, recipe.SUITES[0], "/dev/null")
        kernel = tree / "usr/src" / headers
        makefile = kernel / "Makefile"
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{kernel.parent}/"))
        archive = kernel.parent / f"{SOURCE}.tar.xz"
        source = subprocess.run(["tar", "-xJOf", archive, _MTTY], check=True, capture_output=True, text=True).stdout
        (directory / "mtty.c").write_text(patched(source))
        (directory / "Makefile").write_text("obj-m := mtty.o\n")
        run("make", "-s", "-C", str(kernel), f"M={directory}", "modules")
        run("strip", "--strip-debug", str(directory / "mtty.ko"))
        run("rm", "-rf", str(tree))

    digest = hashlib.sha256(Path(__file__).read_bytes() + release.encode()).hexdigest()
    return in_cache(f"{recipe.SUITES[0]}-mtty-{digest[:16]}", build, report) / "mtty.ko"


def patched(source: str) -> str:
    """The driver, whose parent is a PCI function.

    :raises LabError: the source is another one than expected.
    """
    for old, new in _PATCH:
        if source.count(old) != 1:
            raise LabError(f"{_MTTY}: {old!r} is there {source.count(old)} times, not once")
        source = source.replace(old, new)
    return source


def install(host: Machine, report: Reporter, address: str) -> str:
    """Load the driver now and at each boot, with the card at this address as its parent; return the type of two ports.

    The names of types begin with that of the card's driver, so that one is loaded before.
    """
    release = host.ssh(["uname", "-r"]).strip()
    place = f"/lib/modules/{release}/extra"
    command = ["ssh", *host.ssh_options(), "root@127.0.0.1", f"mkdir -p {place} && cat >{place}/mtty.ko"]
    with built(release, report).open("rb") as module:
        subprocess.run(command, stdin=module, check=True, timeout=600)
    driver = host.ssh(["readlink", f"/sys/bus/pci/devices/{address}/driver"]).strip().rpartition("/")[2]
    host.ssh(["tee", "/etc/modprobe.d/mtty.conf"], stdin=f"options mtty parent={address}\nsoftdep mtty pre: bochs\n")
    host.ssh(["tee", "/etc/modules-load.d/mtty.conf"], stdin="mtty\n")
    host.ssh(["sh", "-c", "depmod && modprobe mtty"])
    return f"{driver}-2"
