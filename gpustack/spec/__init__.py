"""The spec (``gpustack.yaml``): models of GPUs, hosts, Nova's release and flavors."""
