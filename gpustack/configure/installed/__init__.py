"""Check configurations with the Nova that is installed: on this machine, in a container, or on a host over SSH."""
