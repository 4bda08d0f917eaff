"""``python -m gpustack.embedded.install 2025.2``: what an embedded cloud runs on, made ahead of its first use."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gpustack.embedded.environment import ensure
from gpustack.embedded.releases import available, releases
from gpustack.embedded.templates import ensure_templates
from gpustack.errors import GpustackError


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m gpustack.embedded.install [RELEASE …]``; without a release: those with an interpreter here."""
    what = "Install what embedded clouds run on."
    parser = argparse.ArgumentParser(prog="python -m gpustack.embedded.install", description=what)
    names = ", ".join(releases())
    parser.add_argument("release", nargs="*", help=f"one of {names} (default: all that fit this machine)")
    chosen = parser.parse_args(arguments).release or [entry.name for entry in available()]
    for name in chosen:
        try:
            environment = ensure(name, say=_say)
            ensure_templates(environment, say=_say)
        except GpustackError as error:
            _say(f"error: {error}")
            return error.exit_code
        print(environment.path)
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
