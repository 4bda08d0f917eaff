"""The check that runs inside a guest: read its GPUs and its kernel's messages, and compare them with the flavor.

Standard library and the collector only, Python 3.6 or later: the same modules run on the operator's machine, and in a
guest as one program (:mod:`gpustack.offer.guest.bundle`). Nothing is written and no program is run.

The facts of a guest are plain data:

* ``gpus``: a list of functions, or ``None`` if unknown. ``driver`` is empty if no driver is bound, and ``None`` if
  unknown; ``modules`` are the installed modules that match; ``unplaced`` are the numbers of BARs without an address.
* ``events``: what the kernel's messages report (:mod:`.messages`).
* ``complete``: whether the messages reach back to the start of the kernel.
* ``drm``: whether the kernel has DRM, ``None`` if unknown.
"""
