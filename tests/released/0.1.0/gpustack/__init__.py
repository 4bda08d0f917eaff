"""GPU PCI passthrough for OpenStack Nova, out of one declared spec."""

__version__ = "0.1.0"
