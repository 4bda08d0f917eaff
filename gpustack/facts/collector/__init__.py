"""Read everything that GPU passthrough depends on from one host, as plain data for JSON.

Standard library only, Python 3.6 or later, and relative imports: the same modules run on the controller, on a host as
one program (:mod:`gpustack.facts.bundle`), and there within an Ansible module.

It executes nothing and writes nothing. Another directory than ``/`` is read as if it were ``/`` (a mounted disk, a
copied tree); its symbolic links are resolved inside it, so nothing outside it is ever read.

What the result means:

* A scalar that could not be read, or that does not exist, is ``null``. A list or mapping is empty instead.
* Whatever exists but could not be read (no permission, input/output error, unexpected content, too large) is
  listed in ``unread``, with its path as seen from the root. A path that does not exist is no failure.
* A PCI function that goes away while it is read is left out, and noted in ``unread``.

Sources of the facts: ``Documentation/ABI/testing/sysfs-bus-pci``, ``sysfs-class-iommu`` and
``sysfs-kernel-iommu_groups`` of the Linux kernel for sysfs; the Boot Loader Specification for ``loader/entries``;
PCI Express Base Specification 7.9.3 for the Device Serial Number capability; UEFI 2.10, 3.3 for ``SecureBoot``.
"""

from .program import collect

__all__ = ["collect"]
