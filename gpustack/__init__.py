"""GPU PCI passthrough for OpenStack Nova, out of one declared spec."""

__version__ = "0.2.0.dev0"
