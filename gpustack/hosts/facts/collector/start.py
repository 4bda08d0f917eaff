"""How the next boot starts: variables of the firmware, kexec, and the drivers of the devices that the boot needs."""

import re
from typing import Any, Dict, Iterable, List, Optional

from .aliases import normalised
from .kernel import EFIVARS
from .limits import CONTROL, MODULE_NAME, VALUE_LIMIT
from .reader import HostRoot
from .tools import any_of

LOADER_VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
VARIABLES = {
    "loader": "LoaderInfo",
    "stub": "StubInfo",
    "selected": "LoaderEntrySelected",
    "default": "LoaderEntryDefault",
    "once": "LoaderEntryOneShot",
}


def variables(host: HostRoot) -> Dict[str, Optional[str]]:
    """The EFI variables of boot loader and stub (systemd.io/BOOT_LOADER_INTERFACE): UTF-16 after four bytes."""
    texts = {}
    for key, name in VARIABLES.items():
        content = host.data(f"{EFIVARS}/{name}-{LOADER_VENDOR}", VALUE_LIMIT)
        text = (content or b"")[4:].decode("utf-16-le", "replace").rstrip("\0")
        texts[key] = CONTROL.sub("", text) or None
    return texts


def next_start(host: HostRoot) -> Dict[str, Any]:
    """What ``systemctl reboot`` starts instead of the boot loader: a loaded kexec kernel, or ``/run/nextroot``."""
    return {"kexec_loaded": host.flag("/sys/kernel/kexec_loaded"), "next_root": host.exists("/run/nextroot")}


def needed_modules(functions: Iterable[Dict[str, Any]]) -> List[str]:
    """The modules of network cards and disk controllers in use: the next kernel must have them."""
    used = [f for f in functions if f["uses"].get("block") or any(map(_is_used, f["uses"].get("net", ())))]
    names = {normalised(name) for f in used for name in (f["driver_module"], *f["uses"].get("drivers", ())) if name}
    return sorted(name for name in names if MODULE_NAME.fullmatch(name))


def _is_used(interface: Dict[str, Any]) -> bool:
    return interface["routes"] in ("default", "networks") or bool(interface["uppers"])


_COMMAND_LINE = re.compile(r"^[^#\n]*\bLOAD_KEXEC=[\"']?true\b", re.MULTILINE)


def loads_kexec(host: HostRoot) -> bool:
    """Whether kexec-tools loads a kernel at each shutdown: its init script ``kexec-load``, ``/etc/default/kexec``."""
    if not any_of(host, "kexec"):
        return False
    paths = ["/etc/default/kexec", *("/etc/default/kexec.d/" + name for name in host.names("/etc/default/kexec.d"))]
    return any(_COMMAND_LINE.search(host.text(path, VALUE_LIMIT) or "") for path in paths)
