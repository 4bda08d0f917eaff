"""Hand-made passthrough configuration: detect it, report it, and adopt it on request."""
