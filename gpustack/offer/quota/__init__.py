"""Quotas: the limits of a spec and those in Keystone, the operations to sync them, and what Nova enforces.

``desired``, ``compare`` and ``enforcement`` are pure; ``cloud`` is the API of Keystone and Placement, and ``apply``
carries operations out.
"""
