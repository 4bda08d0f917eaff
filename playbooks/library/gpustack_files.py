#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Writes and removes the files that a host plan names."""

from __future__ import annotations

DOCUMENTATION = """
---
module: gpustack_files
short_description: Write and remove the files that a host plan names
description:
  - Writes each file in one step, so that nobody ever sees half of one, and makes the directories that are missing.
  - All files of a host are done in one call, which can show its differences before it makes them.
  - Refuses to follow a symbolic link out of O(root).
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
  remove:
    description: Absolute paths of the files to remove, as seen from O(root).
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author:
  - The gpustack authors
"""

EXAMPLES = """
- name: Write a file
  gpustack_files:
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

import os  # noqa: E402
import stat  # noqa: E402
import tempfile  # noqa: E402
from typing import Optional, Tuple  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402


class Files:
    """The files below one root."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.root = os.path.realpath(module.params["root"])
        self.paths = []
        self.diffs = []

    def place(self, path: str) -> str:
        """Where a path lies on the disk; fails when a link on the way leads out of the root."""
        if not path.startswith("/") or ".." in path.split("/"):
            self.module.fail_json(msg="not an absolute path without '..': " + path)
        directory, name = os.path.split(os.path.join(self.root, path.lstrip("/")))
        real = os.path.realpath(directory)
        if os.path.commonpath([self.root, real]) != self.root:
            self.module.fail_json(msg="{} leads out of {}, to {}".format(path, self.root, real))
        return os.path.join(real, name)

    def write(self, path: str, content: str, mode: str) -> None:
        """Write one file, when it is not there as it should be."""
        place = self.place(path)
        before, after = self.current(place), (content, int(mode, 8))
        if before == after:
            return
        self.note(path, before, after)
        if self.module.check_mode:
            return
        directory = os.path.dirname(place)
        if not os.path.isdir(directory):
            os.makedirs(directory, mode=0o755)
        descriptor, temporary = tempfile.mkstemp(dir=self.module.tmpdir)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content.encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
        self.module.atomic_move(temporary, place)
        self.module.set_mode_if_different(place, after[1], True)

    def remove(self, path: str) -> None:
        """Remove one file, when it is there."""
        place = self.place(path)
        before = self.current(place)
        if before is None and not os.path.islink(place):
            return
        self.note(path, before, None)
        if not self.module.check_mode:
            os.unlink(place)

    @staticmethod
    def current(place: str) -> Optional[Tuple[str, int]]:
        """The content and mode of a file; None when there is no such file, or a link in its place."""
        if not os.path.lexists(place) or os.path.islink(place):
            return None
        with open(place, "rb") as stream:
            return stream.read().decode("utf-8", "replace"), stat.S_IMODE(os.fstat(stream.fileno()).st_mode)

    def note(self, path: str, before: Optional[Tuple[str, int]], after: Optional[Tuple[str, int]]) -> None:
        """Remember a change, for the answer and for ``--diff``; None stands for no file."""

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
    """Write, remove and answer."""
    entry = {
        "path": {"type": "str", "required": True},
        "content": {"type": "str", "required": True},
        "mode": {"type": "str", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "write": {"type": "list", "elements": "dict", "default": [], "options": entry},
            "remove": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    files = Files(module)
    try:
        for wanted in module.params["write"]:
            files.write(wanted["path"], wanted["content"], wanted["mode"])
        for path in module.params["remove"]:
            files.remove(path)
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error), changed=bool(files.paths), paths=files.paths)
    module.exit_json(changed=bool(files.paths), paths=files.paths, diff=files.diffs)


if __name__ == "__main__":
    main()
