#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module that reads the facts of a host that GPU passthrough depends on."""

from __future__ import annotations

DOCUMENTATION = """
---
module: gpustack_facts
short_description: Read what GPU passthrough depends on from a host
description:
  - Runs gpustack's collector on the host and returns what it prints, the same as C(gpustack scan --save) keeps.
  - Reads only. Needs root rights to see everything; what it could not read is listed in C(facts.unread).
options:
  root:
    description: The directory to read as if it were C(/).
    type: path
    default: /
  initramfs:
    description: Whether to read the initramfs image of every kernel that can boot, too.
    type: bool
    default: false
  only_guests:
    description: Whether to look for guests that run, and read nothing else.
    type: bool
    default: false
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  platform:
    platforms: linux
author:
  - The gpustack authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Read the host
  nova_gpustack.passthrough.gpustack_facts:
    initramfs: true
  register: host
"""

RETURN = """
facts:
  description: What the collector found.
  returned: when O(only_guests) is false
  type: dict
guests:
  description: The guests that run, by the files that libvirt keeps of them, wherever its daemon lives.
  returned: always
  type: list
  elements: str
initramfs:
  description: What is in each kernel's initramfs image, by kernel release; C(error) for one that can't be read.
  returned: when O(initramfs) is true
  type: dict
"""

import os  # noqa: E402
from typing import Any, Dict, List  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible_collections.nova_gpustack.passthrough.plugins.module_utils.gpustack_collector import collect  # noqa: E402
from ansible_collections.nova_gpustack.passthrough.plugins.module_utils.gpustack_initramfs import (  # noqa: E402
    InitramfsError,
    read_initramfs,
)


def images(root: str, facts: Dict[str, Any]) -> Dict[str, Any]:
    """The content of each kernel's initramfs image, by kernel release; ``error`` for an unreadable image."""
    contents = {}
    root = os.path.realpath(root)
    for kernel in facts["boot"]["kernels"]:
        if not kernel["initramfs"]:
            continue
        path = os.path.realpath(os.path.join(root, kernel["initramfs"].lstrip("/")))
        if os.path.commonpath([root, path]) != root:
            contents[kernel["release"]] = {"error": "it is a link out of " + root}
            continue
        try:
            contents[kernel["release"]] = read_initramfs(path)
        except (OSError, InitramfsError) as error:
            contents[kernel["release"]] = {"error": str(error)}
    return contents


def guests(root: str) -> List[str]:
    """The running libvirt domains: libvirt keeps a file for each in /run/libvirt/qemu."""
    try:
        with os.scandir(os.path.join(root, "run/libvirt/qemu")) as entries:
            names = [entry.name for entry in entries if entry.is_file()]
    except OSError:
        return []
    return sorted(name[: -len(".xml")] for name in names if name.endswith(".xml") and not name.startswith("."))


def main() -> None:
    """Read the host and return the facts."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "initramfs": {"type": "bool", "default": False},
            "only_guests": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    root = module.params["root"]
    if not os.path.isabs(root) or not os.path.isdir(root):
        module.fail_json(msg="gpustack_root is not the absolute path of a directory on the host: " + root)
    running = guests(root)
    if module.params["only_guests"]:
        module.exit_json(changed=False, guests=running)
    facts = collect(root)
    result = {"changed": False, "facts": facts, "guests": running}
    if module.params["initramfs"]:
        result["initramfs"] = images(root, facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
