#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin ``gpustack_plan``, which runs on the controller."""

DOCUMENTATION = """
---
module: gpustack_plan
short_description: Plan a host from the spec and its facts
description:
  - Plans on the controller and shows the plan. An error in the plan fails the task.
  - It changes nothing; other modules carry the plan out.
options:
  spec:
    description:
      - The path of the spec on the controller.
    type: str
    required: true
  facts:
    description:
      - The facts of the host, as M(nova_gpustack.passthrough.gpustack_facts) returns them.
    type: dict
    required: true
  hostname:
    description:
      - The name of the host in the spec.
    type: str
    required: true
  adopt:
    description:
      - Whether to adopt settings that were made by hand.
    type: bool
    default: false
  live:
    description:
      - Whether to bind cards on the running host where possible.
    type: bool
    default: false
  shown:
    description:
      - The plan that was shown before; the same plan is not shown again.
    type: str
    default: ''
  trial:
    description:
      - The seconds that a trial boot may take; without it there is no trial.
    type: int
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
- name: Plan a host from the spec and its facts
  nova_gpustack.passthrough.gpustack_plan:
    spec: gpustack.yaml
    facts: "{{ read.facts }}"
    hostname: gpu01
"""

RETURN = """
text:
  description: The text that the task shows.
  returned: always
  type: str
"""
