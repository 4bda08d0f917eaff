"""Boot entries from Boot Loader Specification files, and the form of all entries."""

import re
from typing import Any, Dict, List, Optional

from .grub import expanded
from .limits import CONTROL, CONTROL_BUT_TAB, LINE_LIMIT, TEXT_LIMIT
from .mounts import BOOT_PARTITIONS, boot_path
from .reader import HostRoot

# Arguments of single-user and rescue entries (kernel-parameters.txt: single; systemd(1): rescue, emergency, 1, s, S;
# Ubuntu's 10_linux: recovery). Titles are translated, so they are less reliable.
RECOVERY_ARGUMENTS = frozenset(
    ("single", "recovery", "rescue", "emergency", "1", "s", "S", "systemd.unit=rescue.target")
)


def is_recovery(title: str, image: str, arguments: str) -> bool:
    """Whether an entry boots to single-user mode or a rescue image."""
    return (
        not RECOVERY_ARGUMENTS.isdisjoint(arguments.split())
        or "(recovery mode)" in title
        or re.search(r"/(?:vmlinuz-)?0-rescue", image) is not None  # dracut's, also below an entry token
    )


def boot_entry(
    host: HostRoot, source: str, title: str, image: str, initrds: List[str], arguments: str
) -> Optional[Dict[str, Any]]:
    """One entry of the boot menu; ``None``, with a note, if it contains control characters or overlong lines."""
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


def loader_entries(host: HostRoot, variables: Dict[str, str]) -> List[Dict[str, Any]]:
    """Type 1 entries of the Boot Loader Specification: ``loader/entries/*.conf`` on the boot partition."""
    parsed: List[Dict[str, Any]] = []
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
            entry = boot_entry(host, path, title, fields["linux"][0].strip(), initrds, options)
            if entry is not None:
                parsed.append({**entry, "id": name[: -len(".conf")]})
    return parsed
