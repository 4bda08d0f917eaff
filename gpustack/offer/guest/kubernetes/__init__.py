"""Flavors as groups of Kubernetes nodes: labels, taints, capacity, drivers, in the forms of cluster tools."""
