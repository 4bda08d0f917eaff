#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module that reads a root file system as data, and runs programs of it in a sandbox."""

from __future__ import annotations

DOCUMENTATION = """
---
module: gpustack_image
short_description: Read the root file system of an image, or run one of its programs in a sandbox
description:
  - Reads distribution and kernels as data. Links are resolved below the root, so they can't lead out of it.
  - With O(argv), bubblewrap runs a program of the root. The program has own mounts, processes and IPC, a minimal
    C(/dev), no C(/sys), a read-only C(/proc), and only the capabilities that dpkg needs. All its processes end with
    it, so that links can't change between the checks and the next program.
options:
  root:
    description: The directory of the root file system.
    type: path
    required: true
  policy:
    description: The file on the machine that replaces C(/usr/sbin/policy-rc.d), so that packages start no services.
    type: path
    required: true
  argv:
    description: The program to run, with its arguments. In check mode it does not run.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: partial
    details: The image is read, but none of its programs runs.
  diff_mode:
    support: none
  platform:
    platforms: linux
author:
  - The gpustack authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Read the image
  nova_gpustack.passthrough.gpustack_image:
    root: /mnt/image
    policy: /run/gpustack-policy-rc.d

- name: Read its package lists
  nova_gpustack.passthrough.gpustack_image:
    root: /mnt/image
    policy: /run/gpustack-policy-rc.d
    argv: [apt-get, update]
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
rc:
  description: The exit status of the program.
  returned: with O(argv)
  type: int
stdout:
  description: The end of the program's output.
  returned: with O(argv)
  type: str
stderr:
  description: The end of the program's error output.
  returned: with O(argv)
  type: str
"""

import os  # noqa: E402
import platform  # noqa: E402
import select  # noqa: E402
import shlex  # noqa: E402
import stat  # noqa: E402
import struct  # noqa: E402
import subprocess  # noqa: E402
import threading  # noqa: E402
from typing import IO, Dict, List, Tuple  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402

# Of capabilities(7), those with which dpkg unpacks files and packages change to other users.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETFCAP", "SETGID", "SETUID")
# Of audit.h and unistd.h: the architecture, and its system calls for keys, which no namespace of the sandbox hides, and
# to control other processes, with which a program can stop the sandbox's first one: keyctl is the first.
CALLS = {
    "x86_64": (0xC000003E, (250, 248, 249, 101, 310, 311, 438)),
    "aarch64": (0xC00000B7, (219, 217, 218, 117, 270, 271, 438)),
}
MOUNTS = ("proc", "dev", "run")
PROXIES = ("http_proxy", "https_proxy", "no_proxy")
MOST_LINKS = 40
MOST_BYTES = 64 << 10
MOST_OUTPUT = 4 << 20
VALUES = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}


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
    values = dict(VALUES)
    values.update((name, os.environ[name]) for name in PROXIES if name in os.environ)
    arguments += ["--clearenv"]
    for name, value in values.items():
        arguments += ["--setenv", name, value]
    return [*arguments, "--chdir", "/", "--"]


def without_calls(machine: str) -> bytes:
    """A seccomp filter (seccomp(2)) without ``CALLS`` and those of other ABIs; empty if unknown."""
    if machine not in CALLS:
        return b""
    architecture, calls = CALLS[machine]
    load, equal, from_on, answer, last = 0x20, 0x15, 0x35, 0x06, len(calls)
    program = [(load, 0, 0, 4), (equal, 0, last + 3, architecture), (load, 0, 0, 0), (from_on, last + 1, 0, 1 << 30)]
    program += [(equal, last - number, 0, call) for number, call in enumerate(calls)]
    program += [(answer, 0, 0, 0x7FFF0000), (answer, 0, 0, 0x00050000 | 38)]  # allowed; ENOSYS
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def ended(stream: IO[bytes], kept: List[bytes]) -> None:
    """Read a stream up to its end, and keep the last bytes: a program of the image may write without end."""
    text = b""
    while True:
        piece = stream.read1(MOST_BYTES)  # type: ignore[attr-defined]
        if not piece:
            kept.append(text)
            return
        text = (text + piece)[-MOST_OUTPUT:]


def abandoned(process: "subprocess.Popen[bytes]") -> None:
    """End a program when nobody reads this module's answer: Ansible was killed, or the connection is lost."""
    reader = select.poll()
    reader.register(1, 0)  # only that the other end closed
    reader.poll()
    process.kill()


def run(argv: List[str], descriptors: Tuple[int, ...] = ()) -> Tuple[int, str, str]:
    """Run a command; return its exit status, and the ends of its output and of its error output."""
    output, error = [], []  # type: List[bytes], List[bytes]
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=descriptors
    ) as process:
        other = threading.Thread(target=ended, args=(process.stderr, error))
        other.start()
        threading.Thread(target=abandoned, args=(process,), daemon=True).start()
        ended(process.stdout, output)  # type: ignore[arg-type]
        other.join()
    texts = [b"".join(pieces).decode("utf-8", "replace") for pieces in (output, error)]
    return process.returncode, texts[0], texts[1]


def entered(root: str, program: str, policy: str, argv: List[str]) -> Tuple[int, str, str]:
    """Run a program of the image in the sandbox, and remove the empty files on which the machine's were mounted."""
    places = {"/etc/resolv.conf": "/etc/resolv.conf", "/usr/sbin/policy-rc.d": policy}
    mounted = {resolved(root, path): source for path, source in places.items()}
    absent = [path for path in mounted if not os.path.lexists(root + path)]
    bubblewrap = enter(root, program, mounted)
    reading, writing = os.pipe()
    try:
        calls = without_calls(platform.machine())
        os.write(writing, calls)
        os.close(writing)
        bubblewrap[1:1] = ["--seccomp", str(reading)] if calls else []
        return run([*bubblewrap, *argv], (reading,))
    finally:
        os.close(reading)
        for path in absent:
            place = root + path
            if resolved(root, path) == path and os.path.isfile(place) and not os.path.getsize(place):
                os.unlink(place)


def main() -> None:
    """Read the image and return what is in it, or run a program."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "policy": {"type": "path", "required": True},
            "argv": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    root, argv = module.params["root"], module.params["argv"]
    if argv and module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="no program of the image runs with --check")
    is_root = os.path.isabs(root) and os.path.isdir(root) and not os.path.samefile(root, "/")
    try:
        found = kernels(root) if is_root else []
    except (ImageError, OSError) as reason:
        module.fail_json(msg="{}: {}".format(root, reason))
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
        if not argv:
            module.exit_json(changed=False, system=system(root), kernels=found)
        code, output, error = entered(root, program, module.params["policy"], argv)
    except (ImageError, OSError) as reason:
        module.fail_json(msg="{}: {}".format(root, reason))
    output = output.rstrip("\n")
    answer = {"changed": True, "rc": code, "stdout": output, "stderr": error, "cmd": argv}
    if code:
        module.fail_json(msg="{} ended with exit status {}".format(argv[0], code), **answer)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
