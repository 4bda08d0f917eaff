"""Hosts: what a host must become for its GPUs to be given to guests, the plan that leads there, and its proof."""
