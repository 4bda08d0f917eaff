"""GPUs in service: who uses which GPU, read from Nova, Placement, the databases and snapshots of hosts."""
