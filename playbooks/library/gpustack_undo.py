#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin ``gpustack_undo``, which runs on the controller."""

DOCUMENTATION = """
---
module: gpustack_undo
short_description: Plan the undo of a host, or verify it
description:
  - Plans on the controller how to remove every file and kernel argument of gpustack, and shows the plan.
options:
  facts:
    description:
      - The facts of the host, as M(nova_gpustack.passthrough.gpustack_facts) returns them.
    type: dict
    required: true
  hostname:
    description:
      - The name of the host.
    type: str
    required: true
  force:
    description:
      - Whether to remove files that were modified since gpustack wrote them.
    type: bool
    default: false
  verify:
    description:
      - Whether to verify the undone host instead of planning.
    type: bool
    default: false
  initramfs:
    description:
      - The contents of the initramfs images, for O(verify).
    type: dict
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
- name: Plan the undo of a host, or verify it
  nova_gpustack.passthrough.gpustack_undo:
    facts: "{{ read.facts }}"
    hostname: gpu01
"""

RETURN = """
text:
  description: The text that the task shows.
  returned: always
  type: str
"""
