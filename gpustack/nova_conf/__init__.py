"""Nova's configuration: which options a release reads, rendering them, and judging those that are there."""
