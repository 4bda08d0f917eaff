#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin ``gpustack_reboot_host``, which runs on the controller."""

DOCUMENTATION = """
---
module: gpustack_reboot_host
short_description: Reboot a host and detect its return quickly
description:
  - Like M(ansible.builtin.reboot), whose options it takes. It uses a new connection for each try.
options:
  reboot_command:
    description:
      - The command that reboots the host.
    type: str
  reboot_timeout:
    description:
      - The seconds that the host may take to return.
    type: int
    default: 600
  post_reboot_delay:
    description:
      - The seconds to wait after the reboot command.
    type: int
    default: 0
  pre_reboot_delay:
    description:
      - The seconds to wait before the reboot.
    type: int
    default: 0
  connect_timeout:
    description:
      - The seconds that one connection may take.
    type: int
  test_command:
    description:
      - The command that shows that the host is ready.
    type: str
    default: whoami
  msg:
    description:
      - The message for users of the host.
    type: str
    default: Reboot initiated by Ansible
  boot_time_command:
    description:
      - The command whose output changes with each boot.
    type: str
    default: cat /proc/sys/kernel/random/boot_id
  search_paths:
    description:
      - 'Ignored: shutdown is searched in the standard directories.'
    type: list
    elements: str
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
- name: Reboot the host
  nova_gpustack.passthrough.gpustack_reboot_host:
    reboot_timeout: 1200
"""

RETURN = """
rebooted:
  description: Whether the host was rebooted.
  returned: always
  type: bool
elapsed:
  description: The seconds that it took.
  returned: always
  type: int
"""
