"""``python -m gpustack_demo.embedded.install 2025.2``: prepare an embedded cloud before its first use."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gpustack.base.errors import GpustackError
from gpustack_demo.embedded.environment import ensure
from gpustack_demo.embedded.releases import available, releases
from gpustack_demo.embedded.templates import ensure_templates


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m gpustack_demo.embedded.install [RELEASE …]``; default: all releases with an installed interpreter."""
    description = "Install what embedded clouds run on."
    parser = argparse.ArgumentParser(prog="python -m gpustack_demo.embedded.install", description=description)
    names = ", ".join(releases())
    parser.add_argument("release", nargs="*", help=f"one of {names} (default: all that fit this machine)")
    chosen = parser.parse_args(arguments).release or [entry.name for entry in available()]
    for name in chosen:
        try:
            environment = ensure(name, report=_report)
            ensure_templates(environment, report=_report)
        except GpustackError as error:
            _report(f"error: {error}")
            return error.exit_code
        print(environment.path)
    return 0


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
