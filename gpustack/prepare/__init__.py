"""Prepare hosts for GPU passthrough."""
