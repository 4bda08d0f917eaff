"""Stale rows of ``pci_devices``: finding them, proving that they are stale, repairing them with a way back."""
