#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin ``gpustack_turn``, which runs on the controller."""

DOCUMENTATION = """
---
module: gpustack_turn
short_description: Begin the turn of a batch of hosts
description:
  - 'Fails if a host of an earlier batch became unreachable while it was changed: Ansible counts failed hosts only.'
options:
  max_fail_percentage:
    description:
      - The percentage of hosts that may fail; above 0, lost hosts are accepted.
    type: raw
    default: 0
  serial:
    description:
      - The sizes of the batches, which the first task of a run shows.
    type: raw
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
- name: Begin the turn of a batch of hosts
  nova_gpustack.passthrough.gpustack_turn:
    max_fail_percentage: 0
"""

RETURN = """
# nothing of its own
"""
