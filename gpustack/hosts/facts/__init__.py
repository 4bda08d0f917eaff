"""Facts of hosts: the collector that reads them, their model, and snapshot files."""
