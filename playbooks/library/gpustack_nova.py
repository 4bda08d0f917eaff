#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin ``gpustack_nova``, which runs on the controller."""

DOCUMENTATION = """
---
module: gpustack_nova
short_description: Render a host's Nova configuration from the spec and all hosts' facts
description:
  - Without O(decided), returns the settings of all hosts. With it, returns the files and commands of one host.
options:
  spec:
    description:
      - The path of the spec on the controller.
    type: str
    required: true
  hostname:
    description:
      - The name of the host in the spec.
    type: str
    default: ''
  decided:
    description:
      - The settings of all hosts, from an earlier task of this module.
    type: dict
  snapshot:
    description:
      - The paths of snapshots, or of directories of snapshots, with facts of hosts outside the play.
    type: list
    elements: path
    default: []
  absent:
    description:
      - Hosts of the spec that need no facts.
    type: list
    elements: str
    default: []
  services:
    description:
      - The services of Nova on the host.
    type: list
    elements: str
    default: []
  facts:
    description:
      - The facts of the host.
    type: dict
  root:
    description:
      - The directory that the paths start from.
    type: str
    default: /
  kolla:
    description:
      - Whether the services run in containers of kolla-ansible.
    type: bool
    default: false
  restart:
    description:
      - Which services to restart.
    type: str
    default: changed
    choices:
      - changed
      - always
      - never
  runs:
    description:
      - Whether the play runs the commands.
    type: bool
    default: true
  databases:
    description:
      - The URLs of Nova's databases, to check a restart of nova-compute.
    type: list
    elements: str
    default: []
  compute_host:
    description:
      - The name of the host's compute service, if it differs from O(hostname).
    type: str
    default: ''
  unchecked:
    description:
      - Instances or rows that a restart accepts without a check.
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
- name: Render a host's Nova configuration from the spec and all hosts' facts
  nova_gpustack.passthrough.gpustack_nova:
    spec: gpustack.yaml
"""

RETURN = """
text:
  description: The text that the task shows.
  returned: always
  type: str
"""
