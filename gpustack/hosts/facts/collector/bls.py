"""Boot entries from GRUB's configuration and from Boot Loader Specification files."""

import os
import re
from typing import Any, Dict, List, Optional

from .grub import expanded, grub_statements, grub_variables
from .limits import CONTROL, CONTROL_BUT_TAB, LINE_LIMIT, TEXT_LIMIT
from .mounts import BOOT_PARTITIONS, boot_path
from .reader import HostRoot

LINUX_COMMANDS = ("linux", "linux16", "linuxefi")
INITRD_COMMANDS = ("initrd", "initrd16", "initrdefi")
# Arguments of single-user and rescue entries (kernel-parameters.txt: single; systemd(1): rescue, emergency, 1, s, S;
# Ubuntu's 10_linux: recovery). Titles are translated, so they are less reliable.
RECOVERY_ARGUMENTS = frozenset(
    ("single", "recovery", "rescue", "emergency", "1", "s", "S", "systemd.unit=rescue.target")
)
_TUNED = re.compile(r"\$(?:tuned_params\b|\{tuned_params\})")
_MEMORY_TEST = re.compile(r"(?:memtest|mt86)", re.IGNORECASE)


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


def grub_entries(host: HostRoot, source: str, text: str) -> List[Dict[str, Any]]:
    """The menu entries of a ``grub.cfg`` that boot this system's Linux kernels.

    Memory tests and os-prober's entries of other systems are left out. The only expanded variable is
    ``tuned_params``: the menu sets it once, before all entries.
    """
    parsed = []
    tuned = grub_variables(text).get("tuned_params")
    blocks: List[bool] = []
    entries: List[Dict[str, Any]] = []
    for words, tail, end in grub_statements(text):
        if end == "{":
            is_entry = len(words) > 1 and words[0] == "menuentry"
            blocks.append(is_entry)
            if is_entry:
                other = any(word.startswith("osprober-") for word in words)
                entries.append({"title": words[1], "other": other, "image": None, "initrds": [], "arguments": ""})
            continue
        if entries and len(words) > 1:
            if words[0] in LINUX_COMMANDS and entries[-1]["image"] is None:
                arguments = _TUNED.sub(lambda _: tuned, tail) if tuned is not None else tail
                entries[-1].update(image=words[1], arguments=arguments.lstrip(" \t"))
            elif words[0] in INITRD_COMMANDS:
                entries[-1]["initrds"] = words[1:]
        if end == "}" and blocks and blocks.pop():
            entry = entries.pop()
            image = entry["image"]
            if image is None or entry["other"] or _MEMORY_TEST.match(os.path.basename(image)):
                continue
            parsed.append(boot_entry(host, source, entry["title"], image, entry["initrds"], entry["arguments"]))
    return [entry for entry in parsed if entry is not None]


def loader_entries(host: HostRoot, variables: Dict[str, str]) -> List[Dict[str, Any]]:
    """Type 1 entries of the Boot Loader Specification: ``loader/entries/*.conf`` on the boot partition."""
    parsed = []
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
            parsed.append(boot_entry(host, path, title, fields["linux"][0].strip(), initrds, options))
    return [entry for entry in parsed if entry is not None]
