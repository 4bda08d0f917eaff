"""``python -m gpustack_demo.examples.standin --root DIR COMMAND ARGS…``: play a command on an example host.

The commands are ``update-grub``, ``update-initramfs``, ``dracut``, ``grubby``, ``kernel-install``, ``modprobe``,
``mv``, ``reboot``, and those of a trial boot. They replace the distribution's tools and the kernel, which can't run in
a directory; they read and write the real files in their real formats.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpustack.base.errors import GpustackError
from gpustack_demo.examples.boot import boot
from gpustack_demo.examples.dracut import dracut
from gpustack_demo.examples.grub import environment, update_grub, write_environment
from gpustack_demo.examples.initramfs import update_initramfs
from gpustack_demo.examples.live import modprobe
from gpustack_demo.examples.redhat import grubby
from gpustack_demo.examples.systemd_boot import kernel_install


def main(argv: list[str] | None = None) -> int:
    """Play one command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="gpustack_demo.examples.standin", description="play a command on an example host"
    )
    parser.add_argument("--root", type=Path, required=True, help="the directory of the example host")
    parser.add_argument("command", help="update-grub, update-initramfs, dracut, grubby, modprobe, mv or reboot")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    command = Path(options.command).name
    try:
        outcome = _play(options.root.resolve(), command, options.arguments)
    except (GpustackError, OSError) as error:
        print(f"stand-in for {command}: {error}", file=sys.stderr)
        return 1
    print(f"stand-in for {command}: {outcome}")
    return 0


def _play(root: Path, command: str, arguments: list[str]) -> str:
    if command == "update-initramfs":
        return update_initramfs(root, arguments)
    if command == "update-grub" and (not arguments or (len(arguments) == 2 and arguments[0] == "-o")):
        return update_grub(root, *arguments[1:])
    if command == "modprobe" and arguments:
        return modprobe(root, arguments)
    if command == "dracut":
        return dracut(root, arguments)
    if command == "grubby":
        return grubby(root, arguments)
    if command == "kernel-install":
        return kernel_install(root, arguments)
    if command == "mv" and len(arguments) == 3 and arguments[0] == "--force":
        _, source, target = arguments
        (root / source.lstrip("/")).replace(root / target.lstrip("/"))
        return f"{source} is {target} now"
    if command == "reboot" and not arguments:
        return boot(root)
    if command == "grub-reboot" and len(arguments) == 1:
        write_environment(root, {**environment(root), "next_entry": arguments[0]})
        return f"{arguments[0]} is booted next, once"
    if command == "grub-editenv" and len(arguments) == 3 and arguments[:2] == ["-", "unset"]:
        write_environment(root, {name: value for name, value in environment(root).items() if name != arguments[2]})
        return f"{arguments[2]} is not set"
    if command == "systemctl" and arguments[:1] == ["stop"] and len(arguments) == 2:
        return f"{arguments[1]} is stopped"
    raise GpustackError(f"no stand-in for {' '.join([command, *arguments])!r}")


if __name__ == "__main__":
    sys.exit(main())
