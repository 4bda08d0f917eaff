#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin ``gpustack_verify``, which runs on the controller."""

DOCUMENTATION = """
---
module: gpustack_verify
short_description: Verify that the GPUs of a host are available for passthrough
description:
  - Compares spec, facts and initramfs images on the controller. An error fails the task.
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
  initramfs:
    description:
      - The contents of the initramfs images.
    type: dict
  hostname:
    description:
      - The name of the host in the spec.
    type: str
    required: true
  trial:
    description:
      - Whether the host runs a trial boot.
    type: bool
    default: false
  next:
    description:
      - Whether to verify the boot entries of the next boot instead of the running host.
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
    platforms: all
author:
  - The gpustack authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Verify that the GPUs of a host are available for passthrough
  nova_gpustack.passthrough.gpustack_verify:
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
