#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module that reads which PCI functions the instances of a host use."""

from __future__ import annotations

DOCUMENTATION = """
---
module: gpustack_domains
short_description: Read which PCI functions the instances of a host use
description:
  - Runs the program that C(gpustack cleanup) sends to hosts, and returns what it prints.
  - Reads only. Needs root rights to see everything; unreadable files are listed in C(unread).
options:
  root:
    description: The directory to read as if it were C(/).
    type: path
    default: /
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
- name: Read the devices in use
  nova_gpustack.passthrough.gpustack_domains:
  register: domains
"""

RETURN = """
used:
  description: The users of each function in use, by address.
  returned: always
  type: dict
unread:
  description: What could not be read, with the reason.
  returned: always
  type: list
  elements: list
functions:
  description: Vendor and product of every function, by address.
  returned: always
  type: dict
libvirt:
  description: Whether libvirt runs there.
  returned: always
  type: bool
nova_compute:
  description: The processes of nova-compute.
  returned: always
  type: list
  elements: int
names:
  description: What the machine calls itself.
  returned: always
  type: list
  elements: str
"""

import os  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible_collections.nova_gpustack.passthrough.plugins.module_utils.gpustack_domains import look  # noqa: E402


def main() -> None:
    """Read the host and return the result."""
    module = AnsibleModule(argument_spec={"root": {"type": "path", "default": "/"}}, supports_check_mode=True)
    root = module.params["root"]
    if root != "/" and not os.path.isdir(os.path.join(root, "proc/1")):  # an image has no processes
        module.exit_json(changed=False, used={}, unread=[], functions={}, libvirt=False, nova_compute=[], names=[])
    module.exit_json(changed=False, **look(root))


if __name__ == "__main__":
    main()
