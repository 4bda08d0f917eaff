"""Whether a host and its GPUs are ready for passthrough, and the reasons if they are not."""
