"""GPU flavors: the desired flavors of a spec, the present flavors of Nova, and the operations to sync them.

``desired`` and ``compare`` are pure.
"""
