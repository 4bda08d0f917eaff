"""Passthrough that was set up before gpustack: detected, explained, and taken over on request."""
