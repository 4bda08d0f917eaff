"""A host's PCI topology: the tree of its GPUs and NICs, and the distances between them. Pure, from the host's facts."""
