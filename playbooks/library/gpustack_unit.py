#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin ``gpustack_unit``, which runs on the controller."""

DOCUMENTATION = """
---
module: gpustack_unit
short_description: Find the systemd unit of nova-compute on a host
description:
  - Returns the commands that stop and start nova-compute. The host chooses among the given units only.
options:
  units:
    description:
      - The possible units, the preferred one first.
    type: list
    elements: str
    required: true
  stop:
    description:
      - The command that stops nova-compute; if it is set, no unit is searched.
    type: list
    elements: str
    default: []
  start:
    description:
      - The command that starts nova-compute.
    type: list
    elements: str
    default: []
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
- name: Find the systemd unit of nova-compute on a host
  nova_gpustack.passthrough.gpustack_unit:
    units: [nova-compute.service]
"""

RETURN = """
stop:
  description: The command that stops nova-compute.
  returned: success
  type: list
  elements: str
start:
  description: The command that starts it; empty if the operator starts it.
  returned: success
  type: list
  elements: str
"""
