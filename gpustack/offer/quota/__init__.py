"""Quotas: the limits of a spec and those in Keystone, the operations to sync them, and what Nova enforces.

``desired`` and ``compare`` are pure.
"""
