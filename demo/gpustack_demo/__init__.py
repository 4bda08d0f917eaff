"""Example hosts, and real OpenStack services on loopback, for the demo, the examples and the tests."""

__version__ = "0.2.0.dev0"
