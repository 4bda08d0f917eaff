"""What runs beside OpenStack's own code, by the Python of a release's virtual environment (3.9 and later).

Nothing here is imported by gpustack: ``python …/inside DESCRIPTION.json`` is the only way in (see ``__main__``), and
nothing here may import gpustack.
"""
