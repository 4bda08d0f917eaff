"""Verification of the running host: it is ready for passthrough, or an undo has left nothing of gpustack."""
