#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module that reads a root file system as data, and returns the command that enters it in a sandbox."""

from __future__ import annotations

DOCUMENTATION = """
---
module: gpustack_image
short_description: Read the root file system of an image without running its programs
description:
  - Reads distribution and kernels as data. Links are resolved below the root, so they can't lead out of it.
  - Returns the arguments with which bubblewrap runs a program in the root. The program has own mounts, processes and
    IPC, a minimal C(/dev), no C(/sys), a read-only C(/proc), and only the capabilities that dpkg needs.
  - Changes nothing.
options:
  root:
    description: The directory of the root file system.
    type: path
    required: true
  policy:
    description: The file on the machine that replaces C(/usr/sbin/policy-rc.d), so that packages start no services.
    type: path
    required: true
attributes:
  check_mode:
    support: full
author:
  - The gpustack authors
"""

EXAMPLES = """
- name: Read the image
  gpustack_image:
    root: /mnt/image
    policy: /run/gpustack-policy-rc.d
"""

RETURN = """
system:
  description: The distribution with its version, for example C(Debian 13); empty if unknown.
  returned: success
  type: str
kernels:
  description: The releases of the kernels in C(/boot).
  returned: success
  type: list
  elements: str
enter:
  description: The beginning of a command that runs a program in the root; empty without bubblewrap.
  returned: success
  type: list
  elements: str
absent:
  description: Files that entering creates in the root, because something is mounted on them.
  returned: success
  type: list
  elements: str
"""

import os  # noqa: E402
import shlex  # noqa: E402
import stat  # noqa: E402
from typing import Dict, List  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402

# Of capabilities(7), those with which dpkg unpacks files and packages change to other users.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETFCAP", "SETGID", "SETUID")
MOUNTS = ("proc", "dev", "run")
PROXIES = ("http_proxy", "https_proxy", "no_proxy")
MOST_LINKS = 40
MOST_BYTES = 64 << 10


class ImageError(Exception):
    """The directory is not a root file system that can be used."""


def resolved(root: str, path: str) -> str:
    """A path below the root without links, as programs in the root resolve it; the result starts with ``/``.

    :raises ImageError: for too many links.
    """
    pending, parts, links = path.split("/")[::-1], [], 0  # type: ignore[var-annotated]
    while pending:
        part = pending.pop()
        if part in ("", "."):
            continue
        if part == "..":
            del parts[-1:]
            continue
        place = os.path.join(root, *parts, part)
        if os.path.islink(place):
            links += 1
            if links > MOST_LINKS:
                raise ImageError("{}: too many links".format(path))
            target = os.readlink(place)
            if target.startswith("/"):
                parts = []
            pending += target.split("/")[::-1]
            continue
        parts.append(part)
    return "/" + "/".join(parts)


def text(root: str, path: str) -> str:
    """The text of a regular file; empty without one."""
    place = root + resolved(root, path)
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return stream.read(MOST_BYTES).decode("utf-8", "replace")


def system(root: str) -> str:
    """The first word of the distribution's name, and its version (os-release(5))."""
    values = {}  # type: Dict[str, str]
    for line in (text(root, "/etc/os-release") or text(root, "/usr/lib/os-release")).splitlines():
        name, equals, value = line.partition("=")
        if equals:
            try:
                values[name] = " ".join(shlex.split(value))
            except ValueError:
                continue
    name, version = values.get("NAME", "").split(" ")[0], values.get("VERSION_ID", "")
    return "{} {}".format(name, version).strip()


def kernels(root: str) -> List[str]:
    """The releases of the kernels in /boot, which are regular files."""
    directory = root + resolved(root, "/boot")
    if not os.path.isdir(directory):
        return []
    prefix = "vmlinuz-"
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    return sorted(name[len(prefix) :] for name in names if name.startswith(prefix))


def enter(root: str, program: str, mounted: Dict[str, str]) -> List[str]:
    """The arguments of bubblewrap up to the program in the root.

    :param mounted: the files of the machine by their paths in the root, without links: bubblewrap follows those.
    """
    for name in MOUNTS:
        place = os.path.join(root, name)
        if os.path.islink(place) or not os.path.isdir(place):
            raise ImageError("/{} of the image is no directory".format(name))
    arguments = [program, "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--cap-drop", "ALL"]
    for name in CAPABILITIES:
        arguments += ["--cap-add", "CAP_" + name]
    arguments += ["--bind", root, "/", "--dev", "/dev", "--tmpfs", "/run"]
    # bubblewrap itself leaves /proc/sys writable for root, and with it settings of the machine's kernel.
    arguments += ["--proc", "/proc", "--remount-ro", "/proc"]
    for path, source in mounted.items():
        arguments += ["--ro-bind", source, path]
    values = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    values.update((name, os.environ[name]) for name in PROXIES if name in os.environ)
    arguments += ["--clearenv"]
    for name, value in values.items():
        arguments += ["--setenv", name, value]
    return [*arguments, "--chdir", "/", "--"]


def main() -> None:
    """Read the image and return what is in it."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "policy": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    root, policy = module.params["root"], module.params["policy"]
    is_root = os.path.isabs(root) and os.path.isdir(root) and not os.path.samefile(root, "/")
    found = kernels(root) if is_root else []
    if not found:
        module.fail_json(
            msg="{} has no kernel (boot/vmlinuz-*), or is not the absolute path of a root file system other than /. "
            "Mount the image there, or set gpustack_image_suite to make a root of Debian.".format(root)
        )
    program = module.get_bin_path("bwrap")
    if program is None and not module.check_mode:
        module.fail_json(
            msg="bubblewrap is not installed on this machine: install the package bubblewrap. Programs of the image "
            "run in its sandbox only."
        )
    try:
        places = {"/etc/resolv.conf": "/etc/resolv.conf", "/usr/sbin/policy-rc.d": policy}
        mounted = {resolved(root, path): source for path, source in places.items()}
        arguments = enter(root, program, mounted) if program else []
        distribution = system(root)
    except ImageError as error:
        module.fail_json(msg="{}: {}".format(root, error))
    absent = [path for path in mounted if not path.startswith("/run/") and not os.path.lexists(root + path)]
    module.exit_json(changed=False, system=distribution, kernels=found, enter=arguments, absent=absent)


if __name__ == "__main__":
    main()
