"""Find stale rows of ``pci_devices``, prove that they are stale, and repair them reversibly."""
