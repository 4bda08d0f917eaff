"""A GPU out of service, and back: no new instance gets it, and no instance that has it is touched."""
