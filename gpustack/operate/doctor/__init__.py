"""Check whether this machine is ready to run gpustack: missing prerequisites, and their remedies."""
