#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module that runs one command that rebuilds an initramfs or a boot menu, and excludes concurrent runs by locks."""

from __future__ import annotations

DOCUMENTATION = """
---
module: gpustack_run
short_description: Run a command while no package manager and no other run of gpustack is at work
description:
  - Runs a command that remakes an initramfs image or a boot menu.
  - Two of them at the same time write to the same temporary file, and what becomes of it may not boot.
  - So it takes the locks of the package managers that are there, which remake them, too, and one of its own, which the
    command keeps when the connection breaks.
  - Brings what the command has written to its place in the file system, past the journal that no boot loader reads,
    where the file system can do that (ext4 since Linux 5.14).
  - Waits for who holds a lock, and fails with their names when they take too long.
options:
  argv:
    description: The command and its arguments; no shell sees them.
    type: list
    elements: str
    required: true
  root:
    description: The directory that holds the locks.
    type: path
    default: /
  menu:
    description:
      - The menu that the command is expected to write, as a plan predicts it (V(path), V(words), V(default), V(first)).
      - The command writes a new file then, with C(-o); it replaces the menu only if it is as expected.
    type: dict
  keep:
    description: Whether the new menu replaces the present one; without that, it is only compared.
    type: bool
    default: true
  wait:
    description: How long to wait for the locks, in seconds.
    type: int
    default: 300
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: none
  diff_mode:
    support: none
  platform:
    platforms: linux
author:
  - The gpustack authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Make GRUB's menu
  nova_gpustack.passthrough.gpustack_run:
    argv: [update-grub]
"""

RETURN = """
rc:
  description: How the command ended.
  returned: when it ran
  type: int
stdout:
  description: What it printed.
  returned: when it ran
  type: str
stderr:
  description: What it said of errors.
  returned: when it ran
  type: str
"""

import errno  # noqa: E402
import fcntl  # noqa: E402
import os  # noqa: E402
import stat  # noqa: E402
import struct  # noqa: E402
import time  # noqa: E402
from typing import Any, Callable, Dict, List, Optional, Tuple  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible_collections.nova_gpustack.passthrough.plugins.module_utils.gpustack_collector.menu import differences  # noqa: E402
from ansible_collections.nova_gpustack.passthrough.plugins.module_utils.gpustack_collector.reader import HostRoot  # noqa: E402

# The fcntl locks of apt, dpkg and rpm.
OF_PACKAGES = (
    "var/lib/dpkg/lock-frontend",
    "var/lib/dpkg/lock",
    "var/lib/rpm/.rpm.lock",
    "usr/lib/sysimage/rpm/.rpm.lock",
)
# An existing directory, which can be locked without creating a file.
OWN = "boot"
FLOCK = "hhqqi"  # struct flock
EXT4_IOC_CHECKPOINT = 0x4004662B  # _IOW('f', 43, __u32)


class HeldError(Exception):
    """Another process holds a lock."""


def take(path: str) -> int:
    """Take a package manager's lock and return its file descriptor.

    :raises HeldError: when another process holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _holder(descriptor)
        os.close(descriptor)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise HeldError("{} is locked by {}".format(path, holder)) from error
    return descriptor


def _holder(descriptor: int) -> str:
    query = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _whence, _start, _length, process = struct.unpack(FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, query))
    if kind == fcntl.F_UNLCK or process <= 0:
        return "another process"
    try:
        with open("/proc/{}/cmdline".format(process), "rb") as stream:
            arguments = stream.read().decode("utf-8", "replace").split("\0")
    except OSError:
        arguments = []
    return "process {} ({})".format(process, " ".join(arguments).strip()[:100])


def take_own(path: str) -> int:
    """Take gpustack's own lock and return its file descriptor.

    :raises HeldError: when another run's command holds it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise HeldError("a command of another run of gpustack is still at work on this host") from error
    return descriptor


def take_all(root: str, wait: float) -> int:
    """Take all locks and return the descriptor of the one that the command inherits; -1 without the directory /boot.

    :param wait: the time limit in seconds.
    :raises HeldError: when a lock is still held after that time.
    """
    end = time.monotonic() + wait
    for name in OF_PACKAGES:
        path = os.path.join(root, name)
        if os.path.isfile(path) and os.access(path, os.W_OK):
            patient(take, path, end)
    own_lock = os.path.join(root, OWN)
    return patient(take_own, own_lock, end) if os.path.isdir(own_lock) else -1


def patient(step: Callable[[str], int], path: str, end: float) -> int:
    """Repeat a step until it succeeds or the deadline has passed."""
    while True:
        try:
            return step(path)
        except HeldError:
            if time.monotonic() >= end:
                raise
        time.sleep(1)


def settle(path: str) -> None:
    """Write back the journal of a file system: GRUB ignores it, and would find the old files after a power failure."""
    os.sync()
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, EXT4_IOC_CHECKPOINT, struct.pack("I", 0))
    except OSError:
        pass  # not ext4, an older kernel, or no journal
    finally:
        os.close(descriptor)


NEW = ".gpustack"


class Menu:
    """The generation of a menu into a new file, which replaces the present menu only if it is as expected."""

    def __init__(self, root: str, expected: Dict[str, Any]) -> None:
        self.path = expected["path"]
        self.expected = expected
        self.root = os.path.realpath(root)
        self.directory = os.path.realpath(os.path.join(self.root, os.path.dirname(self.path).lstrip("/")))
        if os.path.commonpath([self.root, self.directory]) != self.root:
            raise ValueError("{} leads out of {}, to {}".format(self.path, self.root, self.directory))
        self.before = self._read(self.path)
        self.mode = 0o600 if self.before is None else stat.S_IMODE(os.stat(self._place(self.path)).st_mode)

    def argv(self, argv: List[str]) -> List[str]:
        """The command that writes the new file: a later ``-o`` of grub-mkconfig counts."""
        return [*argv, "-o", self.path + NEW]

    def finish(self, keep: bool) -> str:
        """Replace the menu if it is as expected; return why it is not, or an empty text."""
        if self._read(self.path) != self.before:
            self._write(self.before)
            return "the command changed {} itself; it is restored".format(self.path)
        if self._read(self.path + NEW) is None:
            return "the command wrote no {}{}".format(self.path, NEW)
        found = differences(HostRoot(self.root), self.path + NEW, self.expected)
        if found or not keep:
            self.forget()
            return "; ".join(found[:8])
        with open(self._place(self.path + NEW), "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(self._place(self.path + NEW), self._place(self.path))
        return ""

    def forget(self) -> None:
        """Remove the new file, and that of a generation that failed."""
        for name in (NEW, NEW + ".new"):
            if os.path.lexists(self._place(self.path + name)):
                os.unlink(self._place(self.path + name))

    def _place(self, path: str) -> str:
        return os.path.join(self.directory, os.path.basename(path))

    def _read(self, path: str) -> Optional[bytes]:
        try:
            with open(self._place(path), "rb") as stream:
                return stream.read()
        except OSError:
            return None

    def _write(self, content: Optional[bytes]) -> None:
        if content is not None:
            self.forget()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL  # never through a link
            with os.fdopen(os.open(self._place(self.path + NEW), flags, 0o600), "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fchmod(stream.fileno(), self.mode)  # a menu with a password is for root only
                os.fsync(stream.fileno())
            os.replace(self._place(self.path + NEW), self._place(self.path))


def run(module: AnsibleModule, descriptors: Optional[List[int]]) -> Tuple[int, str, str]:
    """Run the command, and prove the menu that it writes."""
    argv, expected = module.params["argv"], module.params["menu"]
    if not expected:
        code, out, err = module.run_command(argv, pass_fds=descriptors)
        return code, out, err
    try:
        menu = Menu(module.params["root"], expected)
    except ValueError as error:
        module.fail_json(msg=str(error))
    code, out, err = module.run_command(menu.argv(argv), pass_fds=descriptors)
    if code != 0:
        menu.forget()
        return code, out, err
    why = menu.finish(module.params["keep"])
    if why:
        text = "the new menu is not as predicted, and the present one stays: {}".format(why)
        module.fail_json(msg=text, rc=code, stdout=out, stderr=text)
    return code, out, err


def main() -> None:
    """Take the locks, run the command, and return its result."""
    module = AnsibleModule(
        argument_spec={
            "argv": {"type": "list", "elements": "str", "required": True},
            "root": {"type": "path", "default": "/"},
            "menu": {"type": "dict"},
            "keep": {"type": "bool", "default": True},
            "wait": {"type": "int", "default": 300},
        }
    )
    wait = module.params["wait"]
    try:
        own_lock = take_all(module.params["root"], wait)
    except HeldError as error:
        module.fail_json(msg="{}; waited {} s for that lock, and ran nothing".format(error, wait))
    except OSError as error:
        module.fail_json(msg="can't take a lock: {}".format(error))
    code, out, err = run(module, [own_lock] if own_lock >= 0 else None)
    if own_lock >= 0 and module.params["root"] == "/":  # another root is not booted right afterwards
        settle(os.path.join(module.params["root"], OWN))
    result = {"rc": code, "stdout": out, "stderr": err, "changed": module.params["keep"]}
    if code != 0:
        module.fail_json(msg="ended with code {}".format(code), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
