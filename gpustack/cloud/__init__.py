"""The client of OpenStack's APIs."""
