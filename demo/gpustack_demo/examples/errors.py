"""The error of the stand-ins: a real machine would fail here, or its behaviour is unknown."""

from __future__ import annotations

from gpustack.base.errors import GpustackError


class StandInError(GpustackError):
    """A stand-in can't do the requested action."""
