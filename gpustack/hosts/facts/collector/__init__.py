"""Read the facts of one host that matter for GPU passthrough, as plain data for JSON.

Standard library only, Python 3.6 or later, relative imports only: the same modules run on the controller, on a host as
one program (:mod:`gpustack.hosts.facts.bundle`), and in an Ansible module.

The collector runs no programs and writes no files. The root can be another directory than ``/`` (a mounted disk, a
copied tree). Symbolic links are then resolved inside that root, so no file outside it is read.

The result:

* A scalar that does not exist or could not be read is ``null``; a list or mapping is empty.
* An existing path that could not be read (permission, I/O error, unexpected content, size) is listed in ``unread``,
  as seen from the root. A missing path is not an error.
* A PCI function that disappears during the collection is left out, and listed in ``unread``.

Sources of the facts: ``Documentation/ABI/testing/sysfs-bus-pci``, ``sysfs-class-iommu`` and
``sysfs-kernel-iommu_groups`` of the Linux kernel for sysfs; the Boot Loader Specification for ``loader/entries``;
PCI Express Base Specification 7.9.3 for the Device Serial Number capability; UEFI 2.10, 3.3 for ``SecureBoot``.
"""

from .program import collect

__all__ = ["collect"]
