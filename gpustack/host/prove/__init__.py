"""The proof on the running host: that it is ready, or that nothing of gpustack is left."""
