#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module that reads a host's PCI and filter settings of Nova, and writes a marked block into a configuration file."""

from __future__ import annotations

DOCUMENTATION = """
---
module: gpustack_nova_config
short_description: Read Nova's PCI settings, and write a marked block into a file
description:
  - Reads Nova's configuration files. Only the sections C(pci) and C(filter_scheduler), and the old names of their
    options in C(DEFAULT), leave the host; every other line is blanked, so that passwords stay where they are and line
    numbers stay right. Also reads C(/etc/nova/provider_config/gpustack.yaml), without changes.
  - With O(blocks), writes the part of a file that belongs to gpustack, between two marks at its end. What stands
    around it is kept. Differences show the block alone.
options:
  root:
    description: The directory that is the host's root.
    type: path
    default: /
  kolla:
    description: Whether to read the configuration of kolla-ansible's containers.
    type: bool
    default: false
  blocks:
    description: The blocks to write.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path of an existing file, as seen from O(root).
        type: str
        required: true
      text:
        description: What stands between the marks.
        type: str
        required: true
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  platform:
    platforms: linux
author:
  - The gpustack authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Read what is there
  nova_gpustack.passthrough.gpustack_nova_config:
  register: there
"""

RETURN = """
files:
  description: The files, in no order, with the lines that matter.
  returned: always
  type: list
  elements: dict
units:
  description: The systemd units of Nova that the host has.
  returned: always
  type: list
  elements: str
started:
  description: For each service of Nova that runs, the words of its command line that name files and directories.
  returned: always
  type: dict
pending:
  description: The services that an interrupted run has written for and not restarted.
  returned: always
  type: list
  elements: str
engine:
  description: The container engine that the host has, C(docker) or C(podman); empty when it has none.
  returned: always
  type: str
"""

import glob  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
import tempfile  # noqa: E402
from typing import Dict, Iterable, List, Tuple  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402

BEGIN = "# BEGIN gpustack: change the spec and render again"
END = "# END gpustack"
MARKS = ("# Written by gpustack", BEGIN, END)
SECTIONS = ("pci", "filter_scheduler")
PATTERNS = ("etc/nova/nova*.conf", "etc/nova/nova*.conf.d/*.conf")
PROVIDERS = "etc/nova/provider_config/gpustack.yaml"
NOTE = "run/gpustack-nova-restart"
KOLLA = ("etc/kolla/nova-*/nova.conf",)
SERVICE = re.compile(r"nova-(api|compute|scheduler|conductor)(?:-os-compute)?$")
UNITS = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system", "run/systemd/system")


def blanked(text: str) -> str:
    """The text with all lines blanked that do not concern PCI devices or filters: passwords stay on the host."""
    lines, section, inside = [], "", False
    for line in text.splitlines():
        header = re.match(r"\[([^\]]*)\]", line)
        if header:
            name = header.group(1).strip()
            section = name if name == "DEFAULT" else name.lower()
            inside = section in SECTIONS  # an indented line below continues no option
            lines.append(line)
            continue
        if line.startswith(MARKS):
            lines.append(line)
            continue
        if line[:1] not in (" ", "\t"):
            inside = section in SECTIONS or (section == "DEFAULT" and line.startswith(("pci_", "scheduler_")))
            if line.startswith(("#", ";")):
                lines.append("")
                continue
        lines.append(line if inside else "")
    return "\n".join(lines) + "\n"


def provider_file(root: str) -> List[Dict[str, str]]:
    """gpustack's own file of resources for Placement, if it is a file of at most 64 KiB; it has no secrets."""
    path = os.path.join(root, PROVIDERS)
    if not os.path.isfile(path) or os.path.islink(path) or os.path.getsize(path) > 1 << 16:
        return []
    with open(path, encoding="utf-8", errors="replace") as stream:
        return [{"path": "/" + PROVIDERS, "text": stream.read()}]


def read(root: str, patterns: Iterable[str]) -> List[Dict[str, str]]:
    """The matching files, with unrelated lines blanked."""
    files = []
    for pattern in patterns:
        for path in sorted(glob.glob(os.path.join(root, pattern))):
            if os.path.isfile(path):
                with open(path, encoding="utf-8", errors="replace") as stream:
                    files.append({"path": "/" + os.path.relpath(path, root), "text": blanked(stream.read())})
    return files


def units(root: str) -> List[str]:
    """The names of Nova's systemd units."""
    names = set()
    for directory in UNITS:
        for path in glob.glob(os.path.join(root, directory, "*nova-*.service")):
            names.add(os.path.basename(path))
    return sorted(names)


def started(root: str) -> Dict[str, List[str]]:
    """For each running service, its command-line arguments ``--config-file`` and ``--config-dir``."""
    by_service: Dict[str, List[str]] = {}
    for path in sorted(glob.glob(os.path.join(root, "proc/[0-9]*/cmdline"))):
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                arguments = stream.read().split("\0")
        except OSError:  # the process has ended
            continue
        programs = [SERVICE.match(os.path.basename(argument)) for argument in arguments[:3]]
        service = next((match.group(1) for match in programs if match), None)
        if service:
            text = re.sub("(^|\0)(--config-(?:file|dir))\0", r"\1\2=", "\0".join(arguments))
            by_service.setdefault(
                service, [argument for argument in text.split("\0") if argument.startswith("--config-")]
            )
    return by_service


def pending(root: str) -> List[str]:
    """The services whose restart an interrupted run did not complete, from its note."""
    path = os.path.join(root, NOTE)
    if not os.path.isfile(path) or os.path.islink(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read().split()


def engine(root: str) -> str:
    """The installed container engine; empty for none."""
    for name in ("docker", "podman"):
        if os.path.exists(os.path.join(root, "usr/bin", name)):
            return name
    return ""


def has_whole_blocks(text: str) -> bool:
    """Whether each line that begins a block is followed by one that ends it."""
    markers = [marker for line in text.splitlines() for marker in (BEGIN, END) if line.startswith(marker)]
    return markers == [BEGIN, END] * (len(markers) // 2)


def with_block(text: str, block: str) -> str:
    """The text with the block at its end; an existing block is replaced."""
    foreign = re.sub(r"\n*^%s.*?^%s[^\n]*\n?" % (re.escape(BEGIN), re.escape(END)), "\n", text, flags=re.M | re.S)
    return "{}\n\n{}\n{}\n{}\n".format(foreign.rstrip("\n"), BEGIN, block.strip("\n"), END)


def block_of(text: str) -> str:
    """The block of a text, for the diff."""
    block = re.search(r"^%s.*?^%s[^\n]*\n?" % (re.escape(BEGIN), re.escape(END)), text, re.M | re.S)
    return block.group(0) if block else ""


def current(module: AnsibleModule, root: str, block: Dict[str, str]) -> Tuple[str, str]:
    """The path and the text of the file that a block goes into; the run fails if it can't be written there."""
    path = os.path.realpath(os.path.join(root, block["path"].lstrip("/")))
    if os.path.commonpath([root, path]) != root:
        module.fail_json(msg="{} leads out of {}".format(block["path"], root))
    if not os.path.isfile(path):
        module.fail_json(msg="there is no {}: is the service deployed on this host?".format(block["path"]))
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    if not has_whole_blocks(text):
        module.fail_json(
            msg="{}: one of the two lines is missing that enclose gpustack's block, {!r} and {!r}: add it again, or "
            "delete gpustack's lines and the remaining one".format(block["path"], BEGIN, END)
        )
    return path, text


def write(module: AnsibleModule, block: Dict[str, str], path: str, before: str) -> Dict[str, str]:
    """Write one block.

    :returns: the diff of the block; empty if the file is unchanged.
    """
    after = with_block(before, block["text"])
    if before == after:
        return {}
    if not module.check_mode:
        status = os.stat(path)
        descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".gpustack.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(after)
                stream.flush()
                os.fchmod(stream.fileno(), status.st_mode & 0o7777)
                os.fchown(stream.fileno(), status.st_uid, status.st_gid)
                os.fsync(stream.fileno())
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)  # a copy of all options, with their passwords
            raise
    return {
        "before": block_of(before),
        "after": block_of(after),
        "before_header": block["path"],
        "after_header": block["path"],
    }


def main() -> None:
    """Write the blocks, read the configuration, and return the result."""
    block = {"path": {"type": "str", "required": True}, "text": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "kolla": {"type": "bool", "default": False},
            "blocks": {"type": "list", "elements": "dict", "default": [], "options": block},
        },
        supports_check_mode=True,
    )
    root = os.path.realpath(module.params["root"])
    blocks = module.params["blocks"]
    # All files are checked before the first is written.
    files = [(block, current(module, root, block)) for block in blocks]
    diffs = [diff for diff in (write(module, block, *file) for block, file in files) if diff]
    module.exit_json(
        changed=bool(diffs),
        diff=diffs,
        files=(read(root, KOLLA) if module.params["kolla"] else read(root, PATTERNS) + provider_file(root)),
        units=units(root),
        engine=engine(root),
        started=started(root),
        pending=pending(root),
    )


if __name__ == "__main__":
    main()
