"""The spec: what an operator declares in ``gpustack.yaml``."""
