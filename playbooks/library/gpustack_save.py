#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin ``gpustack_save``, which runs on the controller."""

DOCUMENTATION = """
---
module: gpustack_save
short_description: Write the facts of the play's hosts into a snapshot
description:
  - Writes the facts of each host, with its groups in the inventory, into a file with mode 0600 on the controller.
  - Use it with C(run_once). The file is the same as that of C(gpustack scan -i INVENTORY --save FILE).
options:
  path:
    description:
      - The file, or an existing directory in which the run gets a file of its own.
    type: path
    required: true
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  platform:
    platforms: all
author:
  - The gpustack authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Write the facts of the play's hosts into a snapshot
  nova_gpustack.passthrough.gpustack_save:
    path: hosts.json
  run_once: true
"""

RETURN = """
path:
  description: The snapshot file.
  returned: always
  type: str
text:
  description: The text that the task shows.
  returned: always
  type: str
unusable:
  description: The hosts whose facts are not in the snapshot, and why.
  returned: always
  type: dict
"""
