"""What the stand-ins say when a real machine would not go on, or when they don't know what it would do."""

from __future__ import annotations

from gpustack.errors import GpustackError


class StandInError(GpustackError):
    """A stand-in can't do what it is asked for."""
