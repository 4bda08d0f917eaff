"""Hosts: the desired state for GPU passthrough, the plan to reach it, undo, and verification."""
