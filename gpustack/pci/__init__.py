"""The ground floor: PCI addresses, functions, IOMMU groups, GPUs and the catalogue of known cards."""
