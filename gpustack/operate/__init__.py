"""GPUs in service: capacity, state, reclaim, report."""
