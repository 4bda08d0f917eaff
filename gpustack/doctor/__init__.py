"""Whether this machine is ready to run gpustack: what a command would miss, and the remedy."""
