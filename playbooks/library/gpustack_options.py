#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin ``gpustack_options``, which runs on the controller."""

DOCUMENTATION = """
---
module: gpustack_options
short_description: Resolve the options of a role before the host is read
description:
  - Takes each option of the task's role from the variables. The role's argument specification defines their types.
  - Fails if a variable that plays read, such as C(gpustack_serial), is set in the inventory, or is no number of hosts.
  - 'Register the result: facts of a host never replace a registered variable, so a host can''t choose options.'
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
- name: Resolve the options before the host is read
  nova_gpustack.passthrough.gpustack_options:
  register: gpustack_settings
"""

RETURN = """
host:
  description: The inventory's name of the host.
  returned: success
  type: str
"""
