"""Read-only snapshots of hosts: the collector that makes them, their model, and where they come from."""
