#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module that writes and removes the files of a host plan."""

from __future__ import annotations

DOCUMENTATION = """
---
module: gpustack_files
short_description: Write and remove the files that a host plan names
description:
  - Writes each file in one step, so that nobody ever sees half of one, and makes the directories that are missing.
  - All files of a host are done in one call, which can show its differences before it makes them.
  - Refuses to follow a symbolic link out of O(root).
  - Writes nothing at all if one of the files is on a file system that is mounted read-only.
options:
  root:
    description: The directory that the paths start from.
    type: path
    default: /
  write:
    description: The files to write.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path, as seen from O(root).
        type: str
        required: true
      content:
        description: The whole content.
        type: str
        required: true
      mode:
        description: Permission bits, for example V(0644).
        type: str
        required: true
      expected:
        description:
          - The SHA-256 of what must be there now, for a file that is somebody else's; empty when there must be none.
          - When something else is there, nothing at all is written.
        type: str
  remove:
    description: Absolute paths of the files to remove, as seen from O(root).
    type: list
    elements: str
    default: []
  tidy:
    description:
      - Whether to remove, after everything else, the directories that this module has made and that are empty now.
      - They are kept in C(/var/lib/gpustack/directories) below O(root), which goes with them.
    type: bool
    default: false
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  platform:
    platforms: linux
author:
  - The gpustack authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Write a file
  nova_gpustack.passthrough.gpustack_files:
    write:
      - path: /etc/modules-load.d/gpustack.conf
        content: "vfio-pci\\n"
        mode: "0644"
"""

RETURN = """
paths:
  description: The paths that were written or removed, or would be.
  returned: always
  type: list
  elements: str
"""

import errno  # noqa: E402
import hashlib  # noqa: E402
import os  # noqa: E402
import stat  # noqa: E402
import tempfile  # noqa: E402
from typing import Dict, List, Optional, Tuple  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402

OWN = "/var/lib/gpustack"
AGAIN = ", and run the playbook again: it does what is left. The host boots as before"
REMEDIES = {
    errno.EROFS: "mount that file system writable (the kernel's log tells why it is not)" + AGAIN,
    errno.ENOSPC: "the disk is full: make room (df -h)" + AGAIN,
    errno.EDQUOT: "a quota is used up: make room" + AGAIN,
    errno.EIO: "the disk fails: see the kernel's log before anything else is written",
    errno.EPERM: "that file can't be changed: it may be immutable (lsattr), or the mount does not allow it" + AGAIN,
}
MADE = OWN + "/directories"


class Module(AnsibleModule):
    """A module that adds remedies to its failures."""

    def fail_json(self, msg: str, **result: object) -> None:
        """Fail, with the remedies for system errors that the message contains."""
        remedies = [remedy for number, remedy in REMEDIES.items() if os.strerror(number) in msg]
        super().fail_json(msg="; ".join([msg, *remedies]), **result)


class Files:
    """The files below one root."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.root = os.path.realpath(module.params["root"])
        self.paths: List[str] = []
        self.diffs: List[Dict[str, str]] = []

    def place(self, path: str) -> str:
        """The real path of a file; fails if a symbolic link leads out of the root."""
        if not path.startswith("/") or ".." in path.split("/"):
            self.module.fail_json(msg="not an absolute path without '..': " + path)
        directory, name = os.path.split(os.path.join(self.root, path.lstrip("/")))
        real = os.path.realpath(directory)
        if os.path.commonpath([self.root, real]) != self.root:
            self.module.fail_json(msg="{} leads out of {}, to {}".format(path, self.root, real))
        return os.path.join(real, name)

    def expect(self, path: str, expected: Optional[str]) -> None:
        """Check that a file is unchanged since the plan was made.

        :param expected: the SHA-256 of its content; empty for no file, None to skip the check.
        :raises ValueError: when the file differs or is a symbolic link.
        """
        if expected is None:
            return
        target = self.place(path)
        checksum = ""
        if os.path.lexists(target):
            if os.path.islink(target):
                raise ValueError(path + " is a link: put what it names in its place, or change that file by hand")
            with open(target, "rb") as stream:
                checksum = hashlib.sha256(stream.read()).hexdigest()
        if checksum != expected:
            raise ValueError(path + " has changed since it was read: nothing was written; run the playbook again")

    def see_writable(self, path: str, wanted: Optional[Tuple[str, int]]) -> None:
        """Check that a file to change is on no read-only file system, before the first file is written.

        :param wanted: its content and mode; None to remove it.
        :raises OSError: when it is.
        """
        target = self.place(path)
        if self.current(target) == wanted and not os.path.islink(target):
            return
        while not os.path.isdir(target):
            target = os.path.dirname(target)
        if os.statvfs(target).f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), target)

    def write(self, path: str, content: str, mode: str) -> None:
        """Write one file, unless content and mode are already correct."""
        target = self.place(path)
        before, after = self.current(target), (content, int(mode, 8))
        if before == after:
            return
        self.note(path, before, after)
        if self.module.check_mode:
            return
        directory = os.path.dirname(target)
        self.make(directory)
        descriptor, temporary = tempfile.mkstemp(dir=self.module.tmpdir)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content.encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
        self.module.atomic_move(temporary, target)
        self.module.set_mode_if_different(target, after[1], True)

    def remove(self, path: str) -> None:
        """Remove one file if it exists."""
        target = self.place(path)
        before = self.current(target)
        if before is None and not os.path.islink(target):
            return
        self.note(path, before, None)
        if not self.module.check_mode:
            os.unlink(target)

    def make(self, directory: str) -> None:
        """Create a directory and its missing parents. All of them are recorded first, for :meth:`tidy`."""
        missing: List[str] = []
        while not os.path.isdir(directory):
            missing.insert(0, directory)
            directory = os.path.dirname(directory)
        own_directory = self.place(OWN)
        foreign = [path for path in missing if path != own_directory]
        if foreign:
            os.makedirs(own_directory, mode=0o755, exist_ok=True)
            # A symbolic link as record could lead out of the root.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            with os.fdopen(os.open(self.place(MADE), flags, 0o644), "a", encoding="utf-8") as stream:
                stream.write("".join("/{}\n".format(os.path.relpath(path, self.root)) for path in foreign))
                stream.flush()
                os.fsync(stream.fileno())
        for path in missing:
            os.makedirs(path, mode=0o755, exist_ok=True)
            os.chmod(path, 0o755)  # noqa: S103  (the umask would keep Nova's user from a drop-in)

    def tidy(self) -> None:
        """Remove the recorded directories that are empty, then the record."""
        record = self.place(MADE)
        own_directory = self.place(OWN)
        if self.module.check_mode or not os.path.isdir(own_directory):
            return
        if os.path.isfile(record) and not os.path.islink(record):
            with open(record, encoding="utf-8") as stream:
                paths = stream.read().splitlines()
            for path in sorted(paths, key=len, reverse=True):
                self.remove_empty(self.place(path))
            os.unlink(record)
        self.remove_empty(own_directory)

    @staticmethod
    def remove_empty(place: str) -> None:
        """Remove a directory if it is empty."""
        if os.path.isdir(place) and not os.path.islink(place) and not os.listdir(place):
            os.rmdir(place)

    @staticmethod
    def current(place: str) -> Optional[Tuple[str, int]]:
        """The content and mode of a file; None if it does not exist or is a symbolic link."""
        if not os.path.lexists(place) or os.path.islink(place):
            return None
        with open(place, "rb") as stream:
            return stream.read().decode("utf-8", "replace"), stat.S_IMODE(os.fstat(stream.fileno()).st_mode)

    def note(self, path: str, before: Optional[Tuple[str, int]], after: Optional[Tuple[str, int]]) -> None:
        """Record a change for the result and ``--diff``; None means no file."""

        def header(state: Optional[Tuple[str, int]]) -> str:
            return "/dev/null" if state is None else "{} (mode {:04o})".format(path, state[1])

        self.paths.append(path)
        self.diffs.append(
            {
                "before": before[0] if before else "",
                "after": after[0] if after else "",
                "before_header": header(before),
                "after_header": header(after),
            }
        )


def main() -> None:
    """Write and remove files, and return the result."""
    entry = {
        "path": {"type": "str", "required": True},
        "content": {"type": "str", "required": True},
        "mode": {"type": "str", "required": True},
        "expected": {"type": "str"},
    }
    module = Module(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "write": {"type": "list", "elements": "dict", "default": [], "options": entry},
            "remove": {"type": "list", "elements": "str", "default": []},
            "tidy": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    files = Files(module)
    try:
        for wanted in module.params["write"]:
            files.expect(wanted["path"], wanted["expected"])
        for wanted in module.params["write"]:
            files.see_writable(wanted["path"], (wanted["content"], int(wanted["mode"], 8)))
        for path in module.params["remove"]:
            files.see_writable(path, None)
        for wanted in module.params["write"]:
            files.write(wanted["path"], wanted["content"], wanted["mode"])
        for path in module.params["remove"]:
            files.remove(path)
        if module.params["tidy"]:
            files.tidy()
    except Exception as error:  # atomic_move of ansible-core 2.19 raises a plain Exception
        cause = error.__cause__
        if not isinstance(cause or error, (OSError, ValueError)):
            raise
        message = str(error) if cause is None else "{} {}".format(error, cause)
        module.fail_json(msg=message, changed=bool(files.paths), paths=files.paths)
    module.exit_json(changed=bool(files.paths), paths=files.paths, diff=files.diffs)


if __name__ == "__main__":
    main()
