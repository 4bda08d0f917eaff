"""PCI addresses, class codes, and the catalogue of cards."""
