"""Code that runs with OpenStack's own code, on the Python of a release's virtual environment (3.9 and later).

``python …/inside DESCRIPTION.json`` is the only entry point (see ``__main__``). gpustack must not import this package
(except for types), and this package must not import gpustack.
"""
