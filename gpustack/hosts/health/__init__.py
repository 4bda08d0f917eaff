"""Signs of failing GPUs in the facts of a host, alone and against an earlier snapshot."""
