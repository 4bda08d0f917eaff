#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module that binds PCI functions to another driver on the running host, if nothing uses them."""

from __future__ import annotations

DOCUMENTATION = """
---
module: gpustack_live
short_description: Bind PCI functions to another driver on the running host
description:
  - Takes each card from its host driver and gives it to another one, by C(driver_override) in sysfs.
  - Looks right before what uses a card. One that is in use is left alone, and the module fails and names the user.
  - Each write that could wait in the kernel is done by a process of its own, so the module answers even when that
    one never returns.
  - A card that does not get its new driver is given back to the old one.
options:
  root:
    description: The directory that holds C(sys), C(proc) and C(run).
    type: path
    default: /
  cards:
    description: The cards to bind, one after another.
    type: list
    elements: dict
    required: true
    suboptions:
      card:
        description: The address of the card itself.
        type: str
        required: true
      driver:
        description: The driver that shall have it.
        type: str
        required: true
      why:
        description: Why it is bound; not used.
        type: str
      functions:
        description: The functions to bind, in this order, and what each must be.
        type: list
        elements: dict
        required: true
        suboptions:
          address:
            description: Its address.
            type: str
            required: true
          before:
            description: The driver that has it now; none when not given.
            type: str
          vendor:
            description: Its vendor id.
            type: str
            required: true
          product:
            description: Its product id.
            type: str
            required: true
          pci_class:
            description: Its class.
            type: str
            required: true
  command_prefix:
    description: Words to put before C(modprobe).
    type: list
    elements: str
    default: []
  timeout:
    description: How long to wait for the kernel at each step, in seconds.
    type: int
    default: 60
attributes:
  check_mode:
    support: full
author:
  - The gpustack authors
"""

EXAMPLES = """
- name: Bind a card
  gpustack_live:
    cards:
      - card: "0000:88:00.0"
        driver: vfio-pci
        functions:
          - {address: "0000:88:00.0", before: nouveau, vendor: "10de", product: "11b4", pci_class: "030000"}
"""

RETURN = """
bound:
  description: The addresses of the functions that were bound, or would be.
  returned: always
  type: list
  elements: str
"""

import errno  # noqa: E402
import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from typing import Any, Dict, List, Optional  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.gpustack_collector import collect  # noqa: E402

PATIENCE = 10  # seconds to wait for a host driver to bind again; there may be none
RECORD = "run/gpustack/devices"
WRITE = "import os, sys; os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC), sys.argv[2].encode())"


class LiveError(Exception):
    """A card was not bound; the message is the reason."""


class Bus:
    """The PCI bus in sysfs below a root."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.root = module.params["root"]
        self.bus = os.path.join(self.root, "sys/bus/pci")
        self.timeout = module.params["timeout"]

    def device(self, address: str, name: str) -> str:
        return os.path.join(self.bus, "devices", address, name)

    def driver(self, address: str) -> Optional[str]:
        """The current driver of a function; None for none."""
        try:
            return os.path.basename(os.readlink(self.device(address, "driver")))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return None

    def write(self, path: str, text: str, action: str) -> None:
        """Write to a file of sysfs in a separate process, since the write may block in the kernel indefinitely.

        :param action: the action, for messages.
        :raises LiveError: when the write does not return in time, or the kernel refuses it.
        """
        child = subprocess.Popen(
            [sys.executable, "-c", WRITE, path, text],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = child.wait(self.timeout)
        except subprocess.TimeoutExpired:
            raise LiveError(
                "{} has not returned after {} s: process {} waits in the kernel. Nothing else was touched. See "
                "journalctl -k; when it stays so, a reboot is the way out".format(action, self.timeout, child.pid)
            ) from None
        if code != 0:
            raise LiveError("{} failed: the kernel refused to write {!r} to {}".format(action, text.strip(), path))

    def wait(self, address: str, driver: Optional[str]) -> bool:
        """Wait until a function has this driver (None: no driver); False after the timeout."""
        end = time.monotonic() + self.timeout
        while self.driver(address) != driver:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def load(self, driver: str) -> None:
        """Load the driver's module if the driver is not registered yet.

        :raises LiveError: when the driver is still missing.
        """
        directory = os.path.join(self.bus, "drivers", driver)
        if not os.path.isdir(directory):
            self.module.run_command(self.module.params["command_prefix"] + ["modprobe", driver], check_rc=True)
        if not os.path.isdir(directory):
            raise LiveError("modprobe {} succeeded, and there is no such driver".format(driver))

    def move(self, address: str, driver: str) -> None:
        """Unbind a function from its driver, and bind it to another.

        :raises LiveError: when it still has no new driver after the timeout.
        """
        self.write(self.device(address, "driver_override"), driver + "\n", "setting driver_override of " + address)
        before = self.driver(address)
        if before not in (None, driver):
            action = "taking {} from {}".format(address, before)
            self.write(os.path.join(self.bus, "drivers", before, "unbind"), address, action)
            if not self.wait(address, None):
                raise LiveError("{}: the driver still has it after {} s".format(action, self.timeout))
        if self.driver(address) is None:
            self.write(os.path.join(self.bus, "drivers_probe"), address, "giving {} to {}".format(address, driver))
        if not self.wait(address, driver):
            raise LiveError("{} did not take {}: see journalctl -k".format(driver, address))

    def give_back(self, address: str) -> None:
        """Restore the driver that the kernel selects for a function."""
        self.write(self.device(address, "driver_override"), "\n", "clearing driver_override of " + address)
        current = self.driver(address)
        if current is not None:
            self.write(
                os.path.join(self.bus, "drivers", current, "unbind"),
                address,
                "taking {} from {}".format(address, current),
            )
            self.wait(address, None)
        self.write(os.path.join(self.bus, "drivers_probe"), address, "giving {} back".format(address))
        end = time.monotonic() + min(self.timeout, PATIENCE)
        while self.driver(address) is None and time.monotonic() < end:
            time.sleep(0.05)

    def record(self, address: str, driver: str) -> None:
        """Record below /run, until the next boot, that gpustack has bound a function."""
        path = os.path.join(self.root, RECORD)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(path, "a", encoding="utf-8") as stream:
            stream.write("{} is kept for {}\n".format(address, driver))


def against(card: Dict[str, Any], facts: Dict[str, Any]) -> List[str]:
    """The reasons why a card must not be bound now; empty if there are none."""
    by_address = {entry["address"]: entry for entry in facts["pci"]}
    reasons = []
    for wanted in card["functions"]:
        address, entry = wanted["address"], by_address.get(wanted["address"])
        if entry is None:
            reasons.append(address + " is gone")
            continue
        identity = [wanted["vendor"], wanted["product"], wanted["pci_class"]]
        if [entry["vendor"], entry["product"], entry["class"]] != identity:
            reasons.append("another device is at {} than when the host was planned".format(address))
        elif entry["driver"] not in (wanted["before"], card["driver"]):
            reasons.append("{} is on {} by now, not on {}".format(address, entry["driver"], wanted["before"]))
        elif entry["driver"] is None or entry["driver"] == card["driver"]:
            continue
        elif entry["holders"] is None:
            reasons.append("what uses {} could not be found out".format(address))
        else:
            reasons += ["{}: {}".format(address, holder) for holder in entry["holders"]]
    return reasons


def bind(bus: Bus, card: Dict[str, Any]) -> None:
    """Bind the functions of a card. On a failure, restore those that were already bound.

    If a write blocks in the kernel, nothing is restored: further writes could block too.

    :raises LiveError: when the card is in use, has changed, or was not bound.
    """
    reasons = against(card, collect(bus.root))
    if reasons:
        raise LiveError("it is in use or has changed, and is left alone: " + "; ".join(reasons))
    moved = []
    for function in card["functions"]:
        address = function["address"]
        if bus.driver(address) == card["driver"]:
            continue
        try:
            moved.append(address)
            bus.move(address, card["driver"])
        except LiveError as error:
            if "waits in the kernel" in str(error):
                raise
            for earlier in reversed(moved):
                bus.give_back(earlier)
            raise LiveError("{}. It was given back to its host driver".format(error)) from error
    for address in moved:
        bus.record(address, card["driver"])


def main() -> None:
    """Bind one card after another, and return the bound functions."""
    function = {
        "address": {"type": "str", "required": True},
        "before": {"type": "str"},
        "vendor": {"type": "str", "required": True},
        "product": {"type": "str", "required": True},
        "pci_class": {"type": "str", "required": True},
    }
    card = {
        "card": {"type": "str", "required": True},
        "driver": {"type": "str", "required": True},
        "why": {"type": "str"},
        "functions": {"type": "list", "elements": "dict", "required": True, "options": function},
    }
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "cards": {"type": "list", "elements": "dict", "required": True, "options": card},
            "command_prefix": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    bus = Bus(module)
    bound: List[str] = []
    for wanted in module.params["cards"]:
        try:
            if not module.check_mode:
                bus.load(wanted["driver"])
                bind(bus, wanted)
        except (LiveError, OSError) as error:
            module.fail_json(msg="{}: {}".format(wanted["card"], error), changed=bool(bound), bound=bound)
        bound += [entry["address"] for entry in wanted["functions"]]
    module.exit_json(changed=bool(bound), bound=bound)


if __name__ == "__main__":
    main()
