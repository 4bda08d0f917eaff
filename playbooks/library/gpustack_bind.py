#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module that binds PCI functions to another driver on the running host, if nothing uses them."""

from __future__ import annotations

DOCUMENTATION = """
---
module: gpustack_bind
short_description: Bind PCI functions to another driver on the running host
description:
  - Takes each card from its host driver and gives it to another one, by C(driver_override) in sysfs.
  - Looks right before what uses a card. One that is in use is left alone, and the module fails and names the user.
  - Each write that could wait in the kernel is done by a process of its own, so the module answers even when that
    one never returns.
  - When a step fails, the module restores the earlier driver and C(driver_override) of each function of that card, in
    reverse order. It reports the functions that it could not restore.
  - When a write blocks in the kernel, the module writes nothing more, since further writes could block too.
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
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  platform:
    platforms: linux
author:
  - The gpustack authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Bind a card
  nova_gpustack.passthrough.gpustack_bind:
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
restored:
  description: The addresses of the functions of the failed card that have their earlier driver and C(driver_override).
  returned: when a card was not bound
  type: list
  elements: str
not_restored:
  description: The addresses of the functions of the failed card that could not be restored.
  returned: when a card was not bound
  type: list
  elements: str
"""

import errno  # noqa: E402
import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from typing import Any, Dict, List, NamedTuple, Optional, Sequence  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible_collections.nova_gpustack.passthrough.plugins.module_utils.gpustack_collector import collect  # noqa: E402

RECORD = "run/gpustack/devices"
WRITE = "import os, sys; os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC), sys.argv[2].encode())"


class LiveError(Exception):
    """A card was not bound; the message is the reason.

    :ivar restored: the addresses of the functions that were rolled back.
    :ivar not_restored: the addresses of the functions that could not be rolled back.
    """

    def __init__(self, message: str, restored: Sequence[str] = (), not_restored: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.restored = list(restored)
        self.not_restored = list(not_restored)


class BlockedError(LiveError):
    """A write has not returned: further writes could block too."""


class State(NamedTuple):
    """The binding of a function; None for no driver and for no ``driver_override``."""

    address: str
    driver: Optional[str]
    override: Optional[str]


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

    def state(self, address: str) -> State:
        """The current binding of a function."""
        with open(self.device(address, "driver_override"), encoding="utf-8") as stream:
            override = stream.read().strip()
        # The kernel prints a missing override as "(null)".
        return State(address, self.driver(address), None if override in ("", "(null)") else override)

    def write(self, path: str, text: str, action: str) -> None:
        """Write to a file of sysfs in a separate process, since the write may block in the kernel indefinitely.

        :param action: the action, for messages.
        :raises BlockedError: when the write does not return in time.
        :raises LiveError: when the kernel refuses the write.
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
            raise BlockedError(
                "{} has not returned after {} s: process {} waits in the kernel. See journalctl -k".format(
                    action, self.timeout, child.pid
                )
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

        :raises LiveError: when modprobe fails, or the driver is still missing.
        :raises OSError: when modprobe can't be started.
        """
        directory = os.path.join(self.bus, "drivers", driver)
        if not os.path.isdir(directory):
            command = self.module.params["command_prefix"] + ["modprobe", driver]
            code, out, err = self.module.run_command(command, handle_exceptions=False)
            if code != 0:
                raise LiveError("modprobe {} failed (exit code {}): {}".format(driver, code, (err or out).strip()))
        if not os.path.isdir(directory):
            raise LiveError("modprobe {} succeeded, and there is no such driver".format(driver))

    def move(self, address: str, driver: Optional[str]) -> None:
        """Unbind a function from its driver, and bind it to another; None: leave it without a driver.

        :raises LiveError: when a step fails, or the function has another driver after the timeout.
        """
        if driver is not None:
            self.write(self.device(address, "driver_override"), driver + "\n", "setting driver_override of " + address)
        current = self.driver(address)
        if current not in (None, driver):
            action = "taking {} from {}".format(address, current)
            self.write(os.path.join(self.bus, "drivers", current, "unbind"), address, action)
            if not self.wait(address, None):
                raise LiveError("{}: the driver still has it after {} s".format(action, self.timeout))
        if driver is not None and self.driver(address) is None:
            self.write(os.path.join(self.bus, "drivers_probe"), address, "giving {} to {}".format(address, driver))
        if not self.wait(address, driver):
            raise LiveError("{} did not take {}: see journalctl -k".format(driver, address))

    def restore(self, earlier: State) -> None:
        """Restore the driver of a function, and its ``driver_override`` even if the driver can't be restored.

        :raises LiveError: when a step fails; after one that blocks, nothing more is written.
        """
        try:
            if self.driver(earlier.address) != earlier.driver:
                self.move(earlier.address, earlier.driver)
        except BlockedError:
            raise
        except (LiveError, OSError):
            self.restore_override(earlier)
            raise
        self.restore_override(earlier)

    def restore_override(self, earlier: State) -> None:
        """Restore the ``driver_override`` of a function; an empty line removes it."""
        if self.state(earlier.address).override != earlier.override:
            path = self.device(earlier.address, "driver_override")
            self.write(path, (earlier.override or "") + "\n", "restoring driver_override of " + earlier.address)

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
    """Bind the functions of a card. On a failure, restore those that were already moved.

    :raises LiveError: when the card is in use, has changed, or was not bound.
    """
    reasons = against(card, collect(bus.root))
    if reasons:
        raise LiveError("it is in use or has changed, and is left alone: " + "; ".join(reasons))
    moved: List[State] = []
    try:
        for function in card["functions"]:
            earlier = bus.state(function["address"])
            if earlier.driver == card["driver"]:
                continue
            # First the record: undo must know the function even if this run ends in the middle.
            bus.record(earlier.address, card["driver"])
            moved.append(earlier)
            bus.move(earlier.address, card["driver"])
    except (LiveError, OSError) as error:
        raise roll_back(bus, moved, error) from error


def roll_back(bus: Bus, moved: List[State], cause: Exception) -> LiveError:
    """Restore functions, the last one first, and describe the result.

    If a write blocks in the kernel, no further function is restored: further writes could block too.
    """
    is_blocked = isinstance(cause, BlockedError)
    restored: List[str] = []
    failures: Dict[str, str] = {}
    for earlier in reversed(moved):
        reason = "not attempted, since a write blocks in the kernel"
        if not is_blocked:
            try:
                bus.restore(earlier)
                restored.append(earlier.address)
                continue
            except (LiveError, OSError) as error:
                is_blocked = isinstance(error, BlockedError)
                reason = str(error)
        failures[earlier.address] = "(expected driver {}, driver_override {}): {}".format(
            earlier.driver or "none", earlier.override or "none", reason
        )
    sentences = [str(cause)]
    if restored:
        sentences.append("Restored: " + ", ".join(restored))
    if failures:
        sentences.append("Not restored: " + "; ".join("{} {}".format(*failure) for failure in failures.items()))
        sentences.append("Reboot the host: a boot removes each driver_override and binds the card as planned")
    else:
        sentences.append("Fix the cause and run the playbook again, or reboot the host to bind the card")
    return LiveError(". ".join(sentences), restored, list(failures))


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
            failure = error if isinstance(error, LiveError) else LiveError(str(error))
            module.fail_json(
                msg="{}: {}".format(wanted["card"], failure),
                changed=bool(bound or failure.not_restored),
                bound=bound,
                restored=failure.restored,
                not_restored=failure.not_restored,
            )
        bound += [entry["address"] for entry in wanted["functions"]]
    module.exit_json(changed=bool(bound), bound=bound)


if __name__ == "__main__":
    main()
