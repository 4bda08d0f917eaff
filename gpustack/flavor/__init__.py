"""GPU flavors: what a spec wants of them, what Nova has, and the operations that lead from one to the other.

``wanted`` and ``compare`` are pure; ``cloud`` talks to the compute API, ``apply`` carries operations out.
"""
