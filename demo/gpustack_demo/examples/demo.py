"""``python -m gpustack_demo.examples.demo``: the complete path on example hosts, with the real commands.

Each command is printed, runs as a process of its own, and its result is checked: if a result differs, the demo ends
with exit code 1. Nothing outside the temporary directory is changed, and no root rights are needed: the hosts are
directories, and stand-ins replace update-grub, update-initramfs and the boot on them. The second half runs a real Nova,
which is installed from PyPI if it is missing. ``--full`` plays more, and explains more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote

from gpustack.base.errors import GpustackError
from gpustack_demo.examples import full_cloud, full_hosts, short
from gpustack_demo.examples.cloud import RELEASE, NotInstalledError, install
from gpustack_demo.examples.stage import Stage, Surprise

Chapter = Callable[[Stage], None]
SHORT: tuple[Sequence[Chapter], Sequence[Chapter]] = (short.HOSTS, short.CLOUD)
FULL: tuple[Sequence[Chapter], Sequence[Chapter]] = (full_hosts.CHAPTERS, full_cloud.CHAPTERS)
_WITHOUT_NOVA = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; answers its exit code."""
    parser = argparse.ArgumentParser(prog="gpustack_demo.examples.demo", description=main.__doc__)
    parser.add_argument("--full", action="store_true", help="play more, and explain more")
    options = parser.parse_args(arguments)
    with Stage(Path(tempfile.mkdtemp(prefix="gpustack-demo-"))) as stage:
        return _play(stage, *(FULL if options.full else SHORT))


def _play(stage: Stage, on_hosts: Sequence[Chapter], in_cloud: Sequence[Chapter]) -> int:
    print("Hosts are directories, with stand-ins for tools and boot. Nova is real, above a stand-in for libvirt.")
    print("The complete output of each command:", stage.log, flush=True)
    missing = _set_up(stage)
    began = time.monotonic()
    try:
        for number, chapter in enumerate([*on_hosts, *(() if missing else in_cloud)], start=1):
            stage.title(f"{number}. {chapter.__doc__}")
            chapter(stage)
    except (Surprise, GpustackError) as error:
        print(f"\nThe demo failed: {error}\nIts directory: {stage.directory}", file=sys.stderr)
        return 1
    if missing is not None:
        print(f"\nThe demo ends before Nova, which cannot be installed:\n{missing}", file=sys.stderr)
        return _WITHOUT_NOVA
    stage.title(f"Demo completed in {time.monotonic() - began:.0f} s: all checks passed. Next:")
    for line in _next(stage.directory):
        print(f"  {line}")
    return 0


def _set_up(stage: Stage) -> NotInstalledError | None:
    """Install Nova unless it is there; answers why it cannot be installed."""
    announced = False

    def report(text: str) -> None:
        nonlocal announced
        if not announced:
            print(f"Installing Nova {RELEASE} from PyPI: once, takes some minutes …", flush=True)
        announced = True
        stage.note(text)

    try:
        install(report)
    except NotInstalledError as error:
        return error
    return None


def _next(directory: Path) -> tuple[str, ...]:
    return (
        f"cd {quote(str(directory))}; PATH={quote(str(Path(sys.executable).parent))}:$PATH",
        "gpustack host undo gpu01 -i inventory.yaml --reboot       # restore the host",
        "gpustack scan HOST --sudo                                 # one of your own hosts; changes nothing",
        "gpustack report --out report --os-cloud CLOUD             # your own GPUs in service as a page with a map",
    )


if __name__ == "__main__":
    sys.exit(main())
