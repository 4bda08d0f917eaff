"""What a host is: its facts, its readiness, its topology, its health."""
