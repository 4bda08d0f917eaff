"""Helpers of the tests: example data, models and worlds."""
