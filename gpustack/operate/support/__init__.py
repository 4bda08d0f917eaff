"""The bundle for a support request: what it contains, masked, and its archive."""
