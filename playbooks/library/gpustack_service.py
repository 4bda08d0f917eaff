#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin ``gpustack_service``, which runs on the controller."""

DOCUMENTATION = """
---
module: gpustack_service
short_description: Take a host out of service before its reboot, and return it
description:
  - Calls Nova's API on the controller. In check mode only V(plan) of O(phase) runs.
options:
  phase:
    description:
      - The step to run.
    type: str
    required: true
    choices:
      - plan
      - disable
      - empty
      - resume
      - failed
  cloud:
    description:
      - The name of the cloud in clouds.yaml.
    type: str
    required: true
  hostname:
    description:
      - The name of the host in the spec.
    type: str
    required: true
  facts:
    description:
      - The facts of the host.
    type: dict
  compute_host:
    description:
      - The name of the host's compute service, if it differs from O(hostname).
    type: str
    default: ''
  guests:
    description:
      - The policy for instances without a GPU.
    type: str
    default: refuse
  device_guests:
    description:
      - The policy for instances with a GPU.
    type: str
    default: refuse
  live_migratable:
    description:
      - Models whose instances can be live-migrated.
    type: list
    elements: str
    default: []
  plain_ports:
    description:
      - Ports that a live migration may move.
    type: list
    elements: str
    default: []
  not_running:
    description:
      - Instances that count as not running.
    type: list
    elements: str
    default: []
  spec:
    description:
      - The path of the spec on the controller.
    type: str
  why:
    description:
      - The reasons that Nova records with the disabled service.
    type: list
    elements: str
    default: []
  timeout:
    description:
      - The seconds that the instances may take to leave.
    type: int
    default: 1800
  reboot:
    description:
      - Whether the host will be rebooted.
    type: bool
    default: false
  disabled:
    description:
      - Whether this run disabled the service.
    type: bool
    default: false
  max_disabled:
    description:
      - How many compute services gpustack may have disabled at a time in the cloud; 0 for no limit.
    type: int
    default: 0
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
- name: Take a host out of service before its reboot, and return it
  nova_gpustack.passthrough.gpustack_service:
    phase: plan
    cloud: admin
    hostname: gpu01
"""

RETURN = """
text:
  description: The text that the task shows.
  returned: always
  type: str
"""
