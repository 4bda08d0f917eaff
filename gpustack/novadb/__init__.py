"""Nova's databases, only read."""
