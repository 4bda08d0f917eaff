"""The Ansible inventory of example hosts, with stand-ins for the tools and the boot."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from gpustack.connect.playbooks.inventory import interpreter


def inventory(directory: Path, names: Iterable[str]) -> str:
    """The inventory of the example hosts of these names, which are subdirectories of ``directory``."""
    python = json.dumps(sys.executable)
    root = json.dumps(f"{directory}/{{{{ inventory_hostname }}}}")
    lines = [
        "gpu_hosts:",
        "  hosts:",
        *(f"    {name}:" for name in names),
        "  vars:",
        "    ansible_connection: local",
        "    ansible_become: false",
        f"    ansible_python_interpreter: {json.dumps(interpreter())}",
        f"    gpustack_root: {root}",
        "    gpustack_command_prefix:",
        f'      [{python}, -m, gpustack_demo.examples.standin, --root, "{{{{ gpustack_root }}}}"]',
        "    gpustack_reboot_command: \"{{ gpustack_command_prefix + ['reboot'] }}\"",
    ]
    return "\n".join(lines) + "\n"
